"""The columns of a view: how values of Spark's types are stored in SQLite, written as JSON, and read from text.

What SQLite compares is what it stores, so every type is stored in a form that has the order of its values: numbers as
numbers, times as microseconds since 1970 (UTC), days as days since 1970, text by its characters' code points. A key that is
null is stored as an empty blob (a binary one as an empty text), because the fields of a primary key cannot be null.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

Stored = int | float | str | bytes | None
"""A value as SQLite has it."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY: Final = date(1970, 1, 1)
WHOLE_DIGITS_MAX: Final = 18
"""Decimals of so many digits fit into SQLite's integers."""
DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
INTEGERS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


KEPT: Final = "kept"
"""The type of values of user code's stores (stores.py): JSON text with marks."""
MARK: Final = "$"


class Family(StrEnum):
    """How values are stored."""

    INTEGER = "INTEGER"
    FLOAT = "REAL"
    TEXT = "TEXT"
    BOOLEAN = "BOOLEAN"
    BYTES = "BLOB"
    TIME = "TIMESTAMP_US"
    DAY = "DATE_DAYS"
    DECIMAL = "DECIMAL_TEXT"
    JSON = "JSON_TEXT"
    KEPT = "KEPT_TEXT"


AFFINITY: Final = {
    Family.TIME: "INTEGER",
    Family.DAY: "INTEGER",
    Family.BOOLEAN: "INTEGER",
    Family.DECIMAL: "TEXT",
    Family.JSON: "TEXT",
    Family.KEPT: "TEXT",
}
"""The types of SQLite in which families other than its own are stored."""
EXAMPLES: Final = {
    Family.INTEGER: "42",
    Family.FLOAT: "12.5",
    Family.TEXT: "some text",
    Family.BOOLEAN: "true or false",
    Family.BYTES: "0x00ff, the bytes in hexadecimal",
    Family.TIME: "2026-01-31T12:00:00Z",
    Family.DAY: "2026-01-31",
    Family.DECIMAL: "12.50",
}


class BadKey(ValueError):
    """A text is not a value of its column; the message says what one looks like."""


def family_of(kind: str) -> Family:
    """The family of a type of Spark, by its name; what has fields or elements is stored as JSON text."""
    if kind in INTEGERS:
        return Family.INTEGER
    named = {
        "float": Family.FLOAT,
        "double": Family.FLOAT,
        "boolean": Family.BOOLEAN,
        "binary": Family.BYTES,
        "timestamp": Family.TIME,
        "timestamp_ntz": Family.TIME,
        "date": Family.DAY,
    }
    if kind in named:
        return named[kind]
    if kind == KEPT:
        return Family.KEPT
    if DECIMAL.fullmatch(kind):
        return Family.DECIMAL
    return Family.JSON if kind.startswith(("struct", "array", "map", "variant")) else Family.TEXT


@dataclass(frozen=True, slots=True)
class Column:
    """A column. kind: the type of Spark. is_key: whether it belongs to the primary key. hidden: it only tells apart rows
    that are shown with the same key."""

    name: str
    kind: str
    is_key: bool = False
    hidden: bool = False

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {name: value for name, value in asdict(self).items() if name != "hidden" or value}

    @property
    def family(self) -> Family:
        """How its values are stored."""
        return family_of(self.kind)

    @property
    def quoted(self) -> str:
        """Its name in SQL."""
        return quoted(self.name)

    @property
    def scale(self) -> int | None:
        """The digits after the point of a decimal that is stored as a whole number, to have an order: that of a key."""
        match = DECIMAL.fullmatch(self.kind) if self.is_key else None
        return int(match[2]) if match else None

    @property
    def cannot_be_key(self) -> str | None:
        """Why its values cannot be a key; None if they can."""
        if self.family is Family.JSON:
            return f"{self.name} is {self.kind}, which has no order: name its fields, or convert it to text"
        match = DECIMAL.fullmatch(self.kind)
        if match and int(match[1]) > WHOLE_DIGITS_MAX:
            return f"{self.name} is {self.kind}; a decimal of a key has at most {WHOLE_DIGITS_MAX} digits: convert it"
        return None

    @property
    def declaration(self) -> str:
        """Its declaration in CREATE TABLE."""
        family = self.family
        affinity = "INTEGER" if self.scale is not None else AFFINITY.get(family, family.value)
        return f"{self.quoted} {affinity}{' NOT NULL' if self.is_key else ''}"

    @property
    def null(self) -> Stored:
        """What is stored for null."""
        if not self.is_key:
            return None
        return "" if self.family is Family.BYTES else b""

    # --- to SQLite ------------------------------------------------------------------------------------

    def stored(self, values: pa.ChunkedArray) -> list[Stored]:
        """The values of an Arrow column as SQLite has them."""
        family = self.family
        if family is Family.TIME:
            values = pc.cast(pc.cast(values, pa.timestamp("us", values.type.tz)), pa.int64())
        elif family is Family.DAY:
            values = pc.cast(pc.cast(values, pa.date32()), pa.int32())
        elif family is Family.BOOLEAN:
            values = pc.cast(values, pa.int8())
        elif self.kind == "float":
            # By way of the shortest text: 0.1 stays 0.1, and does not become 0.10000000149011612.
            values = pc.cast(pc.cast(values, pa.string()), pa.float64())
        stored: list[Any] = values.to_pylist()
        if family is Family.DECIMAL:
            scale = self.scale
            if scale is None:
                stored = [None if v is None else format(v, "f") for v in stored]
            else:
                stored = [None if v is None else int(v.scaleb(scale)) for v in stored]
        elif family is Family.FLOAT:
            # SQLite would store NaN as null.
            stored = ["NaN" if v is not None and v != v else v for v in stored]
        if self.is_key and values.null_count:
            stored = [self.null if v is None else v for v in stored]
        return stored

    # --- to JSON and back --------------------------------------------------------------------------------

    def fragment(self, value: Stored) -> str:
        """A stored value as JSON text."""
        if value is None or value == self.null:
            return "null"
        family = self.family
        if family is Family.TIME:
            return f'"{time_text(int(value))}"' if is_shown_time(int(value)) else str(value)
        if family is Family.BOOLEAN:
            return "true" if value else "false"
        if family is Family.DAY:
            return day_fragment(int(value))
        if family is Family.DECIMAL:
            return value if isinstance(value, str) else format(Decimal(value).scaleb(-(self.scale or 0)), "f")  # type: ignore[arg-type]
        if family is Family.JSON:
            return str(value)
        if family is Family.KEPT:
            return json.dumps(unmarked(json.loads(str(value))), ensure_ascii=False)
        if isinstance(value, bytes):
            return f'"0x{value.hex()}"'
        if isinstance(value, float) and math.isinf(value):
            return '"Infinity"' if value > 0 else '"-Infinity"'
        return json.dumps(value)

    def from_fragment(self, text: str) -> Stored:
        """A stored value from the JSON text of `fragment`."""
        if text == "null":
            return self.null
        family = self.family
        if family in (Family.JSON, Family.DECIMAL) and self.scale is None:
            return text
        value = json.loads(text, parse_float=str)
        if family is Family.TEXT:
            return str(value)
        if family in (Family.TIME, Family.DAY) and isinstance(value, int):
            return value
        if family is Family.FLOAT and value == "NaN":
            return "NaN"
        return self.parse(text if family is Family.BOOLEAN else str(value))

    # --- from text --------------------------------------------------------------------------------------

    def parse(self, text: str) -> Stored:
        """The stored form of a value that a user has written. Raises BadKey."""
        try:
            return self._parsed(text)
        except (ValueError, OverflowError, InvalidOperation):
            bits = INTEGERS.get(self.kind)
            like = f" ({bits} bits)" if bits else ""
            raise BadKey(
                f"{text[:80]!r} is no value of {self.name}, which is {self.kind}{like}, like {EXAMPLES[self.family]}"
            ) from None

    def _parsed(self, text: str) -> Stored:
        family = self.family
        if family is Family.TEXT:
            return text
        if family is Family.INTEGER:
            number = int(text)
            if not -(1 << 63) <= number < 1 << 63:
                raise ValueError(text)
            return number
        if family is Family.FLOAT:
            value = float(text)
            return "NaN" if math.isnan(value) else value
        if family is Family.BOOLEAN:
            return {"true": 1, "false": 0}[text.lower()] if text.lower() in ("true", "false") else int("x")
        if family is Family.BYTES:
            return bytes.fromhex(text.removeprefix("0x"))
        if family is Family.TIME:
            return parsed_time(text)
        if family is Family.DAY:
            return (date.fromisoformat(text) - EPOCH_DAY).days
        assert self.scale is not None, "other decimals are no keys"
        whole = Decimal(text).scaleb(self.scale)
        if whole != whole.to_integral_value() or abs(whole) >= 1 << 63:
            raise ValueError(text)
        return int(whole)


def unmarked(value: Any) -> Any:
    """A value of a store as plain JSON: what an object with a mark stands for is shown in its place."""
    if isinstance(value, list):
        return [unmarked(one) for one in value]
    if not isinstance(value, dict):
        return value
    return unmarked(value["v"]) if MARK in value else {name: unmarked(one) for name, one in value.items()}


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def parsed_time(text: str) -> int:
    """Microseconds since 1970 of a time in ISO 8601, which is UTC unless it names an offset. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return (moment - EPOCH) // timedelta(microseconds=1)


def is_shown_time(time_us: int) -> bool:
    """Whether a time is in the years 1 to 9999, for which there is a text."""
    return -62_135_596_800_000_000 <= time_us < 253_402_300_800_000_000


def time_text(time_us: int) -> str:
    """A time as ISO 8601, with as many digits of a second as it needs."""
    moment = EPOCH + timedelta(microseconds=time_us)
    return moment.isoformat().replace("+00:00", "Z")


def day_fragment(days: int) -> str:
    """A day as JSON text: ISO 8601 in the years 1 to 9999, otherwise the number of days since 1970."""
    try:
        return f'"{(EPOCH_DAY + timedelta(days=days)).isoformat()}"'
    except OverflowError:
        return str(days)
