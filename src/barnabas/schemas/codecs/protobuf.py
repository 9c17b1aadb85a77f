"""Converts between JSON values and Protobuf messages, after the head of the record. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.schemas.codecs import Mismatch
from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.formats.base import Dependency
from barnabas.schemas.framing import NotFramed, message_path


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

    def decode_as(self, full_name: str, content: bytes) -> Any:
        """The JSON value of a message of this name, which nothing stands before. Raises Mismatch."""
        return self.decode(path_bytes(self._path_of(full_name)) + content)

    def full_names(self) -> list[str]:
        """The names of all messages of the file, with those inside others, and with those that its maps are made of."""
        waiting = list(self._file.message_types_by_name.values())
        for message in waiting:  # grows meanwhile
            waiting.extend(message.nested_types)
        return [str(message.full_name) for message in waiting]

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
            message_type = self._file.message_types_by_name[written.name]
            for index in path[1:]:
                written = written.nested_type[index]
                message_type = message_type.nested_types_by_name[written.name]
        except IndexError:
            raise Mismatch("the record names a message that its schema does not have") from None
        return message_type


def _set_defaults(message: Any) -> None:
    """Set the fields of proto2 that are missing to their defaults, also in messages inside. Those of proto3 need no help."""
    for field in message.DESCRIPTOR.fields:
        is_message = field.cpp_type == field.CPPTYPE_MESSAGE
        if field.is_repeated:
            if not is_message:
                continue
            content = getattr(message, field.name)
            if field.message_type.GetOptions().map_entry:
                inside = field.message_type.fields_by_name["value"]
                content = content.values() if inside.cpp_type == inside.CPPTYPE_MESSAGE else ()
            for one in content:
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
    encoded = bytearray()
    for number in (len(path), *path):
        left = number << 1  # zigzag
        while left > 0x7F:
            encoded.append(left & 0x7F | 0x80)
            left >>= 7
        encoded.append(left)
    return bytes(encoded)


def _reason(error: Exception) -> str:
    """A library's error message on one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
