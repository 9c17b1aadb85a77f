"""Connect's schemas as plain data, and how values look in Python.

| type                        | value                                                   |
|-----------------------------|---------------------------------------------------------|
| int8, int16, int32, int64   | int                                                     |
| float32, float64            | float                                                   |
| boolean, string, bytes      | bool, str, bytes                                        |
| array, map, struct          | list, dict, dict by field name                          |
| Decimal (bytes)             | decimal.Decimal                                         |
| Date (int32)                | datetime.date                                           |
| Time (int32)                | datetime.time, to the millisecond                       |
| Timestamp (int64)           | datetime.datetime in UTC, to the millisecond            |

A value without a schema is what JSON can say. Source: KIP-26, Kafka's package org.apache.kafka.connect.data.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

from barnabas.connect.errors import DataError

INTEGERS: Final = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
FLOATS: Final = ("float32", "float64")
TYPES: Final = (*INTEGERS, *FLOATS, "boolean", "string", "bytes", "array", "map", "struct")

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
DATE: Final = "org.apache.kafka.connect.data.Date"
TIME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"
SCALE: Final = "scale"
EPOCH_DATE: Final = dt.date(1970, 1, 1)
EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class _Unset:
    """That there is no default, which may itself be None."""

    def __repr__(self) -> str:
        return "UNSET"

    def __reduce__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct."""

    name: str
    schema: Schema


@dataclass(frozen=True)
class Schema:
    """The type of values. default: UNSET without one. parameters: (name, text) pairs, as `scale` of a Decimal.

    fields: of a struct. keys: of a map. items: of an array, and the values of a map. Equal schemas are equal objects to
    converters, which keep what they make of one: make each once, not per record.
    """

    type: str
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    default: Any = UNSET
    parameters: tuple[tuple[str, str], ...] = ()
    fields: tuple[Field, ...] = ()
    keys: Schema | None = None
    items: Schema | None = None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(
            (self.type, self.optional, self.name, self.version, self.parameters, self.fields, self.items)
        )

    @cached_property
    def by_name(self) -> Mapping[str, Field]:
        """The fields of a struct."""
        return {field.name: field for field in self.fields}

    @property
    def has_default(self) -> bool:
        """Whether there is a default."""
        return not isinstance(self.default, _Unset)

    def parameter(self, name: str) -> str | None:
        """The text of a parameter."""
        return dict(self.parameters).get(name)

    def as_optional(self) -> Schema:
        """The same schema, for values that may be None."""
        return self if self.optional else replace(self, optional=True)


INT8: Final = Schema("int8")
INT16: Final = Schema("int16")
INT32: Final = Schema("int32")
INT64: Final = Schema("int64")
FLOAT32: Final = Schema("float32")
FLOAT64: Final = Schema("float64")
BOOLEAN: Final = Schema("boolean")
STRING: Final = Schema("string")
BYTES: Final = Schema("bytes")
OPTIONAL_STRING: Final = STRING.as_optional()
OPTIONAL_BYTES: Final = BYTES.as_optional()
DATE_SCHEMA: Final = Schema("int32", name=DATE, version=1)
TIME_SCHEMA: Final = Schema("int32", name=TIME, version=1)
TIMESTAMP_SCHEMA: Final = Schema("int64", name=TIMESTAMP, version=1)


def decimal(scale: int, *, optional: bool = False) -> Schema:
    """Numbers with a fixed number of digits after the point."""
    return Schema("bytes", optional, DECIMAL, 1, parameters=((SCALE, str(scale)),))


def array(items: Schema, *, optional: bool = False) -> Schema:
    """Lists."""
    return Schema("array", optional, items=items)


def map_of(keys: Schema, values: Schema, *, optional: bool = False) -> Schema:
    """Maps."""
    return Schema("map", optional, keys=keys, items=values)


def struct(
    fields: Mapping[str, Schema] | Sequence[Field],
    name: str | None = None,
    *,
    optional: bool = False,
    version: int | None = None,
    doc: str | None = None,
) -> Schema:
    """Structs with these fields, in order."""
    rows = [Field(n, s) for n, s in fields.items()] if isinstance(fields, Mapping) else fields
    return Schema("struct", optional, name, version, doc, fields=tuple(rows))


# --- values ---------------------------------------------------------------------------------------------


def check(schema: Schema, value: Any, where: str = "the value") -> None:
    """Raises DataError for a value that the schema does not have; `where` is the value's place in the message."""
    if value is None:
        if not schema.optional and not schema.has_default:
            raise DataError(f"{where} is null, but its schema is not optional")
        return
    kinds: Any = _python(schema)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise DataError(f"{where} is {type(value).__name__}, but its schema says {described(schema)}")
    if schema.name in LOGICAL:
        return
    if schema.type in INTEGERS:
        lo, hi = INTEGERS[schema.type]
        if not lo <= value <= hi:
            raise DataError(f"{where} is {value}, which is out of the range of {schema.type}")
    elif schema.type == "struct":
        for field in schema.fields:
            check(field.schema, value.get(field.name), f"{where}.{field.name}")
    elif schema.type == "array":
        assert schema.items is not None
        for index, item in enumerate(value):
            check(schema.items, item, f"{where}[{index}]")
    elif schema.type == "map":
        assert schema.keys is not None
        assert schema.items is not None
        for key, item in value.items():
            check(schema.keys, key, f"a key of {where}")
            check(schema.items, item, f"{where}[{key!r}]")


LOGICAL: Final[Mapping[str | None, type]] = {
    DECIMAL: Decimal,
    DATE: dt.date,
    TIME: dt.time,
    TIMESTAMP: dt.datetime,
}
"""The class of a logical type's values, by the name of its schema."""
_CLASSES: Final[Mapping[str, tuple[type, ...]]] = {
    **dict.fromkeys(INTEGERS, (int,)),
    **dict.fromkeys(FLOATS, (float, int)),
    "boolean": (bool,),
    "string": (str,),
    "bytes": (bytes, bytearray, memoryview),
    "array": (list, tuple),
    "map": (dict,),
    "struct": (dict,),
}


def _python(schema: Schema) -> tuple[type, ...]:
    logical = LOGICAL.get(schema.name)
    return (logical,) if logical is not None else _CLASSES[schema.type]


def described(schema: Schema) -> str:
    """A schema in a few words, for messages."""
    return f"{schema.type} ({schema.name})" if schema.name else schema.type


def to_primitive(schema: Schema, value: Any) -> Any:
    """A logical value as the type that carries it: unscaled bytes, days, or milliseconds. Raises DataError."""
    if value is None:
        return None
    try:
        if schema.name == DECIMAL:
            return decimal_bytes(value, int(schema.parameter(SCALE) or 0))
        if schema.name == DATE:
            return (value - EPOCH_DATE).days
        if schema.name == TIME:
            seconds = value.hour * 3600 + value.minute * 60 + value.second
            return seconds * 1000 + value.microsecond // 1000
        if schema.name == TIMESTAMP:
            return timestamp_ms(value)
    except (TypeError, AttributeError, ValueError):
        raise DataError(f"{value!r} is not a value of {described(schema)}") from None
    return value


def from_primitive(schema: Schema, value: Any) -> Any:
    """The other way round. Raises DataError."""
    if value is None:
        return None
    try:
        if schema.name == DECIMAL:
            return decimal_from(value, int(schema.parameter(SCALE) or 0))
        if schema.name == DATE:
            return EPOCH_DATE + dt.timedelta(days=value)
        if schema.name == TIME:
            return (EPOCH + dt.timedelta(milliseconds=value)).time()
        if schema.name == TIMESTAMP:
            return EPOCH + dt.timedelta(milliseconds=value)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{value!r} is not a value of {described(schema)}") from None
    return value


def timestamp_ms(value: dt.datetime) -> int:
    """Milliseconds since 1970; a time without a zone is UTC."""
    aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
    return (aware - EPOCH) // dt.timedelta(milliseconds=1)


def decimal_bytes(value: Decimal, scale: int) -> bytes:
    """The unscaled number in two's complement, big-endian. Raises DataError if the scale would cut digits off."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise DataError(f"{value} is not a number")
    shift = scale + exponent
    unscaled = int("".join(map(str, digits)) or "0")
    if shift >= 0:
        unscaled *= int(10**shift)
    else:
        unscaled, rest = divmod(unscaled, int(10**-shift))
        if rest:
            raise DataError(f"{value} has more than {scale} digits after the point")
    unscaled = -unscaled if sign else unscaled
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return unscaled.to_bytes(size, "big", signed=True)


def decimal_from(data: bytes, scale: int) -> Decimal:
    """What `decimal_bytes` made."""
    unscaled = int.from_bytes(data, "big", signed=True)
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -scale))


def inferred(value: Any) -> Schema | None:
    """The schema of a value that has none, as Connect finds it for headers; None for null and for mixed values."""
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        return INT64
    if isinstance(value, float):
        return FLOAT64
    if isinstance(value, str):
        return STRING
    if isinstance(value, (bytes, bytearray, memoryview)):
        return BYTES
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        return decimal(max(-exponent, 0) if isinstance(exponent, int) else 0)
    if isinstance(value, dt.datetime):
        return TIMESTAMP_SCHEMA
    if isinstance(value, dt.date):
        return DATE_SCHEMA
    if isinstance(value, dt.time):
        return TIME_SCHEMA
    return None
