"""Walking through a segment's batches, of any format, without holding the file in memory.

The first 17 bytes lie alike in all formats: offset int64, length int32, (leader epoch or CRC) int32, magic
int8. Magic 2 states its first offset there, older formats their last one.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.records.batch import HEADER_BYTES, LOG_OVERHEAD
from barnabas.storage.files import LogFile

_HEAD: Final = struct.Struct(">qiib")
_INT32: Final = struct.Struct(">i")
_NEEDED: Final = 27  # up to and with the last offset delta
LENGTH_MIN: Final = 14  # an empty message of magic 0, after the overhead
LOOK_BYTES: Final = 8192
SCAN_BYTES: Final = 1 << 20


class Damaged(Exception):
    """At `position` there is no batch header that can be."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"{why} at byte {position}")
        self.position = position


class Found(NamedTuple):
    """One batch's place in a segment."""

    position: int
    size_bytes: int
    magic: int
    base_offset: int
    last_offset: int


def first_from(file: LogFile, position: int, end: int, offset: int) -> Found | None:
    """The first batch from `position` (a batch's start) whose last offset is at or after `offset`.

    None when all batches up to byte `end` lie below, or the last one is cut off. Raises Damaged, OSError.
    """
    chunk, chunk_at = b"", position
    while position < end:
        at = position - chunk_at
        if at + _NEEDED > len(chunk):
            chunk = os.pread(file.fd, min(LOOK_BYTES, end - position), position)
            chunk_at, at = position, 0
            if len(chunk) < _NEEDED - 1:
                return None
        base, length, _, magic = _HEAD.unpack_from(chunk, at)
        if length < LENGTH_MIN or not 0 <= magic <= 2:
            raise Damaged(position, f"length {length} and magic {magic}")
        size = length + LOG_OVERHEAD
        if position + size > end:
            return None
        last = base + _INT32.unpack_from(chunk, at + 23)[0] if magic == 2 else base
        if last >= offset:
            return Found(position, size, magic, base, last)
        position += size
    return None


def boundary_before(file: LogFile, position: int, limit: int) -> int:
    """The last batch boundary at or before byte `limit`, walking on from the boundary `position`.

    Raises Damaged, OSError.
    """
    chunk, chunk_at = b"", position
    while position < limit:
        at = position - chunk_at
        if at + LOG_OVERHEAD > len(chunk):
            chunk = os.pread(file.fd, LOOK_BYTES, position)
            chunk_at, at = position, 0
            if len(chunk) < LOG_OVERHEAD:
                return position
        length = _INT32.unpack_from(chunk, at + 8)[0]
        if length < LENGTH_MIN:
            raise Damaged(position, f"length {length}")
        if position + length + LOG_OVERHEAD > limit:
            return position
        position += length + LOG_OVERHEAD
    return position


def scan(file: LogFile, start: int, end: int) -> Iterator[tuple[Found, memoryview]]:
    """Each whole batch in [start, end) with its bytes, which stay valid until the next step only.

    Stops before a batch that is cut off at `end`. Raises Damaged, OSError. Holds one megabyte, or one batch.
    """
    buffer = bytearray(min(SCAN_BYTES, max(end - start, 0)))
    position = start
    have_from = have_to = start  # the file range that the buffer holds
    view = memoryview(buffer)
    while position + _NEEDED - 1 <= end:
        if position + HEADER_BYTES > have_to and have_to < end:
            have_from, have_to = position, position + _fill(file.fd, view, position, end)
            if have_to < position + _NEEDED - 1:
                return
        at = position - have_from
        base, length, _, magic = _HEAD.unpack_from(view, at)
        if length < LENGTH_MIN or not 0 <= magic <= 2:
            raise Damaged(position, f"length {length} and magic {magic}")
        size = length + LOG_OVERHEAD
        if position + size > end:
            return
        if position + size > have_to:
            if size > len(buffer):
                buffer = bytearray(size)
                view = memoryview(buffer)
            have_from, have_to, at = position, position + _fill(file.fd, view, position, end), 0
            if have_to < position + size:
                return
        if magic == 2:
            if size < HEADER_BYTES:
                raise Damaged(position, f"length {length} for magic 2")
            last = base + _INT32.unpack_from(view, at + 23)[0]
        else:
            last = base
        yield Found(position, size, magic, base, last), view[at : at + size]
        position += size


def _fill(fd: int, view: memoryview, position: int, end: int) -> int:
    want = min(len(view), end - position)
    got = 0
    while got < want:
        step = os.preadv(fd, [view[got:want]], position + got)
        if step == 0:
            break
        got += step
    return got
