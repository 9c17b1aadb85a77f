"""Protobuf: converts rows to messages, the reverse of protobuf.py: enums from their names, Timestamp from a timestamp,
Any and Struct from JSON text, wrappers from their value."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import EncodeError

from barnabas.pipelines.formats.base import NoColumns, Unfit
from barnabas.pipelines.formats.protobuf import AS_JSON, WRAPPERS, file_of, message_type, messages_of
from barnabas.schemas.framing import Schema

EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
INTEGERS: Final = frozenset(
    {
        FieldDescriptor.CPPTYPE_INT32,
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT32,
        FieldDescriptor.CPPTYPE_UINT64,
    }
)

Put = Callable[[Any, Any], None]
"""Puts a value that is not null into a message."""


class ProtobufWriter:
    """Writes rows as the first message of a file. A field that is null is not set."""

    is_plain = False

    def __init__(self, schema: Schema) -> None:
        self._file = file_of(schema, NoColumns)  # keeps the message classes alive
        descriptor = messages_of(self._file, NoColumns)[0]
        if not pa.types.is_struct(message_type(descriptor, ())[0]):
            raise NoColumns(f"{descriptor.full_name} has no fields")
        self._class = message_factory.GetMessageClass(descriptor)
        self._put = _message_putter(descriptor)
        self.fields = {field.name: bool(field.is_required) for field in descriptor.fields}

    def records(self, rows: pa.StructArray) -> tuple[pa.Array, list[int]] | None:
        """See formats.encoding.Writer."""
        return None

    def encode(self, row: Mapping[str, Any]) -> bytes:
        """The payload of a row. Raises Unfit."""
        message = self._class()
        try:
            self._put(message, row)
            return b"\0" + bytes(message.SerializeToString())
        except (EncodeError, ValueError, TypeError, AttributeError) as error:
            raise error if isinstance(error, Unfit) else Unfit(str(error)[:200]) from None


def _message_putter(descriptor: Any) -> Put:
    """A function that fills a message with the value of its column."""
    name = descriptor.full_name
    if name == "google.protobuf.Timestamp":
        return _put_time
    if name in AS_JSON or not descriptor.fields:
        return _put_json
    if name.startswith(WRAPPERS) and name.endswith("Value"):
        return _field_putter(descriptor.fields_by_name["value"])
    putters = [(field.name, _field_putter(field)) for field in descriptor.fields]

    def put(message: Any, row: Any) -> None:
        for key, put_field in putters:
            value = row.get(key)
            if value is not None:
                put_field(message, value)

    return put


def _field_putter(field: Any) -> Put:
    """A function that puts a value, or all those of a list or a map, into a field of a message."""
    name, kind = field.name, field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return _map_putter(name, kind.fields_by_name["key"], kind.fields_by_name["value"])
    if kind is not None:
        return _nested_putter(name, _message_putter(kind), is_repeated=field.is_repeated)
    convert = _converter(field)
    if field.is_repeated:
        return lambda message, values: getattr(message, name).extend(map(convert, values))
    return lambda message, value: setattr(message, name, convert(value))


def _nested_putter(name: str, put_inner: Put, *, is_repeated: bool) -> Put:
    def put_all(message: Any, rows: Any) -> None:
        messages = getattr(message, name)
        for row in rows:
            put_inner(messages.add(), row)

    def put(message: Any, row: Any) -> None:
        inner = getattr(message, name)
        inner.SetInParent()  # an empty message is not the same as none
        put_inner(inner, row)

    return put_all if is_repeated else put


def _map_putter(name: str, key: Any, value: Any) -> Put:
    take = _converter(key)
    if value.message_type is None:
        convert = _converter(value)
        return lambda message, pairs: getattr(message, name).update(
            {take(k): convert(v) for k, v in pairs.items()}
        )
    put_inner = _message_putter(value.message_type)

    def put(message: Any, pairs: Any) -> None:
        entries = getattr(message, name)
        for k, v in pairs.items():
            inner = entries[take(k)]
            inner.SetInParent()
            put_inner(inner, v)

    return put


def _converter(field: Any) -> Callable[[Any], Any]:
    """A function that converts a column's value to one that the field accepts."""
    if field.enum_type is None:
        return int if field.cpp_type in INTEGERS else _same
    numbers: dict[str, int] = {value.name: value.number for value in field.enum_type.values}
    name = field.enum_type.full_name

    def number(text: Any) -> int:
        if text not in numbers:
            raise Unfit(f"{text!r} is not one of the names of {name}")
        return numbers[text]

    return number


def _put_time(message: Any, value: datetime.datetime) -> None:
    since = (value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)) - EPOCH
    message.seconds = since.days * 86_400 + since.seconds
    message.nanos = since.microseconds * 1_000


def _put_json(message: Any, text: Any) -> None:
    json_format.Parse(text, message)


def _same(value: Any) -> Any:
    return value
