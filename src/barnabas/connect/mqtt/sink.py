"""Records as messages of MQTT. A record counts as stored when the broker has acknowledged its message."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.connect.connectors import SinkConnector, SinkContext
from barnabas.connect.errors import DataError, OptionError
from barnabas.connect.mqtt.kcql import Route, parse
from barnabas.connect.mqtt.link import Link, Login
from barnabas.connect.mqtt.options import CONFLUENT_SINK, LENSES, confluent_login, lenses_login, path_in
from barnabas.connect.options import Config
from barnabas.connect.records import SinkRecord

KCQL: Final = "connect.mqtt.kcql"


def payload(value: Any) -> bytes:
    """A value as a message: bytes and texts as they are, everything else as JSON. Raises DataError."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    try:
        return json.dumps(value, default=_as_json, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise DataError(f"the value cannot be written as JSON: {error}") from error


def _as_json(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode("utf-8", "replace")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


class MqttWriter(SinkConnector):
    """What both sinks share."""

    def login(self) -> Login:
        """How the broker is reached."""
        raise NotImplementedError

    def messages(self, record: SinkRecord) -> list[tuple[str, bytes, int, bool]]:
        """Topic, payload, quality of service and whether it is retained. Raises DataError."""
        raise NotImplementedError

    def start(self, config: Config, context: SinkContext) -> None:
        """See SinkConnector."""
        super().start(config, context)
        self._link: Link | None = None

    def put(self, records: Sequence[SinkRecord]) -> None:
        """See SinkConnector."""
        if not records:
            return
        if self._link is None:
            self._link = Link(self.login())
        self._link.connect()
        sent = []
        for record in records:
            try:
                for message in self.messages(record):
                    if not message[0] or "+" in message[0] or "#" in message[0]:
                        raise DataError(f"{message[0]!r} is not a topic of MQTT to publish to")
                    sent.append(message)
            except DataError as error:
                self.context.report(record, error)
        self._link.publish(sent)

    def stop(self) -> None:
        """See SinkConnector."""
        if getattr(self, "_link", None) is not None:
            assert self._link is not None
            self._link.close()


class LensesMqttSink(MqttWriter):
    """Lenses' MQTT sink: routes in KCQL."""

    doc = "Records as messages of MQTT, by KCQL."
    aliases = (
        "io.lenses.streamreactor.connect.mqtt.sink.MqttSinkConnector",
        "com.datamountaineer.streamreactor.connect.mqtt.sink.MqttSinkConnector",
    )
    options = LENSES

    @classmethod
    def check(cls, config: Config) -> Mapping[str, str]:
        """See Connector."""
        try:
            lenses_login(config, "check")
            parse(config[KCQL], KCQL)
        except OptionError as error:
            return {error.option: str(error)}
        return {}

    def start(self, config: Config, context: SinkContext) -> None:
        """See SinkConnector."""
        super().start(config, context)
        self._routes: dict[str, list[Route]] = {}
        for route in parse(config[KCQL], KCQL):
            self._routes.setdefault(route.source, []).append(route)

    def login(self) -> Login:
        """See MqttWriter."""
        return lenses_login(self.config, f"{self.context.name}-{self.context.task}")

    def messages(self, record: SinkRecord) -> list[tuple[str, bytes, int, bool]]:
        """See MqttWriter."""
        quality = self.config["connect.mqtt.service.quality"]
        messages = []
        for route in self._routes.get(record.topic, []):
            value = record.value
            if route.fields:
                if not isinstance(value, dict):
                    raise DataError("the value has no fields to select")
                value = {path.rpartition(".")[2]: path_in(value, path) for path in route.fields}
            retained = route.clauses.get("WITHRETAIN", "").lower() == "true"
            messages.append((_target(route, record), payload(value), quality, retained))
        return messages


def _target(route: Route, record: SinkRecord) -> str:
    """The topic that a route names, or where its record does."""
    chosen = route.clauses.get("WITHTARGET")
    if chosen is None:
        return route.target
    if chosen == "_key":
        return str(record.key)
    if chosen == "_topic":
        return record.topic
    name = path_in(record.value, chosen)
    if name is None:
        raise DataError(f"the value has no field {chosen}, which WITHTARGET names")
    return str(name)


class ConfluentMqttSink(MqttWriter):
    """Confluent's MQTT sink: to the topic of the same name."""

    doc = "Records as messages of MQTT, to topics of the same name."
    aliases = ("io.confluent.connect.mqtt.MqttSinkConnector",)
    options = CONFLUENT_SINK

    @classmethod
    def check(cls, config: Config) -> Mapping[str, str]:
        """See Connector."""
        try:
            confluent_login(config, "check")
        except OptionError as error:
            return {error.option: str(error)}
        return {}

    def login(self) -> Login:
        """See MqttWriter."""
        return confluent_login(self.config, f"{self.context.name}-{self.context.task}")

    def messages(self, record: SinkRecord) -> list[tuple[str, bytes, int, bool]]:
        """See MqttWriter."""
        retained = self.config["mqtt.retained.messages.enabled"]
        return [(record.topic, payload(record.value), self.config["mqtt.qos"], retained)]
