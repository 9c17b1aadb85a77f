"""Protobuf: converts messages to rows of Arrow types. Fields are identified by their numbers, so the bytes of any
version can be read with the version that the columns were made of. Messages without fixed fields (Struct, Any) become
JSON text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from barnabas.pipelines.formats.base import NoColumns, Unfit
from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.formats.base import Dependency
from barnabas.schemas.formats.protobuf import read_protobuf
from barnabas.schemas.framing import Schema, message_path
from barnabas.schemas.model import Reference

PLAIN: Final = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
    FieldDescriptor.CPPTYPE_STRING: pa.string(),
}
WRAPPERS: Final = "google.protobuf."
AS_JSON: Final = frozenset(
    f"google.protobuf.{name}" for name in ("Any", "Struct", "Value", "ListValue", "FieldMask", "Duration")
)

Get = Callable[[Any], Any]


class ProtobufReader:
    """Reads messages into the fields of the first message type of a file."""

    def __init__(self, schema: Schema) -> None:
        self._file = file_of(schema, NoColumns)
        self._descriptor = messages_of(self._file, NoColumns)[0]
        arrow_type, self._get = message_type(self._descriptor, ())
        if not pa.types.is_struct(arrow_type):
            raise NoColumns(f"{self._descriptor.full_name} has no fields")
        self.type = self.read_type = arrow_type

    def columns(self, records: pa.Array) -> pa.StructArray | None:
        """See formats.base.Reader."""
        return None

    def decoder(self, writer: Schema) -> Callable[[bytes], Any]:
        """See formats.base.Reader."""
        messages = messages_of(file_of(writer, Unfit), Unfit)
        message_class, get, wanted = (
            message_factory.GetMessageClass(self._descriptor),
            self._get,
            self._descriptor,
        )

        def decode(payload: bytes) -> Any:
            path, payload = message_path(payload)
            try:
                named = messages[path[0]]
                for index in path[1:]:
                    named = named.nested_types[index]
            except IndexError:
                raise Unfit(f"the bytes name a message that schema {writer.called} does not have") from None
            if named.full_name != wanted.full_name:
                raise Unfit(f"the bytes are a {named.full_name}, not a {wanted.full_name}")
            message = message_class()
            try:
                message.ParseFromString(payload)
                return get(message)
            except (DecodeError, ValueError, RecursionError) as error:
                raise Unfit(f"the bytes do not suit schema {writer.called}: {str(error)[:200]}") from None

        return decode


def file_of(schema: Schema, failure: type[ValueError]) -> Any:
    """A schema's descriptor. Raises `failure`."""
    dependencies = [Dependency(name, Reference(name, name, 1), text) for name, text in schema.dependencies]
    try:
        return read_protobuf(schema.text, dependencies).descriptor
    except InvalidSchema as error:
        raise failure(f"schema {schema.id} is not Protobuf: {error.message}") from error


def messages_of(file: Any, failure: type[ValueError]) -> list[Any]:
    """A file's messages in their order. Raises `failure` without any."""
    listed = FileDescriptorProto()
    file.CopyToProto(listed)
    types = [file.message_types_by_name[message.name] for message in listed.message_type]
    if not types:
        raise failure("the schema has no message")
    return types


def message_type(descriptor: Any, above: tuple[str, ...]) -> tuple[pa.DataType, Get]:
    """A message's Arrow type, and a function that makes a row of a message. Raises NoColumns."""
    name = descriptor.full_name
    if name in above:
        raise NoColumns(f"{name} contains itself, which columns cannot")
    if name == "google.protobuf.Timestamp":
        return pa.timestamp("us", "UTC"), lambda m: m.seconds * 1_000_000 + m.nanos // 1000
    if name in AS_JSON or not descriptor.fields:
        return pa.string(), _json_text
    if name.startswith(WRAPPERS) and name.endswith("Value"):
        arrow_type, get = _single(descriptor.fields_by_name["value"], above)
        return arrow_type, lambda m: get(m.value)
    fields, getters = [], []
    for field in descriptor.fields:
        arrow_type, get = _field(field, (*above, name))
        fields.append(pa.field(field.name, arrow_type))
        getters.append((field.name, get))
    return pa.struct(fields), lambda m: {name: get(m) for name, get in getters}


def _field(field: Any, above: tuple[str, ...]) -> tuple[pa.DataType, Get]:
    """A field's Arrow type, and a function that gets its value from a message."""
    name = field.name
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, take_key = _single(entry.fields_by_name["key"], above)
        arrow_type, take = _single(entry.fields_by_name["value"], above)
        return pa.map_(key, arrow_type), lambda m: [
            (take_key(k), take(v)) for k, v in getattr(m, name).items()
        ]
    arrow_type, take = _single(field, above)
    if field.is_repeated:
        return pa.list_(arrow_type), lambda m: [take(value) for value in getattr(m, name)]
    if field.has_presence:
        return arrow_type, lambda m: take(getattr(m, name)) if m.HasField(name) else None
    return arrow_type, lambda m: take(getattr(m, name))


def _single(field: Any, above: tuple[str, ...]) -> tuple[pa.DataType, Get]:
    if field.message_type is not None:
        return message_type(field.message_type, above)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return pa.binary(), _same
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return pa.string(), lambda number: names.get(number, str(number))
    return PLAIN[field.cpp_type], _same


def _same(value: Any) -> Any:
    return value


def _json_text(message: Any) -> str:
    return str(json_format.MessageToJson(message, indent=None, preserving_proto_field_name=True))
