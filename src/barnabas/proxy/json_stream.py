"""Splits a stream of bytes into the JSON objects that follow one another in it, as they arrive. Pure."""

from __future__ import annotations

import re
from typing import Final

_MARK: Final = re.compile(rb'["{}\[\]\\]')
_SPACE: Final = b" \t\r\n"


class StreamError(ValueError):
    """The rest of the stream cannot be split into objects; the message says why."""


class JsonStream:
    """Splits concatenated JSON objects. Memory: at most object_bytes_max of an unfinished one, between two calls."""

    def __init__(self, object_bytes_max: int) -> None:
        self._max = object_bytes_max
        self._buffer = bytearray()
        self._seen = 0  # how many bytes of _held were scanned
        self._depth = 0
        self._quoted = False

    def feed(self, data: bytes) -> list[bytes]:
        """The objects that are complete now. Raises StreamError: no object begins here, or it is too large. O(n)."""
        self._buffer += data
        documents: list[bytes] = []
        begin = 0
        buffer = self._buffer
        position = self._seen
        while True:
            if not self._depth:
                while begin < len(buffer) and buffer[begin] in _SPACE:
                    begin += 1
                position = max(position, begin)
                if begin == len(buffer):
                    break
                if buffer[begin] != 0x7B:
                    raise StreamError("a record does not begin with '{'")
            match = _MARK.search(buffer, position)
            if match is None:
                position = len(buffer)
                break
            position = match.end()
            mark = buffer[match.start()]
            if mark == 0x5C:  # a backslash: the next byte has no special meaning
                if position == len(buffer):
                    position -= 1
                    break
                position += 1
            elif mark == 0x22:
                self._quoted = not self._quoted
            elif not self._quoted:
                self._depth += 1 if mark in b"{[" else -1
                if not self._depth:
                    documents.append(bytes(buffer[begin:position]))
                    begin = position
        del buffer[:begin]
        self._seen = position - begin
        if len(buffer) > self._max:
            raise StreamError(f"a record has more than {self._max} bytes")
        return documents

    def end(self) -> None:
        """The stream is over. Raises StreamError if an object is incomplete."""
        if self._buffer.strip(_SPACE):
            raise StreamError("the body ends in the middle of a record")
