"""Rows of tables, or of a query, as records: all of them every time, or those that are new by a counter or a time.

Source of the options and offsets: Confluent's documentation of its JDBC source connector. Two things differ. Rows of
the same time are told apart by the primary key, so that none is lost when a poll ends between them. And a batch has up to
2,000 rows, since each is a transaction.
"""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, ClassVar, Final

import sqlalchemy as sa

from barnabas.connect.connectors import Batch, SourceConnector, SourceContext
from barnabas.connect.errors import ConnectError, OptionError
from barnabas.connect.jdbc import options as declared
from barnabas.connect.jdbc.columns import (
    Column,
    Convert,
    converter,
    described,
    guessed,
    schema_of,
    sqlite_columns,
    sqlite_us,
)
from barnabas.connect.jdbc.queries import Reading, offset_of, query_of
from barnabas.connect.jdbc.tables import Table, counting_column, find_tables, key_columns, nullable
from barnabas.connect.jdbc.urls import engine, failed, message_of, shown, sqlalchemy_url
from barnabas.connect.options import Config
from barnabas.connect.records import Json, SourceRecord
from barnabas.connect.schemas import EPOCH, Schema, struct
from barnabas.connect.unread import leave

PROTOCOL: Final = "protocol"
SAMPLE_ROWS: Final = 100
SAME_TIME_ROWS_MAX: Final = 50_000
"""Rows of one time without a primary key, which must stay together."""


@dataclass(slots=True)
class Rows:
    """A result that is being read. at: the offset after the rows that were taken from it. ended: all were taken."""

    connection: sa.Connection
    rows: Iterator[Sequence[Any]]
    schema: Schema
    converts: list[Convert]
    places: Mapping[str, int]
    at: Json | None
    cursor: Any
    ahead: list[Sequence[Any]] = field(default_factory=list)
    ended: bool = False

    def take(self, count: int) -> list[Sequence[Any]]:
        """The next rows; fewer at the end."""
        rows = self.ahead[:count]
        del self.ahead[:count]
        rows += islice(self.rows, count - len(rows))
        self.ended = len(rows) < count
        return rows


class JdbcSource(SourceConnector):
    """See the module."""

    leaves_no_trace = True
    doc = "Rows of database tables, polled by a counter or a time of change."
    aliases = ("io.confluent.connect.jdbc.JdbcSourceConnector",)
    options = declared.SOURCE
    poll_interval_ms: ClassVar[int] = 5000

    @classmethod
    def check(cls, config: Config) -> Mapping[str, str]:
        """Also connects to the database."""
        wrong = declared.wrong_source(config)
        if wrong:
            return wrong
        try:
            url = _url(config)
            with engine(url, config["db.timezone"]).connect() as connection:
                if not config["query"]:
                    find_tables(connection, config)
        except OptionError as error:
            return {error.option or "connection.url": str(error)}
        except (sa.exc.SQLAlchemyError, OSError) as error:
            return {"connection.url": f"{shown(url)} cannot be opened: {message_of(error)}"}
        return {}

    @classmethod
    def exactly_once(cls, config: Config) -> bool:
        """Not in mode bulk, which begins again when it was interrupted."""
        return bool(config["mode"] != "bulk")

    @classmethod
    def check_offsets(cls, config: Config, offsets: Sequence[tuple[Json, Json | None]]) -> None:
        """See SourceConnector."""
        for partition, offset in offsets:
            if not ("table" in partition or "query" in partition):
                raise ConnectError(
                    f'a partition is {{"table": NAME}} or {{"query": "query"}}, not {dict(partition)}'
                )
            for name, value in (offset or {}).items():
                if name != "key" and (isinstance(value, bool) or not isinstance(value, int)):
                    raise ConnectError(
                        f"{name} in the offset of {dict(partition)} is not a whole number: {value!r}"
                    )

    def start(self, config: Config, context: SourceContext) -> None:
        """See SourceConnector."""
        super().start(config, context)
        self._url = _url(config)
        self._engine = engine(self._url, config["db.timezone"])
        self._mapping = declared.numeric_mapping(config)
        self._readings: dict[str, tuple[Reading, Table | None, dict[str, bool]]] = {}
        self._running: dict[str, Rows] = {}
        self._bulk_due: dict[str, float] = {}
        self._tables: dict[str, Table] = {}
        self._schemas: dict[tuple[str, tuple[Column, ...]], tuple[Schema, list[Convert]]] = {}

    def partitions(self) -> Sequence[Json]:
        """A partition per table, named as Confluent's source names it; one for a query."""
        if self.config["query"]:
            return [{"query": "query"}]
        try:
            with self._engine.connect() as connection:
                self._tables = {table.path: table for table in find_tables(connection, self.config)}
        except (sa.exc.SQLAlchemyError, OSError) as error:
            raise failed(self._url, error, "listing tables") from error
        return [{PROTOCOL: "1", "table": path} for path in self._tables]

    def poll(self, partition: Json, offset: Json | None) -> Batch:
        """See SourceConnector."""
        name = str(partition.get("table") or "query")
        try:
            running = self._running.get(name)
            if running is None or running.at != offset:
                self._close(name)
                running = self._open(name, offset)
            if running is None:
                return Batch()
            return self._taken(name, running)
        except (sa.exc.SQLAlchemyError, OSError) as error:
            self._close(name)
            raise failed(self._url, error, f"reading {name}") from error

    def stop(self) -> None:
        """See SourceConnector."""
        for name in list(getattr(self, "_running", {})):
            self._close(name)

    # --- one query --------------------------------------------------------------------------------------

    def _open(self, name: str, offset: Json | None) -> Rows | None:
        """Begins the query for what is after the offset; None if it is not time yet for another bulk reading."""
        if self.config["mode"] == "bulk" and self._bulk_due.get(name, 0) > time.monotonic():
            return None
        connection = self._engine.connect()
        try:
            rows = self._started(connection, name, offset)
        except BaseException:
            connection.close()
            raise
        self._running[name] = rows
        return rows

    def _started(self, connection: sa.Connection, name: str, offset: Json | None) -> Rows:
        reading, table, may_be_null = self._reading(connection, name)
        until_us = now_us(connection, reading) - int(self.config["timestamp.delay.interval.ms"]) * 1000
        text, values = query_of(reading, offset or self._initial(reading), until_us)
        result = connection.execution_options(stream_results=True).execute(sa.text(_escaped(text)), values)
        cursor = result.cursor
        assert cursor is not None
        columns = [
            replace(column, optional=may_be_null.get(column.name, True))
            for column in described(cursor, reading.dialect)
        ]
        rows: Iterator[Sequence[Any]] = iter(result)
        ahead: list[Sequence[Any]] = []
        if reading.dialect == "sqlite":
            said_of = sqlite_columns(connection, table.name) if table is not None else {}
            columns = [said_of.get(column.name, column) for column in columns]
            if any(column.kind == "any" for column in columns):
                ahead = list(islice(rows, SAMPLE_ROWS))
                columns = [
                    guessed(column, [row[place] for row in ahead]) if column.kind == "any" else column
                    for place, column in enumerate(columns)
                ]
        schema, converts = self._schema(name if table is None else table.name, columns)
        places = {column.name: place for place, column in enumerate(columns)}
        return Rows(connection, rows, schema, converts, places, offset, cursor, ahead)

    def _initial(self, reading: Reading) -> Json | None:
        """Where to begin without an offset."""
        initial = self.config["timestamp.initial"]
        if initial is None or reading.time is None:
            return None
        return {"timestamp": int(time.time() * 1000) if initial == -1 else initial - 1}

    def _schema(self, name: str, columns: list[Column]) -> tuple[Schema, list[Convert]]:
        known = self._schemas.get((name, tuple(columns)))
        if known is None:
            schemas = {column.name: schema_of(column, self._mapping) for column in columns}
            zone = self.config["db.timezone"]
            converts = [converter(column, schemas[column.name], zone) for column in columns]
            known = self._schemas[name, tuple(columns)] = (
                struct(schemas, None if name == "query" else name),
                converts,
            )
        return known

    def _reading(self, connection: sa.Connection, name: str) -> tuple[Reading, Table | None, dict[str, bool]]:
        """How a table is read, found out once."""
        if name not in self._readings:
            self._readings[name] = self._reading_of(connection, name)
        return self._readings[name]

    def _reading_of(
        self, connection: sa.Connection, name: str
    ) -> tuple[Reading, Table | None, dict[str, bool]]:
        config, dialect = self.config, connection.dialect.name
        dialect = "mysql" if dialect == "mariadb" else dialect
        times = (
            tuple(map(self._quoted, config["timestamp.column.name"])) if "timestamp" in config["mode"] else ()
        )
        common: dict[str, Any] = {"suffix": config["query.suffix"], "zone": config["db.timezone"]}
        if config["query"]:
            counter = self._quoted(config["incrementing.column.name"]) if "incr" in config["mode"] else None
            source = config["query"].strip().rstrip(";")
            return Reading(dialect, source, True, times, counter, **common), None, {}
        if not self._tables:
            self.partitions()
        table = self._tables.get(name) or next((t for t in self._tables.values() if t.has_name(name)), None)
        if table is None:
            raise ConnectError(f"table {name} does not exist any more in {shown(self._url)}")
        counting = None
        if "incrementing" in config["mode"]:
            counting = config["incrementing.column.name"] or counting_column(connection, table)
        nulls = nullable(connection, table)
        self._check_columns(table, nulls, counting)
        key = () if counting or not times else tuple(map(self._quoted, key_columns(connection, table)))
        source = ".".join(map(self._quoted, filter(None, (table.schema, table.name))))
        counter = self._quoted(counting) if counting else None
        reading = Reading(dialect, source, False, times, counter, key, **common)
        return reading, table, nulls

    def _check_columns(self, table: Table, nulls: Mapping[str, bool], counting: str | None) -> None:
        times = self.config["timestamp.column.name"] if "timestamp" in self.config["mode"] else []
        for column in [*times, *([counting] if counting else [])]:
            if column not in nulls:
                raise ConnectError(
                    f"table {table.path} has no column {column}; its columns are {', '.join(nulls)}; leave the table out "
                    "with table.blacklist, or name another column"
                )
        maybe = [column for column in [*([counting] if counting else [])] if nulls[column]]
        if times and all(nulls[column] for column in times):
            maybe += times
        if self.config["validate.non.null"] and maybe:
            raise ConnectError(
                f"column {maybe[0]} of table {table.path} may be null, and rows in which it is are never read: declare it "
                "NOT NULL, or set validate.non.null to false"
            )

    def _quoted(self, name: str) -> str:
        if self.config["quote.sql.identifiers"] == "never":
            return name
        quote = self._engine.dialect.identifier_preparer.quote_identifier
        return ".".join(quote(part) for part in name.split(".")) if self.config["query"] else quote(name)

    # --- its rows ---------------------------------------------------------------------------------------

    def _taken(self, name: str, running: Rows) -> Batch:
        count = self.config["batch.max.rows"]
        rows = running.take(count)
        reading = self._readings[name][0]
        if reading.times and not reading.counter and not reading.key:
            rows += self._same_time(running, rows, count)
        if not rows:
            self._close(name)
            if self.config["mode"] == "bulk":
                self._bulk_due[name] = time.monotonic() + self.config["poll.interval.ms"] / 1000
            return Batch()
        offsets = self._offsets(reading, running, rows)
        names = [field.name for field in running.schema.fields]
        topic = self.config["topic.prefix"] + ("" if name == "query" else self._topic_part(name))
        records = [
            SourceRecord(
                topic,
                {n: convert(value) for n, convert, value in zip(names, running.converts, row, strict=True)},
                value_schema=running.schema,
                source_offset=offset,
            )
            for row, offset in zip(rows, offsets, strict=True)
        ]
        running.at = offsets[-1] if offsets[-1] is not None else running.at
        if len(rows) < count and self.config["mode"] != "bulk":
            self._close(name)
        return Batch(records)

    def _topic_part(self, name: str) -> str:
        table = self._readings[name][1]
        assert table is not None
        return table.name

    def _same_time(self, running: Rows, rows: list[Sequence[Any]], count: int) -> list[Sequence[Any]]:
        """The rows that have the time of the last one and no key to go on from; they belong into the same batch."""
        more: list[Sequence[Any]] = []
        if len(rows) < count:
            return more
        last = self._time_us(running, rows[-1])
        while len(more) < SAME_TIME_ROWS_MAX:
            following = running.take(1)
            if not following:
                return more
            if self._time_us(running, following[0]) != last:
                running.ahead[:0] = following
                return more
            more += following
        raise ConnectError(
            f"more than {SAME_TIME_ROWS_MAX} rows have the time of the last row read, and no primary key to tell them "
            "apart; use mode timestamp+incrementing"
        )

    def _offsets(self, reading: Reading, running: Rows, rows: list[Sequence[Any]]) -> list[Json | None]:
        if self.config["mode"] == "bulk":
            return [None] * len(rows)
        counter = self._place(running, reading.counter)
        keys = [place for column in reading.key if (place := self._place(running, column)) is not None]
        offsets: list[Json | None] = []
        for row in rows:
            at_us = self._time_us(running, row) if reading.times else None
            key = [row[place] for place in keys]
            usable = key if key and all(isinstance(part, (int, str)) for part in key) else None
            offsets.append(offset_of(at_us, None if counter is None else row[counter], usable))
        if (
            reading.times
            and reading.counter is None
            and not (offsets and offsets[-1] and "key" in offsets[-1])
        ):
            # Without a key to go on from, only the last row of a time is a place to stop.
            for place in range(len(offsets) - 1):
                if offsets[place] == offsets[place + 1]:
                    offsets[place] = None
        return offsets

    def _place(self, running: Rows, quoted: str | None) -> int | None:
        if quoted is None:
            return None
        bare = quoted.split(".")[-1].strip('"`')
        if bare not in running.places:
            raise ConnectError(f"the rows have no column {bare}; they have {', '.join(running.places)}")
        return running.places[bare]

    def _time_us(self, running: Rows, row: Sequence[Any]) -> int | None:
        for column in self.config["timestamp.column.name"]:
            place = self._place(running, column)
            assert place is not None
            value = row[place]
            if value is None:
                continue
            if self._engine.dialect.name == "sqlite":
                return sqlite_us(value)
            converted = converter(Column(column, "timestamp"), _TIMES, self.config["db.timezone"])(value)
            return int((converted - EPOCH) / dt.timedelta(microseconds=1))
        return None

    def _close(self, name: str) -> None:
        running = self._running.pop(name, None)
        if running is not None:
            if not running.ended:
                leave(running.cursor)
                running.connection.invalidate()
            running.connection.close()


_TIMES: Final = schema_of(Column("", "timestamp"), "none")


def _url(config: Config) -> sa.URL:
    return sqlalchemy_url(config["connection.url"], config["connection.user"], config["connection.password"])


def _escaped(text: str) -> str:
    """A colon that is not one of our parameters stays a colon."""
    return re.sub(
        r"(?<![:\w])(:)(?!(until|after|last|key\d+)\b)|(::)", lambda m: "\\:" * len(m.group()), text
    )


def now_us(connection: sa.Connection, reading: Reading) -> int:
    """The database's own time, in microseconds since 1970: clocks differ."""
    if reading.dialect == "sqlite" or reading.time is None:
        return int(time.time() * 1e6)
    question = {
        "postgresql": "SELECT extract(epoch FROM clock_timestamp())",
        "mysql": "SELECT UNIX_TIMESTAMP(NOW(6))",
    }
    value = connection.exec_driver_sql(question[reading.dialect]).scalar()
    return int(value * 1_000_000) if value is not None else int(time.time() * 1e6)
