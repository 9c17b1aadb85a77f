"""The heaviest requests that a peer can send, made from the declarations of the messages, so that a new API has some too.

Three things make a request heavy: many rows (on the first level of lists, or on the last), the same name again and again,
and long texts. Cut off in the middle, each of them is illegal as well. Nothing is changed by them: whatever can be only
checked is only checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from barnabas.wire.header import encode_request
from barnabas.wire.primitives import WireError
from barnabas.wire.schema import UNSET, Field, Message, Struct

LONG_TEXT_CHARS: Final = 30_000
LONG_ROWS: Final = 100
LONG_BYTES: Final = 1 << 20

TOPIC: Final = "heavy"
"""A topic that exists: half of the requests name it, with partitions that mostly do not exist."""
FIXED: Final = {"validate_only": True, "allow_auto_topic_creation": False, "replica_id": -1, "broker_id": -1}
SHAPES: Final = ("wide", "deep", "repeated", "long")
NUMBERS: Final = ("int8", "int16", "int32", "int64", "uint16", "uint32", "float64")


def heavy_frames(cls: type[Message], version: int, rows: int) -> Iterator[tuple[str, bytes]]:
    """(what is heavy about it, frame) of each heavy request of one API, without what its version cannot carry."""
    seen = set()
    for shape in SHAPES:
        for client_id in (None, "heavy-client"):
            try:
                frame = encode_request(_struct(cls, version, shape, rows, 0, 0), version, 7, client_id)
            except WireError:
                continue
            if len(frame) not in seen and (client_id is None or shape == "long"):
                seen.add(len(frame))
                yield shape, frame
    if seen:
        yield "cut off", _cut(cls, version, rows)


def can_be_heavy(cls: type[Struct], version: int) -> bool:
    """Whether a request has anything whose size its sender chooses."""
    return any(
        field.exists_in(version)
        and (
            field.kind in ("array", "string", "bytes", "records")
            or (field.kind == "struct" and can_be_heavy(field.element, version))
        )
        for field in cls.FIELDS.values()
    )


def _cut(cls: type[Message], version: int, rows: int) -> bytes:
    whole = encode_request(_struct(cls, version, "wide", rows, 0, 0), version, 7, None)
    cut = whole[4 : 4 + max(len(whole) * 3 // 4, 10)]
    return len(cut).to_bytes(4, "big") + cut


def _struct(cls: type[Struct], version: int, shape: str, rows: int, level: int, number: int) -> Any:
    return cls(
        **{
            name: _value(name, field, version, shape, rows, level, number)
            for name, field in cls.FIELDS.items()
            if field.exists_in(version) and field.tag is None
        }
    )


def _value(name: str, field: Field, version: int, shape: str, rows: int, level: int, number: int) -> Any:
    if name in FIXED:
        return FIXED[name]
    if field.kind == "array":
        count = _count(field, version, shape, rows, level)
        if isinstance(field.element, str):
            return [_primitive(name, field.element, shape, n) for n in range(count)]
        return [_struct(field.element, version, shape, rows, level + 1, n) for n in range(count)]
    if field.kind == "struct":
        return _struct(field.element, version, shape, rows, level, number)
    if field.kind in NUMBERS and field.default is not UNSET and not name.endswith("index"):
        return field.default
    return _primitive(name, field.kind, shape, number)


def _count(field: Field, version: int, shape: str, rows: int, level: int) -> int:
    if shape == "long":
        return LONG_ROWS if level == 0 else 1
    has_lists = not isinstance(field.element, str) and any(
        inner.kind == "array" and inner.exists_in(version) for inner in field.element.FIELDS.values()
    )
    is_many = not has_lists if shape in ("deep", "repeated") else level == 0
    return rows if is_many else 1


def _primitive(name: str, kind: str, shape: str, number: int) -> Any:
    if kind == "string":
        if shape == "long":
            return f"{number}-".ljust(LONG_TEXT_CHARS, "x")
        is_topic = name in ("topic", "topic_name", "name") and shape != "wide"
        return TOPIC if is_topic else "same" if shape == "repeated" else f"name-{number}"
    if kind == "uuid":
        return UUID(int=1 if shape == "repeated" else number + 1)
    if kind in ("bytes", "records"):
        return b"x" * (LONG_BYTES // LONG_ROWS if shape == "long" else 1)
    if kind == "bool":
        return False
    if kind == "float64":
        return 1.0
    largest = {"int8": 1 << 7, "uint16": 1 << 16, "int16": 1 << 15}.get(kind, 1 << 31)
    return 0 if shape == "repeated" else number % largest
