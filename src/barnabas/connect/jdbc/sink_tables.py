"""The tables of a JDBC sink: found, created, and given the columns that records have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from barnabas.connect.errors import ConnectError
from barnabas.connect.schemas import DATE, DECIMAL, SCALE, TIME, TIMESTAMP, Schema

KEY_LETTERS: Final = 256
"""Of a text in a primary key, where the database must know."""
MYSQL_DIGITS: Final = 65


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table is. schema: also MySQL's database."""

    schema: str | None
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


def place_of(format: str, topic: str) -> Place:
    """The table of a topic."""
    parts = [part.strip('"`') for part in format.replace("${topic}", topic).split(".")]
    return Place(parts[-2] if len(parts) > 1 else None, parts[-1])


def columns_of(connection: sa.Connection, place: Place) -> dict[str, Any] | None:
    """The table's columns by name; None if there is no such table."""
    try:
        columns = sa.inspect(connection).get_columns(place.name, place.schema)
    except sa.exc.NoSuchTableError:
        return None
    return {column["name"]: column["type"] for column in columns} or None


def sql_type(schema: Schema, dialect: str, in_key: bool) -> sa.types.TypeEngine[Any]:
    """The type of a column for values of a schema. Raises ConnectError."""
    if schema.name == DECIMAL:
        scale = int(schema.parameter(SCALE) or 0)
        if dialect in ("mysql", "mariadb"):
            return sa.Numeric(MYSQL_DIGITS, min(scale, 30))
        return sa.Numeric() if dialect == "sqlite" else sa.Numeric(max(38, scale * 2), scale)
    if schema.name in LOGICAL:
        return _logical(str(schema.name), dialect)
    if schema.type == "string":
        return sa.String(KEY_LETTERS) if in_key and dialect in ("mysql", "mariadb") else sa.Text()
    if schema.type == "bytes":
        return sa.LargeBinary()
    if schema.type == "array" and schema.items is not None and dialect == "postgresql":
        return postgresql.ARRAY(sql_type(schema.items, dialect, False))
    if schema.type in ("array", "map", "struct"):
        return postgresql.JSONB() if dialect == "postgresql" else sa.Text()
    plain = PLAIN[schema.type]
    if schema.type == "float64" and dialect in ("mysql", "mariadb"):
        return mysql.DOUBLE()
    return plain


PLAIN: Final[Mapping[str, sa.types.TypeEngine[Any]]] = {
    "int8": sa.SmallInteger(),
    "int16": sa.SmallInteger(),
    "int32": sa.Integer(),
    "int64": sa.BigInteger(),
    "float32": sa.REAL(),
    "float64": sa.Double(),
    "boolean": sa.Boolean(),
}
DATES: Final = (DATE, "io.debezium.time.Date")
TIMES: Final = (TIME, "io.debezium.time.Time", "io.debezium.time.MicroTime")
INSTANTS: Final = (TIMESTAMP, "io.debezium.time.Timestamp", "io.debezium.time.MicroTimestamp")
ZONED: Final = ("io.debezium.time.ZonedTimestamp",)
LOGICAL: Final = (*DATES, *TIMES, *INSTANTS, *ZONED)


def _logical(name: str, dialect: str) -> sa.types.TypeEngine[Any]:
    if name in DATES:
        return sa.Date()
    if name in TIMES:
        return mysql.TIME(fsp=6) if dialect in ("mysql", "mariadb") else sa.Time()
    if dialect in ("mysql", "mariadb"):
        return mysql.DATETIME(fsp=6)
    return sa.DateTime(timezone=name in ZONED)


def create(
    connection: sa.Connection, place: Place, schemas: Mapping[str, Schema], key: Sequence[str]
) -> None:
    """Creates a table with these columns."""
    dialect = connection.dialect.name
    columns = [
        sa.Column(
            name,
            sql_type(schema, dialect, name in key),
            primary_key=name in key,
            nullable=schema.optional and name not in key,
            autoincrement=False,
        )
        for name, schema in schemas.items()
    ]
    sa.Table(place.name, sa.MetaData(), *columns, schema=place.schema).create(connection, checkfirst=True)


def evolve(connection: sa.Connection, place: Place, schemas: Mapping[str, Schema]) -> None:
    """Adds columns. Raises ConnectError for one that existing rows could have no value for."""
    quote = connection.dialect.identifier_preparer.quote
    where = f"{quote(place.schema)}.{quote(place.name)}" if place.schema else quote(place.name)
    for name, schema in schemas.items():
        if not schema.optional and not schema.has_default:
            raise ConnectError(
                f"table {place} has no column {name}, and it cannot be added: rows that are there have no value for it. "
                "Make the field optional, or give it a default"
            )
        type = sql_type(schema, connection.dialect.name, False).compile(dialect=connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE {where} ADD COLUMN {quote(name)} {type}")
