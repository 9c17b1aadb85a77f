"""Headers as bytes and back. Source: org.apache.kafka.connect.storage.SimpleHeaderConverter, Values."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from barnabas.connect import schemas
from barnabas.connect.converters.base import Converter
from barnabas.connect.converters.json import to_json
from barnabas.connect.converters.simple import java_text
from barnabas.connect.records import Header
from barnabas.connect.schemas import Schema

INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
DECIMAL: Final = re.compile(r"[+-]?[0-9]*\.?[0-9]+([eE][+-]?[0-9]+)?")


class SimpleHeaderConverter:
    """Text that says what it is: numbers, booleans, JSON, or a string."""

    def encode(self, topic: str, header: Header) -> bytes | None:
        """The bytes of a header."""
        value = header.value
        if value is None:
            return None
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, (dict, list)):
            return json.dumps(to_json(header.schema, value, True, True), separators=(",", ":")).encode()
        if isinstance(value, (bytes, bytearray)):
            return bytes(value)
        return java_text(value).encode()

    def decode(self, topic: str, name: str, data: bytes | None) -> Header:
        """A header of its bytes."""
        if data is None:
            return Header(name, None)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return Header(name, data, schemas.BYTES)
        value = _parsed(text)
        return Header(name, value, schemas.inferred(value))


def _parsed(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if INTEGER.fullmatch(text):
        return int(text)
    if DECIMAL.fullmatch(text):
        return float(text)
    if text[:1] in "[{" and text[-1:] in "]}":
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


class ByConverter:
    """Headers by a converter of values."""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter

    def encode(self, topic: str, header: Header) -> bytes | None:
        """The bytes of a header."""
        return self._converter.encoder(topic)(header.schema, header.value, [])

    def decode(self, topic: str, name: str, data: bytes | None) -> Header:
        """A header of its bytes."""
        schema: Schema | None
        schema, value = self._converter.decoder(topic)(data, [])
        return Header(name, value, schema)


HeaderConverter = SimpleHeaderConverter | ByConverter
