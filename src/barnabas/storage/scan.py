"""Iterates over a segment's batches, of any format, without loading the whole file.

The file is read in pieces, and each piece becomes a table of its batches (batch_table.pyx). The first 17 bytes have the
same layout in all formats: offset int64, length int32, (leader epoch or CRC) int32, magic int8. In magic 2 the offset
is that of the first record, in older formats that of the last.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from barnabas.records.units import Offset
from barnabas.storage.batch_table import BatchTable, seek
from barnabas.storage.files import LogFile
from barnabas.storage.formats import Damaged, FoundBatch

__all__ = [
    "Damaged",
    "FoundBatch",
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
"""An offset above those of all batches."""
ANY_OFFSET: Final = Offset(-1)
"""An offset at or below those of all batches."""


def found_at(table: BatchTable, i: int) -> FoundBatch:
    return FoundBatch(
        table.position(i), table.size(i), table.magic(i), table.base_offset(i), table.last_offset(i)
    )


def tables(
    file: LogFile, start: int, end: int, *, verified: bool, first_bytes: int | None = None
) -> Iterator[BatchTable]:
    """The whole batches in [start, end), piece by piece; yields one reused table, valid until the next step.

    Stops before a batch that is cut off at `end`. verified: verify checksums. first_bytes: size of the first piece, for
    callers that may need only the first batches. Raises Damaged, OSError. Uses a quarter of a megabyte, or the size of one
    batch.
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


def first_from(file: LogFile, position: int, end: int, offset: Offset) -> FoundBatch | None:
    """The first batch from `position` (the start of a batch) on whose last offset is at or after `offset`.

    None if all batches up to byte `end` are below it, or the last one is cut off. Raises Damaged, OSError.
    """
    batch_or_end = _seek(file, position, end, offset)
    return None if isinstance(batch_or_end, int) else batch_or_end


def position_with_records(file: LogFile, position: int, end: int) -> int | None:
    """The start of the first batch with records, from the batch boundary `position` on; None if there is none.

    Only headers are read. Raises Damaged, OSError.
    """
    batch_or_end = _seek(file, position, end, -BEYOND, with_records=True)
    return None if isinstance(batch_or_end, int) else batch_or_end.position


def boundary_before(file: LogFile, position: int, limit: int) -> int:
    """The last batch boundary at or before byte `limit`, walking from the boundary `position`.

    Raises Damaged, OSError.
    """
    batch_or_end = _seek(file, position, limit, BEYOND)
    return batch_or_end if isinstance(batch_or_end, int) else batch_or_end.position


def _seek(
    file: LogFile, position: int, end: int, offset: int, *, with_records: bool = False
) -> FoundBatch | int:
    """As first_from, but returns the end of the last whole batch if none is found. Only headers are read."""
    while position + SMALLEST_BYTES <= end:
        data = os.pread(file.fd, min(LOOK_BYTES, end - position), position)
        batch_or_end = seek(data, position, end, offset, with_records)
        if not isinstance(batch_or_end, int):
            return batch_or_end
        if batch_or_end == position:
            break  # cut off at `end`: a header always fits what is read
        position = batch_or_end
    return position


def scan(file: LogFile, start: int, end: int) -> Iterator[tuple[FoundBatch, memoryview]]:
    """Each whole batch in [start, end) with its bytes, which are valid only until the next step.

    Like `tables`, unverified, for callers that examine every batch.
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
