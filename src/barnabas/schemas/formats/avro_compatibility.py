"""Whether one Avro schema can read data written with another: schema resolution of the Avro specification. Pure.

A difference from Confluent's registry: decimals that differ in precision or scale do not match (the specification says
so, and readers would silently return other numbers).
"""

from __future__ import annotations

from typing import Final

from barnabas.schemas.formats.avro import MISSING, AvroField, AvroType, describe
from barnabas.schemas.formats.base import Problem
from barnabas.schemas.formats.pairs import Pairs, Steps

PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""The types that can read each writer's type."""


def problems(reader: AvroType, writer: AvroType, steps: Steps) -> list[Problem]:
    """Why `reader` cannot read data written with `writer`. Each pair of types takes one step. Raises OverBudget."""
    try:
        return list(dict.fromkeys(_Resolver(steps).resolve(reader, writer, "")))
    except RecursionError:
        return [
            Problem(
                "NESTED_TOO_DEEPLY",
                "/",
                "the schemas are nested too deeply, or too large, to be compared",
                "split them, or use references",
            )
        ]


class _Resolver:
    """One comparison."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._pairs: Pairs[Problem] = Pairs(steps)
        self._branches: dict[int, _Branches] = {}

    def resolve(self, reader: AvroType, writer: AvroType, path: str) -> list[Problem]:
        known = self._pairs.begin((id(reader), id(writer)), path)
        if known is not None:
            return known[0][:1]  # all of them are reported once, where they were found first
        return self._pairs.end(self._compare(reader, writer, path))

    def _compare(self, reader: AvroType, writer: AvroType, path: str) -> list[Problem]:
        if writer.kind == "union":
            return self._from_union(reader, writer, path)
        if reader.kind == "union":
            return self._into_union(reader, writer, path)
        if reader.kind != writer.kind:
            if reader.kind in PROMOTIONS.get(writer.kind, ()):
                return self._decimals(reader, writer, path)
            return [_type_mismatch(reader, writer, path)]
        if reader.name:
            if not _names_match(reader, writer):
                return [_name_mismatch(reader, writer, path)]
            if reader.kind == "enum":
                self._steps.spend((len(reader.symbols) + len(writer.symbols)) // 20)
                return _symbols(reader, writer, path)
            if reader.kind == "fixed":
                return self._fixed(reader, writer, path)
            return self._record(reader, writer, path)
        if reader.children:
            part = "items" if reader.kind == "array" else "values"
            return self.resolve(reader.children[0], writer.children[0], f"{path}/{part}")
        return self._decimals(reader, writer, path)

    def _from_union(self, reader: AvroType, writer: AvroType, path: str) -> list[Problem]:
        """Every branch of the writer's union must be readable."""
        problems_found: list[Problem] = []
        for branch in writer.children:
            if not self.resolve(reader, branch, path):
                continue
            if reader.kind == "union":
                problems_found += self._into_union(reader, branch, path)
            else:
                problems_found.append(
                    Problem(
                        "MISSING_UNION_BRANCH",
                        path or "/",
                        f"{{old}} may hold {describe(branch)}, which {{new}}, {describe(reader)}, cannot read",
                        f"make it a union that has {describe(branch)} as well",
                    )
                )
        return problems_found

    def _into_union(self, reader: AvroType, writer: AvroType, path: str) -> list[Problem]:
        """One branch must be able to read it. If none is, one of the same kind and name explains best why."""
        near: list[Problem] = []
        branches = self._branches.get(id(reader))
        if branches is None:
            branches = self._branches[id(reader)] = _Branches(reader)
        for index in branches.candidates(writer):
            branch = reader.children[index]
            problems_found = self.resolve(branch, writer, f"{path}/{index}")
            if not problems_found:
                return []
            if branch.kind == writer.kind and (not branch.name or _names_match(branch, writer)):
                near = near or problems_found
        if near:
            return near
        return [
            Problem(
                "MISSING_UNION_BRANCH",
                path or "/",
                f"{{new}}, {describe(reader)}, lacks a branch that can read {describe(writer)} of {{old}}",
                f"keep {describe(writer)} in the union",
            )
        ]

    def _record(self, reader: AvroType, writer: AvroType, path: str) -> list[Problem]:
        self._steps.spend((len(reader.fields) + len(writer.fields)) // 10)
        written = {f.name: f for f in writer.fields}
        problems_found: list[Problem] = []
        for index, field in enumerate(reader.fields):
            here = f"{path}/fields/{index}"
            source = _source(field, written)
            if source is not None:
                problems_found += self.resolve(field.type, source.type, f"{here}/type")
            elif field.default is MISSING:
                problems_found.append(
                    Problem(
                        "READER_FIELD_MISSING_DEFAULT_VALUE",
                        here,
                        f"field {field.name!r} of {{new}} has no default and is not in {{old}}",
                        f"give {field.name!r} a default, or add its earlier name to its aliases",
                    )
                )
        return problems_found

    def _fixed(self, reader: AvroType, writer: AvroType, path: str) -> list[Problem]:
        if reader.size != writer.size:
            return [
                Problem(
                    "FIXED_SIZE_MISMATCH",
                    f"{path}/size",
                    f"fixed {reader.name} has {reader.size} bytes in {{new}} and {writer.size} in {{old}}",
                    f"keep the size, or add a new type beside {reader.name}",
                )
            ]
        return self._decimals(reader, writer, path)

    def _decimals(self, reader: AvroType, writer: AvroType, path: str) -> list[Problem]:
        if reader.logical != "decimal" or writer.logical != "decimal":
            return []
        ours, theirs = (
            (t.properties.get("precision"), t.properties.get("scale", 0)) for t in (reader, writer)
        )
        if ours == theirs:
            return []
        return [
            Problem(
                "DECIMAL_MISMATCH",
                path or "/",
                f"decimal({ours[0]},{ours[1]}) of {{new}} does not match decimal({theirs[0]},{theirs[1]}) of {{old}}",
                "keep precision and scale, or add a new field",
            )
        ]


class _Branches:
    """The branches of a reader's union, by what they may be able to read."""

    def __init__(self, union: AvroType) -> None:
        self._by_kind: dict[str, list[int]] = {}
        self._by_name: dict[str, list[int]] = {}
        self._by_alias: dict[str, list[int]] = {}
        for index, branch in enumerate(union.children):
            self._by_kind.setdefault(branch.kind, []).append(index)
            if branch.name:
                self._by_name.setdefault(branch.short_name, []).append(index)
            for alias in branch.aliases:
                self._by_alias.setdefault(alias, []).append(index)

    def candidates(self, writer: AvroType) -> list[int]:
        """The positions of branches that may read what `writer` writes, in order; no others can."""
        if writer.name:
            return sorted({*self._by_name.get(writer.short_name, ()), *self._by_alias.get(writer.name, ())})
        kinds = (writer.kind, *PROMOTIONS.get(writer.kind, ()))
        if writer.kind == "union":
            kinds = tuple(self._by_kind)
        return sorted(index for kind in kinds for index in self._by_kind.get(kind, ()))


def _source(field: AvroField, written: dict[str, AvroField]) -> AvroField | None:
    """The writer's field that has the name, or else an alias, of the reader's field; None if there is none."""
    for name in (field.name, *field.aliases):
        if name in written:
            return written[name]
    return None


def _names_match(reader: AvroType, writer: AvroType) -> bool:
    """Whether the names without namespaces are equal, or the writer's is an alias of the reader's type.

    Source: the specification's schema resolution.
    """
    return reader.short_name == writer.short_name or writer.name in reader.aliases


def _symbols(reader: AvroType, writer: AvroType, path: str) -> list[Problem]:
    known = set(reader.symbols)
    lost = [symbol for symbol in writer.symbols if symbol not in known]
    if not lost or reader.default is not None:
        return []
    return [
        Problem(
            "MISSING_ENUM_SYMBOLS",
            f"{path}/symbols",
            f"enum {reader.name} of {{new}} lacks {', '.join(lost)} of {{old}}",
            "keep the symbols, or give the enum a default",
        )
    ]


def _type_mismatch(reader: AvroType, writer: AvroType, path: str) -> Problem:
    return Problem(
        "TYPE_MISMATCH",
        path or "/",
        f"{describe(reader)} of {{new}} cannot read {describe(writer)} of {{old}}",
        f"keep the type, or make it a union that has {describe(writer)} as well",
    )


def _name_mismatch(reader: AvroType, writer: AvroType, path: str) -> Problem:
    return Problem(
        "NAME_MISMATCH",
        f"{path}/name",
        f"{describe(reader)} of {{new}} is not {describe(writer)} of {{old}}",
        f"keep the name, or give {reader.short_name} the alias {writer.name}",
    )
