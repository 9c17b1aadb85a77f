"""Converts between JSON values and the bytes of records with one schema, without the head of the record. Pure.

Avro uses the JSON encoding of its specification, Protobuf its JSON mapping. Used by the REST proxy and the command line.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.schemas.codecs import Mismatch
from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.formats.base import Dependency
from barnabas.schemas.framing import NotFramed, Schema, message_path
from barnabas.schemas.json_text import BadJson, parse_json
from barnabas.schemas.json_validation import BadSchema, JsonSchema, Unsuited

if TYPE_CHECKING:
    from barnabas.schemas.codecs.contracts import Contract

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"


class Codec(Protocol):
    """name: of the schema's record, for subjects."""

    name: str | None

    def encode(self, value: Any) -> bytes:
        """The payload of a JSON value. Raises Mismatch."""
        ...

    def decode(self, data: bytes) -> Any:
        """The JSON value of a payload. Raises Mismatch."""
        ...


def make_codec(kind: str, text: str, dependencies: Sequence[Dependency], contract: str = "") -> Codec:
    """The codec for a schema. kind: AVRO, JSON or PROTOBUF. contract: the schema's rules and metadata as JSON text, see
    client.registry.Schema.

    Raises InvalidSchema, and ImportError if the package for the language is missing."""
    plain = _plain_codec(kind, text, dependencies)
    if not contract:
        return plain
    from barnabas.schemas.codecs.contracts import contract_of_schema

    schema = Schema(0, kind, text, tuple((d.name, d.text) for d in dependencies), 0, contract)
    rules = contract_of_schema(schema)
    return plain if rules is None else RuledCodec(plain, schema, rules)


def _plain_codec(kind: str, text: str, dependencies: Sequence[Dependency]) -> Codec:
    if kind == AVRO:
        from barnabas.schemas.codecs.avro import AvroCodec

        try:
            return AvroCodec(text, tuple(dependency.text for dependency in dependencies))
        except Exception as error:  # fastavro may raise anything
            raise InvalidSchema(f"the schema is not valid: {str(error)[:200]}") from error
    if kind == JSON:
        return JsonCodec(text, dependencies)
    if kind == PROTOBUF:
        return ProtobufCodec(text, dependencies)
    raise InvalidSchema(f"schemas of type {kind!r} are not known here")


def json_bytes(value: Any) -> bytes:
    """A JSON value in the form stored in records."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def json_value(data: bytes) -> Any:
    """The JSON value in a record. Raises Mismatch."""
    try:
        return parse_json(data)
    except BadJson as error:
        raise Mismatch(f"the record is not JSON: {error}") from None


def mapped_value(codec: Codec, data: bytes) -> Any:
    """The JSON value of a payload as Confluent's REST proxy writes it: Protobuf with the JSON names of its fields, and with
    those that have their default values. Raises Mismatch.
    """
    if isinstance(codec, RuledCodec):
        data = codec.read(data)
        codec = codec.plain
    return codec.mapped(data) if isinstance(codec, ProtobufCodec) else codec.decode(data)


class RuledCodec:
    """A codec that applies the rules of the schema to its records."""

    def __init__(self, plain: Codec, schema: Schema, rules: Contract) -> None:
        self.name = plain.name
        self.plain, self._schema, self._rules = plain, schema, rules

    def encode(self, value: Any) -> bytes:
        """See Codec. JSON is validated by its schema after the rules have been applied."""
        if self._rules.writes and isinstance(self.plain, JsonCodec):
            try:
                plain = json_bytes(value)
            except RecursionError:
                raise Mismatch("the value is nested too deeply") from None
            return self.plain.encode(json_value(self._rules.written(plain)))
        return self._rules.written(self.plain.encode(value))

    def decode(self, data: bytes) -> Any:
        """See Codec."""
        return self.plain.decode(self.read(data))

    def read(self, data: bytes) -> bytes:
        """A payload after the rules for readers. Raises Mismatch."""
        return self._rules.read(data, self._schema)[0]


class JsonCodec:
    """JSON that is validated by its schema when it is written."""

    def __init__(self, text: str, dependencies: Sequence[Dependency]) -> None:
        try:
            self._schema = JsonSchema(text, ((d.name, d.text) for d in dependencies))
        except BadSchema as error:
            raise InvalidSchema(f"the schema is not valid: {str(error)[:200]}") from error
        tree = self._schema.tree
        self.name = tree.get("title") if isinstance(tree, dict) else None

    def encode(self, value: Any) -> bytes:
        """See Codec."""
        try:
            self._schema.check(value)
        except Unsuited as error:
            raise Mismatch(str(error)) from None
        return json_bytes(value)

    def decode(self, data: bytes) -> Any:
        """See Codec."""
        return json_value(data)


class ProtobufCodec:
    """Writes the file's first message; reads whichever message the record names."""

    def __init__(self, text: str, dependencies: Sequence[Dependency]) -> None:
        from google.protobuf import descriptor_pb2, message_factory

        from barnabas.schemas.formats.protobuf import read_protobuf

        self._file = read_protobuf(text, dependencies).descriptor
        self._class_of = message_factory.GetMessageClass
        written = descriptor_pb2.FileDescriptorProto()
        self._file.CopyToProto(written)
        self._written = written
        if not written.message_type:
            raise InvalidSchema("the schema has no message")
        self.name: str | None = str(self._message([0]).full_name)

    def encode(self, value: Any) -> bytes:
        """See Codec."""
        from google.protobuf import json_format

        message = self._class_of(self._message([0]))()
        try:
            json_format.ParseDict(value, message)
            return b"\0" + bytes(message.SerializeToString())
        except (json_format.ParseError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise Mismatch(f"the JSON does not suit the schema: {_reason(error)}") from None

    def decode(self, data: bytes) -> Any:
        """See Codec."""
        return self._json(data, preserving_proto_field_name=True)

    def mapped(self, data: bytes) -> Any:
        """See mapped_value."""
        return self._json(data, always_print_fields_with_no_presence=True)

    def _json(self, data: bytes, **how: bool) -> Any:
        from google.protobuf import json_format

        message = self.message(data)[1]
        try:
            if "always_print_fields_with_no_presence" in how:
                _set_defaults(message)
            return json_format.MessageToDict(message, **how)
        except (ValueError, TypeError, RecursionError) as error:
            raise Mismatch(f"the bytes do not suit the schema: {_reason(error)}") from None

    def message(self, data: bytes, writer: ProtobufCodec | None = None) -> tuple[bytes, Any]:
        """(the bytes that name the message, the message).

        writer: codec of the schema that the record names, if it is another one: messages are matched by name. Raises
        Mismatch.
        """
        from google.protobuf.message import DecodeError

        try:
            path, content = message_path(data)
        except NotFramed:
            raise Mismatch("the record does not name its message") from None
        head = data[: len(data) - len(content)]
        if writer is not None:
            path = self._path_of(str(writer._message(path).full_name))
            head = path_bytes(path)
        message = self._class_of(self._message(path))()
        try:
            message.ParseFromString(content)
        except (DecodeError, ValueError, TypeError, RecursionError) as error:
            raise Mismatch(f"the bytes do not suit the schema: {_reason(error)}") from None
        return head, message

    def _path_of(self, full_name: str) -> list[int]:
        """The position of a message in the file. Raises Mismatch."""
        package = f"{self._written.package}." if self._written.package else ""
        path: list[int] = []
        messages = self._written.message_type
        for name in full_name.removeprefix(package).split("."):
            index = next((index for index, message in enumerate(messages) if message.name == name), None)
            if index is None:
                break
            path.append(index)
            messages = messages[index].nested_type
        if not path or str(self._message(path).full_name) != full_name:
            raise Mismatch(f"the record is a {full_name}, which its reader's schema does not have")
        return path

    def _message(self, path: list[int]) -> Any:
        """The message that a record names by its position in the file. Raises Mismatch."""
        try:
            written = self._written.message_type[path[0]]
            found = self._file.message_types_by_name[written.name]
            for index in path[1:]:
                written = written.nested_type[index]
                found = found.nested_types_by_name[written.name]
        except IndexError:
            raise Mismatch("the record names a message that its schema does not have") from None
        return found


def _set_defaults(message: Any) -> None:
    """Set the fields of proto2 that are missing to their defaults, also in messages inside. Those of proto3 need no help."""
    for field in message.DESCRIPTOR.fields:
        is_message = field.cpp_type == field.CPPTYPE_MESSAGE
        if field.is_repeated:
            if not is_message:
                continue
            held = getattr(message, field.name)
            if field.message_type.GetOptions().map_entry:
                inside = field.message_type.fields_by_name["value"]
                held = held.values() if inside.cpp_type == inside.CPPTYPE_MESSAGE else ()
            for one in held:
                _set_defaults(one)
        elif is_message:
            if message.HasField(field.name):
                _set_defaults(getattr(message, field.name))
        elif field.has_presence and field.containing_oneof is None and not message.HasField(field.name):
            setattr(message, field.name, getattr(message, field.name))


def path_bytes(path: Sequence[int]) -> bytes:
    """A message's position in its file, in the form written before its bytes."""
    if list(path) == [0]:
        return b"\0"
    made = bytearray()
    for number in (len(path), *path):
        left = number << 1  # zigzag
        while left > 0x7F:
            made.append(left & 0x7F | 0x80)
            left >>= 7
        made.append(left)
    return bytes(made)


def _reason(error: Exception) -> str:
    """A library's error message on one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
