"""Protobuf schemas: .proto files, or descriptors in base64 as the Python client sends them. Pure.

Google's own library checks each file: its descriptor is added to a new pool, together with its imports.
"""

from __future__ import annotations

import base64
import binascii
import importlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.formats.base import Dependency, TooDeep
from barnabas.schemas.formats.known_files import GOOGLE_TYPES
from barnabas.schemas.formats.proto_options import (
    META,
    META_FILE,
    METAS,
    interpret,
    tags_by_name,
    uninterpret,
)
from barnabas.schemas.formats.proto_parser import parse_proto
from barnabas.schemas.formats.proto_printer import UNINTERPRETED, print_proto
from barnabas.schemas.model import PROTOBUF

FILE_NAME: Final = "default"
GOOGLE: Final = (
    "any",
    "api",
    "descriptor",
    "duration",
    "empty",
    "field_mask",
    "source_context",
    "struct",
    "timestamp",
    "type",
    "wrappers",
)
"""Files below google/protobuf that every schema may import without a reference."""
CONFLUENT: Final = {
    META_FILE: META,
    "confluent/type/decimal.proto": """
        syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
    """,
    "confluent/type/variant.proto": """
        syntax = "proto3"; package confluent.type;
        message Variant { bytes metadata = 1; bytes value = 2; }
    """,
    "confluent/types/decimal.proto": """
        syntax = "proto3"; package confluent.types; import public "confluent/type/decimal.proto";
    """,
}


class ProtobufSchema:
    """A parsed file. written: its descriptor as it was written. descriptor: the one with all names resolved."""

    language: Final = PROTOBUF

    def __init__(self, written: Any, dependencies: dict[str, Any]) -> None:
        self.descriptor, self._imported = _resolved(written, dependencies)
        uninterpret(written, self.descriptor.pool)
        self.written = written
        self.canonical = print_proto(written)

    def normalized(self) -> str:
        """The text with full names, sorted fields (by number), imports and options, and custom options in one form."""
        resolved, file_descriptor = pb.FileDescriptorProto(), pb.FileDescriptorProto()
        self.descriptor.CopyToProto(resolved)
        file_descriptor.CopyFrom(self.written)
        _take_names(file_descriptor, resolved)
        interpret(file_descriptor, self.descriptor.pool, keep=True)
        uninterpret(file_descriptor, self.descriptor.pool)
        return print_proto(file_descriptor, ordered=True)

    def field_names(self) -> list[str]:
        """The names of the fields of the first message."""
        return [field.name for message in self.written.message_type[:1] for field in message.field]

    def formatted(self, style: str) -> str:
        """The text in a format: `serialized` is the descriptor in base64, `ignore_extensions` lacks custom options.

        Empty or `default` is the stored form. Raises InvalidSchema for an unknown one.
        """
        if style in ("", "default"):
            return self.canonical
        if style == "serialized":
            return base64.b64encode(self._with_options().SerializeToString()).decode()
        if style == "ignore_extensions":
            return print_proto(self.written, custom=False)
        raise InvalidSchema(f"format {style!r} is unknown; Protobuf has: serialized, ignore_extensions")

    def _with_options(self) -> Any:
        """The descriptor with all names resolved and custom options as extensions, like protoc's."""
        file_descriptor = pb.FileDescriptorProto()
        self.descriptor.CopyToProto(file_descriptor)
        _take_options(file_descriptor, self.written)
        interpret(file_descriptor, self.descriptor.pool)
        return file_descriptor

    def tags(self) -> dict[str, frozenset[str]]:
        """Confluent's tags of fields, messages and enums in this file and in those that it imports, by full name.

        Raises InvalidSchema for an option that cannot be interpreted, but may contain tags."""
        tags: dict[str, frozenset[str]] = {}
        for file in (self.written, *self._imported):
            file_descriptor = pb.FileDescriptorProto()
            file_descriptor.CopyFrom(file)
            uninterpret(file_descriptor, self.descriptor.pool)
            for name in interpret(file_descriptor, self.descriptor.pool):
                if any(meta.removeprefix("confluent.") in name for meta in METAS.values()):
                    raise InvalidSchema(f"the option ({name}) cannot be interpreted, but may contain tags")
            tags.update(tags_by_name(file_descriptor))
        return tags


def read_protobuf(text: str, dependencies: Sequence[Dependency] = ()) -> ProtobufSchema:
    """Parse a .proto file or a descriptor in base64. Raises InvalidSchema, which names the line or the type."""
    try:
        files = {d.name: _read(d.text, d.name, f"reference {d.name}: ") for d in dependencies}
        return ProtobufSchema(_read(text, FILE_NAME, ""), files)
    except RecursionError:
        raise TooDeep from None


def read_file(text: str) -> Any:
    """The descriptor of a file as it was written; imports are not looked up. Raises InvalidSchema."""
    return _read(text, FILE_NAME, "")


def _read(text: str, name: str, where: str) -> Any:
    binary = _descriptor(text)
    if binary is not None:
        binary.name = name
        return _unresolved(binary)
    try:
        return parse_proto(text, name)
    except InvalidSchema as error:
        raise InvalidSchema(where + error.message) from None


def _descriptor(text: str) -> Any | None:
    """The descriptor that a text contains in base64; None if it contains none."""
    stripped = text.strip()
    if not stripped or ";" in stripped or "{" in stripped:
        return None
    try:
        file_descriptor = pb.FileDescriptorProto.FromString(base64.b64decode(stripped, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    is_file = (
        file_descriptor.message_type
        or file_descriptor.enum_type
        or file_descriptor.dependency
        or file_descriptor.service
        or file_descriptor.extension
    )
    return file_descriptor if is_file else None


def _unresolved(file_descriptor: Any) -> Any:
    """A descriptor that protoc made, without parts that a parsed .proto file does not have, such as source positions.

    Raises InvalidSchema."""
    file_descriptor.ClearField("source_code_info")
    if file_descriptor.syntax not in ("", "proto2", "proto3"):
        raise InvalidSchema(f"syntax {file_descriptor.syntax!r} is unknown; use proto2 or proto3")
    if any(field.type == pb.FieldDescriptorProto.TYPE_GROUP for field in _fields(file_descriptor)):
        raise InvalidSchema("groups are not supported; use a message")
    if file_descriptor.syntax == "proto2":
        file_descriptor.ClearField("syntax")
    return file_descriptor


def _fields(scope: Any) -> Iterator[Any]:
    """All fields and extensions in a file or a message, at every level."""
    yield from scope.extension
    if isinstance(scope, pb.DescriptorProto):
        yield from scope.field
    for message in scope.message_type if isinstance(scope, pb.FileDescriptorProto) else scope.nested_type:
        yield from _fields(message)


def _resolved(file_descriptor: Any, dependencies: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The file's descriptor with names resolved, and the dependencies that it imports, as they were written."""
    pool = DescriptorPool()
    added: dict[str, Any] = {}
    _add(pool, file_descriptor, dependencies, added, ())
    return pool.FindFileByName(file_descriptor.name), [
        file for name, file in added.items() if name in dependencies
    ]


def _add(
    pool: Any,
    file_descriptor: Any,
    dependencies: dict[str, Any],
    added: dict[str, Any],
    above: tuple[str, ...],
) -> None:
    for name in file_descriptor.dependency:
        if name in added:
            continue
        if name in above:
            raise InvalidSchema(f"imports form a cycle: {' -> '.join((*above, name))}")
        dependency = dependencies.get(name) or _known_file(name)
        if dependency is None:
            raise InvalidSchema(
                f"import {name!r} is unknown: add the subject that contains it to `references`"
            )
        _add(pool, dependency, dependencies, added, (*above, name))
    plain = pb.FileDescriptorProto()
    plain.CopyFrom(file_descriptor)
    _without_custom(plain)
    try:
        pool.AddSerializedFile(plain.SerializeToString())
        pool.FindFileByName(plain.name)
    except (TypeError, KeyError, ValueError) as error:
        reason = str(error).rpartition("Error: ")[2].strip(" '\"") or "it cannot be resolved"
        raise InvalidSchema(f"the schema is not a valid .proto file: {reason}") from None
    added[plain.name] = file_descriptor


RESOLVED: Final = ("type_name", "extendee", "input_type", "output_type")


def _take_names(message: Any, resolved: Any) -> None:
    """Replace the names of types by their full names, at every level."""
    for field, value in message.ListFields():
        if field.name in RESOLVED:
            setattr(message, field.name, getattr(resolved, field.name))
        elif field.message_type is not None and field.is_repeated and field.name != UNINTERPRETED:
            for child, other in zip(value, getattr(resolved, field.name), strict=False):
                _take_names(child, other)


def _take_options(resolved: Any, message: Any) -> None:
    """Copy the options of `message`, uninterpreted ones too, to `resolved`, at every level."""
    if message.HasField("options"):
        resolved.options.CopyFrom(message.options)
    for field, value in message.ListFields():
        if field.is_repeated and field.message_type and "options" in field.message_type.fields_by_name:
            for child, other in zip(getattr(resolved, field.name), value, strict=True):
                _take_options(child, other)


def _known_file(name: str) -> Any | None:
    text = CONFLUENT.get(name) or GOOGLE_TYPES.get(name)
    if text is not None:
        return parse_proto(text, name)
    folder, _, file = name.rpartition("/")
    if folder != "google/protobuf" or file.removesuffix(".proto") not in GOOGLE:
        return None
    module = importlib.import_module(f"google.protobuf.{file.removesuffix('.proto')}_pb2")
    return pb.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def _without_custom(message: Any) -> None:
    """Remove uninterpreted options, at every level: they are stored as text and not checked."""
    for field, value in list(message.ListFields()):
        if field.name == UNINTERPRETED:
            message.ClearField(UNINTERPRETED)
        elif field.message_type is not None and not field.is_extension:
            for child in value if field.is_repeated else (value,):
                _without_custom(child)
