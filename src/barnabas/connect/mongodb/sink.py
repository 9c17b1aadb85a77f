"""MongoDB's own sink connector in Python: records as documents, by its strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pymongo
from pymongo.errors import BulkWriteError, ConnectionFailure, PyMongoError

from barnabas.connect.connectors import SinkConnector, SinkContext
from barnabas.connect.errors import ConnectError, DataError, RetriableError
from barnabas.connect.mongodb.options import SINK
from barnabas.connect.mongodb.reader import shown
from barnabas.connect.mongodb.source import unreachable
from barnabas.connect.mongodb.writes import Write, write_of
from barnabas.connect.options import Config
from barnabas.connect.records import SinkRecord

Run = list[tuple[SinkRecord, Write]]


class MongoSink(SinkConnector):
    """See the module."""

    doc = "Records as documents of MongoDB."
    aliases = ("com.mongodb.kafka.connect.MongoSinkConnector",)
    options = SINK

    @classmethod
    def check(cls, config: Config) -> Mapping[str, str]:
        """Also asks the server."""
        return unreachable(config["connection.uri"])

    def start(self, config: Config, context: SinkContext) -> None:
        """See SinkConnector."""
        super().start(config, context)
        self._where = shown(config["connection.uri"])
        self._client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(
            config["connection.uri"], serverSelectionTimeoutMS=10_000, appname="barnabas"
        )

    def put(self, records: Sequence[SinkRecord]) -> None:
        """See SinkConnector."""
        runs: list[tuple[str, Run]] = []
        for record in records:
            try:
                write = write_of(record, self.config)
            except DataError as error:
                self.context.report(record, error)
                continue
            name = self.config["collection"] or record.topic
            if write is None:
                continue
            if (
                not runs
                or runs[-1][0] != name
                or len(runs[-1][1]) == (self.config["max.batch.size"] or 1_000_000)
            ):
                runs.append((name, []))
            runs[-1][1].append((record, write))
        for name, run in runs:
            self._write(name, run)

    def _write(self, name: str, run: Run) -> None:
        """Writes in order. What the server refuses is reported, and the rest is written."""
        collection = self._client[self.config["database"]][name]
        while run:
            try:
                collection.bulk_write([write for _, write in run], ordered=self.config["bulk.write.ordered"])
                return
            except BulkWriteError as error:
                refused = error.details.get("writeErrors", [])
                if not refused:
                    raise ConnectError(f"{self._where}: writing to {name}: {error.details}") from error
                for one in refused:
                    message = (
                        f"{self._where}: {name} refuses the document: {one.get('errmsg')} ({one.get('code')})"
                    )
                    self.context.report(run[one["index"]][0], DataError(message))
                if not self.config["bulk.write.ordered"]:
                    return
                run = run[refused[-1]["index"] + 1 :]
            except ConnectionFailure as error:
                raise RetriableError(f"{self._where}: writing to {name}: {error}") from error
            except PyMongoError as error:
                raise ConnectError(f"{self._where}: writing to {name}: {error}") from error

    def stop(self) -> None:
        """See SinkConnector."""
        if getattr(self, "_client", None) is not None:
            self._client.close()
