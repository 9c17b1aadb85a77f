"""The parts of declarations, used to declare messages (schema.py) and to compile them (compile.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Protocol

from barnabas.wire.primitives import Buffer

UNSET: Final[Any] = object()
FIXED: Final[Mapping[str, str]] = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Kinds with a fixed size, and their struct codes."""

Decoder = Callable[[Buffer, int, int], tuple[Any, int]]
Encoder = Callable[[Any, list[Any], list[int]], None]


class Field:
    """One declared field; `element` is the struct class or the primitive kind of an array or struct."""

    __slots__ = ("default", "element", "ignorable", "kind", "null", "tag", "versions")

    def __init__(
        self,
        kind: str,
        versions: str,
        default: Any,
        ignorable: bool,
        tag: int | None,
        null: str = "",
        element: Any = None,
    ) -> None:
        self.kind = kind
        self.versions = versions
        self.default = default
        self.ignorable = ignorable
        self.tag = tag
        self.null = null
        self.element = element

    def exists_in(self, version: int) -> bool:
        return in_range(self.versions, version)

    def nullable_in(self, version: int) -> bool:
        return in_range(self.null, version)


def in_range(spec: str, version: int) -> bool:
    """Whether a range in Kafka's notation ("3+", "0-12", "5", or "" for never) contains the version."""
    if not spec:
        return False
    if spec.endswith("+"):
        return version >= int(spec[:-1])
    low, _, high = spec.partition("-")
    return int(low) <= version <= int(high or low)


class DeclaredStruct(Protocol):
    """A class with declared fields: schema.Struct and what is derived from it."""

    FIELDS: ClassVar[Mapping[str, Field]]


class DeclaredMessage(DeclaredStruct, Protocol):
    """A class that is encoded by itself, in versions: schema.Message and what is derived from it."""

    VERSIONS: ClassVar[range]
    FLEXIBLE_FROM: ClassVar[int | None]
