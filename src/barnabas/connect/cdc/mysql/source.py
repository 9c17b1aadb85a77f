"""Debezium's MySQL and MariaDB connectors in Python: all rows, then every change, in its envelope and under its options."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import pymysql

import barnabas
from barnabas.connect.cdc.envelope import Table, heartbeat
from barnabas.connect.cdc.mysql import schema_changes, server
from barnabas.connect.cdc.mysql.binlog import Binlog, Rules
from barnabas.connect.cdc.mysql.ddl import Statement
from barnabas.connect.cdc.mysql.incremental import Incremental
from barnabas.connect.cdc.mysql.options import OPTIONS, connection_of
from barnabas.connect.cdc.mysql.snapshot import Snapshot
from barnabas.connect.cdc.mysql.tables import Tables, source_schema, type_in_log
from barnabas.connect.cdc.mysql.types import Settings
from barnabas.connect.cdc.naming import names_of
from barnabas.connect.connectors import Batch, SourceConnector, SourceContext
from barnabas.connect.errors import ConnectError, OptionError
from barnabas.connect.options import Config
from barnabas.connect.records import Json, SourceRecord

log = logging.getLogger(__name__)

SERVER: Final = "server"
ERRORS: Final = (pymysql.Error, OSError)
CHANGES_ONLY: Final = ("no_data", "never", "schema_only")


class MysqlSource(SourceConnector):
    """See the module."""

    doc = "Every change of MySQL's tables, from its binary log."
    aliases = ("io.debezium.connector.mysql.MySqlConnector",)
    options = OPTIONS
    kind: ClassVar[str] = "mysql"
    poll_interval_ms: ClassVar[int] = 100

    @classmethod
    def check(cls, config: Config) -> Mapping[str, str]:
        """Also asks the server."""
        try:
            names_of(config, "database")
        except OptionError as error:
            return {error.option: str(error)}
        try:
            connection = server.connect(connection_of(config))
        except (*ERRORS, ValueError) as error:
            return {"database.hostname": str(server.failed(error, cls._where(config), "connecting"))}
        try:
            wrong = server.wrong_settings(connection)
        except ERRORS as error:
            wrong = str(error)
        finally:
            connection.close()
        return {} if wrong is None else {"database.hostname": f"{cls._where(config)}: {wrong}"}

    @classmethod
    def check_offsets(cls, config: Config, offsets: Sequence[tuple[Json, Json | None]]) -> None:
        """See SourceConnector."""
        for partition, offset in offsets:
            if set(partition) != {SERVER}:
                raise ConnectError(
                    f'the partition is {{"server": "{config["topic.prefix"]}"}}, not {dict(partition)}'
                )
            if offset is not None and not (
                isinstance(offset.get("file"), str) and isinstance(offset.get("pos"), int)
            ):
                raise ConnectError(
                    f'an offset is like {{"file": "mysql-bin.000001", "pos": 4}}, not {dict(offset)}'
                )

    @classmethod
    def _where(cls, config: Config) -> str:
        return f"{cls.kind}://{config['database.hostname']}:{config['database.port']}"

    def start(self, config: Config, context: SourceContext) -> None:
        """See SourceConnector."""
        super().start(config, context)
        self._here = self._where(config)
        self._arguments = connection_of(config)
        self._names = names_of(config, "database")
        self._tables = Tables(
            self._names,
            Settings(
                config["decimal.handling.mode"],
                config["time.precision.mode"],
                config["binary.handling.mode"],
                config["bigint.unsigned.handling.mode"],
            ),
            source_schema(self.kind),
        )
        self._server_id = config["database.server.id"] or random.randrange(1 << 20, 1 << 31)
        self._connection: Any = None
        self._snapshot: Snapshot | None = None
        self._binlog: Binlog | None = None
        self._incremental: Incremental | None = None
        self._known: dict[tuple[str, str], tuple[tuple[Any, ...], Table]] = {}
        self._at: Json | None = None
        self._fresh = True
        self._origin: dict[str, Any] = {}
        self._beat_at = time.monotonic()

    def partitions(self) -> Sequence[Json]:
        """One: the log is read in order."""
        return [{SERVER: self.config["topic.prefix"]}]

    def poll(self, partition: Json, offset: Json | None) -> Batch:
        """See SourceConnector."""
        try:
            if (self._snapshot or self._binlog) and offset != self._at:
                self._close()
            if self._is_reading(offset):
                return self._read(offset)
            if self.config["snapshot.mode"] == "initial_only":
                return Batch()
            assert offset is not None
            return self._stream(offset)
        except ERRORS as error:
            self._close()
            raise self._failed(error) from error
        except ConnectError:
            self._close()
            raise

    def _failed(self, error: Exception) -> ConnectError:
        return server.failed(error, self._here, "reading changes")

    def stop(self) -> None:
        """See SourceConnector."""
        if hasattr(self, "_origin"):
            self._close()

    def _close(self) -> None:
        for one in (self._snapshot, self._binlog, self._incremental, self._connection):
            if one is not None:
                try:
                    one.close()
                except ERRORS as error:
                    log.debug("not closed", extra={"reason": str(error)})
        self._snapshot = self._binlog = self._incremental = self._connection = None
        self._known.clear()

    # --- the snapshot -----------------------------------------------------------------------------------

    def _is_reading(self, offset: Json | None) -> bool:
        if self._snapshot is not None:
            return True
        again = self._fresh and self.config["snapshot.mode"] == "always" and self._binlog is None
        return offset is None or again or "table" in offset

    def _read(self, offset: Json | None) -> Batch:
        first = self._snapshot is None and not (offset and "table" in offset)
        if self._snapshot is None:
            if first and self.config["snapshot.mode"] in CHANGES_ONLY:
                at = server.position(self._ready())
                self._at = {"file": at.file, "pos": at.pos, "events": 0}
                return Batch((), self._at)
            self._begin(offset)
        assert self._snapshot is not None
        records, ended = self._snapshot.take(
            self.config["snapshot.fetch.size"], self._snapshot_source, self._snapshot_offset, first
        )
        last: Json | None = records[-1].source_offset if records else None
        if ended:
            last = self._snapshot_offset("", (), True)
            self._snapshot.close()
            self._snapshot, self._fresh = None, False
        self._at = last if last is not None else offset
        return Batch(records, last)

    def _begin(self, offset: Json | None) -> None:
        self._ready()
        resumed = offset is not None and "table" in offset
        place = (
            (str(offset["table"]), tuple(offset.get("key") or ())) if resumed and offset is not None else None
        )
        self._snapshot = Snapshot(self._arguments, self._tables, place)
        if resumed and offset is not None:
            self._origin = {"file": offset["file"], "pos": offset["pos"]}
        else:
            self._origin = {"file": self._snapshot.position.file, "pos": self._snapshot.position.pos}

    def _snapshot_source(self, table: Table, mark: str) -> Mapping[str, Any]:
        assert self._snapshot is not None
        at_ms = self._snapshot.at_ms
        return {
            "version": barnabas.__version__,
            "connector": self.kind,
            "name": self.config["topic.prefix"],
            "ts_ms": at_ms,
            "snapshot": mark,
            "db": table.outer,
            "sequence": None,
            "ts_us": at_ms * 1000,
            "ts_ns": at_ms * 1_000_000,
            "table": table.name,
            "server_id": 0,
            "gtid": None,
            **self._origin,
            "row": 0,
            "thread": None,
            "query": None,
        }

    def _snapshot_offset(self, table: str, key: Sequence[Any], ended: bool) -> Mapping[str, Any]:
        if ended:
            return {**self._origin, "events": 0}
        return {**self._origin, "snapshot": True, "table": table, "key": list(key)}

    # --- the log ----------------------------------------------------------------------------------------

    def _stream(self, offset: Json) -> Batch:
        if self._binlog is None:
            self._ready()
            self._binlog = Binlog(
                self._arguments, self._server_id, self._rules(), self._table_of, self._on_statement, offset
            )
            if self.config["signal.data.collection"]:
                self._heed_signals(self._binlog, offset.get("incremental"))
        if self._incremental is not None and self._binlog.between:
            self._incremental.step()
        try:
            records, last = self._binlog.poll(self.config["max.batch.size"])
        except ERRORS as error:
            failed = self._failed(error)
            if not isinstance(failed, server.Purged) or self.config["snapshot.mode"] != "when_needed":
                raise
            log.warning("reading a new snapshot", extra={"reason": str(failed)})
            self._close()
            self._begin(None)
            self._at = {**self._origin, "snapshot": True, "table": "", "key": []}
            return Batch((), self._at)
        beat = self._heartbeat()
        if beat is not None:
            records.append(beat)
            last = None
        if last is None:
            last = records[-1].source_offset if records else None
        self._at = last if last is not None else offset
        return Batch(records, last)

    def _heed_signals(self, binlog: Binlog, state: Json | None) -> None:
        incremental = Incremental(
            self._arguments,
            self._tables,
            self.config["signal.data.collection"],
            self.config["incremental.snapshot.chunk.size"],
            state,
            time.time_ns,
        )

        def state_now() -> Json:
            chunk_state = incremental.state
            return {} if chunk_state is None else {"incremental": chunk_state}

        binlog.on_change, binlog.on_signal, binlog.more = incremental.note, incremental.signal, state_now
        self._incremental = incremental

    def _rules(self) -> Rules:
        config = self.config
        return Rules(
            self.kind,
            config["topic.prefix"],
            barnabas.__version__,
            config["tombstones.on.delete"],
            frozenset(config["skipped.operations"]),
            config["provide.transaction.metadata"],
            self._names.topic(config["topic.transaction"]),
            config["include.schema.changes"],
            config["signal.data.collection"],
        )

    def _table_of(self, database: str, name: str, columns: list[Any]) -> Table | None:
        """The captured table; looked up again when the log's columns are others than before."""
        if database in server.OWN or not self._names.has_table(database, name):
            return None
        described = tuple((column.name, type_in_log(column)) for column in columns)
        known = self._known.get((database, name))
        if known is not None and known[0] == described:
            return known[1]
        facts = server.table_facts(self._ready(), database, name)
        whole = described or tuple((column.name, column.type) for column in facts.columns)
        table = self._tables.table_of(facts, whole, [column.name for column in columns if column.is_primary])
        self._known[database, name] = (described, table)
        return table

    def _on_statement(
        self, statement: Statement, source: Mapping[str, Any], at_ms: int
    ) -> list[SourceRecord]:
        self._known.clear()
        captured = (
            self._names.outer.has(statement.database)
            if statement.table is None
            else self._names.has_table(statement.database, statement.table)
        )
        if not captured or not self.config["include.schema.changes"]:
            return []
        facts = None
        if statement.table is not None:
            facts = server.table_facts(self._ready(), statement.database, statement.table)
        prefix = self.config["topic.prefix"]
        return [schema_changes.record(prefix, self.kind, self._tables.source, source, statement, facts)]

    def _ready(self) -> Any:
        """A connection to a server whose log can be read. Raises ConnectError."""
        if self._connection is None:
            self._connection = server.connect(self._arguments)
            wrong = server.wrong_settings(self._connection)
            if wrong is not None:
                raise ConnectError(f"{self._here}: {wrong}")
        return self._connection

    def _heartbeat(self) -> SourceRecord | None:
        interval_s, now = self.config["heartbeat.interval.ms"] / 1000, time.monotonic()
        if (
            not interval_s
            or now - self._beat_at < interval_s
            or self._binlog is None
            or not self._binlog.between
        ):
            return None
        self._beat_at = now
        if self.config["heartbeat.action.query"]:
            server.ask(self._ready(), self.config["heartbeat.action.query"])
        topic = f"{self.config['topic.heartbeat.prefix']}.{self.config['topic.prefix']}"
        return heartbeat(topic, self.config["topic.prefix"], int(time.time() * 1000), self._binlog.offset())


class MariadbSource(MysqlSource):
    """The same for MariaDB."""

    doc = "Every change of MariaDB's tables, from its binary log."
    aliases = ("io.debezium.connector.mariadb.MariaDbConnector",)
    kind: ClassVar[str] = "mariadb"
