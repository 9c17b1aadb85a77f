"""PostgreSQL's types in Debezium's schemas, and its texts as their values. No I/O.

Source: Debezium's documentation, "Data type mappings" of the PostgreSQL connector.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from barnabas.connect.cdc import semantic as s
from barnabas.connect.cdc.postgres import texts
from barnabas.connect.cdc.postgres.catalog import TypeFacts
from barnabas.connect.cdc.semantic import Typed
from barnabas.connect.schemas import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    STRING,
    Schema,
    array,
    map_of,
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The options that choose between types."""

    decimals: str = "precise"
    times: str = "adaptive"
    binary: str = "bytes"
    hstores: str = "json"
    intervals: str = "numeric"
    money_digits: int = 2
    unknown: bool = False


def _same(text: str) -> str:
    return text


TEXTS: Final = ("char", "bpchar", "varchar", "text", "name", "citext", "inet", "cidr", "macaddr", "macaddr8", "int4range",
                "int8range", "numrange", "tsrange", "tstzrange", "daterange", "int4multirange", "int8multirange",
                "nummultirange", "tsmultirange", "tstzmultirange", "datemultirange")  # fmt: skip
PLAIN: Final[Mapping[str, Typed]] = {
    "bool": (BOOLEAN, texts.boolean),
    "int2": (INT16, int),
    "int4": (INT32, int),
    "int8": (INT64, int),
    "oid": (INT64, int),
    "float4": (FLOAT32, float),
    "float8": (FLOAT64, float),
    "json": (s.JSON, _same),
    "jsonb": (s.JSON, _same),
    "xml": (s.XML, _same),
    "uuid": (s.UUID, _same),
    "ltree": (s.LTREE, _same),
    "tsvector": (s.TSVECTOR, _same),
    **dict.fromkeys(TEXTS, (STRING, _same)),
}
"""By the type's name, those that no option changes."""


def typed(
    facts: TypeFacts, modifier: int, types: Mapping[int, TypeFacts], settings: Settings
) -> Typed | None:
    """The schema, not optional, and the converter of texts; None for types that Connect has nothing for."""
    if facts.kind == "d":
        base = types[facts.base]
        return typed(base, facts.base_modifier if facts.base_modifier >= 0 else modifier, types, settings)
    if facts.kind == "e":
        return s.enum(facts.labels), _same
    if facts.element:
        return _array(types[facts.element], modifier, types, settings)
    plain = PLAIN.get(facts.name)
    if plain is not None:
        return plain
    chosen = CHOSEN.get(facts.name)
    if chosen is not None:
        return chosen(modifier, settings)
    return (BYTES, str.encode) if settings.unknown else None


def _array(
    element: TypeFacts, modifier: int, types: Mapping[int, TypeFacts], settings: Settings
) -> Typed | None:
    inner = typed(element, modifier, types, settings)
    if inner is None:
        return None
    schema, convert = inner
    return array(schema.as_optional()), lambda text: texts.array(text, convert)


def _composed(first: Callable[[str], Any], then: Typed) -> Typed:
    schema, convert = then
    return schema, lambda text: convert(first(text))


def _numeric(modifier: int, settings: Settings) -> Typed:
    precision, scale = (
        (None, None) if modifier < 0 else ((modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF)
    )
    if scale is not None and scale >= 1024:
        scale -= 2048
    return _composed(texts.decimal, s.exact(settings.decimals, precision, scale))


def _bits(modifier: int, settings: Settings) -> Typed:
    if modifier == 1:
        return BOOLEAN, lambda text: text == "1"
    # A column of any number of bits has the largest length that Java knows.
    return s.bits(modifier if modifier > 0 else 2_147_483_647), texts.bits


def _digits(modifier: int) -> int:
    """Of the second's fraction."""
    return modifier if modifier >= 0 else 6


def _timestamptz(modifier: int, settings: Settings) -> Typed:
    digits = _digits(modifier)

    def zoned(text: str) -> str:
        return text if "infinity" in text else texts.iso_timestamp(texts.timestamp_us(text), digits)

    return s.ZONED, zoned


def _timetz(modifier: int, settings: Settings) -> Typed:
    def zoned(text: str) -> str:
        us = (texts.time_us(text) - texts.zone_seconds(text) * 1_000_000) % texts.DAY_US
        whole = texts.iso_time(us, 6)
        return whole.rstrip("0").rstrip(".") + "Z" if us % 1_000_000 else whole.partition(".")[0] + "Z"

    return s.ZONED_TIME, zoned


def _interval(modifier: int, settings: Settings) -> Typed:
    if settings.intervals == "string":
        return s.INTERVAL, texts.iso_interval
    return s.DURATION, texts.interval_us


def _hstore(modifier: int, settings: Settings) -> Typed:
    if settings.hstores == "map":
        return map_of(STRING, STRING.as_optional()), texts.hstore
    return s.JSON, lambda text: json.dumps(texts.hstore(text), separators=(",", ":"), ensure_ascii=False)


def _point(text: str) -> dict[str, Any]:
    x, y = texts.point(text)
    return {"x": x, "y": y, "wkb": struct.pack("<BIdd", 1, 1, x, y), "srid": None}


CHOSEN: Final[Mapping[str, Callable[[int, Settings], Typed]]] = {
    "numeric": _numeric,
    "money": lambda _, o: _composed(texts.money, s.exact(o.decimals, None, o.money_digits)),
    "bit": _bits,
    "varbit": _bits,
    "bytea": lambda _, o: _composed(texts.hexadecimal, s.binary(o.binary)),
    "date": lambda _, o: _composed(texts.date, s.date(o.times, texts.iso_date)),
    "time": lambda m, o: _composed(texts.time_us, s.time_of_day(o.times, _digits(m), texts.iso_time)),
    "timestamp": lambda m, o: _composed(
        texts.timestamp_us, s.instant(o.times, _digits(m), texts.iso_timestamp)
    ),
    "timestamptz": _timestamptz,
    "timetz": _timetz,
    "interval": _interval,
    "hstore": _hstore,
    "point": lambda _, o: (s.POINT, _point),
}
"""By the type's name, those that depend on the column or on options."""

_LITERAL: Final = re.compile(r"(?:\(?(-?[0-9.]+)\)?|'((?:[^']|'')*)'|(true|false))(?:::[\w\s\"\[\]().,]+)?")


def with_default(
    schema: Schema, convert: s.Convert, expression: str | None, not_null: bool, is_domain: bool
) -> Schema:
    """The schema with the default that a column's expression says, if it is a literal. What a function returns is not known;
    then a column that may not be null has the type's zero, as Debezium writes it."""
    if expression is None or is_domain or schema.type in ("struct", "array", "map"):
        return schema
    match = _LITERAL.fullmatch(expression)
    if match is None:
        return replace(schema, default=s.zero(schema)) if not_null else schema
    number, quoted, truth = match.groups()
    text = number if number is not None else quoted.replace("''", "'") if quoted is not None else truth
    try:
        return replace(schema, default=convert(text))
    except (ValueError, ArithmeticError):
        return schema
