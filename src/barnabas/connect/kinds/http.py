"""HTTP: records posted to a URL, and records of a URL that is asked again and again.

The sink has the options of Aiven's http-connector-for-apache-kafka.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from barnabas.connect.connectors import Batch, SinkConnector, SinkContext, SourceConnector, SourceContext
from barnabas.connect.errors import ConnectError, DataError, OptionError, RetriableError
from barnabas.connect.kinds.talking import Halted, Talk, plain_json
from barnabas.connect.options import Config, ConnectorOption, Importance, Type
from barnabas.connect.records import Json, SinkRecord, SourceRecord

MORE_HEADERS = "http.headers.additional"


class HttpSink(SinkConnector):
    """Posts values, one by one or as JSON arrays."""

    doc = "Posts records to a URL."
    aliases = ("io.aiven.kafka.connect.http.HttpSinkConnector", "io.confluent.connect.http.HttpSinkConnector")
    options = (
        ConnectorOption("http.url", importance=Importance.HIGH, doc="The URL to send data to."),
        ConnectorOption(
            "http.authorization.type", default="none", doc="none or static", choices=("none", "static")
        ),
        ConnectorOption(
            "http.headers.authorization",
            Type.PASSWORD,
            None,
            doc="The static content of Authorization header.",
        ),
        ConnectorOption(
            "http.headers.content.type", default="application/json", doc="The value of Content-Type."
        ),
        ConnectorOption(MORE_HEADERS, Type.LIST, "", doc="More headers: name:value,..."),
        ConnectorOption(
            "batching.enabled", Type.BOOLEAN, False, doc="Whether several records are sent as a JSON array."
        ),
        ConnectorOption(
            "batch.max.size", Type.INT, 500, doc="The largest number of records of a request.", lo=1
        ),
        ConnectorOption("http.timeout", Type.INT, 30, Importance.LOW, "HTTP timeout, in seconds.", lo=1),
    )

    @classmethod
    def check(cls, config: Config) -> Mapping[str, str]:
        """See Connector."""
        return _wrong_url("http.url", config["http.url"])

    def start(self, config: Config, context: SinkContext) -> None:
        """See SinkConnector."""
        super().start(config, context)
        headers = dict(text.split(":", 1) for text in config[MORE_HEADERS] if ":" in text)
        if config["http.authorization.type"].lower() == "static":
            headers["Authorization"] = str(config["http.headers.authorization"] or "")
        self._talk = Talk(config["http.url"], config["http.timeout"], headers)
        self._halted = Halted[int]()

    def put(self, records: Sequence[SinkRecord]) -> None:
        """See SinkConnector. What was posted before a request that failed is not posted again."""
        size = self.config["batch.max.size"] if self.config["batching.enabled"] else 1
        for at in range(self._halted.take(records) or 0, len(records), size):
            try:
                self._send(records[at : at + size])
            except RetriableError:
                self._halted.keep(records, at)
                raise

    def _send(self, records: Sequence[SinkRecord]) -> None:
        texts = [r.value if isinstance(r.value, str) else plain_json(r.value) for r in records]
        body = f"[{','.join(texts)}]" if self.config["batching.enabled"] else texts[0]
        try:
            self._talk.ask("POST", None, body.encode(), self.config["http.headers.content.type"])
        except DataError as error:
            for record in records:
                self.context.report(record, error)

    def stop(self) -> None:
        """See SinkConnector."""
        if hasattr(self, "_talk"):
            self._talk.close()


class HttpSource(SourceConnector):
    """Asks a URL for JSON, again and again."""

    leaves_no_trace = True
    doc = "Asks a URL for JSON, again and again; each element is a record."
    aliases = ("io.confluent.connect.http.HttpSourceConnector",)
    options = (
        ConnectorOption(
            "url", importance=Importance.HIGH, doc="The URL; ${offset} is replaced by the last offset."
        ),
        ConnectorOption("topic", importance=Importance.HIGH, doc="The topic."),
        ConnectorOption(
            "poll.interval.ms", Type.LONG, 10_000, doc="How long to wait between requests.", lo=10
        ),
        ConnectorOption(
            "records.pointer",
            default="",
            doc="JSON pointer to the list of records; the whole answer if empty.",
        ),
        ConnectorOption(
            "offset.pointer", default="", doc="JSON pointer, in a record, to what is its offset."
        ),
        ConnectorOption("initial.offset", default="", doc="What ${offset} is at first."),
        ConnectorOption("key.pointer", default="", doc="JSON pointer, in a record, to its key."),
        ConnectorOption("headers", Type.LIST, "", doc="Headers: name:value,..."),
        ConnectorOption("timeout.ms", Type.INT, 30_000, doc="How long a request may take.", lo=1),
    )

    @classmethod
    def check(cls, config: Config) -> Mapping[str, str]:
        """See Connector."""
        return _wrong_url("url", config["url"].replace("${offset}", "0"))

    def start(self, config: Config, context: SourceContext) -> None:
        """See SourceConnector."""
        super().start(config, context)
        self._headers = dict(text.split(":", 1) for text in config["headers"] if ":" in text)
        self._last = ""
        Talk(config["url"].replace("${offset}", "0"), 1.0).close()

    def partitions(self) -> Sequence[Json]:
        """The URL."""
        return [{"url": self.config["url"]}]

    def poll(self, partition: Json, offset: Json | None) -> Batch:
        """Without offset.pointer, an answer that is as the last one is no news."""
        position = str((offset or {}).get("offset", self.config["initial.offset"]))
        talk = Talk(
            self.config["url"].replace("${offset}", quote(position)),
            self.config["timeout.ms"] / 1000,
            self._headers,
        )
        try:
            answer = talk.ask("GET")
        finally:
            talk.close()
        try:
            rows = at_pointer(json.loads(answer.body), self.config["records.pointer"])
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise ConnectError(
                f"{talk.name}: the answer has no records at {self.config['records.pointer']!r}: {error}"
            ) from None
        records = [self._record(row) for row in (rows if isinstance(rows, list) else [rows])]
        if not self.config["offset.pointer"]:
            text = answer.body.decode("utf-8", "replace")
            if text == self._last:
                return Batch()
            self._last = text
            return Batch(records, {"count": int((offset or {}).get("count", 0)) + len(records)})
        return Batch(records)

    def _record(self, row: Any) -> SourceRecord:
        pointer, key = self.config["offset.pointer"], self.config["key.pointer"]
        return SourceRecord(
            self.config["topic"],
            row,
            at_pointer(row, key) if key else None,
            source_offset={"offset": at_pointer(row, pointer)} if pointer else None,
        )

    @classmethod
    def exactly_once(cls, config: Config) -> bool:
        """With an offset only."""
        return bool(config.get("offset.pointer"))


def at_pointer(value: Any, pointer: str) -> Any:
    """What a JSON pointer names. Raises KeyError, IndexError, TypeError."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value


def _wrong_url(option: str, url: str) -> dict[str, str]:
    """What is wrong with a URL; it is not asked, since a request may do something there."""
    try:
        Talk(url, 1.0).close()
    except OptionError as error:
        return {option: str(error)}
    return {}
