"""Values of declared types: whether a value is one, and its form as JSON text, in which state keeps it.

The types are Spark's, by name: `bigint`, `decimal(10,2)`, `array<string>`, `struct<at:timestamp,n:int>`. In Python a
timestamp is a datetime with a time zone, a decimal a Decimal, an array a list, a struct and a map a dict.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
WHOLE_BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
ALIASES: Final = {
    "integer": "int", "long": "bigint", "text": "string", "bool": "boolean", "number": "double", "byte": "tinyint",
    "short": "smallint", "real": "float", "bytes": "binary",
}  # fmt: skip
EXACT: Final = Context(prec=76)
TOKEN: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|`(?:[^`]|``)+`|\d+|[<>(),:])")


_string: Final = json.encoder.encode_basestring_ascii
_scan: Final[Any] = vars(json.JSONDecoder())["scan_once"]
"""Reads JSON as `encode` writes it, without white space around it."""


class BadType(ValueError):
    """A text is not the name of a type."""


class BadValue(ValueError):
    """A value is not of its type. The message says what it is instead."""


@dataclass(frozen=True, slots=True)
class Type:
    """A type. name: as Spark writes it. plain: makes of a value what JSON can hold (raises BadValue); restored: the reverse.
    checked: the value as Arrow takes it (raises BadValue). None is a value of every type, and passed to none of these."""

    name: str
    plain: Callable[[Any], Any]
    restored: Callable[[Any], Any]
    checked: Callable[[Any], Any]

    def encode(self, value: Any) -> str:
        """The value as JSON text. Raises BadValue."""
        if type(value) is str and self.name == "string":
            return _string(value)
        return json.dumps(None if value is None else self.plain(value), separators=(",", ":"))

    def decode(self, text: str) -> Any:
        """The value of a text of `encode`."""
        plain = _scan(text, 0)[0]
        return None if plain is None else self.restored(plain)

    def check(self, value: Any) -> Any:
        """The value as Arrow takes it. Raises BadValue."""
        return None if value is None else self.checked(value)


@lru_cache(maxsize=1024)
def type_named(text: str) -> Type:
    """The type of this name. Raises BadType."""
    tokens = list(_tokens(text))
    kind, rest = _type(tokens, text)
    if rest:
        raise BadType(f"{text!r} is not a type: nothing may follow after {kind.name}")
    return kind


def _tokens(text: str) -> Iterator[str]:
    place = 0
    while place < len(text.rstrip()):
        match = TOKEN.match(text, place)
        if match is None:
            raise BadType(f"{text!r} is not a type like bigint, array<string> or struct<at:timestamp,n:int>")
        yield match[1]
        place = match.end()


def _type(tokens: list[str], text: str) -> tuple[Type, list[str]]:
    if not tokens:
        raise BadType(f"{text!r} is not a type: it ends too early")
    name, rest = tokens[0].lower(), tokens[1:]
    name = ALIASES.get(name, name)
    if name == "decimal":
        return _decimal(rest, text)
    if name == "array":
        inner, rest = _type(_after("<", rest, text), text)
        return _array(inner), _after(">", rest, text)
    if name == "map":
        key, rest = _type(_after("<", rest, text), text)
        value, rest = _type(_after(",", rest, text), text)
        return _map(key, value), _after(">", rest, text)
    if name == "struct":
        return _struct_of(rest, text)
    if name in WHOLE_BITS:
        return _whole(name, WHOLE_BITS[name]), rest
    if name not in SCALARS:
        known = ", ".join([*SCALARS, *WHOLE_BITS, "decimal(p,s)", "array<...>", "map<...>", "struct<...>"])
        raise BadType(f"{text!r} is not a type: {tokens[0]} is none of {known}")
    return SCALARS[name], rest


def _after(mark: str, tokens: list[str], text: str) -> list[str]:
    if not tokens or tokens[0] != mark:
        raise BadType(f"{text!r} is not a type: {mark} is missing")
    return tokens[1:]


def _struct_of(tokens: list[str], text: str) -> tuple[Type, list[str]]:
    rest = _after("<", tokens, text)
    fields: dict[str, Type] = {}
    while True:
        if not rest:
            raise BadType(f"{text!r} is not a type: > is missing")
        name = rest[0].strip("`").replace("``", "`")
        fields[name], rest = _type(_after(":", rest[1:], text), text)
        if rest[:1] != [","]:
            return _struct(fields), _after(">", rest, text)
        rest = rest[1:]


def _decimal(tokens: list[str], text: str) -> tuple[Type, list[str]]:
    digits, scale = 10, 0
    if tokens[:1] == ["("]:
        end = tokens.index(")") if ")" in tokens else 0
        digits_and_scale = [int(part) for part in tokens[1:end] if part.isdigit()]
        if len(digits_and_scale) not in (1, 2) or not 1 <= digits_and_scale[0] <= 38:
            raise BadType(f"{text!r} is not a type: a decimal is decimal(digits, digits after the point)")
        digits, scale, tokens = (
            digits_and_scale[0],
            (digits_and_scale[1] if len(digits_and_scale) == 2 else 0),
            tokens[end + 1 :],
        )
    name = f"decimal({digits},{scale})"
    unit = Decimal(1).scaleb(-scale)

    def checked(value: Any) -> Decimal:
        if isinstance(value, int) and not isinstance(value, bool):
            value = Decimal(value)
        if not isinstance(value, Decimal) or not value.is_finite():
            raise _not(value, name, "a Decimal")
        try:
            exact = value.quantize(unit, context=EXACT)
        except InvalidOperation:
            exact = None
        if exact is None or exact != value or len(exact.as_tuple().digits) > digits:
            raise BadValue(f"{value} is no {name}")
        return exact

    return Type(name, lambda value: str(checked(value)), Decimal, checked), tokens


def _not(value: Any, name: str, wanted: str) -> BadValue:
    return BadValue(f"{value!r:.80} is a {type(value).__name__}, not {wanted} ({name})")


def _whole(name: str, bits: int) -> Type:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def checked(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _not(value, name, "a whole number")
        if not low <= value <= high:
            raise BadValue(f"{value} is too large for {name}")
        return value

    return Type(name, checked, int, checked)


def _double(name: str) -> Type:
    def checked(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _not(value, name, "a number")
        return float(value)

    def plain(value: Any) -> float | str:
        number = checked(value)
        return number if math.isfinite(number) else str(number)

    return Type(name, plain, float, checked)


def _of_class(name: str, kind: type, wanted: str) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if not isinstance(value, kind):
            raise _not(value, name, wanted)
        return value

    return checked


def _moment(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise _not(value, "timestamp", "a datetime")
    if value.tzinfo is None:
        raise BadValue(f"{value} has no time zone: give it one, like datetime.UTC")
    return value


def _day(value: Any) -> date:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise _not(value, "date", "a date")
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray)):
        raise _not(value, "binary", "bytes")
    return bytes(value)


_text = _of_class("string", str, "text")
_truth = _of_class("boolean", bool, "true or false")
SCALARS: Final[Mapping[str, Type]] = {
    "string": Type("string", _text, str, _text),
    "boolean": Type("boolean", _truth, bool, _truth),
    "double": _double("double"),
    "float": _double("float"),
    "timestamp": Type(
        "timestamp",
        lambda value: (_moment(value) - EPOCH) // MICROSECOND,
        lambda micros: EPOCH + timedelta(microseconds=micros),
        _moment,
    ),
    "date": Type("date", lambda value: _day(value).isoformat(), date.fromisoformat, _day),
    "binary": Type(
        "binary", lambda value: base64.b64encode(_bytes(value)).decode(), base64.b64decode, _bytes
    ),
}


def _array(inner: Type) -> Type:
    name = f"array<{inner.name}>"

    def each(value: Any, work: Callable[[Any], Any]) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            raise _not(value, name, "a list")
        return [None if one is None else work(one) for one in value]

    return Type(
        name,
        lambda value: each(value, inner.plain),
        lambda plain: each(plain, inner.restored),
        lambda value: each(value, inner.checked),
    )


def _map(key: Type, of: Type) -> Type:
    name = f"map<{key.name},{of.name}>"

    def pairs(value: Any) -> list[tuple[Any, Any]]:
        # Arrow's values of maps are lists of pairs.
        if isinstance(value, Mapping):
            return list(value.items())
        if isinstance(value, list) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            return value
        raise _not(value, name, "a dict")

    def work(value: Any, kind: Callable[[Any], Any], inner: Callable[[Any], Any]) -> list[list[Any]]:
        return [[kind(k), None if v is None else inner(v)] for k, v in pairs(value)]

    return Type(
        name,
        lambda value: work(value, key.plain, of.plain),
        lambda plain: {key.restored(k): None if v is None else of.restored(v) for k, v in plain},
        lambda value: dict(map(tuple, work(value, key.checked, of.checked))),
    )


def _struct(fields: Mapping[str, Type]) -> Type:
    name = f"struct<{','.join(f'{field}:{kind.name}' for field, kind in fields.items())}>"

    def work(value: Any, way: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _not(value, name, "a dict")
        if unknown := [str(field) for field in value if field not in fields]:
            raise BadValue(f"{name} has no field {unknown[0]!r}")
        there = {field: value.get(field) for field in fields}
        return {f: None if v is None else getattr(fields[f], way)(v) for f, v in there.items()}

    return Type(
        name, lambda v: work(v, "plain"), lambda plain: work(plain, "restored"), lambda v: work(v, "checked")
    )
