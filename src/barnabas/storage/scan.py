"""Walking through a segment's batches, of any format, without holding the file in memory.

The file is read in pieces, and each piece becomes a table of its batches (batch_table.pyx). The first 17 bytes lie
alike in all formats: offset int64, length int32, (leader epoch or CRC) int32, magic int8. Magic 2 states its first
offset there, older formats their last one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from barnabas.records.units import Offset
from barnabas.storage.batch_table import BatchTable, seek
from barnabas.storage.files import LogFile
from barnabas.storage.formats import Damaged, Found

__all__ = [
    "Damaged",
    "Found",
    "boundary_before",
    "first_from",
    "found_at",
    "position_with_records",
    "scan",
    "tables",
]

SMALLEST_BYTES: Final = 26  # an empty message of magic 0
LOOK_BYTES: Final = 8192
SCAN_BYTES: Final = 1 << 18
GROWTH: Final = 8
BEYOND: Final = (1 << 63) - 1
"""An offset that no batch reaches."""
ANY_OFFSET: Final = Offset(-1)
"""An offset that every batch reaches."""


def found_at(table: BatchTable, i: int) -> Found:
    return Found(table.position(i), table.size(i), table.magic(i), table.base_offset(i), table.last_offset(i))


def tables(
    file: LogFile, start: int, end: int, *, verified: bool, first_bytes: int | None = None
) -> Iterator[BatchTable]:
    """The whole batches in [start, end), piece by piece; one and the same table, of use until the next step.

    Stops before a batch that is cut off at `end`. verified: checksums are looked at. first_bytes: how much is
    read at once to begin with, for callers that may need the first batches only. Raises Damaged, OSError. Holds a quarter
    of a megabyte, or one batch.
    """
    table = BatchTable()
    buffer = memoryview(bytearray(0))
    position, want = start, first_bytes or SCAN_BYTES
    while position + SMALLEST_BYTES <= end:
        want = min(want, end - position)
        if want > len(buffer):
            buffer = memoryview(bytearray(want))
        got = _fill(file.fd, buffer[:want], position)
        table.read(buffer[:got], position, end, verified=verified)
        if len(table):
            yield table
        if table.damage is not None:
            raise Damaged(table.end, table.damage)
        if got < want or position + got >= end:
            return
        position = table.end
        want = max(min(want * GROWTH, SCAN_BYTES), table.needed)
        if position + table.needed > end and table.needed > SCAN_BYTES:
            return


def first_from(file: LogFile, position: int, end: int, offset: Offset) -> Found | None:
    """The first batch from `position` (a batch's start) whose last offset is at or after `offset`.

    None when all batches up to byte `end` lie below, or the last one is cut off. Raises Damaged, OSError.
    """
    found = _seek(file, position, end, offset)
    return None if isinstance(found, int) else found


def position_with_records(file: LogFile, position: int, end: int) -> int | None:
    """Where the first batch that holds records begins, from the boundary `position` on; None when there is none.

    Only headers are read. Raises Damaged, OSError.
    """
    found = _seek(file, position, end, -BEYOND, with_records=True)
    return None if isinstance(found, int) else found.position


def boundary_before(file: LogFile, position: int, limit: int) -> int:
    """The last batch boundary at or before byte `limit`, walking on from the boundary `position`.

    Raises Damaged, OSError.
    """
    found = _seek(file, position, limit, BEYOND)
    return found if isinstance(found, int) else found.position


def _seek(file: LogFile, position: int, end: int, offset: int, *, with_records: bool = False) -> Found | int:
    """See first_from, or where the last whole batch ends. Only headers are read."""
    while position + SMALLEST_BYTES <= end:
        data = os.pread(file.fd, min(LOOK_BYTES, end - position), position)
        found = seek(data, position, end, offset, with_records)
        if not isinstance(found, int):
            return found
        if found == position:
            break  # cut off at `end`: a header always fits what is read
        position = found
    return position


def scan(file: LogFile, start: int, end: int) -> Iterator[tuple[Found, memoryview]]:
    """Each whole batch in [start, end) with its bytes, which stay valid until the next step only.

    Like `tables`, unverified, for callers that look at every batch.
    """
    for table in tables(file, start, end, verified=False):
        for i in range(len(table)):
            yield found_at(table, i), table.view(i)


def _fill(fd: int, view: memoryview, position: int) -> int:
    got = 0
    while got < len(view):
        step = os.preadv(fd, [view[got:]], position + got)
        if step == 0:
            break
        got += step
    return got
