"""Embedded formats: converts keys and values between JSON and the bytes in a topic. Pure.

With a schema the bytes are in Confluent's format: 0, the schema's id in 4 bytes, for Protobuf the index of the message
in its file, and the encoded value.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, Final

from barnabas.schemas.codecs import Mismatch as Mismatch
from barnabas.schemas.codecs import schemas
from barnabas.schemas.codecs.schemas import Codec as Codec
from barnabas.schemas.formats.base import Dependency
from barnabas.schemas.framing import NotFramed, named_schema
from barnabas.schemas.framing import frame as frame
from barnabas.schemas.json_text import dump_json

BINARY: Final = "binary"
JSON: Final = "json"
STRING: Final = "string"
AVRO: Final = "avro"
JSONSCHEMA: Final = "jsonschema"
PROTOBUF: Final = "protobuf"
WITH_SCHEMA: Final = frozenset({AVRO, JSONSCHEMA, PROTOBUF})
V2_FORMATS: Final = (BINARY, JSON, AVRO, JSONSCHEMA, PROTOBUF)


KINDS: Final = {AVRO: "AVRO", JSONSCHEMA: "JSON", PROTOBUF: "PROTOBUF"}


def make_codec(format: str, text: str, dependencies: Sequence[Dependency], contract: str = "") -> Codec:
    """The codec of a schema. dependencies, contract: see codecs.schemas.make_codec. Raises InvalidSchema."""
    return schemas.make_codec(KINDS[format], text, dependencies, contract)


# --- without a schema ---------------------------------------------------------------------------------


def encode_plain(format: str, value: Any, *, is_large: bool = False) -> bytes | None:
    """The bytes of a JSON value: decoded base64 (binary), JSON text (json), UTF-8 text (string); None for null.

    is_large: it may be large, and this is a thread; other threads shall run meanwhile.
    Raises Mismatch.
    """
    if value is None:
        return None
    if format == JSON:
        return dump_json(value) if is_large else schemas.json_bytes(value)
    if not isinstance(value, str):
        raise Mismatch(f"{_shown(value)} is not a text, as the format {format} requires")
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
    return schemas.json_value(data)


# --- with a schema ------------------------------------------------------------------------------------


def schema_of(record: Any, part: str) -> tuple[int | str, bytes]:
    """Id or GUID of the schema of a record's key or value, and the payload. Raises Mismatch."""
    data = record.key() if part == "key" else record.value()
    try:
        return named_schema(data, record.headers() or (), part)
    except NotFramed:
        raise Mismatch("the record does not begin with the id of a schema") from None


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
