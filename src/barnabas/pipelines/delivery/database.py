"""To a database through Python's DB-API, or through JDBC where its jar is at hand.

    database: {driver: psycopg, connect: {dsn: "host=db dbname=logs"}, table: requests, key: [id]}
    database: {driver: sqlite3, connect: {database: out.db}, table: requests}
    database: {jdbc: "jdbc:postgresql://db/logs", table: requests, properties: {user: me, driver: org.postgresql.Driver}}

With `key` a row replaces the one with the same key, so a repeated batch changes nothing. Without it rows are added
together with a line in the table `barnabas_batches`, in one transaction, which says that this part of the batch
is in: a repeated one is skipped. Through JDBC rows are only added: a repeated batch is there twice.
The table must be there. Fields go to the columns of their names.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import functions as F

from barnabas.pipelines.delivery.base import DeliveryError, Refused, TargetKind, Task, field_names
from barnabas.pipelines.document import Item, suggestion
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.steps.base import Frame, quoted

NAMES: Final = ("driver", "connect", "jdbc", "properties", "table", "key", "columns")
PLACEHOLDERS: Final[dict[str, str]] = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric": ":{}"}
PROGRESS: Final = "barnabas_batches"
REFUSED_ROWS_MAX: Final = 1000


def _check(item: Item) -> Mapping[str, Any]:
    found = item.mapping(NAMES, required=("table",))
    if ("driver" in found) == ("jdbc" in found):
        item.fail("database needs one of driver (a DB-API module) and jdbc (a URL)")
    table = found["table"].text()
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", table):
        found["table"].fail(f"table is {table!r}, not a name like requests or logs.requests")
    options: dict[str, Any] = {
        "table": table,
        "key": list(found["key"].texts()) if "key" in found else [],
        "columns": found["columns"].text_map() if "columns" in found else {},
    }
    if "jdbc" in found:
        if options["key"]:
            found["key"].fail(
                "key does not go with jdbc: Spark's JDBC writer only adds rows; use a DB-API driver"
            )
        return options | {
            "jdbc": found["jdbc"].text(),
            "properties": found["properties"].text_map() if "properties" in found else {},
        }
    options["driver"] = found["driver"].text()
    options["connect"] = (
        {name: entry.value for name, entry in found["connect"].mapping().items()}
        if "connect" in found
        else {}
    )
    try:
        _module(options)
    except DeliveryError as error:
        found["driver"].fail(str(error))
    return options


def _module(options: Mapping[str, Any]) -> Any:
    try:
        module = importlib.import_module(options["driver"])
    except ImportError as error:
        raise DeliveryError(f"the driver {options['driver']!r} is not installed: {error}") from error
    if not hasattr(module, "connect") or module.paramstyle not in PLACEHOLDERS:
        raise DeliveryError(f"{options['driver']!r} is not a DB-API driver that can be used here")
    return module


def _connect(options: Mapping[str, Any]) -> Any:
    return _module(options).connect(**options["connect"])


def _reach(options: Mapping[str, Any]) -> None:
    if "jdbc" in options:
        return  # Spark says what is wrong with a JDBC URL when the first batch is written
    module = _module(options)
    try:
        with closing(_connect(options)) as connection:
            cursor = connection.cursor()
            cursor.execute(f"SELECT * FROM {options['table']} WHERE 1 = 0")
            columns = [row[0] for row in cursor.description]
            for name in options["key"]:
                if name not in columns:
                    raise PipelineError(
                        f"database: table {options['table']} has no column {name!r}; {suggestion(name, columns)}"
                    )
            if not options["key"]:
                cursor.execute(
                    f"CREATE TABLE IF NOT EXISTS {PROGRESS} (query varchar(200) NOT NULL, batch bigint NOT NULL, "
                    "part integer NOT NULL, PRIMARY KEY (query, batch, part))"
                )
                connection.commit()
    except module.Error as error:
        raise PipelineError(f"database: {_said(error)}") from error


def _said(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _deliver(
    options: Mapping[str, Any], task: Task, batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, list[Refused]]]:
    """All of a task's rows in one transaction."""
    module = _module(options)
    results: list[tuple[pa.RecordBatch, list[Refused]]] = []
    try:
        with closing(_connect(options)) as connection:
            if options["key"] or _is_new(module, connection, task):
                for batch in batches:
                    results.append((batch, _store(module, connection, options, batch)))
            else:
                results += [(batch, []) for batch in batches]
            connection.commit()
    except module.Error as error:
        raise DeliveryError(f"table {options['table']}: {_said(error)}") from error
    yield from results


def _marks(module: Any, count: int) -> str:
    mark = PLACEHOLDERS[module.paramstyle]
    return ", ".join(mark.format(i + 1) for i in range(count))


def _is_new(module: Any, connection: Any, task: Task) -> bool:
    """Notes that this part of the batch is in; whether it was not before."""
    mark = [PLACEHOLDERS[module.paramstyle].format(i + 1) for i in range(3)]
    cursor = connection.cursor()
    cursor.execute(
        f"SELECT 1 FROM {PROGRESS} WHERE query = {mark[0]} AND batch = {mark[1]} AND part = {mark[2]}",
        (task.query, task.batch_id, task.part),
    )
    if cursor.fetchone() is not None:
        return False
    cursor.execute(
        f"INSERT INTO {PROGRESS} (query, batch, part) VALUES ({', '.join(mark)})",
        (task.query, task.batch_id, task.part),
    )
    return True


def statement(driver: str, table: str, columns: Sequence[str], key: Sequence[str], marks: str) -> str:
    """INSERT, or with a key the statement that inserts or replaces, in the dialect of the driver's database."""
    names = ", ".join(columns)
    insert = f"INSERT INTO {table} ({names}) VALUES ({marks})"
    if not key:
        return insert
    rest = [name for name in columns if name not in key]
    if "mysql" in driver.lower() or "maria" in driver.lower():
        changes = ", ".join(f"{name} = VALUES({name})" for name in rest or key)
        return f"{insert} ON DUPLICATE KEY UPDATE {changes}"
    action = f"UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in rest)}" if rest else "NOTHING"
    return f"{insert} ON CONFLICT ({', '.join(key)}) DO {action}"


def _store(module: Any, connection: Any, options: Mapping[str, Any], batch: pa.RecordBatch) -> list[Refused]:
    """Writes a batch of rows; when the database refuses one of them, row by row to find which."""
    fields = field_names(batch)
    columns = [options["columns"].get(name, name) for name in fields]
    rows = list(
        zip(*[batch.column(batch.schema.get_field_index(n)).to_pylist() for n in fields], strict=True)
    )
    if not rows:
        return []
    sql = statement(
        options["driver"], options["table"], columns, options["key"], _marks(module, len(columns))
    )
    cursor = connection.cursor()
    cursor.execute("SAVEPOINT barnabas")
    try:
        cursor.executemany(sql, rows)
    except (module.DataError, module.IntegrityError):
        cursor.execute("ROLLBACK TO SAVEPOINT barnabas")
        return _store_singly(module, cursor, sql, rows)
    return []


def _store_singly(module: Any, cursor: Any, sql: str, rows: Sequence[Any]) -> list[Refused]:
    refused: list[Refused] = []
    for number, row in enumerate(rows):
        cursor.execute("SAVEPOINT barnabas_row")
        try:
            cursor.execute(sql, row)
        except (module.DataError, module.IntegrityError) as error:
            if len(refused) >= REFUSED_ROWS_MAX:
                raise
            cursor.execute("ROLLBACK TO SAVEPOINT barnabas_row")
            refused.append(Refused(number, _said(error)))
    return refused


def _write_jdbc(options: Mapping[str, Any], query: str, batch_id: int, frame: Frame) -> None:
    names = {name: options["columns"].get(name, name) for name in frame.fields}
    rows = frame.data.select(*[F.col(quoted(name)).alias(column) for name, column in names.items()])
    rows.write.jdbc(options["jdbc"], options["table"], mode="append", properties=dict(options["properties"]))


DATABASE: Final = TargetKind(
    "database",
    "with a key a repeated batch replaces its rows; without one it is skipped; through JDBC it is added again",
    _check,
    _reach,
    deliver=_deliver,
    write=_write_jdbc,
    by_spark=lambda options: "jdbc" in options,
)
