"""Debezium's PostgreSQL connector in Python: all rows, and then every change, in its envelope and under its options."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import psycopg

import barnabas
from barnabas.connect.cdc.envelope import Table, heartbeat
from barnabas.connect.cdc.naming import names_of
from barnabas.connect.cdc.postgres import server
from barnabas.connect.cdc.postgres.catalog import Catalog, connect
from barnabas.connect.cdc.postgres.incremental import Incremental
from barnabas.connect.cdc.postgres.options import OPTIONS, connection_of
from barnabas.connect.cdc.postgres.pgoutput import DecodeError, Relation, lsn_number, lsn_text
from barnabas.connect.cdc.postgres.replication import Replication
from barnabas.connect.cdc.postgres.snapshot import Place, Snapshot
from barnabas.connect.cdc.postgres.streaming import Rules, Streaming
from barnabas.connect.cdc.postgres.tables import Tables
from barnabas.connect.cdc.postgres.types import Settings
from barnabas.connect.connectors import Batch, SourceConnector, SourceContext
from barnabas.connect.errors import ConnectError, OptionError
from barnabas.connect.options import Config
from barnabas.connect.records import Json, SourceRecord

log = logging.getLogger(__name__)

SERVER: Final = "server"


class PostgresSource(SourceConnector):
    """See the module."""

    doc = "Every change of PostgreSQL's tables, by logical replication."
    aliases = ("io.debezium.connector.postgresql.PostgresConnector",)
    options = OPTIONS
    poll_interval_ms: ClassVar[int] = 100

    @classmethod
    def check(cls, config: Config) -> Mapping[str, str]:
        """Also asks the server."""
        try:
            names_of(config, "schema")
        except OptionError as error:
            return {error.option: str(error)}
        try:
            with connect(connection_of(config)) as connection:
                wrong = server.wrong_settings(connection)
        except psycopg.Error as error:
            return {"database.hostname": str(server.failed(error, _where(config), "connecting"))}
        return {} if wrong is None else {"database.hostname": f"{_where(config)}: {wrong}"}

    @classmethod
    def check_offsets(cls, config: Config, offsets: Sequence[tuple[Json, Json | None]]) -> None:
        """See SourceConnector."""
        for partition, offset in offsets:
            if set(partition) != {SERVER}:
                raise ConnectError(
                    f'the partition is {{"server": "{config["topic.prefix"]}"}}, not {dict(partition)}'
                )
            lsn = None if offset is None else offset.get("lsn")
            if offset is not None and (isinstance(lsn, bool) or not isinstance(lsn, int)):
                raise ConnectError(f"lsn in the offset is not a whole number: {lsn!r}")

    def start(self, config: Config, context: SourceContext) -> None:
        """See SourceConnector."""
        super().start(config, context)
        self._where = _where(config)
        self._names = names_of(config, "schema")
        self._tables = Tables(
            self._names,
            Settings(
                config["decimal.handling.mode"],
                config["time.precision.mode"],
                config["binary.handling.mode"],
                config["hstore.handling.mode"],
                config["interval.handling.mode"],
                config["money.fraction.digits"],
                config["include.unknown.datatypes"],
            ),
            config["unavailable.value.placeholder"],
        )
        self._connection: psycopg.Connection[Any] | None = None
        self._replication: Replication | None = None
        self._snapshot: Snapshot | None = None
        self._streaming: Streaming | None = None
        self._incremental: Incremental | None = None
        self._origin: dict[str, Any] = {}
        self._at: Json | None = None
        self._fresh = True
        self._beat_at = time.monotonic()

    def partitions(self) -> Sequence[Json]:
        """One: a slot has one reader."""
        return [{SERVER: self.config["topic.prefix"]}]

    def poll(self, partition: Json, offset: Json | None) -> Batch:
        """See SourceConnector."""
        try:
            if (self._snapshot or self._streaming) and offset != self._at:
                log.info("offset set anew", extra={"offset": offset})
                self._close()
            if self._is_reading(offset):
                return self._read(offset)
            if self.config["snapshot.mode"] == "initial_only":
                return Batch()
            assert offset is not None
            return self._stream(offset)
        except psycopg.Error as error:
            self._close()
            raise server.failed(error, self._where, "reading changes") from error
        except DecodeError as error:
            self._close()
            raise ConnectError(f"{self._where}: slot {self.config['slot.name']}: {error}") from error
        except ConnectError:
            self._close()
            raise

    def committed(self, partition: Json, offset: Json) -> None:
        """The server may forget what has been stored."""
        lsn = offset.get("lsn_commit")
        if self._replication is not None and self._streaming is not None and isinstance(lsn, int):
            try:
                self._replication.confirm(lsn)
            except psycopg.Error as error:
                # It is confirmed again later; the next poll finds out what is wrong.
                log.info("position not confirmed", extra={"lsn": lsn_text(lsn), "reason": str(error)})

    def stop(self) -> None:
        """See SourceConnector."""
        if not hasattr(self, "_origin"):
            return
        self._close()
        if self.config["slot.drop.on.stop"]:
            try:
                with connect(connection_of(self.config)) as connection:
                    server.drop_slot(connection, self.config["slot.name"])
            except psycopg.Error as error:
                log.warning(
                    "slot not dropped", extra={"slot": self.config["slot.name"], "reason": str(error)}
                )

    def _close(self) -> None:
        for one in (self._replication, self._snapshot, self._connection, self._incremental):
            if one is not None:
                one.close()
        self._replication = self._snapshot = self._connection = self._streaming = self._incremental = None

    # --- the snapshot -----------------------------------------------------------------------------------

    def _is_reading(self, offset: Json | None) -> bool:
        """Whether rows are to be read before changes."""
        if self._snapshot is not None:
            return True
        again = self._fresh and self.config["snapshot.mode"] == "always" and self._streaming is None
        return offset is None or again or ("table" in offset and not offset.get("snapshot_completed"))

    def _read(self, offset: Json | None) -> Batch:
        first = self._snapshot is None and not (offset and "table" in offset)
        if self._snapshot is None:
            begun = self._begin(offset)
            if begun is not None:
                self._fresh = False
                self._at = begun
                return Batch((), begun)
        assert self._snapshot is not None
        records, ended = self._snapshot.take(
            self.config["snapshot.fetch.size"], self._snapshot_source, self._snapshot_offset, first
        )
        last: Json | None = records[-1].source_offset if records else None
        if ended:
            last = self._snapshot_offset("", (), True)
            self._snapshot.close()
            self._snapshot = None
            self._fresh = False
        self._at = last if last is not None else offset
        return Batch(records, last)

    def _begin(self, offset: Json | None) -> Json | None:
        """Begins to read rows; returns an offset instead if there are none to read."""
        connection = self._ready()
        slot, mode = self.config["slot.name"], self.config["snapshot.mode"]
        confirmed = server.slot_position(connection, slot)
        if offset and "table" in offset:
            if confirmed is None:
                raise server.lost_slot(slot, lsn_text(int(offset["lsn"])))
            place = Place(str(offset["table"]), tuple(offset.get("key") or ()))
            self._snapshot = self._new_snapshot(None, place)
            self._origin = {"lsn": int(offset["lsn"])}
            return None
        exported = None
        if confirmed is None:
            self._replication = Replication(connection_of(self.config))
            slot_created = self._replication.create_slot(slot, "pgoutput")
            exported, confirmed = slot_created.snapshot, slot_created.lsn
        start = {"lsn": confirmed, "lsn_proc": confirmed, "events": 0}
        if mode in ("no_data", "never"):
            return start
        self._snapshot = self._new_snapshot(exported, None)
        self._origin = {"lsn": confirmed}
        if exported is None:
            row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            assert row is not None
            self._origin["seen"] = [self._snapshot.seen, lsn_number(row[0])]
        if self._replication is not None:
            self._replication.close()
            self._replication = None
        return None

    def _new_snapshot(self, exported: str | None, place: Place | None) -> Snapshot:
        chosen = self.config["snapshot.select.statement.overrides"]
        statements = {
            table: str(self.config.get(f"snapshot.select.statement.overrides.{table}") or "")
            for table in chosen
        }
        return Snapshot(
            connection_of(self.config),
            self._tables,
            exported,
            self.config["snapshot.fetch.size"],
            place,
            {table: text for table, text in statements.items() if text},
        )

    def _snapshot_source(self, table: Table, mark: str) -> Mapping[str, Any]:
        assert self._snapshot is not None
        at_us, lsn = self._snapshot.at_us, self._origin["lsn"]
        return {
            "version": barnabas.__version__,
            "connector": "postgresql",
            "name": self.config["topic.prefix"],
            "ts_ms": at_us // 1000,
            "snapshot": mark,
            "db": self.config["database.dbname"],
            "sequence": f'[null,"{lsn}"]',
            "ts_us": at_us,
            "ts_ns": at_us * 1000,
            "schema": table.outer,
            "table": table.name,
            "txId": int(self._snapshot.seen.split(":")[1]),
            "lsn": lsn,
            "xmin": None,
            "origin": None,
            "origin_lsn": None,
        }

    def _snapshot_offset(self, table: str, key: Sequence[str], ended: bool) -> Mapping[str, Any]:
        lsn = self._origin["lsn"]
        if ended:
            return {**self._origin, "lsn_proc": lsn, "events": 0}
        return {
            **self._origin,
            "snapshot": "INITIAL",
            "snapshot_completed": False,
            "table": table,
            "key": list(key),
        }

    # --- the stream -------------------------------------------------------------------------------------

    def _stream(self, offset: Json) -> Batch:
        if self._streaming is None:
            recovered = self._open(offset)
            if recovered is not None:
                self._at = recovered
                return Batch((), recovered)
        assert self._streaming is not None
        if self._incremental is not None and self._streaming.between:
            self._incremental.step()
        records, after = self._streaming.poll(self.config["max.batch.size"])
        beat = self._heartbeat()
        if beat is not None:
            records.append(beat)
        last = after
        if last is None or (beat is not None):
            last = records[-1].source_offset if records else None
        self._at = last if last is not None else offset
        return Batch(records, last)

    def _open(self, offset: Json) -> Json | None:
        """Begins to stream after the offset; returns another offset if history is gone and may be read anew."""
        connection = self._ready()
        slot = self.config["slot.name"]
        stored = int(offset.get("lsn_commit") or offset["lsn"])
        try:
            confirmed = server.slot_position(connection, slot)
            if confirmed is None:
                raise server.lost_slot(slot, lsn_text(stored))
            if "events" in offset and confirmed > stored:
                raise server.passed_slot(slot, lsn_text(confirmed), lsn_text(stored))
        except ConnectError as error:
            if self.config["snapshot.mode"] != "when_needed":
                raise
            log.warning("reading a new snapshot", extra={"reason": str(error)})
            server.drop_slot(connection, slot)
            self._close()
            self._begin(None)
            assert self._snapshot is not None
            return {"lsn": self._origin["lsn"], "table": "", "key": [], "snapshot": "INITIAL"}
        self._replication = Replication(connection_of(self.config))
        options = {"proto_version": "1", "publication_names": self.config["publication.name"]}
        if connection.info.server_version >= 140_000:
            options["messages"] = "true"
        self._replication.start(slot, stored, options)
        self._streaming = Streaming(self._replication, self._rules(), self._table_of, offset)
        if self.config["signal.data.collection"]:
            self._heed_signals(self._streaming, offset.get("incremental"))
        return None

    def _heed_signals(self, streaming: Streaming, state: Json | None) -> None:
        incremental = Incremental(
            connection_of(self.config),
            self._tables,
            self.config["signal.data.collection"],
            self.config["incremental.snapshot.chunk.size"],
            state,
            time.time_ns,
        )

        def signalled(row: Mapping[str, Any]) -> list[SourceRecord]:
            records = incremental.signal(
                row,
                lambda table: streaming.source(table.outer, table.name, streaming.last_commit, "incremental"),
            )
            streaming.keep("incremental", incremental.state)
            return records

        streaming.on_change, streaming.on_signal = incremental.note, signalled
        self._incremental = incremental

    def _rules(self) -> Rules:
        config = self.config
        return Rules(
            config["topic.prefix"],
            barnabas.__version__,
            config["database.dbname"],
            config["tombstones.on.delete"],
            frozenset(config["skipped.operations"]),
            config["provide.transaction.metadata"],
            self._names.topic(config["topic.transaction"]),
            self._names.topic("message"),
            config["signal.data.collection"],
            config["binary.handling.mode"],
        )

    def _table_of(self, relation: Relation) -> Table | None:
        assert self._connection is not None
        return self._tables.from_relation(Catalog(self._connection), relation)

    def _ready(self) -> psycopg.Connection[Any]:
        """A connection to a server that can stream, with the publication. Raises ConnectError."""
        if self._connection is None:
            self._connection = connect(connection_of(self.config))
            wrong = server.wrong_settings(self._connection)
            if wrong is not None:
                raise ConnectError(f"{self._where}: {wrong}")
            tables = Catalog(self._connection).tables()
            captured = [(row[1], row[2]) for row in tables if self._names.has_table(row[1], row[2])]
            mode = self.config["publication.autocreate.mode"]
            server.ensure_publication(self._connection, self.config["publication.name"], mode, captured)
        return self._connection

    def _heartbeat(self) -> SourceRecord | None:
        interval_s = self.config["heartbeat.interval.ms"] / 1000
        now = time.monotonic()
        if not interval_s or now - self._beat_at < interval_s or self._streaming is None:
            return None
        if not self._streaming.between:
            return None
        self._beat_at = now
        if self.config["heartbeat.action.query"] and self._connection is not None:
            self._connection.execute(self.config["heartbeat.action.query"])
        topic = f"{self.config['topic.heartbeat.prefix']}.{self.config['topic.prefix']}"
        offset = self._streaming.offset(self._streaming.last_commit)
        return heartbeat(topic, self.config["topic.prefix"], int(time.time() * 1000), offset)


def _where(config: Config) -> str:
    return f"postgresql://{config['database.hostname']}:{config['database.port']}/{config['database.dbname']}"
