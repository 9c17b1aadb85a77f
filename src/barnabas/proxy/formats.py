"""Embedded formats: how keys and values stand in JSON, and the bytes that they are in a topic. Pure.

With a schema the bytes are Confluent's: 0, the schema's id in 4 bytes, for Protobuf the place of the message in its file.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, Final, Protocol

from barnabas.client.json_schema import BadSchema, JsonSchema, Unsuited
from barnabas.client.registry import NotFramed, message_path, unframe
from barnabas.client.registry import frame as frame
from barnabas.http.json_text import BadJson, parse_json
from barnabas.proxy.avro_json import AvroCodec, AvroMismatch
from barnabas.registry.errors import InvalidSchema
from barnabas.registry.formats.base import Dependency

BINARY: Final = "binary"
JSON: Final = "json"
STRING: Final = "string"
AVRO: Final = "avro"
JSONSCHEMA: Final = "jsonschema"
PROTOBUF: Final = "protobuf"
WITH_SCHEMA: Final = frozenset({AVRO, JSONSCHEMA, PROTOBUF})
V2_FORMATS: Final = (BINARY, JSON, AVRO, JSONSCHEMA, PROTOBUF)


class Mismatch(ValueError):
    """Data that does not suit its format or its schema; the message says why."""


class Codec(Protocol):
    """One schema's way between JSON and bytes without their head. name: of its record, for subjects."""

    name: str | None

    def encode(self, value: Any) -> bytes:
        """Raises Mismatch."""
        ...

    def decode(self, data: bytes) -> Any:
        """Raises Mismatch."""
        ...


def make_codec(format: str, text: str, dependencies: Sequence[Dependency]) -> Codec:
    """Raises InvalidSchema."""
    if format == AVRO:
        return _Avro(text, dependencies)
    if format == JSONSCHEMA:
        return _JsonSchema(text, dependencies)
    return _Protobuf(text, dependencies)


# --- without a schema ---------------------------------------------------------------------------------


def encode_plain(format: str, value: Any) -> bytes | None:
    """binary: base64. json: the JSON text. string: the text. null is a record without it. Raises Mismatch."""
    if value is None:
        return None
    if format == JSON:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    if not isinstance(value, str):
        raise Mismatch(f"{_shown(value)} is not a text, as the format {format} has it")
    if format == STRING:
        return value.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Mismatch(f"{_shown(value)} is not base64") from None


def decode_plain(format: str, data: bytes | None) -> Any:
    """The JSON value of a record's bytes. Raises Mismatch."""
    if data is None:
        return None
    if format == BINARY:
        return base64.b64encode(data).decode()
    try:
        return parse_json(data)
    except BadJson as error:
        raise Mismatch(f"the record is not JSON: {error}") from None


# --- with a schema ------------------------------------------------------------------------------------


def schema_id_of(data: bytes) -> int:
    """The id in a record's first bytes. Raises Mismatch."""
    try:
        return unframe(data)[0]
    except NotFramed:
        raise Mismatch("the record does not begin with the id of a schema") from None


class _Avro:
    def __init__(self, text: str, dependencies: Sequence[Dependency]) -> None:
        try:
            self._codec = AvroCodec(text, tuple(d.text for d in dependencies))
        except Exception as error:  # fastavro raises whatever a bad schema leads to
            raise InvalidSchema(f"the schema is not valid: {str(error)[:200]}") from error
        self.name = self._codec.name

    def encode(self, value: Any) -> bytes:
        try:
            return self._codec.encode(value)
        except AvroMismatch as error:
            raise Mismatch(str(error)) from error

    def decode(self, data: bytes) -> Any:
        try:
            return self._codec.decode(data)
        except AvroMismatch as error:
            raise Mismatch(str(error)) from error


class _JsonSchema:
    def __init__(self, text: str, dependencies: Sequence[Dependency]) -> None:
        try:
            self._schema = JsonSchema(text, ((d.name, d.text) for d in dependencies))
        except BadSchema as error:
            raise InvalidSchema(f"the schema is not valid: {str(error)[:200]}") from error
        tree = self._schema.tree
        self.name = tree.get("title") if isinstance(tree, dict) else None

    def encode(self, value: Any) -> bytes:
        try:
            self._schema.check(value)
        except Unsuited as error:
            raise Mismatch(str(error)) from error
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")

    def decode(self, data: bytes) -> Any:
        return decode_plain(JSON, data)


class _Protobuf:
    """Writes the file's first message; reads whichever one the record names."""

    def __init__(self, text: str, dependencies: Sequence[Dependency]) -> None:
        from google.protobuf import descriptor_pb2, message_factory

        from barnabas.registry.formats.protobuf import read_protobuf

        self._file = read_protobuf(text, dependencies).descriptor
        self._class_of = message_factory.GetMessageClass
        written = descriptor_pb2.FileDescriptorProto()
        self._file.CopyToProto(written)
        self._messages = [self._file.message_types_by_name[m.name] for m in written.message_type]
        if not self._messages:
            raise InvalidSchema("the schema has no message")
        self.name: str | None = str(self._messages[0].full_name)

    def encode(self, value: Any) -> bytes:
        from google.protobuf import json_format

        message = self._class_of(self._messages[0])()
        try:
            json_format.ParseDict(value, message)
            return b"\0" + bytes(message.SerializeToString())
        except (json_format.ParseError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise Mismatch(str(error)[:300]) from error

    def decode(self, data: bytes) -> Any:
        from google.protobuf import json_format
        from google.protobuf.message import DecodeError

        try:
            path, content = message_path(data)
        except NotFramed:
            raise Mismatch("the record does not name its message") from None
        try:
            found = self._messages[path[0]]
            for index in path[1:]:
                found = found.nested_types[index]
        except IndexError:
            raise Mismatch("the record names a message that its schema does not have") from None
        message = self._class_of(found)()
        try:
            message.ParseFromString(content)
            return json_format.MessageToDict(message, preserving_proto_field_name=True)
        except (DecodeError, ValueError, TypeError, RecursionError) as error:
            raise Mismatch(f"the bytes do not suit the schema: {str(error)[:200]}") from error


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
