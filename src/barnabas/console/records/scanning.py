"""Goes through the records of partitions between two sets of offsets, and keeps those that fit; within bounds of memory.

A scan reads its partitions in turn, one fetch of each, so that matches of all of them appear from the beginning. Records are
looked at in a thread, a piece at a time: requests of others are answered meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.admin.values import TopicPartition
from barnabas.client.async_cluster import AsyncCluster
from barnabas.console.records.decoding import Decoder
from barnabas.console.records.fetching import (
    FETCH_BYTES,
    Columns,
    Damaged,
    Piece,
    Row,
    Rows,
    columns_of,
    fetch,
)
from barnabas.console.records.filters import Filter
from barnabas.console.records.lazy import Lazy
from barnabas.console.records.masking import NOTHING, Masks

Ranges = Mapping[int, Sequence[tuple[int, int]]]
"""By partition: the offsets, both ends included and in order, outside of which no record fits."""

SMALL_BYTES: Final = 256 << 10
"""What is fetched at first: a page of 50 records seldom needs more."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a record has to be. key: exactly these bytes. fits: a filter. how: formats of key and value, for filters.

    masks: what filters may not compare.
    """

    key: bytes | None = None
    fits: Filter | None = None
    how: tuple[str, str] = ("auto", "auto")
    masks: Masks = NOTHING

    @property
    def is_everything(self) -> bool:
        return self.key is None and self.fits is None


@dataclass(slots=True)
class Progress:
    """How far a scan is. at: the next offset of each partition. ends: where to stop. skipped: damaged places, as sentences.

    scanned: records looked at. size_bytes: fetched. fitting: records that fit.
    """

    at: dict[int, int]
    ends: Mapping[int, int]
    starts: Mapping[int, int]
    scanned: int = 0
    size_bytes: int = 0
    fitting: int = 0
    failed: int = 0
    skipped: list[str] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)

    @property
    def is_over(self) -> bool:
        return all(self.at[number] >= end for number, end in self.ends.items())

    @property
    def share(self) -> float:
        """The part of all offsets that has been passed, from 0 to 1."""
        whole = sum(max(end - self.starts[number], 0) for number, end in self.ends.items())
        done = sum(min(self.at[number], end) - self.starts[number] for number, end in self.ends.items())
        return done / whole if whole > 0 else 1.0


class Scan:
    """One way through some partitions of a topic. records per step: at most `room` are kept."""

    def __init__(
        self,
        cluster: AsyncCluster,
        decoder: Decoder,
        topic: str,
        wanted: Wanted,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        ranges: Ranges | None = None,
    ) -> None:
        """ranges: what to read of the partitions that it names; nothing else of them is fetched."""
        self._cluster = cluster
        self._decoder = decoder
        self._ranges = ranges or {}
        self.topic = topic
        self.wanted = wanted
        self.progress = Progress(dict(starts), dict(ends), dict(starts))
        self._bytes = SMALL_BYTES

    async def steps(self, room: Callable[[], int]) -> AsyncIterator[list[Row]]:
        """The records that fit, one list per fetch (perhaps empty), until all ends are reached or there is no room.

        room: how many more records are wanted; asked before each fetch. Raises ClientError.
        """
        progress = self.progress
        while not progress.is_over:
            for number in [n for n, end in progress.ends.items() if progress.at[n] < end]:
                left = room()
                if left <= 0:
                    return
                yield await self._step(number, left)
            self._bytes = FETCH_BYTES

    async def _step(self, number: int, room: int) -> list[Row]:
        progress, place = self.progress, TopicPartition(self.topic, number)
        at, end = self._next_part(number)
        if at >= end:
            progress.at[number] = progress.ends[number]
            return []
        piece = await fetch(self._cluster, place, at, max_bytes=self._bytes)
        progress.size_bytes += len(piece.records)
        if not piece.records:
            # Nothing is there: what remains was removed meanwhile, or belongs to transactions that are not committed.
            progress.at[number] = max(end, at)
            return []
        progress.at[number] = at
        try:
            rows, next_offset, scanned = await asyncio.to_thread(self._look, piece, end, room)
        except Damaged as error:
            progress.skipped.append(str(error))
            progress.at[number] = end
            return []
        progress.scanned += scanned
        progress.fitting += len(rows)
        progress.at[number] = max(next_offset, at + 1) if next_offset <= at else next_offset
        return rows

    def _next_part(self, number: int) -> tuple[int, int]:
        """From where to where to read next; the end of the partition twice if nothing is left."""
        at, end = self.progress.at[number], self.progress.ends[number]
        ranges = self._ranges.get(number)
        if ranges is None:
            return at, end
        slot = bisect_left(ranges, at, key=lambda bounds: bounds[1])
        if slot == len(ranges):
            return end, end
        first, last = ranges[slot]
        return min(max(at, first), end), min(last + 1, end)

    def _look(self, piece: Piece, end: int, room: int) -> tuple[list[Row], int, int]:
        """(records that fit, where to go on, how many were looked at)."""
        rows: list[Row] = []
        at, scanned = 0, 0
        for part in columns_of(piece, end):
            record = Lazy(self._decoder, self.topic, self.wanted.how, part, self.wanted.masks)
            if isinstance(part, Rows):
                for index, row in enumerate(part.records):
                    if len(rows) >= room:
                        return rows, at, scanned
                    scanned, at = scanned + 1, row.offset + 1
                    record.move(index, row.offset, row.timestamp_ms)
                    if self._fits(part, index, record):
                        rows.append(row)
                continue
            offsets, times_us = part.offsets, part.times_us
            for index in self._candidates(part):
                record.move(index, offsets[index], times_us[index] // 1000)
                if self._fits(part, index, record):
                    rows.append(part.row(index))
                    if len(rows) >= room:
                        return rows, offsets[index] + 1, scanned + index + 1
            scanned, at = scanned + part.rows, part.next_offset
        return rows, at, scanned

    def _candidates(self, part: Columns) -> range | list[int]:
        """Rows that may fit; a key is looked for in the bytes of all keys at once."""
        key = self.wanted.key
        if not key:
            return range(part.rows)
        return _rows_with(part, key)

    def _fits(self, part: Columns | Rows, index: int, record: Lazy) -> bool:
        wanted = self.wanted
        if wanted.key is not None and part.key(index) != wanted.key:
            return False
        if wanted.fits is None:
            return True
        try:
            return wanted.fits(record)
        except (ArithmeticError, RecursionError, ValueError, TypeError):
            self.progress.failed += 1
            return False


def _rows_with(part: Columns, key: bytes) -> list[int]:
    """Rows whose key is exactly these bytes: found with one search through all keys, then checked by their bounds."""
    data, rows = part.keys, []
    blob = bytes(data)
    at = blob.find(key)
    while at >= 0:
        row = bisect_right(part.key_ends, at) - 1
        if part.key_ends[row] == at and part.key_ends[row + 1] == at + len(key):
            rows.append(row)
            at = blob.find(key, at + len(key))
        else:
            at = blob.find(key, at + 1)
    return rows
