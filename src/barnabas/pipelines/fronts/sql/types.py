"""The types of columns: ksqlDB's names, and the types of Spark that stand for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

PLAIN: Final[Mapping[str, str]] = {
    "BOOLEAN": "boolean",
    "INTEGER": "int",
    "BIGINT": "bigint",
    "DOUBLE": "double",
    "STRING": "string",
    "BYTES": "binary",
    "DATE": "date",
    "TIME": "int",
    "TIMESTAMP": "timestamp",
}
"""Types without parameters, by ksqlDB's names, and Spark's names. A TIME is a number of milliseconds, as in its records."""
ALIASES: Final[Mapping[str, str]] = {
    "INT": "INTEGER",
    "VARCHAR": "STRING",
    "LONG": "BIGINT",
    "BINARY": "BYTES",
}
GENERIC: Final = ("DECIMAL", "ARRAY", "MAP", "STRUCT")
"""Types with parameters."""
NUMBERS: Final = ("INTEGER", "BIGINT", "DECIMAL", "DOUBLE")
"""Numeric types, each of which takes the values of those before it."""


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type. name: ksqlDB's. items: of an array its elements' type; of a map the types of keys and values; of a struct
    those of its fields. fields: the names of a struct's fields; typed: as they were typed. digits: precision and scale of a
    decimal."""

    name: str
    items: tuple[SqlType, ...] = ()
    fields: tuple[str, ...] = ()
    digits: tuple[int, int] = (0, 0)
    typed: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        if self.name == "DECIMAL":
            return f"DECIMAL({self.digits[0]}, {self.digits[1]})"
        if self.name == "STRUCT":
            inner = ", ".join(f"`{n}` {t}" for n, t in zip(self.fields, self.items, strict=True))
            return f"STRUCT<{inner}>"
        if self.items:
            return f"{self.name}<{', '.join(map(str, self.items))}>"
        return "VARCHAR(STRING)" if self.name == "STRING" else self.name

    @property
    def spark(self) -> str:
        """Spark's type."""
        if self.name == "DECIMAL":
            return f"decimal({self.digits[0]},{self.digits[1]})"
        if self.name == "STRUCT":
            inner = ",".join(f"`{n}`:{t.spark}" for n, t in zip(self.fields, self.items, strict=True))
            return f"struct<{inner}>"
        if self.items:
            return f"{self.name.lower()}<{','.join(t.spark for t in self.items)}>"
        return PLAIN[self.name]

    @property
    def is_number(self) -> bool:
        """Whether its values can be calculated with."""
        return self.name in NUMBERS

    def field(self, name: str) -> SqlType | None:
        """The type of a struct's field; None if there is no such field."""
        return self.items[self.fields.index(name)] if name in self.fields else None


BOOLEAN, INTEGER, BIGINT, DOUBLE, STRING, BYTES, DATE, TIME, TIMESTAMP = (SqlType(name) for name in PLAIN)


def array_of(item: SqlType) -> SqlType:
    """The type of arrays with such elements."""
    return SqlType("ARRAY", (item,))


def map_of(key: SqlType, value: SqlType) -> SqlType:
    """The type of maps from such keys to such values."""
    return SqlType("MAP", (key, value))


def wider(left: SqlType, right: SqlType) -> SqlType | None:
    """The type of numbers that holds both; None if one of them is not numeric."""
    if not left.is_number or not right.is_number:
        return None
    if left.name == right.name == "DECIMAL":
        scale = max(left.digits[1], right.digits[1])
        whole = max(left.digits[0] - left.digits[1], right.digits[0] - right.digits[1])
        return SqlType("DECIMAL", digits=(min(whole + scale, 38), scale))
    return max(left, right, key=lambda kind: NUMBERS.index(kind.name))


def common_type(kinds: list[SqlType]) -> SqlType | None:
    """The type that all of these can become; None if there is none."""
    if not kinds:
        return None
    common = kinds[0]
    for kind in kinds[1:]:
        if kind == common:
            continue
        wider_type = wider(common, kind)
        if wider_type is None:
            return None
        common = wider_type
    return common
