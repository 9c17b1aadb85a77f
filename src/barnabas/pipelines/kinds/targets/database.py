"""Writes to a database through SQLAlchemy, or through JDBC with the jar of a driver.

    database: {url: "postgresql+psycopg://me:${env:PASSWORD}@db/logs", table: requests, key: [id]}
    database: {driver: sqlite3, connect: {database: out.db}, table: requests}     a DB-API module and its arguments
    database: {jdbc: "jdbc:postgresql://db/logs", table: requests, properties: {user: me, driver: org.postgresql.Driver}}

With `key` a row replaces the one with the same key, so a repeated batch changes nothing; a record that stands for a
delete deletes the row with its key. Without `key` rows are added in one transaction with notes of the offsets that they
come from (see ledger.py): of a repeated batch only the rows are added that are not stored yet. JDBC only adds rows: a
repeated batch is stored twice.

The table must exist. A field goes to the column of the same name, or else to the only one whose name differs just in
case. A record with a field of open JSON that has no column becomes a dead letter, unless `others: ignore`.
"""

from __future__ import annotations

import functools
import importlib
import json
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import sqlalchemy as sa
from pyspark.sql import functions as F

from barnabas.pipelines.databases.rows import Number, Store, bound, from_json, is_conflict
from barnabas.pipelines.entries.document import Item
from barnabas.pipelines.entries.shapes import Anything, Choice, Group, Named, Several, Text
from barnabas.pipelines.kinds.targets.base import (
    Delivery,
    DeliveryError,
    Refused,
    TargetKind,
    Task,
    deletions,
    documents,
    field_names,
)
from barnabas.pipelines.kinds.targets.ledger import NOTES, Ledger, has_older_notes
from barnabas.pipelines.plan.errors import PipelineError, TargetAway, suggestion
from barnabas.pipelines.spark.frame import Frame, quoted

ATTEMPTS_MAX: Final = 6
"""How often a task's transaction is tried if it ends in deadlocks."""
PAUSE_S: Final = 0.05
SQLITE_WAIT_MS: Final = 60_000
"""How long a task waits for the transactions of others if `connect` has no `timeout`: SQLite writes one at a time."""
OUTSIDE: Final = "the time is outside of the years 1 to 9999; usually milliseconds were read as seconds"
DIALECTS: Final[Mapping[str, str]] = {
    "sqlite3": "sqlite",
    "psycopg": "postgresql+psycopg",
    "psycopg2": "postgresql+psycopg2",
    "pg8000": "postgresql+pg8000",
    "pymysql": "mysql+pymysql",
    "MySQLdb": "mysql+mysqldb",
    "mysql.connector": "mysql+mysqlconnector",
    "mariadb": "mariadb+mariadbconnector",
    "oracledb": "oracle+oracledb",
    "pyodbc": "mssql+pyodbc",
}
"""DB-API modules, with SQLAlchemy's name of the dialect that uses each."""
SHAPE: Final = Group(
    {
        "url": Text(
            "an SQLAlchemy URL like postgresql+psycopg://user:password@host/database", hides="passwords"
        ),
        "driver": Text("a DB-API module, instead of url"),
        "connect": Named(Anything(), "arguments of the driver's connect", guarded=True),
        "jdbc": Text("a JDBC URL; add its driver with --conf spark.jars=FILE.jar", hides="passwords"),
        "properties": Named(Text(), "properties of the JDBC connection", guarded=True),
        "table": Text("an existing table"),
        "key": Several(Text("a column"), "the key's columns; a row replaces the one with the same key"),
        "columns": Named(Text("a column"), "the columns of fields whose columns have another name"),
        "others": Choice(
            ("refuse", "ignore"), "what to do with fields of open JSON without a column; default refuse"
        ),
    },
    "a table of a database",
    required=("table",),
    one_of=("url", "driver", "jdbc"),
    needs={"properties": "jdbc"},
)


def _check(item: Item) -> Mapping[str, Any]:
    entries = SHAPE.open(item)
    options: dict[str, Any] = {
        "table": entries["table"].text(),
        "key": list(entries["key"].texts()) if "key" in entries else [],
        "columns": entries["columns"].text_map() if "columns" in entries else {},
        "others": entries["others"].choice(("refuse", "ignore")) if "others" in entries else "refuse",
        "connect": {name: entry.value for name, entry in entries["connect"].mapping().items()}
        if "connect" in entries
        else {},
    }
    if "jdbc" in entries:
        if options["key"]:
            entries["key"].fail(
                "key does not go with jdbc: Spark's JDBC writer only adds rows; use url or driver"
            )
        return options | {
            "jdbc": entries["jdbc"].text(),
            "properties": entries["properties"].text_map() if "properties" in entries else {},
        }
    chosen = "url" if "url" in entries else "driver"
    options[chosen] = entries[chosen].text()
    try:
        _engine(options)
    except (DeliveryError, sa.exc.SQLAlchemyError, ImportError) as error:
        entries[chosen].fail(message_of(error))
    return options


def message_of(error: Exception) -> str:
    """The message of a database's error, on one line, without SQLAlchemy's own additions."""
    inner = getattr(error, "orig", None) or error
    return " ".join(str(inner).split()) or type(inner).__name__


def _engine(options: Mapping[str, Any], *, looks: bool = False) -> sa.Engine:
    """An engine for the database. looks: its transactions do not wait for those that write, if the database is SQLite."""
    if "url" in options:
        engine = sa.create_engine(
            options["url"], poolclass=sa.pool.NullPool, connect_args=dict(options["connect"])
        )
    else:
        driver = options["driver"]
        if driver not in DIALECTS:
            raise DeliveryError(
                f"the driver is {driver!r}; {suggestion(driver, DIALECTS)}, or a url of SQLAlchemy"
            )
        try:
            module = importlib.import_module(driver)
        except ImportError as error:
            raise DeliveryError(f"the driver {driver!r} is not installed: {error}") from error
        connect = functools.partial(module.connect, **options["connect"])
        engine = sa.create_engine(f"{DIALECTS[driver]}://", poolclass=sa.pool.NullPool, creator=connect)
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", lambda connection, _: _open_sqlite(connection, options["connect"]))
        # A transaction that has read and then wants to write is refused at once if another one writes meanwhile. One that
        # says at its beginning that it will write waits for the other.
        begin = "BEGIN" if looks else "BEGIN IMMEDIATE"
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


def _open_sqlite(connection: Any, arguments: Mapping[str, Any]) -> None:
    """Prepares a new connection to SQLite: transactions of this module, which Python's would begin by itself and too late
    for savepoints, and a wait for those of others that is long enough for large micro-batches."""
    connection.isolation_level = None
    if "timeout" not in arguments:
        connection.execute(f"PRAGMA busy_timeout = {SQLITE_WAIT_MS}")


@dataclass(frozen=True, slots=True)
class TableLayout:
    """A table as the database has it. columns: names and types."""

    schema: str | None
    table: str
    columns: Mapping[str, sa.types.TypeEngine[Any]]

    def column(self, name: str) -> str | None:
        """The column of this name, or else the only one whose name differs just in case; None without one."""
        return named(self.columns, name)


def named(names: Iterable[str], wanted: str) -> str | None:
    """The name that is equal, or else the only one that differs just in case; None without one."""
    near = [name for name in names if name.lower() == wanted.lower()]
    if wanted in near:
        return wanted
    return near[0] if len(near) == 1 else None


def _shape(connection: sa.Connection, name: str) -> TableLayout:
    """Looks a table up. Raises DeliveryError if it does not exist."""
    inspector = sa.inspect(connection)
    places: list[tuple[str | None, str]] = [(None, name)]
    if "." in name:
        schema_name, _, inner = name.rpartition(".")
        places.append((schema_name, inner))
    for schema, table in places:
        try:
            existing = inspector.get_table_names(schema) + inspector.get_view_names(schema)
            if (there := named(existing, table)) is not None:
                columns = inspector.get_columns(there, schema)
                return TableLayout(schema, there, {column["name"]: column["type"] for column in columns})
        except sa.exc.NoSuchTableError:
            continue
    raise DeliveryError(f"no such table: {name}")


def _keys(shape: TableLayout, options: Mapping[str, Any]) -> list[str]:
    keys = []
    for name in options["key"]:
        column = shape.column(options["columns"].get(name, name))
        if column is None:
            raise DeliveryError(
                f"table {options['table']} has no column {name!r}; {suggestion(name, shape.columns)}"
            )
        keys.append(column)
    return keys


def _reach(options: Mapping[str, Any]) -> None:
    if "jdbc" in options:
        return  # Spark reports mistakes in a JDBC URL when the first batch is written
    try:
        with _engine(options, looks=True).begin() as connection:
            _keys(_shape(connection, options["table"]), options)
            if not options["key"]:
                NOTES.create_all(connection)
    except (sa.exc.OperationalError, sa.exc.InterfaceError, OSError) as error:
        raise TargetAway(f"database: {message_of(error)}") from error
    except (DeliveryError, sa.exc.SQLAlchemyError) as error:
        raise PipelineError(f"database: {message_of(error)}") from error


Results = list[tuple[pa.RecordBatch, list[Refused]]]


def _deliver(
    options: Mapping[str, Any], task: Task, batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, list[Refused]]]:
    """Stores all of a task's rows in one transaction, which is repeated if it ends in a deadlock."""
    taken: list[pa.RecordBatch] = []

    def remembered() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            taken.append(batch)
            yield batch

    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            results = _store_all(options, task, chain(list(taken), remembered()))
            break
        except sa.exc.SQLAlchemyError as error:
            conflict = isinstance(error, sa.exc.DBAPIError) and is_conflict(error)
            if not conflict or attempt == ATTEMPTS_MAX:
                raise DeliveryError(f"table {options['table']}: {message_of(error)}") from error
            time.sleep(random.uniform(0.0, PAUSE_S * 2**attempt))
    yield from results


def _store_all(options: Mapping[str, Any], task: Task, batches: Iterator[pa.RecordBatch]) -> Results:
    results: Results = []
    with _engine(options).begin() as connection:
        shape = _shape(connection, options["table"])
        store = Store(connection, shape.schema, shape.table, _keys(shape, options))
        ledger = None if options["key"] else _ledger(connection, options, task)
        for batch in batches:
            if ledger is None:
                results.append((batch, _stored(options, task, shape, store, batch)))
                continue
            sorted_rows = ledger.sort(batch)
            whole = len(sorted_rows.fresh) == batch.num_rows
            fresh = batch if whole else batch.take(pa.array(sorted_rows.fresh, pa.int64()))
            refused = [
                Refused(sorted_rows.fresh[row.row], row.reason)
                for row in _stored(options, task, shape, store, fresh)
            ]
            ledger.note_refused(sorted_rows, refused)
            results.append((batch, sorted(sorted_rows.refused + refused, key=lambda row: row.row)))
        if ledger is not None:
            ledger.close()
    return results


def _ledger(connection: sa.Connection, options: Mapping[str, Any], task: Task) -> Ledger:
    """The notes about a task's part. Raises DeliveryError for a part that an earlier version began."""
    place = json.dumps([options.get("url"), options.get("driver"), options["connect"]], default=str)
    return Ledger(connection, task, has_older_notes(connection, place))


def _stored(
    options: Mapping[str, Any], task: Task, shape: TableLayout, store: Store, batch: pa.RecordBatch
) -> list[Refused]:
    """Stores the rows of a batch; returns those that do not fit the table, or that the database refuses."""
    if not batch.num_rows:
        return []
    rows = _open_rows if task.open else _declared_rows
    columns, ready, refused = rows(options, shape, store.dialect, batch)
    places = [place for place, _ in ready]
    gone = deletions(batch)
    failed = store.change(columns, [row for _, row in ready], [gone[place] for place in places])
    return refused + [Refused(places[row], message_of(reason)) for row, reason in failed]


Ready = tuple[list[str], list[tuple[int, Sequence[Any]]], list[Refused]]
"""Columns; rows with their indices in the batch; rows that do not fit."""


def _declared_rows(
    options: Mapping[str, Any], shape: TableLayout, dialect: str, batch: pa.RecordBatch
) -> Ready:
    fields = field_names(batch)
    columns = []
    for field in fields:
        name = options["columns"].get(field, field)
        column = shape.column(name)
        if column is None:
            raise DeliveryError(
                f"table {options['table']} has no column {name!r} for field {field}; "
                f"{suggestion(name, shape.columns)}; drop the field, or name its column in `columns`"
            )
        columns.append(column)
    converted = [python_values(batch.column(batch.schema.get_field_index(field))) for field in fields]
    reasons = {
        row: f"{field}: {OUTSIDE}" for field, (_, bad) in zip(fields, converted, strict=True) for row in bad
    }
    rows = zip(*[values for values, _ in converted], strict=True)
    ready: list[tuple[int, Sequence[Any]]] = [
        (place, tuple(bound(value, dialect) for value in row))
        for place, row in enumerate(rows)
        if place not in reasons
    ]
    return columns, ready, [Refused(place, reason) for place, reason in sorted(reasons.items())]


def python_values(column: pa.Array) -> tuple[list[Any], list[int]]:
    """A column's values, and the indices of times that Python has no value for (they are None)."""
    if not (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
        return column.to_pylist(), []
    try:
        return column.to_pylist(), []
    except (OverflowError, ValueError):
        values, bad = [], []
        for row in range(len(column)):
            try:
                values.append(column[row].as_py())
            except (OverflowError, ValueError):
                values.append(None)
                bad.append(row)
        return values, bad


def _open_rows(options: Mapping[str, Any], shape: TableLayout, dialect: str, batch: pa.RecordBatch) -> Ready:
    """Rows of open JSON; a row with a value that does not fit its column is refused."""
    columns = list(shape.columns)
    names: dict[str, str | None] = {}
    ready: list[tuple[int, Sequence[Any]]] = []
    refused = []
    for place, document in enumerate(documents(batch)):
        values: dict[str, Any] = {}
        try:
            for field, value in json.loads(document, parse_float=Number).items():
                if field not in names:
                    names[field] = shape.column(options["columns"].get(field, field))
                column = names[field]
                if column is not None:
                    values[column] = bound(from_json(value, shape.columns[column], column), dialect)
                elif options["others"] == "refuse":
                    raise ValueError(f"table {options['table']} has no column for field {field}")
        except ValueError as error:
            refused.append(Refused(place, str(error)))
            continue
        ready.append((place, [values.get(column) for column in columns]))
    used = [i for i, column in enumerate(columns) if column in names.values()]
    return [columns[i] for i in used], [(p, tuple(row[i] for i in used)) for p, row in ready], refused


def _write_jdbc(options: Mapping[str, Any], delivery: Delivery, frame: Frame) -> None:
    names = {name: options["columns"].get(name, name) for name in frame.fields}
    rows = frame.data.select(*[F.col(quoted(name)).alias(column) for name, column in names.items()])
    try:
        rows.write.jdbc(
            options["jdbc"], options["table"], mode="append", properties=dict(options["properties"])
        )
    except Exception as error:
        if (missing := _missing_driver(str(error), options)) is not None:
            raise DeliveryError(missing) from None
        raise


def _missing_driver(text: str, options: Mapping[str, Any]) -> str | None:
    """What to do about an error of Spark if it says that there is no driver for a JDBC URL; None for other errors."""
    driver = options["properties"].get("driver")
    if driver is not None and f"ClassNotFoundException: {driver}" in text:
        return f"there is no JDBC driver {driver}: add its jar with --conf spark.jars=FILE.jar"
    if "SQLException: No suitable driver" in text:
        return (
            f"no JDBC driver takes {options['jdbc'].partition('//')[0]}: add its jar with --conf spark.jars=FILE.jar, and "
            "name its class with properties: {driver: ...}"
        )
    return None


DATABASE: Final = TargetKind(
    "database",
    "with a key a repeated batch replaces its rows; without one it is skipped; through JDBC it is added again",
    SHAPE,
    _check,
    _reach,
    deliver=_deliver,
    write=_write_jdbc,
    by_spark=lambda options: "jdbc" in options,
    takes_open=lambda options: "jdbc" not in options,
    deletes=lambda options: bool(options["key"]),
)
