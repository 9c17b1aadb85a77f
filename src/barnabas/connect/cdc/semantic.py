"""Debezium's semantic types: schemas of plain types whose names tell what they mean, and values for them. No I/O."""

from __future__ import annotations

import base64
import datetime as dt
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from barnabas.connect.schemas import (
    BYTES,
    DATE_SCHEMA,
    EPOCH,
    EPOCH_DATE,
    FLOAT64,
    INT32,
    STRING,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    Schema,
    decimal,
    decimal_bytes,
    struct,
)

Convert = Callable[[Any], Any]
Typed = tuple[Schema, Convert]
"""A schema that is not optional, and what makes its values of the database's."""


def named(type: str, name: str, **parameters: str) -> Schema:
    """A plain type with a name."""
    return Schema(type, False, name, 1, parameters=tuple(parameters.items()))


JSON: Final = named("string", "io.debezium.data.Json")
XML: Final = named("string", "io.debezium.data.Xml")
UUID: Final = named("string", "io.debezium.data.Uuid")
LTREE: Final = named("string", "io.debezium.data.Ltree")
TSVECTOR: Final = named("string", "io.debezium.data.Tsvector")
DAYS: Final = named("int32", "io.debezium.time.Date")
TIME_MS: Final = named("int32", "io.debezium.time.Time")
TIME_US: Final = named("int64", "io.debezium.time.MicroTime")
TIME_NS: Final = named("int64", "io.debezium.time.NanoTime")
INSTANT_MS: Final = named("int64", "io.debezium.time.Timestamp")
INSTANT_US: Final = named("int64", "io.debezium.time.MicroTimestamp")
INSTANT_NS: Final = named("int64", "io.debezium.time.NanoTimestamp")
ZONED: Final = named("string", "io.debezium.time.ZonedTimestamp")
ZONED_TIME: Final = named("string", "io.debezium.time.ZonedTime")
ISO_DATE: Final = named("string", "io.debezium.time.IsoDate")
ISO_TIME: Final = named("string", "io.debezium.time.IsoTime")
ISO_TIMESTAMP: Final = named("string", "io.debezium.time.IsoTimestamp")
DURATION: Final = named("int64", "io.debezium.time.MicroDuration")
INTERVAL: Final = named("string", "io.debezium.time.Interval")
YEAR: Final = named("int32", "io.debezium.time.Year")
VARIABLE_DECIMAL: Final = replace(
    struct({"scale": INT32, "value": BYTES}, "io.debezium.data.VariableScaleDecimal", version=1),
    doc="Variable scaled decimal",
)
POINT: Final = replace(
    struct(
        {"x": FLOAT64, "y": FLOAT64, "wkb": BYTES.as_optional(), "srid": INT32.as_optional()},
        "io.debezium.data.geometry.Point",
        version=1,
    ),
    doc="Geometry (POINT)",
)


def bits(length: int) -> Schema:
    """Several bits, as little-endian bytes."""
    return named("bytes", "io.debezium.data.Bits", length=str(length))


def enum(labels: Sequence[str], *, several: bool = False) -> Schema:
    """One of these texts, or several of them."""
    return named("string", f"io.debezium.data.Enum{'Set' if several else ''}", allowed=",".join(labels))


def exact(mode: str, precision: int | None, scale: int | None) -> Typed:
    """Exact numbers by decimal.handling.mode. Values: Decimal, or None for those without digits."""
    if mode == "double":
        return FLOAT64, lambda value: math.nan if value is None else float(value)
    if mode == "string":
        return STRING, lambda value: "NAN" if value is None else format(value, "f")
    if scale is None:
        return VARIABLE_DECIMAL, _variable
    schema = decimal(scale)
    if precision is not None:
        schema = replace(
            schema, parameters=(*schema.parameters, ("connect.decimal.precision", str(precision)))
        )
    quantum = Decimal(1).scaleb(-scale)
    return schema, lambda value: _to_scale(value, quantum, scale)


def _variable(value: Decimal | None) -> dict[str, Any] | None:
    if value is None:
        return None
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    return {"scale": -exponent, "value": decimal_bytes(value, -exponent)}


def _to_scale(value: Decimal | None, quantum: Decimal, scale: int) -> Decimal | None:
    if value is None:
        return None
    exponent = value.as_tuple().exponent
    return (
        value.quantize(quantum) if isinstance(exponent, int) and -exponent < scale and scale < 20 else value
    )


def binary(mode: str) -> Typed:
    """Bytes by binary.handling.mode."""
    if mode == "base64":
        return STRING, lambda value: base64.b64encode(value).decode()
    if mode == "base64-url-safe":
        return STRING, lambda value: base64.urlsafe_b64encode(value).decode()
    if mode == "hex":
        return STRING, lambda value: value.hex()
    return BYTES, bytes


def date(mode: str, iso: Callable[[int], str]) -> Typed:
    """Days since 1970, by time.precision.mode."""
    if mode == "connect":
        return DATE_SCHEMA, lambda days: EPOCH_DATE + dt.timedelta(days=days)
    if mode == "isostring":
        return ISO_DATE, lambda days: f"{iso(days)}Z"
    return DAYS, lambda days: days


def time_of_day(mode: str, digits: int, iso: Callable[[int, int], str]) -> Typed:
    """Microseconds since midnight. digits: of the second's fraction that the column keeps."""
    if mode == "connect":
        return TIME_SCHEMA, lambda us: (EPOCH + dt.timedelta(milliseconds=us // 1000 % 86_400_000)).time()
    if mode == "isostring":
        return ISO_TIME, lambda us: f"{iso(us, 6 if digits else 0)}Z"
    if mode == "nanoseconds":
        return TIME_NS, lambda us: us * 1000
    if mode == "adaptive" and digits <= 3:
        return TIME_MS, lambda us: us // 1000
    return TIME_US, lambda us: us


def instant(mode: str, digits: int, iso: Callable[[int, int], str]) -> Typed:
    """Microseconds since 1970 of a time without a zone."""
    if mode == "connect":
        return TIMESTAMP_SCHEMA, lambda us: EPOCH + dt.timedelta(milliseconds=us // 1000)
    if mode == "isostring":
        return ISO_TIMESTAMP, lambda us: iso(us, 6)
    if mode == "nanoseconds":
        return INSTANT_NS, lambda us: us * 1000
    if digits <= 3 and mode in ("adaptive", "adaptive_time_microseconds"):
        return INSTANT_MS, lambda us: us // 1000
    return INSTANT_US, lambda us: us


def zero(schema: Schema) -> Any:
    """A value for columns that may not be null, where the database does not tell the value: as Debezium fills them."""
    if schema.has_default:
        return schema.default
    if schema.name is not None and schema.name.startswith("org.apache.kafka.connect.data."):
        return {
            "Decimal": Decimal(0),
            "Date": EPOCH_DATE,
            "Time": EPOCH.time(),
            "Timestamp": EPOCH,
        }[schema.name.rpartition(".")[2]]
    if schema.name == ZONED.name:
        return "1970-01-01T00:00:00Z"
    if schema.type == "struct":
        return {field.name: None if field.schema.optional else zero(field.schema) for field in schema.fields}
    zeros: dict[str, Any] = {"string": "", "bytes": b"", "boolean": False, "array": [], "map": {}}
    return zeros.get(schema.type, 0.0 if schema.type.startswith("float") else 0)
