"""What a database's column is in Connect: its schema, and the value that a driver's value becomes."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from barnabas.connect.errors import DataError
from barnabas.connect.schemas import (
    BOOLEAN,
    BYTES,
    DATE_SCHEMA,
    EPOCH,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    Schema,
    array,
    decimal,
)

UNLIMITED_SCALE: Final = 38
"""Digits after the point of numeric columns that do not say how many they have."""
INTEGER_DIGITS: Final = ((3, INT8), (5, INT16), (10, INT32), (19, INT64))
"""Numbers with fewer digits fit the type."""


@dataclass(frozen=True, slots=True)
class Column:
    """kind: one of KINDS, or numeric. digits, scale: of numeric, None if the column does not say."""

    name: str
    kind: str
    optional: bool = True
    digits: int | None = None
    scale: int | None = None
    items: str | None = None


KINDS: Final[Mapping[str, Schema]] = {
    "boolean": BOOLEAN,
    "int8": INT8,
    "int16": INT16,
    "int32": INT32,
    "int64": INT64,
    "float32": FLOAT32,
    "float64": FLOAT64,
    "string": STRING,
    "bytes": BYTES,
    "date": DATE_SCHEMA,
    "time": TIME_SCHEMA,
    "timestamp": TIMESTAMP_SCHEMA,
}


def schema_of(column: Column, mapping: str) -> Schema:
    """The schema of a column. mapping: numeric.mapping, what becomes of numeric columns."""
    if column.kind == "numeric":
        schema = _numeric(column, mapping)
    elif column.kind == "array":
        schema = array(KINDS[column.items or "string"].as_optional())
    else:
        schema = KINDS[column.kind]
    return schema.as_optional() if column.optional else schema


def _numeric(column: Column, mapping: str) -> Schema:
    scale = UNLIMITED_SCALE if column.scale is None else column.scale
    fits = column.digits is not None and column.digits < INTEGER_DIGITS[-1][0]
    if mapping == "none" or (mapping == "precision_only" and (scale != 0 or not fits)):
        return decimal(scale)
    if column.digits is not None and scale <= 0 and fits:
        return next(schema for digits, schema in INTEGER_DIGITS if column.digits < digits)
    if mapping == "best_fit_eager_double" and scale > 0:
        return FLOAT64
    if mapping == "best_fit" and (fits or column.digits is None):
        return FLOAT64
    return decimal(scale)


Convert = Callable[[Any], Any]


def converter(column: Column, schema: Schema, zone: str) -> Convert:
    """What makes a value of the schema of what the driver returns; it raises DataError that names the column."""
    convert = _CONVERT.get(schema.name or schema.type, lambda value: value)
    if schema.name == TIMESTAMP_SCHEMA.name:
        local = ZoneInfo(zone)
        convert = lambda value: _timestamp(value, local)  # noqa: E731 - one of several
    elif schema.name == DECIMAL_NAME:
        scale = int(schema.parameter("scale") or 0)
        convert = lambda value: _decimal(value, scale)  # noqa: E731
    if schema.type in LIMITS and schema.name is None:
        lo, hi = LIMITS[schema.type]
        convert = lambda value: _integer(value, lo, hi)  # noqa: E731

    def converted(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise DataError(
                f"column {column.name}: {value!r} is not a value of {schema.name or schema.type} ({error})"
            ) from error

    return converted


DECIMAL_NAME: Final = decimal(0).name
LIMITS: Final = {"int8": (-128, 127), "int16": (-32768, 32767), "int32": (-(1 << 31), (1 << 31) - 1),
                 "int64": (-(1 << 63), (1 << 63) - 1)}  # fmt: skip


def _integer(value: Any, lo: int, hi: int) -> int:
    number = int(value)
    if number != value:
        raise ValueError("it is not an integer")
    if not lo <= number <= hi:
        raise ValueError(f"it is not between {lo} and {hi}")
    return number


def _decimal(value: Any, scale: int) -> Decimal:
    number = value if isinstance(value, Decimal) else Decimal(str(value))
    if not number.is_finite():
        raise ValueError("it has no digits")
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    if -exponent > scale:
        return number.quantize(Decimal(1).scaleb(-scale), context=_WIDE)
    return number


_WIDE: Final = Context(prec=400)


def _text(value: Any) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode("utf-8", "replace")
    return value if isinstance(value, str) else str(value)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _bool(value: Any) -> bool:
    if isinstance(value, bytes):
        return any(value)
    return bool(value)


def _timestamp(value: Any, zone: ZoneInfo) -> dt.datetime:
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value)
    elif isinstance(value, (int, float)):
        return EPOCH + dt.timedelta(milliseconds=value)
    if not isinstance(value, dt.datetime):
        raise ValueError("it is not a time")
    return value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=zone).astimezone(dt.UTC)


def _date(value: Any) -> dt.date:
    if isinstance(value, str):
        return dt.date.fromisoformat(value[:10])
    if isinstance(value, int):
        return (EPOCH + dt.timedelta(milliseconds=value)).date()
    if isinstance(value, dt.datetime):
        return value.date()
    if not isinstance(value, dt.date):
        raise ValueError("it is not a date")
    return value


def _time(value: Any) -> dt.time:
    if isinstance(value, str):
        return dt.time.fromisoformat(value)
    if isinstance(value, dt.timedelta):  # MySQL's TIME is a duration
        if not dt.timedelta() <= value < dt.timedelta(days=1):
            raise ValueError("it is not a time of a day")
        return (EPOCH + value).time()
    if not isinstance(value, dt.time):
        raise ValueError("it is not a time of a day")
    return value.replace(tzinfo=None)


def _list(value: Any) -> list[Any]:
    return [item if isinstance(item, (bool, int, float, str, type(None))) else str(item) for item in value]


_CONVERT: Final[Mapping[str, Convert]] = {
    "boolean": _bool,
    "float32": float,
    "float64": float,
    "string": _text,
    "bytes": _bytes,
    "array": _list,
    str(DATE_SCHEMA.name): _date,
    str(TIME_SCHEMA.name): _time,
}


def sqlite_us(value: Any) -> int | None:
    """Microseconds since 1970 of a time in SQLite, which has no type for them: text or milliseconds; else None."""
    if isinstance(value, (int, float)):
        return int(value * 1000)
    try:
        return (_timestamp(value, ZoneInfo("UTC")) - EPOCH) // dt.timedelta(microseconds=1)
    except (TypeError, ValueError):
        return None


# --- what the databases say about their columns ---------------------------------------------------------

POSTGRES_OIDS: Final[Mapping[int, str]] = {
    16: "boolean", 21: "int16", 23: "int32", 20: "int64", 26: "int64", 700: "float32", 701: "float64",
    1700: "numeric", 17: "bytes", 1082: "date", 1083: "time", 1114: "timestamp", 1184: "timestamp",
}  # fmt: skip
POSTGRES_ARRAYS: Final[Mapping[int, str]] = {
    1000: "boolean", 1005: "int16", 1007: "int32", 1016: "int64", 1021: "float32", 1022: "float64", 1009: "string",
    1015: "string", 1014: "string", 2951: "string",
}  # fmt: skip
MYSQL_TYPES: Final[Mapping[int, str]] = {
    0: "numeric", 246: "numeric", 1: "int8", 2: "int16", 13: "int32", 9: "int32", 3: "int32", 8: "int64", 4: "float32",
    5: "float64", 7: "timestamp", 12: "timestamp", 10: "date", 11: "time", 16: "bytes",
}  # fmt: skip
WIDER: Final = {"int8": "int16", "int16": "int32", "int32": "int64", "int64": "int64"}
"""Of columns without signs."""
UNSIGNED, BINARY_CHARSET, BLOBS = 32, 63, (249, 250, 251, 252, 253, 254)


def described(cursor: Any, dialect: str) -> list[Column]:
    """The columns of a result, from what the driver says about it."""
    if dialect == "postgresql":
        return [_from_postgres(column) for column in cursor.description]
    if dialect in ("mysql", "mariadb"):
        return [_from_mysql(field) for field in cursor._result.fields]
    return [Column(row[0], "any") for row in cursor.description]


def _from_postgres(column: Any) -> Column:
    oid = column.type_code
    if oid in POSTGRES_ARRAYS:
        return Column(column.name, "array", items=POSTGRES_ARRAYS[oid])
    kind = POSTGRES_OIDS.get(oid, "string")
    return Column(column.name, kind, digits=column.precision, scale=column.scale)


def _from_mysql(field: Any) -> Column:
    kind = MYSQL_TYPES.get(field.type_code, "string")
    if kind in WIDER and field.flags & UNSIGNED and field.type_code != 13:
        kind = WIDER[kind]
    if field.type_code in BLOBS and field.charsetnr == BINARY_CHARSET:
        kind = "bytes"
    if kind == "numeric":
        return Column(field.name, kind, digits=field.length - (field.scale > 0) - 1, scale=field.scale)
    return Column(field.name, kind)


SQLITE_TYPES: Final[Sequence[tuple[str, str]]] = (
    (r"BOOL", "boolean"),
    (r"TINYINT", "int8"),
    (r"SMALLINT|INT2", "int16"),
    (r"BIGINT|INT8|^INTEGER$", "int64"),
    (r"INT", "int32"),
    (r"CHAR|CLOB|TEXT|JSON|UUID", "string"),
    (r"BLOB|BINARY", "bytes"),
    (r"REAL|FLOA|DOUB", "float64"),
    (r"TIMESTAMP|DATETIME", "timestamp"),
    (r"DATE", "date"),
    (r"TIME", "time"),
    (r"DEC|NUM", "numeric"),
)
"""By what a declared type contains, as SQLite itself finds affinities."""


def sqlite_column(name: str, declared: str, optional: bool) -> Column:
    """A column of SQLite from its declaration."""
    digits = re.search(r"\((\d+)(?:\s*,\s*(\d+))?\)", declared)
    upper = declared.upper().partition("(")[0].strip()
    kind = next((kind for pattern, kind in SQLITE_TYPES if re.search(pattern, upper)), "any")
    if kind == "numeric" and digits:
        return Column(name, kind, optional, int(digits[1]), int(digits[2] or 0))
    return Column(name, kind, optional)


def guessed(column: Column, values: Sequence[Any]) -> Column:
    """A column of SQLite without a type, from its values."""
    kinds = {type(value) for value in values if value is not None}
    for cls, kind in ((bool, "boolean"), (int, "int64"), (bytes, "bytes"), (str, "string")):
        if kinds == {cls}:
            return Column(column.name, kind, column.optional)
    if kinds and kinds <= {int, float}:
        return Column(column.name, "float64", column.optional)
    return Column(column.name, "string", column.optional)


def sqlite_columns(connection: sa.Connection, table: str) -> dict[str, Column]:
    """By name, from the table's declarations."""
    quoted = '"' + table.replace('"', '""') + '"'
    rows = connection.exec_driver_sql(f"PRAGMA table_info({quoted})").fetchall()
    keys = [row[1] for row in rows if row[5]]
    return {
        row[1]: sqlite_column(row[1], row[2] or "", not (row[3] or (row[5] and len(keys) == 1)))
        for row in rows
    }
