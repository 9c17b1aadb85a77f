"""MongoDB's own source connector in Python: events of a change stream, after copying what is there."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import bson
import pymongo
from pymongo.errors import ConfigurationError, PyMongoError

from barnabas.connect.connectors import Batch, SourceConnector, SourceContext
from barnabas.connect.errors import ConnectError
from barnabas.connect.mongodb.options import SOURCE
from barnabas.connect.mongodb.reader import COPY, TOKEN, Reader, Watched, shown
from barnabas.connect.mongodb.texts import FORMATS, loads
from barnabas.connect.options import Config
from barnabas.connect.records import Json, SourceRecord
from barnabas.connect.schemas import BYTES, STRING, Schema

log = logging.getLogger(__name__)

NAMESPACE: Final = "ns"


class MongoSource(SourceConnector):
    """See the module."""

    doc = "Events of MongoDB's change streams, after copying the documents that are there."
    aliases = ("com.mongodb.kafka.connect.MongoSourceConnector",)
    options = SOURCE
    poll_interval_ms: ClassVar[int] = 100

    @classmethod
    def check(cls, config: Config) -> Mapping[str, str]:
        """Also asks the server."""
        if config["collection"] and not config["database"]:
            return {"database": "database is needed with collection"}
        return unreachable(config["connection.uri"])

    @classmethod
    def check_offsets(cls, config: Config, offsets: Sequence[tuple[Json, Json | None]]) -> None:
        """See SourceConnector."""
        for partition, offset in offsets:
            if set(partition) != {NAMESPACE}:
                raise ConnectError(
                    f'a partition is like {{"ns": "mongodb://host/db.collection"}}, not {dict(partition)}'
                )
            if offset is not None and offset.get(TOKEN) is not None:
                try:
                    loads(str(offset[TOKEN]))
                except ValueError as error:
                    raise ConnectError(f"_id of an offset is a resume token as JSON: {error}") from error

    @classmethod
    def exactly_once(cls, config: Config) -> bool:
        """A document that changes while it is copied is told twice."""
        return not (config["copy.existing"] or config["startup.mode"] == "copy_existing")

    def start(self, config: Config, context: SourceContext) -> None:
        """See SourceConnector."""
        super().start(config, context)
        self._reader: Reader | None = None
        self._write = FORMATS[config["output.json.formatter"].rpartition(".")[2]]
        self._topics: dict[str, str] = json.loads(config["topic.namespace.map"] or "{}")

    def partitions(self) -> Sequence[Json]:
        """One: a change stream is read in order."""
        uri = shown(self.config["connection.uri"]).partition("?")[0].rstrip("/")
        return [{NAMESPACE: f"{uri}/{self._watched().namespace}"}]

    def _watched(self) -> Watched:
        config = self.config
        full, before = (
            config["change.stream.full.document"],
            config["change.stream.full.document.before.change"],
        )
        return Watched(
            config["connection.uri"],
            config["database"] or None,
            config["collection"] or None,
            json.loads(config["pipeline"] or "[]"),
            full if full not in ("", "default") else None,
            before if before not in ("", "default") else None,
        )

    def poll(self, partition: Json, offset: Json | None) -> Batch:
        """See SourceConnector."""
        if self._reader is None:
            self._reader = Reader(self._watched())
        try:
            if offset is None:
                return Batch((), self._first(self._reader))
            read = self._reader.copied if COPY in offset else self._reader.changes
            changes, after = read(offset, self.config["poll.max.batch.size"])
        except ConnectError:
            self._reader.close()
            self._reader = None
            raise
        records = [record for change, place in changes for record in self._records(change, place)]
        return Batch(records, after if dict(after) != dict(offset) else None)

    def _first(self, reader: Reader) -> Json:
        config = self.config
        copies = config["copy.existing"] or config["startup.mode"] == "copy_existing"
        at = config["startup.mode.timestamp.start.at.operation.time"]
        begin = bson.Timestamp(at, 0) if config["startup.mode"] == "timestamp" and at else None
        position = reader.begin(begin)
        return {**position, COPY: "true"} if copies else position

    def stop(self) -> None:
        """See SourceConnector."""
        if getattr(self, "_reader", None) is not None:
            assert self._reader is not None
            self._reader.close()

    # --- events as records ------------------------------------------------------------------------------

    def _records(self, change: Mapping[str, Any], place: Json) -> list[SourceRecord]:
        only = self.config["publish.full.document.only"]
        document = change.get("fullDocument")
        key = (
            {"_id": change["documentKey"]["_id"]}
            if only and "documentKey" in change
            else {"_id": change["_id"]}
        )
        value: Any = document if only else change
        if only and document is None:
            tombstone = self.config["publish.full.document.only.tombstone.on.delete"]
            if not (tombstone and change.get("operationType") == "delete"):
                return []
        key_schema, key_text = self._formatted("output.format.key", key)
        value_schema, text = (None, None) if value is None else self._formatted("output.format.value", value)
        # While copying, the token of the stream stays: places of copied documents are told by the batch.
        offset = place if COPY not in place else None
        return [
            SourceRecord(self._topic(change), text, key_text, value_schema, key_schema, source_offset=offset)
        ]

    def _formatted(self, option: str, document: Mapping[str, Any]) -> tuple[Schema, Any]:
        if self.config[option] == "bson":
            return BYTES, bson.encode(document)
        return STRING, self._write(document)

    def _topic(self, change: Mapping[str, Any]) -> str:
        namespace = change.get("ns") or {}
        database = namespace.get("db") or self.config["database"]
        collection = namespace.get("coll") or self.config["collection"]
        path = ".".join(part for part in (database, collection) if part)
        mapped = self._topics.get(path) or self._topics.get(str(database)) or self._topics.get("*")
        separator: str = self.config["topic.separator"]
        parts = [
            self.config["topic.prefix"],
            *([mapped] if mapped else [database, collection]),
            self.config["topic.suffix"],
        ]
        return separator.join(str(part) for part in parts if part)


def unreachable(uri: str) -> dict[str, str]:
    """What is wrong with an address, by option; the server is asked."""
    try:
        client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(uri, serverSelectionTimeoutMS=3000)
        with client:
            client.admin.command("ping")
    except (ConfigurationError, PyMongoError, ValueError) as error:
        return {"connection.uri": f"{shown(uri)} cannot be reached: {error}"}
    return {}
