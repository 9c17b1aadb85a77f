"""What a plan knows of rows without Spark: their fields and types, their key, and what a row stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

ALIASES: Final[Mapping[str, str]] = {
    "integer": "int",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "text": "string",
    "number": "double",
    "bool": "boolean",
}
"""Other names of Spark's types."""


class RowKind(Enum):
    """What the rows of a relation stand for."""

    STREAM = "stream"
    """Each row stands for itself."""
    CHANGELOG = "changelog"
    """A row replaces the one before with the same key, or deletes it."""
    TABLE = "table"
    """The newest row of each key, as it is now."""


@dataclass(frozen=True, slots=True)
class Key:
    """What identifies a row. fields: empty if it is the key of the record that the row came from."""

    fields: tuple[str, ...] = ()

    @property
    def of_record(self) -> bool:
        """Whether it is the record's key."""
        return not self.fields


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of a relation's rows, in order, with their types as Spark writes them; None: only Spark knows the type.

    open: a row may have fields without a name here (JSON of any shape). partial: all rows have further fields that only
    Spark knows (a schema of a registry, objects that become fields).
    """

    fields: Mapping[str, str | None] = field(default_factory=dict)
    open: bool = False
    partial: bool = False

    @property
    def closed(self) -> bool:
        """Whether the fields are all that a row has."""
        return not self.open and not self.partial

    def put(self, fields: Mapping[str, str | None]) -> Schema:
        """With these fields added, or their types replaced."""
        return replace(self, fields={**self.fields, **{n: spark_name(t) for n, t in fields.items()}})

    def without(self, names: Iterable[str]) -> Schema:
        """Without these fields."""
        gone = set(names)
        return replace(self, fields={name: kind for name, kind in self.fields.items() if name not in gone})

    def type_of(self, name: str) -> str | None:
        """The type of a field; None if only Spark knows it. A field that is not named is a variant if rows are open."""
        if name not in self.fields and self.open and not self.partial:
            return "variant"
        return self.fields.get(name)

    def keep(self, names: Iterable[str]) -> Schema:
        """Only these fields, which closes the schema."""
        return Schema({name: self.type_of(name) for name in names})

    def renamed(self, names: Mapping[str, str]) -> Schema:
        """With other names; a field that was open gets a name of its own at the end."""
        moved = {names.get(name, name): kind for name, kind in self.fields.items()}
        new = {new: self.type_of(old) for old, new in names.items() if old not in self.fields}
        return replace(self, fields={**moved, **new})


def spark_name(kind: str | None) -> str | None:
    """Spark's own name of a type."""
    if kind is None:
        return None
    lowered = kind.strip().lower()
    return ALIASES.get(lowered, lowered)


def common(schemas: Iterable[Schema]) -> Schema:
    """The schema of a union: the fields of all; a type is known if all that have the field agree on it."""
    fields: dict[str, str | None] = {}
    all_schemas = tuple(schemas)
    for schema in all_schemas:
        for name, kind in schema.fields.items():
            fields[name] = kind if name not in fields or fields[name] == kind else None
    return Schema(fields, any(s.open for s in all_schemas), any(s.partial for s in all_schemas))
