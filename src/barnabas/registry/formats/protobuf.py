"""Protobuf schemas: .proto files, or descriptors in base64 as the Python client sends them. Pure.

A file is checked by Google's own library: its descriptor is added to a pool of its own with what it imports.
"""

from __future__ import annotations

import base64
import binascii
import importlib
from collections.abc import Sequence
from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from barnabas.registry.errors import InvalidSchema
from barnabas.registry.formats.base import Dependency, Parsed, Problem
from barnabas.registry.formats.proto_parser import parse_proto
from barnabas.registry.formats.proto_printer import UNINTERPRETED, print_proto

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
    "confluent/meta.proto": """
        syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
    """,
    "confluent/type/decimal.proto": """
        syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
    """,
}


class ProtobufSchema:
    """A file that was read. held: as it was written. descriptor: with all names resolved."""

    def __init__(self, held: Any, dependencies: dict[str, Any]) -> None:
        self.held = held
        self.canonical = print_proto(held)
        self.descriptor = _resolved(held, dependencies)

    def normalized(self) -> str:
        """Names in full, fields by number, imports and options by name."""
        resolved, made = pb.FileDescriptorProto(), pb.FileDescriptorProto()
        self.descriptor.CopyToProto(resolved)
        made.CopyFrom(self.held)
        _take_names(made, resolved)
        return print_proto(made, ordered=True)

    def problems_reading(self, writer: Parsed) -> Sequence[Problem]:
        """Why this schema cannot read what `writer` wrote."""
        from barnabas.registry.formats.protobuf_compatibility import problems

        assert isinstance(writer, ProtobufSchema)
        return problems(self.descriptor, writer.descriptor)

    def formatted(self, style: str) -> str:
        """`serialized`: the descriptor in base64. `ignore_extensions`: without options that are not Google's own."""
        if style in ("", "default"):
            return self.canonical
        if style == "serialized":
            return base64.b64encode(self.descriptor.serialized_pb).decode()
        if style == "ignore_extensions":
            return print_proto(self.held, custom=False)
        raise InvalidSchema(f"format {style!r} is not one of Protobuf's: serialized, ignore_extensions")


def read_protobuf(text: str, dependencies: Sequence[Dependency] = ()) -> ProtobufSchema:
    """Raises InvalidSchema that names the line or the type."""
    try:
        files = {d.name: _read(d.text, d.name, f"reference {d.name}: ") for d in dependencies}
        return ProtobufSchema(_read(text, FILE_NAME, ""), files)
    except RecursionError:
        raise InvalidSchema("the schema is nested too deeply") from None


def read_file(text: str) -> Any:
    """The file's descriptor as it was written, whatever it imports. Raises InvalidSchema."""
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
    """The descriptor that a text in base64 holds; None when it is no such text."""
    stripped = text.strip()
    if not stripped or ";" in stripped or "{" in stripped:
        return None
    try:
        made = pb.FileDescriptorProto.FromString(base64.b64decode(stripped, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    return made if made.message_type or made.enum_type or made.dependency or made.service else None


def _unresolved(held: Any) -> Any:
    """A descriptor that protoc made, with what only that knows taken out: it then equals what a text becomes."""
    held.ClearField("source_code_info")
    if held.syntax == "proto2":
        held.ClearField("syntax")
    return held


def _resolved(held: Any, dependencies: dict[str, Any]) -> Any:
    pool = DescriptorPool()
    added: set[str] = set()
    _add(pool, held, dependencies, added, ())
    return pool.FindFileByName(held.name)


def _add(pool: Any, held: Any, dependencies: dict[str, Any], added: set[str], above: tuple[str, ...]) -> None:
    for name in held.dependency:
        if name in added:
            continue
        if name in above:
            raise InvalidSchema(f"imports lead in a circle: {' -> '.join((*above, name))}")
        found = dependencies.get(name) or _known_file(name)
        if found is None:
            raise InvalidSchema(
                f"import {name!r} is not known: name in `references` the subject that holds it"
            )
        _add(pool, found, dependencies, added, (*above, name))
    plain = pb.FileDescriptorProto()
    plain.CopyFrom(held)
    _without_custom(plain)
    try:
        pool.AddSerializedFile(plain.SerializeToString())
        pool.FindFileByName(plain.name)
    except (TypeError, KeyError, ValueError) as error:
        reason = str(error).rpartition("Error: ")[2].strip(" '\"") or "it cannot be resolved"
        raise InvalidSchema(f"the schema is not a valid .proto file: {reason}") from None
    added.add(plain.name)


RESOLVED: Final = ("type_name", "extendee", "input_type", "output_type")


def _take_names(held: Any, resolved: Any) -> None:
    """Puts the full names of types where they were written shorter, on every level."""
    for field, value in held.ListFields():
        if field.name in RESOLVED:
            setattr(held, field.name, getattr(resolved, field.name))
        elif field.message_type is not None and field.is_repeated and field.name != UNINTERPRETED:
            for child, other in zip(value, getattr(resolved, field.name), strict=False):
                _take_names(child, other)


def _known_file(name: str) -> Any | None:
    if name in CONFLUENT:
        return parse_proto(CONFLUENT[name], name)
    folder, _, file = name.rpartition("/")
    if folder != "google/protobuf" or file.removesuffix(".proto") not in GOOGLE:
        return None
    module = importlib.import_module(f"google.protobuf.{file.removesuffix('.proto')}_pb2")
    return pb.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def _without_custom(message: Any) -> None:
    """Takes uninterpreted options out, on every level: they are kept as text and not checked."""
    for field, value in list(message.ListFields()):
        if field.name == UNINTERPRETED:
            message.ClearField(UNINTERPRETED)
        elif field.message_type is not None:
            for child in value if field.is_repeated else (value,):
                _without_custom(child)
