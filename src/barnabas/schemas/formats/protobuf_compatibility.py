"""Whether one Protobuf schema can read data written with another: Confluent's published rules. Pure.

Fields are identified by their numbers. Scalar types of one group can read each other's values; repeated numbers are
packed, which a single number cannot read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from barnabas.schemas.formats.base import Problem
from barnabas.schemas.formats.pairs import Steps

MESSAGE_TYPES: Final = (10, 11)
ENUM_TYPE: Final = 14
GROUPS: Final = {
    **dict.fromkeys((3, 4, 5, 8, 13, ENUM_TYPE), "int32, int64, uint32, uint64, bool, enum"),
    **dict.fromkeys((17, 18), "sint32, sint64"),
    **dict.fromkeys((9, 12), "string, bytes"),
    **dict.fromkeys((7, 15), "fixed32, sfixed32"),
    **dict.fromkeys((6, 16), "fixed64, sfixed64"),
    2: "float",
    1: "double",
}
"""The group of each scalar type, whose types can read each other's values, by the numbers of descriptor.proto."""
REQUIRED: Final = 2


def problems(reader: Any, writer: Any, steps: Steps) -> list[Problem]:
    """Why `reader` cannot read data written with `writer`. Both are file descriptors with all names resolved.

    Each field takes one step. Raises OverBudget.
    """
    problems_found = []
    if reader.package != writer.package:
        problems_found.append(
            Problem(
                "PACKAGE_CHANGED",
                "#/",
                f"the package is {reader.package!r} in {{new}} and {writer.package!r} in {{old}}",
                "keep the package, or register under another subject",
            )
        )
    comparison = _Comparison(steps)
    problems_found += comparison.types(reader.message_types_by_name, writer.message_types_by_name, "#/")
    return list(dict.fromkeys(problems_found))


class _Comparison:
    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._compared: set[tuple[str, str]] = set()

    def types(self, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> Iterator[Problem]:
        for name, old in writer.items():
            if old.GetOptions().map_entry:
                continue
            new = reader.get(name)
            if new is None or new.GetOptions().map_entry:
                yield Problem(
                    "MESSAGE_REMOVED",
                    f"{path}{name}",
                    f"message {name!r} of {{old}} is not in {{new}}",
                    "keep the message",
                )
            else:
                yield from self.message(new, old, f"{path}{name}")

    def message(self, new: Any, old: Any, path: str) -> Iterator[Problem]:
        pair = (new.full_name, old.full_name)
        if pair in self._compared:
            return
        self._compared.add(pair)
        self._steps.spend(1 + len(new.fields) + len(old.fields))
        before = {field.number: field for field in old.fields}
        after = {field.number: field for field in new.fields}
        yield from _oneofs(new, old, path)
        for number in sorted({*before, *after}):
            here = f"{path}/{number}"
            if number not in after:
                if before[number].is_required:
                    yield Problem(
                        "REQUIRED_FIELD_REMOVED",
                        here,
                        f"required field {before[number].name!r} of {{old}} is not in {{new}}",
                        "keep it",
                    )
            elif number not in before:
                if after[number].is_required:
                    yield Problem(
                        "REQUIRED_FIELD_ADDED",
                        here,
                        f"field {after[number].name!r} of {{new}} is required and not in {{old}}",
                        "make it optional",
                    )
            else:
                yield from self.field(after[number], before[number], here)
        yield from self.types(new.nested_types_by_name, old.nested_types_by_name, f"{path}/")

    def field(self, new: Any, old: Any, path: str) -> Iterator[Problem]:
        kinds = (_kind(new), _kind(old))
        if kinds[0] != kinds[1]:
            yield Problem(
                "FIELD_KIND_CHANGED",
                path,
                f"field {new.name!r} is a {kinds[0]} in {{new}} and a {kinds[1]} in {{old}}",
                "keep the type, or give the new field a new number",
            )
        elif kinds[0] == "map":
            for part in ("key", "value"):
                yield from self.field(
                    new.message_type.fields_by_name[part],
                    old.message_type.fields_by_name[part],
                    f"{path}/{part}",
                )
        elif kinds[0] == "message":
            yield from self._named(new, old, path)
        else:
            yield from _scalars(new, old, path)

    def _named(self, new: Any, old: Any, path: str) -> Iterator[Problem]:
        names = [_local(field.message_type) for field in (new, old)]
        if names[0] != names[1]:
            yield Problem(
                "FIELD_NAMED_TYPE_CHANGED",
                path,
                f"field {new.name!r} is a {names[0]} in {{new}} and a {names[1]} in {{old}}",
                "keep the type, or give the new field a new number",
            )
        elif new.message_type.file.name != new.file.name or old.message_type.file.name != old.file.name:
            yield from self.message(new.message_type, old.message_type, f"{path}/{names[0]}")


def _kind(field: Any) -> str:
    if field.type not in MESSAGE_TYPES:
        return "scalar"
    return "map" if field.message_type.GetOptions().map_entry else "message"


def _local(message: Any) -> str:
    """The name of a message without its package."""
    package = message.file.package
    name: str = message.full_name
    return name.removeprefix(f"{package}.") if package else name


def _scalars(new: Any, old: Any, path: str) -> Iterator[Problem]:
    if GROUPS[new.type] != GROUPS[old.type]:
        yield Problem(
            "FIELD_SCALAR_KIND_CHANGED",
            path,
            f"field {new.name!r} is one of {GROUPS[new.type]} in {{new}} and one of {GROUPS[old.type]} in {{old}}",
            "keep the type, or give the new field a new number",
        )
    elif new.is_repeated != old.is_repeated and GROUPS[new.type] != "string, bytes":
        shown = ["repeated" if field.is_repeated else "single" for field in (new, old)]
        yield Problem(
            "FIELD_NUMERIC_LABEL_CHANGED",
            path,
            f"field {new.name!r} is {shown[0]} in {{new}} and {shown[1]} in {{old}}",
            "keep the label, or give the new field a new number",
        )


def _real_oneofs(message: Any) -> list[Any]:
    """The oneofs that are in the file, without the synthetic one of each `optional` field of proto3."""
    return [o for o in message.oneofs if not (len(o.fields) == 1 and o.name in _made_up(o.fields[0].name))]


def _made_up(name: str) -> tuple[str, ...]:
    return (f"_{name}", f"X_{name}")


def _oneofs(new: Any, old: Any, path: str) -> Iterator[Problem]:
    inside = {field.number: oneof.name for oneof in _real_oneofs(old) for field in oneof.fields}
    outside = {field.number for field in old.fields} - set(inside)
    after = {oneof.name: oneof for oneof in _real_oneofs(new)}
    for name, oneof in after.items():
        numbers = [field.number for field in oneof.fields]
        moved = [number for number in numbers if number in outside]
        if len(moved) > 1:
            yield Problem(
                "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
                f"{path}/{name}",
                f"fields {', '.join(map(str, moved))} of {{old}} share a oneof in {{new}}, where only one can be set",
                "move one field at most",
            )
        elif moved and any(number in inside for number in numbers):
            yield Problem(
                "FIELD_MOVED_TO_EXISTING_ONEOF",
                f"{path}/{name}",
                f"field {moved[0]} of {{old}} was moved into the oneof {name!r} in {{new}}",
                "leave the field where it was",
            )
    for oneof in _real_oneofs(old):
        successor = after.get(oneof.name)
        kept = {field.number for field in successor.fields} if successor is not None else set()
        for field in oneof.fields if successor is not None else ():
            if field.number not in kept:
                yield Problem(
                    "ONEOF_FIELD_REMOVED",
                    f"{path}/{oneof.name}/{field.number}",
                    f"field {field.name!r} was removed from the oneof {oneof.name!r} in {{new}}",
                    "keep the field in the oneof",
                )
