"""Request and response headers, and whole frames of both, for servers and clients.

Request header v1: api key int16, api version int16, correlation id int32, client id nullable string.
v2 (flexible request versions) adds a tagged section; the client id keeps its old form. Response header v0:
correlation id int32; v1 (flexible response versions) adds a tagged section, except for ApiVersions, whose
response a client must be able to read before it knows what the broker speaks (KIP-511).
"""

from __future__ import annotations

from struct import Struct as Packer
from struct import error as struct_error
from typing import Any, Final, NamedTuple

from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import CATALOGUE, OWN
from barnabas.wire.messages.api_versions import ApiVersionsResponse
from barnabas.wire.primitives import Buffer, WireError, skip_tags
from barnabas.wire.schema import Message

API_VERSIONS_KEY: Final = 18
LENGTH_BYTES: Final = 4

_REQUEST: Final = Packer(">hhih")
_FRAMED_REQUEST: Final = Packer(">ihhih")
_INT32: Final = Packer(">i")
_INT32_TAGS: Final = Packer(">ix")
_FRAMED_RESPONSE: Final = Packer(">ii")
_FRAMED_RESPONSE_TAGS: Final = Packer(">iix")
_NEVER: Final = 1 << 15
_UNSUPPORTED_VERSION: Final = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")

REQUEST_FLEXIBLE_FROM: Final = {
    key: _NEVER if flexible is None else flexible for key, (_, _, flexible) in {**CATALOGUE, **OWN}.items()
}
"""The first version of each API whose headers have tagged fields."""


class RequestHeader(NamedTuple):
    """The fields before every request body."""

    request_api_key: int
    request_api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(buf: Buffer, pos: int = 0) -> tuple[RequestHeader, int]:
    """The header at `pos` (after the frame's length), and where the body starts.

    For an unknown API the start of the body is unknown; its header is returned all the same, so that the caller can
    name it when refusing the request. Raises WireError.
    """
    try:
        key, version, correlation_id, length = _REQUEST.unpack_from(buf, pos)
        pos += _REQUEST.size
        client_id = None
        if length >= 0:
            end = pos + length
            if end > len(buf):
                raise WireError(f"client id of {length} bytes passes the end of the request")
            client_id = str(buf[pos:end], "utf-8")
            pos = end
        if version >= REQUEST_FLEXIBLE_FROM.get(key, _NEVER):
            if buf[pos]:
                pos = skip_tags(buf, pos, len(buf))
            else:
                pos += 1
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise WireError(f"request header is truncated or malformed: {error}") from error
    return RequestHeader(key, version, correlation_id, client_id), pos


def response_has_tags(api_key: int, version: int) -> bool:
    """Whether the response header of this API and version is v1."""
    return api_key != API_VERSIONS_KEY and version >= REQUEST_FLEXIBLE_FROM.get(api_key, _NEVER)


def encode_response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The header alone, without the frame's length."""
    header = _INT32_TAGS if response_has_tags(api_key, version) else _INT32
    return header.pack(correlation_id)


def decode_response_header(buf: Buffer, api_key: int, version: int, pos: int = 0) -> tuple[int, int]:
    """Correlation id of the response at `pos`, and where its body starts. Raises WireError."""
    try:
        (correlation_id,) = _INT32.unpack_from(buf, pos)
        pos += 4
        if response_has_tags(api_key, version):
            pos = skip_tags(buf, pos, len(buf))
    except (struct_error, IndexError) as error:
        raise WireError(f"response header is truncated or malformed: {error}") from error
    return correlation_id, pos


class Encoded(NamedTuple):
    """A response body that is already encoded, for all requests of the same kind and version."""

    API_KEY: int
    body: bytes

    def encode_parts(self, version: int, prefix: bytes = b"") -> list[Any]:
        return [prefix, self.body]


def encode_response(message: Message | Encoded, version: int, correlation_id: int) -> list[Any]:
    """A whole response frame with its length, as parts to be sent in order.

    Parts are bytes, long record bytes, and the file slices (anything with `.size`) from record fields;
    see Message.encode_parts.
    """
    tags = response_has_tags(message.API_KEY, version)
    header_bytes = (_FRAMED_RESPONSE_TAGS if tags else _FRAMED_RESPONSE).size
    parts = message.encode_parts(version, bytes(header_bytes))
    first: bytes = parts[0]
    size = sum(part.size if hasattr(part, "size") else len(part) for part in parts) - LENGTH_BYTES
    framed = _FRAMED_RESPONSE_TAGS if tags else _FRAMED_RESPONSE
    parts[0] = framed.pack(size, correlation_id) + first[header_bytes:]
    return parts


def encode_request_parts(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> list[Any]:
    """A whole request frame with its length, as parts to send in order; long record bytes are not copied.

    Raises WireError when the message does not fit the version.
    """
    client = b"" if client_id is None else client_id.encode()
    tags = b"\0" if version >= REQUEST_FLEXIBLE_FROM.get(message.API_KEY, _NEVER) else b""
    header_bytes = _FRAMED_REQUEST.size + len(client) + len(tags)
    parts = message.encode_parts(version, bytes(header_bytes))
    first: bytes = parts[0]
    size = sum(len(part) for part in parts) - LENGTH_BYTES
    length = -1 if client_id is None else len(client)
    framed = _FRAMED_REQUEST.pack(size, message.API_KEY, version, correlation_id, length)
    parts[0] = b"".join((framed, client, tags, first[header_bytes:]))
    return parts


def encode_request(message: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A whole request frame with its length. Raises WireError when the message does not fit the version."""
    return b"".join(encode_request_parts(message, version, correlation_id, client_id))


def decode_api_versions(buf: Buffer, version: int, pos: int = 0) -> ApiVersionsResponse:
    """The body of an ApiVersions response to a request of `version`. Raises WireError.

    A broker that does not support the version answers in version 0 with error 35 and its own range (KIP-511);
    the error code comes first in every version, so it determines which body follows.
    """
    refused = bytes(buf[pos : pos + 2]) == _UNSUPPORTED_VERSION
    return ApiVersionsResponse.decode(buf, 0 if refused else version, pos)
