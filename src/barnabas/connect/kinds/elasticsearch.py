"""Elasticsearch and OpenSearch, through their bulk API. The options are those of Confluent's connector.

A document's id is the record's key, or with `key.ignore` its place in the log: what is delivered twice overwrites itself.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas.connect.connectors import SinkConnector, SinkContext
from barnabas.connect.errors import ConnectError, DataError, OptionError, RetriableError
from barnabas.connect.kinds.talking import BUSY, Halted, Talk, plain_json
from barnabas.connect.options import Config, ConnectorOption, Importance, Type
from barnabas.connect.records import SinkRecord

CHECK_S: Final = 5.0


class Line(NamedTuple):
    """A document of a bulk request. id: with its index."""

    record: SinkRecord
    id: tuple[str, str]
    text: bytes


class ElasticsearchSink(SinkConnector):
    """Documents of values."""

    doc = "Stores records as documents of Elasticsearch or OpenSearch."
    aliases = (
        "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector",
        "io.aiven.kafka.connect.opensearch.OpensearchSinkConnector",
    )
    options = (
        ConnectorOption(
            "connection.url",
            Type.LIST,
            importance=Importance.HIGH,
            doc="URLs of the server; the first that answers is used.",
        ),
        ConnectorOption("connection.username", default=None, doc="The user."),
        ConnectorOption("connection.password", Type.PASSWORD, None, doc="The password."),
        ConnectorOption("connection.ca.file", default=None, doc="Certificates to trust (PEM)."),
        ConnectorOption(
            "batch.size", Type.INT, 2000, doc="The largest number of records of a request.", lo=1
        ),
        ConnectorOption(
            "read.timeout.ms", Type.INT, 30_000, Importance.LOW, "How long a request may take.", lo=1
        ),
        ConnectorOption(
            "type.name",
            default="_doc",
            importance=Importance.LOW,
            doc="Accepted; types are gone since version 8.",
        ),
        ConnectorOption("index", default="${topic}", doc="The index; ${topic} is the topic in lower case."),
        ConnectorOption(
            "key.ignore",
            Type.BOOLEAN,
            False,
            Importance.HIGH,
            "Whether ids are topic+partition+offset, not keys.",
        ),
        ConnectorOption(
            "schema.ignore", Type.BOOLEAN, False, doc="Accepted: mappings are always the server's."
        ),
        ConnectorOption(
            "behavior.on.null.values",
            default="FAIL",
            doc="IGNORE, DELETE or FAIL",
            choices=("IGNORE", "DELETE", "FAIL"),
        ),
        ConnectorOption(
            "behavior.on.malformed.documents",
            default="FAIL",
            doc="IGNORE, WARN or FAIL",
            choices=("IGNORE", "WARN", "FAIL"),
        ),
        ConnectorOption(
            "write.method", default="INSERT", doc="INSERT or UPSERT", choices=("INSERT", "UPSERT")
        ),
    )

    @classmethod
    def check(cls, config: Config) -> Mapping[str, str]:
        """Also asks the servers; one that answers is enough."""
        complaints = {"connection.url": "connection.url names no server"}
        try:
            talks = _talks(config, min(config["read.timeout.ms"] / 1000, CHECK_S))
        except (OptionError, OSError) as error:
            return {"connection.url": str(error)}
        for talk in talks:
            try:
                talk.ask("GET", "/")
                return {}
            except RetriableError as error:
                complaints = {"connection.url": str(error)}
            except ConnectError as error:
                complaints = {"connection.username": str(error)}
            finally:
                talk.close()
        return complaints

    def start(self, config: Config, context: SinkContext) -> None:
        """See SinkConnector."""
        super().start(config, context)
        self._talks = _talks(config, config["read.timeout.ms"] / 1000)
        self._halted = Halted[tuple[int, list[Line]]]()

    def put(self, records: Sequence[SinkRecord]) -> None:
        """See SinkConnector. Only what the server was too busy for is sent again."""
        size = self.config["batch.size"]
        done, lines = self._halted.take(records) or (0, [])
        while lines or done < len(records):
            if not lines:
                lines = self._lines(records[done : done + size])
                done += size
            try:
                busy = self._send(lines) if lines else []
            except RetriableError:
                self._halted.keep(records, (done, lines))
                raise
            if busy:
                self._halted.keep(records, (done, busy))
                raise RetriableError(f"{self._talks[0].name} was too busy for {len(busy)} documents")
            lines = []

    def _lines(self, records: Sequence[SinkRecord]) -> list[Line]:
        """Those that are sent; the others are reported."""
        lines: list[Line] = []
        for record in records:
            try:
                line = self._line(record)
            except DataError as error:
                self.context.report(record, error)
                continue
            if line is not None:
                lines.append(line)
        return lines

    def _line(self, record: SinkRecord) -> Line | None:
        index = self.config["index"].replace("${topic}", record.topic.lower())
        if self.config["key.ignore"] or (record.key is None and record.value is not None):
            if not self.config["key.ignore"]:
                raise DataError("the record has no key for the document's id, and key.ignore is false")
            name = f"{record.original_topic}+{record.original_partition}+{record.offset}"
        else:
            name = record.key if isinstance(record.key, str) else plain_json(record.key)
        named = {"_index": index, "_id": name}
        if record.value is None:
            behavior = self.config["behavior.on.null.values"].upper()
            if behavior == "FAIL":
                raise DataError("the value is null; behavior.on.null.values says what else than this happens")
            return None if behavior == "IGNORE" else Line(record, (index, name), _action("delete", named))
        if not isinstance(record.value, dict):
            raise DataError(f"a {type(record.value).__name__} is no document")
        if self.config["write.method"].upper() == "UPSERT":
            body = f'{{"doc":{plain_json(record.value)},"doc_as_upsert":true}}'
            return Line(record, (index, name), _action("update", named, body))
        return Line(record, (index, name), _action("index", named, plain_json(record.value)))

    def _send(self, lines: Sequence[Line]) -> list[Line]:
        """Returns what has to be sent again, in its order: documents that were refused for now, and what came behind them
        for the same ids, so that the last one stays the last. Raises RetriableError, ConnectError."""
        body = b"".join(line.text for line in lines)
        answer = None
        for number, talk in enumerate(self._talks):
            try:
                answer = talk.ask("POST", "/_bulk", body, "application/x-ndjson")
                break
            except RetriableError:
                if number == len(self._talks) - 1:
                    raise
        assert answer is not None
        again: list[Line] = []
        busy: set[tuple[str, str]] = set()
        for line, item in zip(lines, json.loads(answer.body)["items"], strict=True):
            ((action, result),) = item.items()
            if result["status"] in BUSY or line.id in busy:
                busy.add(line.id)
                again.append(line)
            elif result["status"] >= 400 and not (action == "delete" and result["status"] == 404):
                self._refused(line.record, result)
        return again

    def _refused(self, record: SinkRecord, result: Mapping[str, Any]) -> None:
        if self.config["behavior.on.malformed.documents"].upper() == "FAIL":
            error = result.get("error")
            reason = f"{error.get('type')}: {error.get('reason')}" if isinstance(error, dict) else str(error)
            self.context.report(record, DataError(f"the document was refused: {reason}"))

    def stop(self) -> None:
        """See SinkConnector."""
        for talk in getattr(self, "_talks", ()):
            talk.close()


def _action(name: str, named: Mapping[str, str], *body: str) -> bytes:
    return "".join(f"{line}\n" for line in (json.dumps({name: named}), *body)).encode()


def _talks(config: Config, timeout_s: float) -> list[Talk]:
    """Raises OptionError."""
    headers = {}
    if config["connection.username"]:
        login = f"{config['connection.username']}:{config['connection.password'] or ''}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
    return [Talk(url, timeout_s, headers, config["connection.ca.file"]) for url in config["connection.url"]]
