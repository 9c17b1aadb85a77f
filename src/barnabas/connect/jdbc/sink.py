"""Records as rows: inserted, or replacing and deleting rows by their keys. The options are those of Confluent's JDBC sink.

What the database refuses is found row by row and reported, so that `errors.tolerance` and the dead-letter topic say what
becomes of it. The records of one call are stored in one transaction.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from barnabas.connect.connectors import SinkConnector, SinkContext
from barnabas.connect.errors import ConnectError, DataError, OptionError, RetriableError
from barnabas.connect.jdbc.sink_options import KAFKA_COLUMNS, SINK, wrong_sink
from barnabas.connect.jdbc.sink_tables import (
    DATES,
    INSTANTS,
    TIMES,
    Place,
    columns_of,
    create,
    evolve,
    place_of,
)
from barnabas.connect.jdbc.urls import engine, failed, message_of, shown, sqlalchemy_url
from barnabas.connect.options import Config
from barnabas.connect.records import SinkRecord
from barnabas.connect.schemas import (
    EPOCH,
    EPOCH_DATE,
    INT32,
    INT64,
    STRING,
    Schema,
    decimal_from,
    from_primitive,
    inferred,
)
from barnabas.pipelines.databases.rows import Store, bound, is_conflict

VARIABLE_DECIMAL: Final = "io.debezium.data.VariableScaleDecimal"


@dataclass(frozen=True, slots=True)
class Row:
    """A record as a row. gone: the row with its key is to be deleted. schemas: of the columns, as far as they are known."""

    record: SinkRecord
    values: Mapping[str, Any]
    schemas: Mapping[str, Schema]
    key: tuple[str, ...]
    gone: bool = False


class JdbcSink(SinkConnector):
    """See the module."""

    doc = "Records as rows of database tables."
    aliases = ("io.confluent.connect.jdbc.JdbcSinkConnector",)
    options = SINK

    @classmethod
    def check(cls, config: Config) -> Mapping[str, str]:
        """Also connects to the database."""
        wrong = wrong_sink(config)
        if wrong:
            return wrong
        try:
            url = _url(config)
            with engine(url, config["db.timezone"]).connect():
                return {}
        except OptionError as error:
            return {error.option or "connection.url": str(error)}
        except (sa.exc.SQLAlchemyError, OSError) as error:
            return {"connection.url": f"{shown(url)} cannot be opened: {message_of(error)}"}

    def start(self, config: Config, context: SinkContext) -> None:
        """See SinkConnector."""
        super().start(config, context)
        self._url = _url(config)
        self._engine = engine(self._url, config["db.timezone"])
        self._zone = ZoneInfo(config["db.timezone"])
        self._connection: sa.Connection | None = None
        self._columns: dict[Place, dict[str, Any]] = {}

    def put(self, records: Sequence[SinkRecord]) -> None:
        """See SinkConnector."""
        size = self.config["batch.size"]
        for begin in range(0, len(records), size):
            self._store(records[begin : begin + size])

    def stop(self) -> None:
        """See SinkConnector."""
        if getattr(self, "_connection", None) is not None:
            self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        self._columns.clear()
        if connection is not None:
            connection.close()

    def _store(self, records: Sequence[SinkRecord]) -> None:
        refused: list[tuple[SinkRecord, Exception]] = []
        rows = []
        for record in records:
            try:
                rows.append((place_of(self.config["table.name.format"], record.topic), self._row(record)))
            except DataError as wrong:
                refused.append((record, wrong))
        try:
            if self._connection is None:
                self._connection = self._engine.connect()
            with self._connection.begin():
                for place, group in _runs(rows):
                    refused += self._write(self._connection, place, group)
        except (sa.exc.SQLAlchemyError, OSError) as error:
            self._close()
            if isinstance(error, sa.exc.DBAPIError) and is_conflict(error):
                raise RetriableError(f"{shown(self._url)}: storing: {message_of(error)}") from error
            raise failed(self._url, error, "storing records") from error
        except BaseException:
            self._close()
            raise
        for record, why in refused:
            self.context.report(record, why)

    # --- records as rows --------------------------------------------------------------------------------

    def _row(self, record: SinkRecord) -> Row:
        """Raises DataError."""
        mode, fields = self.config["pk.mode"], self.config["pk.fields"]
        if record.value is None:
            if not self.config["delete.enabled"]:
                raise DataError(
                    "the record has no value; delete.enabled says that such a record deletes its row"
                )
            values, schemas = self._key_values(record)
            return Row(record, values, schemas, tuple(values), True)
        if not isinstance(record.value, dict):
            raise DataError(
                f"the value is {type(record.value).__name__}, not a struct with fields: use a converter with schemas, or "
                "the transform HoistField"
            )
        values, schemas = _parts(record.value, record.value_schema, "the value")
        chosen = self.config["fields.whitelist"]
        if chosen:
            keep = {*chosen, *(fields if mode == "record_value" else ())}
            values = {name: value for name, value in values.items() if name in keep}
            schemas = {name: schema for name, schema in schemas.items() if name in keep}
        key: tuple[str, ...] = ()
        if mode == "kafka":
            names = tuple(fields) or KAFKA_COLUMNS
            place = (record.original_topic, record.original_partition, record.offset)
            values = {**dict(zip(names, place, strict=True)), **values}
            schemas = {**dict(zip(names, (STRING, INT32, INT64), strict=True)), **schemas}
            key = names
        elif mode == "record_key":
            key_values, key_schemas = self._key_values(record)
            values, schemas, key = {**key_values, **values}, {**key_schemas, **schemas}, tuple(key_values)
        elif mode == "record_value":
            key = tuple(fields) or tuple(values)
            missing = [name for name in key if values.get(name) is None]
            if missing:
                raise DataError(f"the value has no {missing[0]}, which pk.fields names")
        return Row(record, values, schemas, key)

    def _key_values(self, record: SinkRecord) -> tuple[dict[str, Any], dict[str, Schema]]:
        fields = self.config["pk.fields"]
        if record.key is None:
            raise DataError("the record has no key, which pk.mode record_key needs")
        if isinstance(record.key, dict):
            values, schemas = _parts(record.key, record.key_schema, "the key")
            for name in fields:
                if name not in values:
                    raise DataError(
                        f"the key has no field {name}, which pk.fields names; it has {', '.join(values)}"
                    )
            return {name: values[name] for name in fields or values}, schemas
        if len(fields) != 1:
            raise DataError(
                "the key is not a struct, so pk.fields must name the one column that it is stored in; it names "
                f"{', '.join(fields) or 'none'}"
            )
        schema = record.key_schema or inferred(record.key) or STRING
        return {fields[0]: record.key}, {fields[0]: schema}

    # --- rows in tables ---------------------------------------------------------------------------------

    def _write(
        self, connection: sa.Connection, place: Place, rows: Sequence[Row]
    ) -> list[tuple[SinkRecord, Exception]]:
        """Stores rows of the same columns; returns those that were refused."""
        first = rows[0]
        columns = self._ready(connection, place, first)
        if first.gone and not columns:
            return []
        names = [name for name in first.values if name in columns]
        update = self.config["insert.mode"] == "update"
        keyed = self.config["insert.mode"] == "upsert" or first.gone or any(row.gone for row in rows)
        kind = connection.dialect.name
        refused: list[tuple[SinkRecord, Exception]] = []
        bound_rows: list[tuple[Row, list[Any]]] = []
        for row in rows:
            try:
                bound_rows.append((row, [self._bound(row, name, kind) for name in names]))
            except (ValueError, OverflowError, ArithmeticError) as error:
                refused.append((row.record, DataError(str(error))))
        if update and not first.gone:
            return refused + self._update(connection, place, first, names, bound_rows)
        store = Store(connection, place.schema, place.name, list(first.key) if keyed else [])
        failed_rows = store.change(
            names, [values for _, values in bound_rows], [row.gone for row, _ in bound_rows]
        )
        return refused + [
            (bound_rows[index][0].record, DataError(f"table {place}: {message_of(error)}"))
            for index, error in failed_rows
        ]

    def _update(
        self,
        connection: sa.Connection,
        place: Place,
        first: Row,
        names: list[str],
        bound_rows: list[tuple[Row, list[Any]]],
    ) -> list[tuple[SinkRecord, Exception]]:
        table = sa.table(place.name, *[sa.column(name) for name in names], schema=place.schema)
        bind = {name: f"v{index}" for index, name in enumerate(names)}
        rest = [name for name in names if name not in first.key]
        if not rest:
            return []
        same = [table.c[name] == sa.bindparam(bind[name]) for name in first.key]
        changed = sa.update(table).where(*same).values({name: sa.bindparam(bind[name]) for name in rest})
        refused: list[tuple[SinkRecord, Exception]] = []
        for row, values in bound_rows:
            try:
                with connection.begin_nested():
                    connection.execute(changed, dict(zip(bind.values(), values, strict=True)))
            except (sa.exc.DataError, sa.exc.IntegrityError) as error:
                refused.append((row.record, DataError(f"table {place}: {message_of(error)}")))
        return refused

    def _ready(self, connection: sa.Connection, place: Place, row: Row) -> dict[str, Any]:
        """The table's columns, after it was created or got what it lacks. Raises ConnectError."""
        columns = self._columns.get(place)
        if columns is None:
            columns = columns_of(connection, place)
            if columns is None:
                if row.gone:
                    return {}
                if not self.config["auto.create"]:
                    raise ConnectError(
                        f"{shown(self._url)} has no table {place}; create it, or set auto.create to true"
                    )
                create(connection, place, row.schemas, row.key)
                columns = columns_of(connection, place) or {}
            self._columns[place] = columns
        missing = [name for name in row.values if name not in columns]
        if missing:
            if not self.config["auto.evolve"]:
                raise ConnectError(
                    f"table {place} has no column {missing[0]}; add it, leave the field out with fields.whitelist, or set "
                    "auto.evolve to true"
                )
            evolve(connection, place, {name: row.schemas[name] for name in missing})
            columns = self._columns[place] = columns_of(connection, place) or {}
        return columns

    def _bound(self, row: Row, name: str, dialect: str) -> Any:
        value = row.values.get(name)
        if value is None:
            return None
        value = plain(value, row.schemas.get(name))
        if (
            isinstance(value, dt.datetime)
            and value.tzinfo is not None
            and dialect in ("mysql", "mariadb", "sqlite")
        ):
            value = value.astimezone(self._zone).replace(tzinfo=None)
        if isinstance(value, dict) or (isinstance(value, list) and dialect != "postgresql"):
            return json.dumps(value, default=str, ensure_ascii=False)
        return bound(value, dialect)


def _runs(rows: list[tuple[Place, Row]]) -> list[tuple[Place, list[Row]]]:
    """Rows that can be stored together: of one table, with the same columns and key. A delete has only its key, and goes
    with any rows of the same key."""
    runs: list[tuple[Place, list[Row]]] = []
    for place, row in rows:
        if runs and runs[-1][0] == place:
            last = runs[-1][1][0]
            if last.key == row.key and tuple(last.values) == tuple(row.values) and last.gone == row.gone:
                runs[-1][1].append(row)
                continue
        runs.append((place, [row]))
    return runs


def _parts(
    value: Mapping[str, Any], schema: Schema | None, what: str
) -> tuple[dict[str, Any], dict[str, Schema]]:
    """A struct's values and schemas by field. Without a schema, what the values look like."""
    if schema is not None and schema.type == "struct":
        schemas = {field.name: field.schema for field in schema.fields}
        return {name: value.get(name, _default(schemas[name])) for name in schemas}, schemas
    inferred_schemas = {str(name): inferred(item) or STRING for name, item in value.items()}
    return dict(value), {name: schema.as_optional() for name, schema in inferred_schemas.items()}


def _default(schema: Schema) -> Any:
    return schema.default if schema.has_default else None


def plain(value: Any, schema: Schema | None) -> Any:
    """A value as databases know it: times that Debezium's types have as numbers become times. Raises ValueError."""
    name = schema.name if schema is not None else None
    if name == VARIABLE_DECIMAL and isinstance(value, dict):
        return decimal_from(value["value"], value["scale"])
    if schema is None or name is None or not isinstance(value, int):
        return value
    if name in DATES:
        return EPOCH_DATE + dt.timedelta(days=value)
    if name in TIMES and name.startswith("io."):
        us = value if name.endswith("MicroTime") else value * 1000
        return (EPOCH + dt.timedelta(microseconds=us)).time()
    if name in INSTANTS and name.startswith("io."):
        us = value if name.endswith("MicroTimestamp") else value * 1000
        return (EPOCH + dt.timedelta(microseconds=us)).replace(tzinfo=None)
    return from_primitive(replace(schema), value)


def _url(config: Config) -> sa.URL:
    return sqlalchemy_url(config["connection.url"], config["connection.user"], config["connection.password"])
