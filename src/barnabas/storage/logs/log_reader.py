"""Reads one partition's log: batches by offset, offsets by time, the transactions that were aborted.

A read that meets segments which overlap sets them right, and begins again. The rules of ownership are in log.py.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Literal

from barnabas.cores.producers import CompletedTxn
from barnabas.records.batch import HEADER_BYTES, read_header
from barnabas.records.units import Offset
from barnabas.storage.errors import CorruptIndex, LogDirOffline, LogUnreadable, OffsetOutOfRange
from barnabas.storage.files import FileSlice
from barnabas.storage.logs.log_writer import LogWriter
from barnabas.storage.logs.rebuilding import set_aside_overlapped
from barnabas.storage.searching import Hit, Search, finish
from barnabas.storage.segments.segment import EmptySlice, Nothing, Overlap, Segment

logger = logging.getLogger("barnabas.storage")


class _Read(Enum):
    AGAIN = "segments were changed meanwhile: begin again"


class LogReader(LogWriter):
    """The reading half of a Log."""

    __slots__ = ()

    def read(
        self,
        offset: Offset,
        max_bytes: int,
        *,
        at_least_one: bool = True,
        upper_offset: Offset | None = None,
        skip_empty: bool = False,
    ) -> FileSlice | None:
        """Whole batches starting with the one that contains `offset`, from one segment; None if there are none.

        Batches at or above `upper_offset` (a high watermark, a last stable offset) are left out. The first batch may begin
        below `offset` and be larger than `max_bytes` (with `at_least_one`). skip_empty: begin at a batch that has records,
        if there is one; right for consumers but not for replicas. Raises OffsetOutOfRange below the log's start or beyond
        its end, LogDirOffline.
        """
        try:
            while True:
                file_slice = self._read(offset, max_bytes, at_least_one, upper_offset, skip_empty)
                if file_slice is not _Read.AGAIN:
                    return file_slice
        except OSError as error:
            raise LogDirOffline(self.log_dir, error) from error

    def _read(
        self,
        offset: Offset,
        max_bytes: int,
        at_least_one: bool,
        upper_offset: Offset | None,
        skip_empty: bool,
    ) -> FileSlice | Literal[_Read.AGAIN] | None:
        """As `read`; AGAIN if segments were changed meanwhile."""
        core = self.core
        end_offset = core.log_end_offset
        if not core.log_start_offset <= offset <= end_offset:
            raise OffsetOutOfRange(
                f"{self.name}: offset {offset} is not in {core.log_start_offset}..{end_offset}"
            )
        if upper_offset is None or upper_offset >= end_offset:
            upper_offset = None
            if offset == end_offset:
                return None
        elif offset >= upper_offset:
            return None
        segments = self._segments
        slot = bisect_right(self._bases, offset) - 1
        empty: FileSlice | None = None
        while slot < len(segments):
            segment = segments[slot]
            if slot and not segment.is_joined and self._set_aside_if_overlapped(slot):
                return _Read.AGAIN
            slot += 1
            following = segments[slot].base_offset if slot < len(segments) else end_offset
            upper = upper_offset if upper_offset is not None and upper_offset < following else None
            try:
                records = segment.read(
                    offset,
                    max_bytes,
                    at_least_one=at_least_one,
                    upper_offset=upper,
                    skip_empty=skip_empty,
                    ceiling=following,
                )
            except Overlap as overlap:
                self._resolve(segment, overlap)
                return _Read.AGAIN
            if isinstance(records, FileSlice):
                return records
            if isinstance(records, EmptySlice):
                empty = empty or records.slice
            if upper is not None or records is Nothing.STOP:
                break
            if slot < len(segments) and offset < following and not isinstance(records, EmptySlice):
                if segment.mend_end(offset, following):
                    return _Read.AGAIN
                self._note_gap(segment, offset, following)
        # Only empty batches follow: they show the reader that it has reached the end.
        return empty

    def _note_gap(self, segment: Segment, start: int, end: int) -> None:
        """Log, once, that readers skip offsets which no segment contains, unless compaction may have removed them."""
        if self.config.compact or self.first_dirty_offset > 0 or segment.damaged or segment.gap_noted:
            return
        segment.gap_noted = True
        extra = {"log": self.name, "from": start, "to": end - 1, "reason": "no segment holds them"}
        logger.error("records are missing", extra=extra)

    def _set_aside_if_overlapped(self, slot: int) -> bool:
        """Called before a segment is read for the first time: set it aside if the previous segment contains its offsets, so
        that it does not belong here; returns whether it was set aside."""
        before, segment = self._segments[slot - 1], self._segments[slot]
        segment.is_joined = True
        if segment.trusted_from and segment.base_offset not in before.overlaps:
            self._resolve(before, Overlap(segment.base_offset))
        return segment not in self._segments[slot : slot + 1]

    def _is_left_over(self, last: Segment) -> bool:
        """Whether the last segment may be removed: nothing was appended to it since it was opened."""
        return 0 < last.size_bytes == last.trusted_from

    def _resolve(self, segment: Segment, overlap: Overlap) -> None:
        """Two segments contain the same offsets: set aside the one that reaches less far."""
        segments = list(self._segments)
        slot = segments.index(segment)
        try:
            is_own = slot + 2 == len(segments) and not self._is_left_over(segments[-1])
            if not is_own and set_aside_overlapped(self.folder, segments, slot):
                self._set_segments(segments)
                return
        except OSError as error:
            raise LogDirOffline(self.log_dir, error) from error
        segment.overlaps = (*segment.overlaps, overlap.ceiling)

    def aborted(
        self, offset: int, upper_offset: int, records: FileSlice | None = None
    ) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions with records in [offset, upper_offset)."""
        return [
            (transaction.producer_id, transaction.first_offset)
            for transaction in self.aborted_transactions(offset, upper_offset, records)
        ]

    def aborted_transactions(
        self, offset: int, upper_offset: int, records: FileSlice | None = None
    ) -> list[CompletedTxn]:
        """The aborted transactions with records in [offset, upper_offset), or in `records` of it. Raises LogUnreadable."""
        aborted: list[CompletedTxn] = []
        slot = max(bisect_right(self._bases, offset) - 1, 0)
        try:
            for segment in self._segments[slot:]:
                if not self._read_aborted(segment):
                    continue
                if records is not None:
                    upper_offset = self._end_of(records, upper_offset)
                    records = None
                some, complete = segment.aborted(offset, upper_offset)
                aborted += some
                if complete:
                    break
        except OSError as error:
            raise LogUnreadable(self.folder, error) from error
        return aborted

    def _read_aborted(self, segment: Segment) -> list[CompletedTxn]:
        """All aborted transactions of a segment; its index is rebuilt first if it is damaged. Raises OSError."""
        try:
            return segment.txn_index.entries
        except CorruptIndex as error:
            self._rebuild_txn_index(segment, str(error))
            return segment.txn_index.entries

    def _end_of(self, records: FileSlice, upper_offset: int) -> int:
        """The offset after the last batch of a slice returned by `read`; `upper_offset` if that is uncertain."""
        head = records.part(0, HEADER_BYTES).read()
        if len(head) < HEADER_BYTES:
            return upper_offset
        segment = self._segments[max(bisect_right(self._bases, read_header(head).base_offset) - 1, 0)]
        begin = segment.last_batch_of(records) - records.position
        tail = records.part(begin, begin + HEADER_BYTES).read()
        if len(tail) < HEADER_BYTES:
            return upper_offset
        last = read_header(tail)
        fits = last.magic == 2 and begin + last.size_bytes == len(records)
        return min(last.last_offset + 1, upper_offset) if fits else upper_offset

    def search_time(self, timestamp_ms: int) -> Search:
        """The first record at or after a time, None if all are older. Raises LogDirOffline."""
        return self._searched(partial(self._search_time, timestamp_ms))

    def search_greatest_time(self) -> Search:
        """The first record with the greatest timestamp; None in an empty log. Raises LogDirOffline."""
        return self._searched(self._search_greatest_time)

    def offset_for_timestamp(self, timestamp_ms: int) -> Hit | None:
        """`search_time`, at once."""
        return finish(self.search_time(timestamp_ms))

    def max_timestamp(self) -> Hit | None:
        """`search_greatest_time`, at once."""
        return finish(self.search_greatest_time())

    def _searched(self, begin: Callable[[list[Segment]], Search]) -> Search:
        """Run a search; begin anew when a segment was deleted or replaced while it was paused."""
        try:
            while True:
                self._make_ready()
                known = self._segments
                search, hit = begin(known), None
                try:
                    while known is self._segments or known == self._segments[: len(known)]:
                        hit = yield search.send(hit)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
        except OSError as error:
            raise LogDirOffline(self.log_dir, error) from error

    def _search_time(self, timestamp_ms: int, segments: list[Segment]) -> Search:
        for segment in segments:
            if segment.max_timestamp >= timestamp_ms:
                hit = yield from segment.search_time(timestamp_ms, self.core.log_start_offset)
                if hit is not None:
                    return hit
        return None

    def _search_greatest_time(self, segments: list[Segment]) -> Search:
        best: Hit | None = None
        for segment in sorted(segments, key=lambda segment: -segment.max_timestamp):
            if segment.max_timestamp < 0 or (best is not None and segment.max_timestamp <= best[0]):
                break
            hit = yield from segment.search_time(segment.max_timestamp, self.core.log_start_offset)
            if hit is None:
                # The record with that timestamp was compacted away or is below the log's start.
                hit = yield from segment.search_greatest_time(self.core.log_start_offset)
            if hit is not None and (best is None or hit[0] > best[0]):
                best = hit
        return best
