"""Formats without a schema that say nothing of themselves: MessagePack, CBOR, XML; as JSON values."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, Final

MSGPACK_MAPS: Final = (*range(0x80, 0x90), 0xDE, 0xDF)
"""First bytes of a map in MessagePack. Those below 0xc0 begin no text in UTF-8."""
CBOR_MAPS: Final = (*range(0xA0, 0xBC), 0xBF)
CBOR_TAGGED: Final = b"\xd9\xd9\xf7"
"""What a writer may put before CBOR so that it is recognized (RFC 8949, 3.4.6)."""


class Undecodable(ValueError):
    """The bytes are not of this format; the message says why."""


def msgpack_value(data: bytes) -> Any:
    """Exactly one value of MessagePack. Raises Undecodable."""
    import msgpack

    try:
        return plain(msgpack.unpackb(data, strict_map_key=False, timestamp=3))
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise Undecodable(f"it is not MessagePack: {error or type(error).__name__}") from None


def cbor_value(data: bytes) -> Any:
    """Exactly one value of CBOR. Raises Undecodable."""
    import cbor2

    source = io.BytesIO(data)
    try:
        document = cbor2.CBORDecoder(source).decode()
        if source.tell() < len(data):
            raise Undecodable(f"it is not CBOR: {len(data) - source.tell()} bytes follow the value")
        return plain(document)
    except (cbor2.CBORDecodeError, OverflowError, RecursionError, TypeError) as error:
        raise Undecodable(f"it is not CBOR: {error}") from None


def xml_value(data: bytes) -> Any:
    """A document of XML: elements by name, `@name` for attributes, `#text` for text beside them. Raises Undecodable.

    Entities are not replaced, and nothing that a document names is fetched.
    """
    from xml.parsers.expat import ExpatError

    import xmltodict

    try:
        return plain(xmltodict.parse(data))
    except (ExpatError, ValueError, RecursionError) as error:
        raise Undecodable(f"it is not XML: {error}") from None


DECODERS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "msgpack": msgpack_value,
    "cbor": cbor_value,
    "xml": xml_value,
}


def guessed(data: bytes) -> tuple[str, Any] | None:
    """(format, value) of bytes that are neither JSON nor text; None if nothing fits.

    Only maps and what says what it is are taken: nearly all bytes are some value of MessagePack or CBOR.
    """
    first = data[0] if data else 0
    guesses = []
    if data.startswith(CBOR_TAGGED) or first in CBOR_MAPS:
        guesses.append("cbor")
    if first in MSGPACK_MAPS:
        guesses.append("msgpack")
    for name in guesses:
        try:
            value = DECODERS[name](data)
        except Undecodable:
            continue
        if isinstance(value, dict) and value:
            return name, value
    return None


def plain(value: Any) -> Any:
    """A value of one of these formats as JSON knows it. Raises RecursionError."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {
            name if isinstance(name, str) else str(plain(name)): plain(inner) for name, inner in value.items()
        }
    code, data = getattr(value, "code", None), getattr(value, "data", None)
    if code is not None and isinstance(data, bytes):
        return {"type": code, "data": base64.b64encode(data).decode()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(inner) for inner in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    tag, content = getattr(value, "tag", None), getattr(value, "value", None)
    if tag is not None:
        return {"tag": tag, "value": plain(content)}
    return str(value)
