"""Messages of MQTT as records.

MQTT has no offsets. A message is acknowledged to the broker once its record is committed, so that with a quality of service
of 1 or 2 and a session that is not clean every message arrives at least once. Without them, messages are lost while the task
is away, as MQTT says.
"""

from __future__ import annotations

import json
import logging
import queue
import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import paho.mqtt.client as paho

from barnabas.connect.connectors import RECORDS_MAX, Batch, SourceConnector, SourceContext
from barnabas.connect.errors import DataError, OptionError
from barnabas.connect.mqtt.kcql import Route, parse
from barnabas.connect.mqtt.link import Link, Login, wrong_filter
from barnabas.connect.mqtt.options import (
    CONFLUENT_SOURCE,
    LENSES_SOURCE,
    confluent_login,
    lenses_login,
    path_in,
)
from barnabas.connect.options import Config
from barnabas.connect.records import Header, Json, SourceRecord
from barnabas.connect.schemas import BOOLEAN, BYTES, INT32, STRING, Schema, struct

log = logging.getLogger(__name__)

MESSAGES: Final = "messages"
WAIT_S: Final = 0.5
KCQL: Final = "connect.mqtt.kcql"
MESSAGE_KEY: Final = struct(
    {"topic": STRING, "id": STRING}, "com.datamountaineer.streamreactor.connect.converters.MsgKey"
)


class MqttReader(SourceConnector):
    """What both sources share: one client per task, acknowledged when committed."""

    poll_interval_ms: ClassVar[int] = 50

    def login(self) -> Login:
        """How the broker is reached."""
        raise NotImplementedError

    def subscriptions(self) -> list[tuple[str, int]]:
        """Filters, each with its quality of service."""
        raise NotImplementedError

    def records(self, message: paho.MQTTMessage) -> list[SourceRecord]:
        """What becomes of a message. Raises DataError."""
        raise NotImplementedError

    @classmethod
    def exactly_once(cls, config: Config) -> bool:
        """MQTT repeats messages that it has no acknowledgement of."""
        return False

    def start(self, config: Config, context: SourceContext) -> None:
        """See SourceConnector."""
        super().start(config, context)
        self._link: Link | None = None
        self._pending: deque[tuple[int, paho.MQTTMessage, int]] = deque()

    def partitions(self) -> Sequence[Json]:
        """One: a client receives each message once."""
        return [{"client": self.login().client_id}]

    def poll(self, partition: Json, offset: Json | None) -> Batch:
        """See SourceConnector."""
        if self._link is None:
            self._link = Link(self.login(), self.subscriptions())
        link = self._link
        link.connect()
        count = int((offset or {}).get(MESSAGES, 0))
        records: list[SourceRecord] = []
        deadline = time.monotonic() + WAIT_S
        while len(records) < RECORDS_MAX:
            try:
                message = link.messages.get(timeout=0 if records else max(deadline - time.monotonic(), 0.01))
            except (queue.Empty, ValueError):
                break
            count += 1
            self._pending.append((count, message, link.generation))
            records_of_message = self.records(message)
            if records_of_message:
                records += records_of_message
        return Batch(records, {MESSAGES: count} if self._pending and self._pending[-1][0] == count else None)

    def committed(self, partition: Json, offset: Json) -> None:
        """The broker may forget what is stored."""
        while self._pending and self._pending[0][0] <= int(offset.get(MESSAGES, 0)):
            _, message, generation = self._pending.popleft()
            if self._link is not None:
                self._link.acknowledge(message, generation)

    def stop(self) -> None:
        """See SourceConnector."""
        if getattr(self, "_link", None) is not None:
            assert self._link is not None
            self._link.close()


class LensesMqttSource(MqttReader):
    """Lenses' MQTT source: routes in KCQL."""

    doc = "Messages of MQTT into topics, by KCQL."
    aliases = (
        "io.lenses.streamreactor.connect.mqtt.source.MqttSourceConnector",
        "com.datamountaineer.streamreactor.connect.mqtt.source.MqttSourceConnector",
    )
    options = LENSES_SOURCE

    @classmethod
    def check(cls, config: Config) -> Mapping[str, str]:
        """See Connector."""
        try:
            lenses_login(config, "check")
            for route in parse(config[KCQL], KCQL):
                wrong = wrong_filter(route.source)
                if wrong is not None:
                    return {KCQL: f"{KCQL}: {wrong}"}
                _reader(route)
        except OptionError as error:
            return {error.option: str(error)}
        return {}

    def start(self, config: Config, context: SourceContext) -> None:
        """See SourceConnector."""
        super().start(config, context)
        self._routes = [(route, _regex(route.source), _reader(route)) for route in parse(config[KCQL], KCQL)]

    def login(self) -> Login:
        """See MqttReader."""
        return lenses_login(self.config, self.context.name)

    def subscriptions(self) -> list[tuple[str, int]]:
        """See MqttReader."""
        quality = self.config["connect.mqtt.service.quality"]
        return [(route.source, quality) for route, _, _ in self._routes]

    def records(self, message: paho.MQTTMessage) -> list[SourceRecord]:
        """One record per route that takes the message."""
        if message.dup and not self.config["connect.mqtt.process.duplicates"]:
            return []
        records = []
        for route, regex, read in self._routes:
            if not regex.fullmatch(message.topic):
                continue
            try:
                records.append(_record(route, read, message))
            except DataError as error:
                if self.config["connect.mqtt.converter.throw.on.error"]:
                    raise
                log.warning("message left out", extra={"mqtt_topic": message.topic, "reason": str(error)})
        return records


Read = Callable[[bytes], tuple[Any, Schema | None]]


def _bytes(payload: bytes) -> tuple[Any, Schema | None]:
    return payload, BYTES


def _text(payload: bytes) -> tuple[Any, Schema | None]:
    try:
        return payload.decode(), STRING
    except UnicodeDecodeError as error:
        raise DataError(f"the message is not UTF-8: {error}") from error


def _json(payload: bytes) -> tuple[Any, Schema | None]:
    try:
        return json.loads(payload), None
    except ValueError as error:
        raise DataError(f"the message is not JSON ({error}): {payload[:60]!r}") from error


CONVERTERS: Final[Mapping[str, Read]] = {
    "BytesConverter": _bytes,
    "StringConverter": _text,
    "JsonSimpleConverter": _json,
    "JsonResilientConverter": _json,
    "JsonConverter": _json,
    "JsonConverterWithSchemaEvolution": _json,
}
"""Lenses' converters by their simple names; without one, a message stays bytes."""


def _reader(route: Route) -> Read:
    name = route.clauses.get("WITHCONVERTER", "BytesConverter")
    read = CONVERTERS.get(name.rpartition(".")[2])
    if read is None:
        raise OptionError(f"{KCQL}: no converter {name}; there are {', '.join(CONVERTERS)}", KCQL)
    return read


def _regex(filter: str) -> re.Pattern[str]:
    """What a subscription's filter takes."""
    plain = filter.split("/", 2)[2] if filter.startswith("$share/") else filter
    levels: list[str] = []
    for level in plain.split("/"):
        if level == "#":
            return re.compile("/".join(levels) + ("(/.*)?" if levels else ".*"), re.DOTALL)
        levels.append("[^/]*" if level == "+" else re.escape(level))
    return re.compile("/".join(levels))


def _record(route: Route, read: Read, message: paho.MQTTMessage) -> SourceRecord:
    payload = bytes(message.payload)
    value, schema = read(payload)
    topic = route.target
    if topic == "$":
        topic = re.sub(r"[^\w.\-]", "_", message.topic.strip("/"), flags=re.ASCII)
    if not route.key:
        return SourceRecord(
            topic, value, {"topic": message.topic, "id": str(message.mid)}, schema, MESSAGE_KEY
        )
    parsed = value if isinstance(value, dict) else _json(payload)[0]
    parts = [path_in(parsed, path) for path in route.key]
    missing = [path for path, part in zip(route.key, parts, strict=True) if part is None]
    if missing:
        raise DataError(f"the message has no field {missing[0]}, which WITHKEY names")
    return SourceRecord(topic, value, route.delimiter.join(map(str, parts)), schema, STRING)


class ConfluentMqttSource(MqttReader):
    """Confluent's MQTT source: all messages to one topic, keyed by their topic of MQTT."""

    doc = "Messages of MQTT into one topic."
    aliases = ("io.confluent.connect.mqtt.MqttSourceConnector",)
    options = CONFLUENT_SOURCE

    @classmethod
    def check(cls, config: Config) -> Mapping[str, str]:
        """See Connector."""
        try:
            confluent_login(config, "check")
        except OptionError as error:
            return {error.option: str(error)}
        wrong = [text for text in map(wrong_filter, config["mqtt.topics"]) if text is not None]
        return {"mqtt.topics": f"mqtt.topics: {wrong[0]}"} if wrong else {}

    def login(self) -> Login:
        """See MqttReader."""
        return confluent_login(self.config, self.context.name)

    def subscriptions(self) -> list[tuple[str, int]]:
        """See MqttReader."""
        return [(filter, self.config["mqtt.qos"]) for filter in self.config["mqtt.topics"]]

    def records(self, message: paho.MQTTMessage) -> list[SourceRecord]:
        """See MqttReader."""
        headers = (
            Header("mqtt.message.id", message.mid, INT32),
            Header("mqtt.qos", message.qos, INT32),
            Header("mqtt.retained", bool(message.retain), BOOLEAN),
            Header("mqtt.duplicate", bool(message.dup), BOOLEAN),
        )
        return [
            SourceRecord(self.config["kafka.topic"], message.payload, message.topic, BYTES, STRING, headers)
        ]
