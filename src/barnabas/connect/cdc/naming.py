"""Which tables and columns are captured, and how their topics and keys are named. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from barnabas.connect.errors import OptionError


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


def matches(patterns: Sequence[str], name: str) -> bool:
    """Whether one of the patterns matches the whole name; case is ignored, as Debezium does."""
    return any(_pattern(pattern).fullmatch(name) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Chosen:
    """An include list and an exclude list; an empty include list means everything."""

    included: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        """Whether the name is chosen."""
        if self.included:
            return matches(self.included, name)
        return not matches(self.excluded, name)


@dataclass(frozen=True, slots=True)
class Names:
    """What is captured. outer: of schemas or databases. keys: (pattern for tables, columns)."""

    prefix: str
    delimiter: str = "."
    outer: Chosen = field(default_factory=Chosen)
    tables: Chosen = field(default_factory=Chosen)
    columns: Chosen = field(default_factory=Chosen)
    keys: tuple[tuple[str, tuple[str, ...]], ...] = ()
    always: str | None = None

    def has_table(self, outer: str, table: str) -> bool:
        """Whether a table is captured; the signal table always is."""
        path = f"{outer}.{table}"
        return path == self.always or (self.outer.has(outer) and self.tables.has(path))

    def has_column(self, outer: str, table: str, column: str) -> bool:
        """Whether a column is captured."""
        return self.columns.has(f"{outer}.{table}.{column}")

    def key_columns(self, outer: str, table: str, primary: Sequence[str]) -> list[str]:
        """The columns of a table's key."""
        for pattern, columns in self.keys:
            if _pattern(pattern).fullmatch(f"{outer}.{table}"):
                return list(columns)
        return list(primary)

    def topic(self, *parts: str) -> str:
        """The topic of a table; letters that topics may not have become _."""
        return re.sub(r"[^\w.\-]", "_", self.delimiter.join((self.prefix, *parts)), flags=re.ASCII)


def names_of(config: Any, outer: str) -> Names:
    """The names of a configuration. outer: the kind of what holds tables, `schema` or `database`. Raises OptionError."""

    def chosen(name: str) -> Chosen:
        included, excluded = config[f"{name}.include.list"], config[f"{name}.exclude.list"]
        if included and excluded:
            raise OptionError(
                f"{name}.include.list and {name}.exclude.list exclude each other", f"{name}.exclude.list"
            )
        return Chosen(tuple(included), tuple(excluded))

    return Names(
        config["topic.prefix"],
        config["topic.delimiter"],
        chosen(outer),
        chosen("table"),
        chosen("column"),
        _keys(config["message.key.columns"]),
        config["signal.data.collection"],
    )


def _keys(text: str | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    keys = []
    for part in filter(None, (text or "").replace("\n", "").split(";")):
        table, colon, columns = part.rpartition(":")
        if not colon or not table.strip() or not columns.strip():
            raise OptionError(
                f"message.key.columns: {part!r} is not like TABLE:COLUMN,COLUMN", "message.key.columns"
            )
        keys.append((table.strip(), tuple(column.strip() for column in columns.split(","))))
    return tuple(keys)
