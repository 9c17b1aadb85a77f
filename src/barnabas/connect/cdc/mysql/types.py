"""MySQL's and MariaDB's types in Debezium's schemas, and the drivers' values as theirs. No I/O.

Source: Debezium's documentation, "Data type mappings" of the MySQL and MariaDB connectors. Values come from PyMySQL when
rows are read, and from mysql-replication when the log is: they differ for bits, sets and JSON.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from barnabas.connect.cdc import semantic as s
from barnabas.connect.cdc.postgres.texts import iso_date, iso_time, iso_timestamp
from barnabas.connect.cdc.semantic import Typed
from barnabas.connect.schemas import BOOLEAN, FLOAT32, FLOAT64, INT16, INT32, INT64, STRING, Schema, decimal

COLUMN_TYPE: Final = re.compile(r"\s*(\w+)\s*(?:\((.*?)\))?(.*)", re.DOTALL)
LABEL: Final = re.compile(r"'((?:[^'\\]|''|\\.)*)'")
EPOCH: Final = dt.datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Settings:
    """The options that choose between types."""

    decimals: str = "precise"
    times: str = "adaptive_time_microseconds"
    binary: str = "bytes"
    large: str = "long"


def _bit(value: Any, length: int) -> bytes:
    """Bits as little-endian bytes."""
    number = int(value, 2) if isinstance(value, str) else int.from_bytes(value, "big")
    return number.to_bytes((length + 7) // 8, "little")


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, (bytes, bytearray)) else str(value)


def _raw(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _day(value: dt.date) -> int:
    return (value - dt.date(1970, 1, 1)).days


def _us(value: Any) -> int:
    """Microseconds since 1970 of a time without a zone."""
    if not isinstance(value, dt.datetime):
        raise ValueError("it is not a time")
    return (value - EPOCH) // dt.timedelta(microseconds=1)


def _duration_us(value: dt.timedelta) -> int:
    return value // dt.timedelta(microseconds=1)


def _json_text(value: Any) -> str:
    """The log has JSON as values, rows as texts."""
    if isinstance(value, (str, bytes)):
        return _text(value)
    return json.dumps(_keys(value), separators=(",", ":"), ensure_ascii=False, default=str)


def _uuid(value: Any) -> str:
    """The log has 16 bytes, rows have the text."""
    return str(uuid.UUID(bytes=value)) if isinstance(value, bytes) and len(value) == 16 else _text(value)


def _keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {_text(name): _keys(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_keys(item) for item in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def labels_of(text: str) -> list[str]:
    """The labels of an enum or set: 'a','b'."""
    return [re.sub(r"''|\\(.)", lambda m: m[1] or "'", label) for label in LABEL.findall(text)]


TEXTS: Final = (
    "char",
    "varchar",
    "tinytext",
    "text",
    "mediumtext",
    "longtext",
    "inet4",
    "inet6",
    "nchar",
    "nvarchar",
)
BYTES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
INTEGERS: Final[Mapping[str, tuple[Schema, Schema]]] = {
    "tinyint": (INT16, INT16),
    "smallint": (INT16, INT32),
    "mediumint": (INT32, INT32),
    "int": (INT32, INT64),
    "integer": (INT32, INT64),
    "bigint": (INT64, INT64),
    "year": (s.YEAR, s.YEAR),
}
"""Signed, unsigned."""


def typed(column_type: str, settings: Settings) -> Typed | None:
    """The schema, not optional, and the converter, for a type as information_schema says it, like decimal(10,2) unsigned;
    None for types that Connect has nothing for."""
    match = COLUMN_TYPE.match(column_type)
    assert match is not None
    name, arguments, rest = match[1].lower(), match[2] or "", match[3].lower()
    if name in INTEGERS:
        unsigned = "unsigned" in rest
        if name == "bigint" and unsigned and settings.large == "precise":
            return decimal(0), Decimal
        return INTEGERS[name][unsigned], int
    if name in TEXTS:
        return STRING, _text
    chosen = CHOSEN.get(name)
    return chosen(arguments, settings) if chosen is not None else None


def _decimal(arguments: str, settings: Settings) -> Typed:
    digits, _, scale = arguments.partition(",")
    return s.exact(settings.decimals, int(digits or 10), int(scale or 0))


def _bits(arguments: str, settings: Settings) -> Typed:
    length = int(arguments or 1)
    if length == 1:
        return BOOLEAN, lambda value: any(_bit(value, 1))
    return s.bits(length), lambda value: _bit(value, length)


def _binary(arguments: str, settings: Settings) -> Typed:
    schema, convert = s.binary(settings.binary)
    length = int(arguments or 0)
    # The log leaves out the zeros at the end of a BINARY(n).
    return schema, lambda value: convert(_raw(value).ljust(length, b"\0"))


def _blob(arguments: str, settings: Settings) -> Typed:
    schema, convert = s.binary(settings.binary)
    return schema, lambda value: convert(_raw(value))


def _time(arguments: str, settings: Settings) -> Typed:
    schema, convert = s.time_of_day(settings.times, int(arguments or 0), iso_time)
    return schema, lambda value: convert(_duration_us(value))


def _datetime(arguments: str, settings: Settings) -> Typed:
    schema, convert = s.instant(settings.times, int(arguments or 0), iso_timestamp)
    return schema, lambda value: convert(_us(value))


def _timestamp(arguments: str, settings: Settings) -> Typed:
    """In UTC: sessions that read rows have this zone, and the log has seconds since 1970."""
    digits = int(arguments or 0)
    return s.ZONED, lambda value: iso_timestamp(_us(value), digits)


def _date(arguments: str, settings: Settings) -> Typed:
    schema, convert = s.date(settings.times, iso_date)
    return schema, lambda value: convert(_day(value))


def _set(arguments: str, settings: Settings) -> Typed:
    labels = labels_of(arguments)

    def joined(value: Any) -> str:
        if isinstance(value, (set, frozenset)):
            return ",".join(label for label in labels if label in value)
        return _text(value)

    return s.enum(labels, several=True), joined


Choose = Callable[[str, Settings], Typed]
CHOSEN: Final[Mapping[str, Choose]] = {
    "float": lambda a, _: (FLOAT64 if "," not in a and int(a or 0) > 23 else FLOAT32, float),
    "double": lambda _, __: (FLOAT64, float),
    "real": lambda _, __: (FLOAT64, float),
    "decimal": _decimal,
    "numeric": _decimal,
    "bit": _bits,
    "binary": _binary,
    **{name: _blob for name in BYTES if name != "binary"},
    "json": lambda _, __: (s.JSON, _json_text),
    "uuid": lambda _, __: (s.UUID, _uuid),
    "enum": lambda a, _: (s.enum(labels_of(a)), _text),
    "set": _set,
    "date": _date,
    "time": _time,
    "datetime": _datetime,
    "timestamp": _timestamp,
}


def with_default(schema: Schema, default: Any, not_null: bool) -> Schema:
    """The schema with the column's default, if it is a literal."""
    if default is None:
        return schema
    text = str(default).strip()
    quoted = len(text) >= 2 and text[0] == text[-1] == "'"
    bare = text[1:-1].replace("''", "'") if quoted else text
    if bare.upper() == "NULL" and not quoted:
        return schema
    try:
        return replace(schema, default=_literal(schema, bare))
    except (ValueError, ArithmeticError):
        return replace(schema, default=s.zero(schema)) if not_null else schema


def _literal(schema: Schema, text: str) -> Any:
    """Raises ValueError for what is no literal of the type, like current_timestamp()."""
    if schema.name == "org.apache.kafka.connect.data.Decimal":
        return Decimal(text)
    if schema.name is not None and ".time." in schema.name:
        raise ValueError("a time")
    if schema.type.startswith("int"):
        return int(text)
    if schema.type.startswith("float"):
        return float(text)
    if schema.type == "boolean":
        return text.strip("b'") in ("1", "true")
    if schema.type == "string":
        return text
    raise ValueError("no literal")
