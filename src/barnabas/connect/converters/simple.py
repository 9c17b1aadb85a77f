"""Kafka's converters of single values: text, bytes, numbers. Source: org.apache.kafka.connect.storage, .converters."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from barnabas.connect import schemas
from barnabas.connect.converters.base import Converter, Headers
from barnabas.connect.errors import DataError, OptionError
from barnabas.connect.options import ConnectorOption, Importance
from barnabas.connect.schemas import Schema

PYTHON: Final = {"utf8": "utf-8", "utf-8": "utf-8", "iso-8859-1": "latin-1", "us-ascii": "ascii"}


def java_text(value: Any) -> str:
    """A value as Java's toString writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{java_text(key)}={java_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(java_text, value)) + "]"
    return str(value)


def struct_text(schema: Schema | None, value: Any) -> str:
    """The same for a value with a schema: Struct{id=1,name=a}, without fields that are null."""
    if schema is None or schema.type != "struct" or not isinstance(value, dict):
        return java_text(value)
    parts = [
        f"{field.name}={struct_text(field.schema, value[field.name])}"
        for field in schema.fields
        if value.get(field.name) is not None
    ]
    return "Struct{" + ",".join(parts) + "}"


class StringConverter(Converter):
    """Text; other values as Java writes them."""

    doc = "Text in UTF-8 or another encoding."
    options = (
        ConnectorOption(
            "converter.encoding",
            default="UTF-8",
            importance=Importance.HIGH,
            doc="The name of the Java character set to use for encoding strings as byte arrays.",
        ),
    )

    def configure(self, config: Mapping[str, Any], is_key: bool) -> None:
        """See Converter."""
        super().configure(config, is_key)
        name = self.config["converter.encoding"]
        self._encoding = PYTHON.get(name.lower(), name)
        try:
            "".encode(self._encoding)
        except LookupError:
            raise OptionError(f"converter.encoding {name!r} is not known", "converter.encoding") from None

    def encoder(self, topic: str) -> Callable[[Schema | None, Any, Headers], bytes | None]:
        """See Converter."""

        def encode(schema: Schema | None, value: Any, headers: Headers) -> bytes | None:
            if value is None:
                return None
            text = value if isinstance(value, str) else struct_text(schema, value)
            return text.encode(self._encoding, "replace")

        return encode

    def decoder(self, topic: str) -> Callable[[bytes | None, Headers], tuple[Schema | None, Any]]:
        """See Converter."""

        def decode(data: bytes | None, headers: Headers) -> tuple[Schema | None, Any]:
            return schemas.OPTIONAL_STRING, None if data is None else data.decode(self._encoding, "replace")

        return decode


class ByteArrayConverter(Converter):
    """Bytes as they are."""

    doc = "Bytes as they are."

    def encoder(self, topic: str) -> Callable[[Schema | None, Any, Headers], bytes | None]:
        """See Converter."""

        def encode(schema: Schema | None, value: Any, headers: Headers) -> bytes | None:
            if value is not None and not isinstance(value, (bytes, bytearray, memoryview)):
                kind = type(value).__name__ if schema is None else schema.type
                raise DataError(f"Invalid schema type for ByteArrayConverter: {kind}")
            return None if value is None else bytes(value)

        return encode

    def decoder(self, topic: str) -> Callable[[bytes | None, Headers], tuple[Schema | None, Any]]:
        """See Converter."""
        return lambda data, headers: (schemas.OPTIONAL_BYTES, data)


class _NumberConverter(Converter):
    """Numbers in a fixed number of bytes, big-endian."""

    code: ClassVar[str]
    schema: ClassVar[Schema]

    def encoder(self, topic: str) -> Callable[[Schema | None, Any, Headers], bytes | None]:
        """See Converter."""
        layout, kind = struct.Struct(self.code), type(self).__name__

        def encode(schema: Schema | None, value: Any, headers: Headers) -> bytes | None:
            if value is None:
                return None
            try:
                return layout.pack(value)
            except struct.error as error:
                raise DataError(f"{kind} cannot convert {value!r}: {error}") from None

        return encode

    def decoder(self, topic: str) -> Callable[[bytes | None, Headers], tuple[Schema | None, Any]]:
        """See Converter."""
        layout, schema = struct.Struct(self.code), self.schema

        def decode(data: bytes | None, headers: Headers) -> tuple[Schema | None, Any]:
            if data is None:
                return schema, None
            if len(data) != layout.size:
                raise DataError(
                    f"Size of data received by {type(self).__name__} is not {layout.size}, but {len(data)}"
                )
            return schema, layout.unpack(data)[0]

        return decode


class ShortConverter(_NumberConverter):
    """16 bits."""

    code, schema = ">h", schemas.INT16.as_optional()


class IntegerConverter(_NumberConverter):
    """32 bits."""

    code, schema = ">i", schemas.INT32.as_optional()


class LongConverter(_NumberConverter):
    """64 bits."""

    code, schema = ">q", schemas.INT64.as_optional()


class FloatConverter(_NumberConverter):
    """Floating point, 32 bits."""

    code, schema = ">f", schemas.FLOAT32.as_optional()


class DoubleConverter(_NumberConverter):
    """Floating point, 64 bits."""

    code, schema = ">d", schemas.FLOAT64.as_optional()


class BooleanConverter(Converter):
    """One byte, 1 or 0."""

    doc = "Booleans as one byte."

    def encoder(self, topic: str) -> Callable[[Schema | None, Any, Headers], bytes | None]:
        """See Converter."""

        def encode(schema: Schema | None, value: Any, headers: Headers) -> bytes | None:
            if value is not None and not isinstance(value, bool):
                raise DataError(f"BooleanConverter cannot convert {value!r}")
            return None if value is None else b"\x01" if value else b"\x00"

        return encode

    def decoder(self, topic: str) -> Callable[[bytes | None, Headers], tuple[Schema | None, Any]]:
        """See Converter."""

        def decode(data: bytes | None, headers: Headers) -> tuple[Schema | None, Any]:
            if data is not None and data not in (b"\x00", b"\x01"):
                raise DataError("Unexpected byte received by BooleanConverter")
            return schemas.BOOLEAN.as_optional(), None if data is None else data == b"\x01"

        return decode
