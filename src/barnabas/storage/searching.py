"""Searches by time through a log, in steps: what takes long is handed to the caller, who may let a thread do it.

A search is a generator. It yields None wherever its caller may pause, and a Look when a batch has to be unpacked: the caller
runs it, here or in a thread, and sends the result back. The log may change meanwhile; `Log` sees to that.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, NamedTuple, TypeAlias

from barnabas.records.batch import CODEC_MASK, LOG_APPEND_TIME_BIT, BatchHeader, record_slices
from barnabas.records.walk import first_at_or_after, greatest
from barnabas.storage.formats import records_in

Hit: TypeAlias = tuple[int, int]
"""(timestamp, offset) of a record."""

QUICK_BYTES_MAX: Final = 1 << 20
"""To walk over a megabyte that is not packed takes a millisecond."""


class Look(NamedTuple):
    """A look into one batch, whose bytes stay valid until its result has been sent to the search. Raises CorruptBatch."""

    run: Callable[[], Hit | None]
    is_quick: bool


Search: TypeAlias = Generator[Look | None, Hit | None, Hit | None]


def finish(search: Search) -> Hit | None:
    """Run a search to its end, at once."""
    hit: Hit | None = None
    while True:
        try:
            look = search.send(hit)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        hit = None if look is None else look.run()


def look_for_time(view: memoryview, header: BatchHeader, timestamp_ms: int, from_offset: int) -> Look:
    """The first record of a batch at or after a time and an offset."""

    def run() -> Hit | None:
        if header.magic == 2 and not header.attributes & LOG_APPEND_TIME_BIT:
            pieces = record_slices(view, 0, header, None)
            return first_at_or_after(
                pieces,
                header.record_count,
                header.base_timestamp,
                header.base_offset,
                timestamp_ms,
                from_offset,
            )
        for record in records_in(view, header):
            if record.timestamp >= timestamp_ms and record.offset >= from_offset:
                return record.timestamp, record.offset
        return None

    return Look(run, _is_quick(view, header))


def look_for_greatest(view: memoryview, header: BatchHeader, from_offset: int) -> Look:
    """The first record with the greatest timestamp of a batch, from an offset on."""

    def run() -> Hit | None:
        if header.magic == 2 and not header.attributes & LOG_APPEND_TIME_BIT:
            pieces = record_slices(view, 0, header, None)
            return greatest(
                pieces, header.record_count, header.base_timestamp, header.base_offset, from_offset
            )
        best: Hit | None = None
        for record in records_in(view, header):
            if record.offset >= from_offset and (best is None or record.timestamp > best[0]):
                best = record.timestamp, record.offset
        return best

    return Look(run, _is_quick(view, header))


def _is_quick(view: memoryview, header: BatchHeader) -> bool:
    return not header.attributes & CODEC_MASK and len(view) <= QUICK_BYTES_MAX
