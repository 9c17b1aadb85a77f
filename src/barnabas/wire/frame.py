"""Splitting a byte stream into frames: an int32 length, then that many bytes."""

from __future__ import annotations

from typing import Final

from barnabas.wire.primitives import Buffer, WireError

LENGTH_BYTES: Final = 4
FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
"""Kafka's default `socket.request.max.bytes`."""


class FrameSplitter:
    """Takes bytes in pieces of any size and returns whole frames, without their lengths.

    Raises WireError for a length that is negative or above `bytes_max`, before memory is allocated for it.
    """

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._buffer = bytearray()

    def feed(self, data: Buffer) -> list[bytes]:
        """Add bytes; returns the frames that are now complete, oldest first. O(bytes), one copy of each frame."""
        buffer = self._buffer
        buffer += data
        frames: list[bytes] = []
        pos = 0
        while len(buffer) - pos >= LENGTH_BYTES:
            size = int.from_bytes(buffer[pos : pos + LENGTH_BYTES], "big", signed=True)
            if not 0 <= size <= self.bytes_max:
                raise WireError(f"frame of {size} bytes; allowed are 0 to {self.bytes_max}")
            end = pos + LENGTH_BYTES + size
            if end > len(buffer):
                break
            frames.append(bytes(memoryview(buffer)[pos + LENGTH_BYTES : end]))
            pos = end
        if pos:
            del buffer[:pos]
        return frames

    @property
    def pending_bytes(self) -> int:
        """Bytes that do not make up a whole frame yet."""
        return len(self._buffer)


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
