"""The bytes and headers by which records name their schemas, and a schema as a registry gives it. Pure.

record = frame(schema.id, payload)
schema_id, payload = unframe(record)
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

MAGIC: Final = 0
HEAD: Final = struct.Struct(">bI")
GUID_MAGIC: Final = b"\x01"
GUID_BYTES: Final = 17
INDEXES_MAX: Final = 100


class NotFramed(ValueError):
    """A record does not begin like one with a schema id."""


class Schema(NamedTuple):
    """A schema. kind: AVRO, JSON or PROTOBUF. dependencies: names and texts of the schemas it refers to, innermost first.

    contract: its rules with its metadata, as JSON text; empty without rules. guid: set if it was looked up by GUID; id is 0
    then.
    """

    id: int
    kind: str
    text: str
    dependencies: tuple[tuple[str, str], ...] = ()
    version: int = 0
    contract: str = ""
    guid: str = ""

    @property
    def called(self) -> str:
        """The id or GUID, for messages."""
        return self.guid or str(self.id)

    def same_content(self, other: Schema) -> bool:
        """Whether both have the same contents, whatever their ids."""
        ours = (self.kind, self.text, self.dependencies, self.contract)
        return ours == (other.kind, other.text, other.dependencies, other.contract)


def contract_of(answer: Mapping[str, Any]) -> str:
    """The rules, with the metadata that they use, from a registry's answer, as JSON text; empty without rules."""
    if not answer.get("ruleSet"):
        return ""
    fields = {name: answer[name] for name in ("ruleSet", "metadata") if answer.get(name)}
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def frame(schema_id: int, payload: bytes) -> bytes:
    """A record's bytes: zero, the schema's id in 4 bytes, the payload. Source: Confluent's wire format."""
    return HEAD.pack(MAGIC, schema_id) + payload


def unframe(data: bytes) -> tuple[int, bytes]:
    """(id, payload). Raises NotFramed."""
    if len(data) < HEAD.size or data[0] != MAGIC:
        raise NotFramed(f"the bytes do not begin with the id of a schema: 0x{data[:5].hex()}")
    return HEAD.unpack_from(data)[1], data[HEAD.size :]


def named_schema(
    data: bytes, headers: Iterable[tuple[str, bytes | None]], part: str
) -> tuple[int | str, bytes]:
    """Id or GUID of a record's key or value, in a header or before its bytes, and the payload. Raises NotFramed.

    part: "key" or "value". Source: Confluent's serializers, which put a Protobuf message's path behind id or GUID.
    """
    carried = next((content for name, content in headers if name == schema_header(part) and content), b"")
    if carried[:1] == GUID_MAGIC and len(carried) < GUID_BYTES:
        return unframe(bytes(carried))
    return unframe_any(bytes(carried) + data)


def schema_header(part: str) -> str:
    """The header that may name the schema of a record's key or value. part: "key" or "value"."""
    return f"__{part}_schema_id"


def unframe_any(data: bytes) -> tuple[int | str, bytes]:
    """(id or GUID, payload). Raises NotFramed."""
    if data[:1] == GUID_MAGIC and len(data) >= GUID_BYTES:
        return str(uuid.UUID(bytes=data[1:GUID_BYTES])), data[GUID_BYTES:]
    return unframe(data)


def message_path(payload: bytes) -> tuple[list[int], bytes]:
    """(path, bytes) of a Protobuf payload; the path names the message in its file by indexes, outermost first.

    Raises NotFramed.
    """
    count, position = _varint(payload, 0)
    if count == 0:
        return [0], payload[position:]
    if not 0 < count <= INDEXES_MAX:
        raise NotFramed("the bytes do not name their message")
    path = []
    for _ in range(count):
        index, position = _varint(payload, position)
        if index < 0:
            raise NotFramed("the bytes do not name their message")
        path.append(index)
    return path, payload[position:]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while position < len(data) and shift <= 35:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise NotFramed("the bytes do not name their message")
