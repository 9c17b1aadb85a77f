"""Frames of the protocol: an int32 length, then that many bytes."""

from __future__ import annotations

from typing import Final

LENGTH_BYTES: Final = 4


def framed(body: bytes) -> bytes:
    """The body with its length in front."""
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


HTTP_METHODS: Final = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN")
TLS_HANDSHAKE: Final = b"\x16\x03"


def what_begins(size_bytes: int) -> str:
    """A guess at a stream that does not begin with a frame's length, as the beginning of a sentence.

    size_bytes: its first bytes read as an int32. Empty if they look like nothing that is known.
    """
    head = size_bytes.to_bytes(LENGTH_BYTES, "big", signed=True)
    if head.startswith(TLS_HANDSHAKE):
        return (
            "this is a TLS handshake, and the listener speaks plain text (the client's security.protocol): "
        )
    if head in HTTP_METHODS:
        return "this is an HTTP request, and the listener speaks Kafka's protocol: "
    return ""
