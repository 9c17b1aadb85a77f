"""One segment of a log: a `.log` file with its indexes, named by the offset of its first record.

Data written by this process is trusted, because every batch was checked when it was appended. Data found on disk is checked
when it is first read; a batch with a wrong checksum is never served, but logged and skipped like a gap.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_left, bisect_right
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cores.producers import CompletedTxn
from barnabas.records.batch import LOG_OVERHEAD
from barnabas.records.units import Offset, Position
from barnabas.storage.errors import CorruptIndex
from barnabas.storage.files import FileSlice, LogFile
from barnabas.storage.plain_read import plain_range
from barnabas.storage.scan import (
    ANY_OFFSET,
    LOOK_BYTES,
    Damaged,
    boundary_before,
    first_from,
    position_with_records,
    tables,
)
from barnabas.storage.searching import Hit, Search, look_for_greatest, look_for_time
from barnabas.storage.segments.segment_checks import Overlap, SegmentChecks
from barnabas.storage.segments.segment_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    KINDS,
    LOG_SUFFIX,
    OFFSET_MAX,
    OFFSETS_IN_SEGMENT_MAX,
    SWAP_SUFFIX,
    TAIL_BATCHES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    UNKNOWN_MS,
)

if TYPE_CHECKING:
    from barnabas.storage.batch_table import BatchTable

__all__ = [
    "CLEANED_SUFFIX",
    "DELETED_SUFFIX",
    "INDEX_SUFFIX",
    "KINDS",
    "LOG_SUFFIX",
    "OFFSETS_IN_SEGMENT_MAX",
    "OFFSET_MAX",
    "SWAP_SUFFIX",
    "TIME_INDEX_SUFFIX",
    "TXN_INDEX_SUFFIX",
    "EmptySlice",
    "FileSlice",
    "Nothing",
    "Overlap",
    "Segment",
]

log = logging.getLogger("barnabas.storage")


class EmptySlice(NamedTuple):
    """The rest of a segment has no record for a reader."""

    slice: FileSlice


class Nothing(Enum):
    """Why a read of one segment returned no batch."""

    FURTHER_ON = "no batch from the offset on is in this segment"
    STOP = "the next batch may not be served: it is too large, or at or above the upper offset"


class Segment(SegmentChecks):
    """See the module. Appends come from Log, which accesses the counters here directly for speed."""

    __slots__ = ()

    @classmethod
    def create(
        cls,
        folder: str,
        base_offset: int,
        index_bytes_max: int,
        now_ms: int,
        *,
        interval: int = 4096,
        suffix: str = "",
    ) -> Segment:
        """A new, empty segment; an old file of the same name is emptied. Raises OSError."""
        segment = cls(folder, base_offset, 0, index_bytes_max, interval=interval, suffix=suffix)
        segment.file = LogFile(segment.path(LOG_SUFFIX), create=True)
        if os.fstat(segment.file.fd).st_size:
            # Only if needed: ext4 flushes a file that was truncated to zero when it is closed.
            os.ftruncate(segment.file.fd, 0)
        segment.created_ms = now_ms
        segment.start_indexes()
        segment.txn_index.start_empty()
        segment._max_timestamp = -1
        return segment

    # ----------------------------------------------------------------------------------------- timestamps

    @property
    def max_timestamp(self) -> int:
        """The greatest timestamp of the batches, -1 if none has one."""
        if self._max_timestamp == UNKNOWN_MS:
            self._load_max_timestamp()
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the batch with the greatest timestamp."""
        if self._max_timestamp == UNKNOWN_MS:
            self._load_max_timestamp()
        return self._offset_of_max_timestamp

    def set_max_timestamp(self, timestamp: int, offset: Offset) -> None:
        self._max_timestamp = timestamp
        self._offset_of_max_timestamp = offset

    def _load_max_timestamp(self) -> None:
        try:
            last = self.time_index.peek_last()
            if not self._is_true(*last):
                raise CorruptIndex("")
        except (CorruptIndex, FileNotFoundError):
            self.rebuild("its time index is missing or damaged")
            return
        self._max_timestamp, self._offset_of_max_timestamp = last

    def _is_true(self, timestamp: int, offset: Offset) -> bool:
        """Whether the batch that contains `offset` really has the greatest timestamp given by a time index entry.

        (-1, base offset) stands for no entry; it is true only if the first batch has no timestamp either, or no records any
        more.
        """
        place = self.locate(offset) if self.base_offset <= offset <= OFFSET_MAX else None
        if place is None:
            return self.size_bytes == 0
        for _, header, _ in self.intact(place if isinstance(place, int) else place.position):
            return (header.max_timestamp if header.record_count else -1) == timestamp
        return False

    def load_tail(self) -> None:
        """Prepare a segment that was not written by this process for appends: determine its first and greatest timestamps,
        and the bytes since the last index entry. Raises OSError.
        """
        if self.size_bytes == 0:
            self._max_timestamp, self._offset_of_max_timestamp = -1, self.base_offset
            self.first_timestamp, self.bytes_since_entry = -1, 0
            self.start_indexes()
            return
        try:
            position = self.offset_index.last()[1]
            len(self.time_index)
        except (CorruptIndex, FileNotFoundError):
            self.rebuild("an index is missing or damaged")
            position = self.offset_index.last()[1]
        self._load_max_timestamp()
        self.bytes_since_entry = self.size_bytes - position
        for batch, header, _ in self.intact(position):
            if header.record_count and header.max_timestamp > self._max_timestamp:
                self.set_max_timestamp(header.max_timestamp, batch.last_offset)
        for _, header, _ in self.intact(0):
            self.first_timestamp = header.max_timestamp
            break

    def earliest_timestamp(self) -> int:
        """The first batch's timestamp, taken for the oldest; a time far in the future if there is none."""
        if self.first_timestamp < 0:
            for _, header, _ in self.intact(0):
                self.first_timestamp = header.max_timestamp
                break
        return self.first_timestamp if self.first_timestamp >= 0 else OFFSET_MAX

    def age_timestamp(self) -> int:
        """The timestamp for retention: the greatest one, or the file's modification time if no record has one."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return int(os.stat(self.path(LOG_SUFFIX)).st_mtime * 1000)

    # ------------------------------------------------------------------------------------------ appending

    def note_append(
        self, base_offset: Offset, last_offset: int, position: Position, size: int, max_timestamp: int
    ) -> bool:
        """Update the indexes for a batch at `position`; True if an index is now full.

        Log has written the batch, or will at the end of the turn.
        """
        full = False
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset
        if self.bytes_since_entry > self.interval:
            self.offset_index.append(Offset(last_offset), position)
            self.time_index.maybe_append(self._max_timestamp, Offset(self._offset_of_max_timestamp))
            self.bytes_since_entry = 0
            full = self.indexes_full
        self.bytes_since_entry += size
        offsets = self.tail_offsets
        offsets.append(base_offset)
        self.tail_positions.append(position)
        if len(offsets) > TAIL_BATCHES:
            del offsets[: TAIL_BATCHES // 2]
            del self.tail_positions[: TAIL_BATCHES // 2]
        return full

    def note_rows(
        self, table: BatchTable, first: int, stop: int, position: int, *, only_kept: bool = False
    ) -> Position:
        """`note_append` for the rows [first, stop) of a table, which lie consecutively from `position` on; returns the
        position behind them. They are not added to the tail: readers find them by the indexes.
        """
        entries, self.bytes_since_entry, self._max_timestamp, self._offset_of_max_timestamp, end = (
            table.index_entries(
                first,
                stop,
                position,
                self.interval,
                self.bytes_since_entry,
                self._max_timestamp,
                self._offset_of_max_timestamp,
                only_kept,
            )
        )
        for last_offset, at, timestamp, offset_of_timestamp in entries:
            self.offset_index.append(last_offset, at)
            self.time_index.maybe_append(timestamp, offset_of_timestamp)
        return end

    @property
    def indexes_full(self) -> bool:
        """Whether the segment must be rolled because of its indexes: the time index reserves space for a last entry."""
        return self.offset_index.is_full or self.time_index.room_entries <= 1

    def finish(self) -> None:
        """The segment takes no more appends: add the entry for its greatest timestamp."""
        if self.max_timestamp >= 0:
            self.time_index.maybe_append(self._max_timestamp, Offset(self._offset_of_max_timestamp))
        self.tail_offsets = []
        self.tail_positions = []

    # -------------------------------------------------------------------------------------------- reading

    def read(
        self,
        offset: Offset,
        max_bytes: int,
        *,
        at_least_one: bool,
        upper_offset: Offset | None,
        skip_empty: bool = False,
        ceiling: int = OFFSET_MAX,
    ) -> FileSlice | EmptySlice | Nothing:
        """Whole batches from the one that contains `offset` on, as far as they are below `upper_offset`. Raises OSError.

        ceiling: the base offset of the next segment, or the log's end: a batch beyond it is damaged.
        skip_empty: begin at a batch that has records; an EmptySlice if there is none.
        """
        if upper_offset is None and not self.damaged:
            plain = self.read_plain(offset, max_bytes)
            if plain is not None:
                return plain
        place = self.locate(offset)
        misled = False
        while place is not None:
            start: int = place if isinstance(place, int) else place.position
            end = self.size_bytes if upper_offset is None else self._position_of_upper(upper_offset)
            if start >= end:
                return Nothing.STOP
            is_empty = False
            if skip_empty and self.may_be_sparse:
                start, is_empty = self._past_empty(start, end, ceiling)
            if end - start > max_bytes:
                end = self._cut_at(start, start + max_bytes)
                if end <= start:
                    if not at_least_one:
                        return Nothing.STOP
                    end = start + self._size_at(start)
            if start < self.trusted_from and not self._checked.covers(start, min(end, self.trusted_from)):
                checked = self._check(start, end, ceiling)
                if checked is None:
                    place = self.locate(offset)
                    continue
                intact_to, skip_to = checked
                if skip_to == start and not misled:
                    # The index is wrong: no batch ends where it says.
                    misled = True
                    self.rebuild("its offset index does not fit the log")
                    place = self.locate(offset)
                    continue
                if intact_to == start:
                    skip_to = max(skip_to, start + LOG_OVERHEAD)
                    place = self._find(skip_to, offset) if skip_to < self.size_bytes else None
                    continue
                end = intact_to
            found_slice = FileSlice(self.open(), start, end - start)
            return EmptySlice(found_slice) if is_empty else found_slice
        return Nothing.FURTHER_ON

    def read_plain(self, offset: Offset, max_bytes: int) -> FileSlice | None:
        """What `read` returns where all is in order and known to be intact, in compiled code; None where it may not be."""
        try:
            entries = self.offset_index.entries
        except (CorruptIndex, FileNotFoundError):
            return None
        file = self.open()
        byte_range = plain_range(entries, self.base_offset, file.fd, self.size_bytes, offset, max_bytes)
        if byte_range is None:
            return None
        begin, start, end = byte_range
        if begin < self.trusted_from and not self._checked.covers(begin, min(end, self.trusted_from)):
            return None
        return FileSlice(file, start, end - start)

    def _past_empty(self, start: int, end: int, ceiling: int) -> tuple[int, bool]:
        """(where a reader of records begins, whether there are none up to `end`), from the boundary `start` on.

        Batches emptied by compaction are skipped: some clients get stuck on a fetch without a record.
        """
        try:
            position = position_with_records(self.open(), start, end)
        except Damaged:
            return start, False
        if position is None:
            return start, True
        if start < position and start < self.trusted_from and not self._checked.covers(start, position):
            # Trust only intact batches to have been emptied by compaction.
            checked = self._check(start, position, ceiling)
            return start if checked is None else min(checked[0], position), False
        return position, False

    def _position_of_upper(self, upper_offset: Offset) -> int:
        place = self.locate(upper_offset)
        if place is None:
            return self.size_bytes
        return place if isinstance(place, int) else place.position

    def _cut_at(self, start: int, limit: int) -> int:
        """The last batch boundary at or before `limit`, not below `start`."""
        positions = self.tail_positions
        if positions and limit >= positions[0]:
            return max(positions[bisect_right(positions, limit) - 1], start)
        try:
            known = max(self.offset_index.lookup_position(Position(limit)), start)
            if known != start and not self.is_plausible(known, OFFSET_MAX):
                known = start
            return boundary_before(self.open(), known, min(limit, self.size_bytes))
        except (CorruptIndex, FileNotFoundError):
            return boundary_before(self.open(), start, min(limit, self.size_bytes))
        except Damaged as damage:
            return max(damage.position, start)

    def last_batch_of(self, records: FileSlice) -> int:
        """The position of the last batch in a slice of this segment. Raises OSError."""
        return self._cut_at(records.position, records.position + len(records) - 1)

    def _size_at(self, position: int) -> int:
        slot = bisect_left(self.tail_positions, position)
        if slot < len(self.tail_positions) and self.tail_positions[slot] == position:
            following = slot + 1
            end = self.tail_positions[following] if following < len(self.tail_positions) else self.size_bytes
            return end - position
        batch = first_from(self.open(), position, self.size_bytes, ANY_OFFSET)
        return 0 if batch is None else batch.size_bytes

    # ------------------------------------------------------------------------------------------ look-ups

    def next_offset(self) -> Offset:
        """The offset after the last batch, found from the last index entry on. Raises Damaged, OSError."""
        position = 0
        try:
            last_offset, last_position = self.offset_index.last()
            if 0 <= last_position < self.size_bytes and self.is_plausible(last_position, last_offset):
                position = last_position
        except (CorruptIndex, FileNotFoundError):
            self.rebuild("its offset index is missing or damaged")
            position = self.offset_index.last()[1]
        following, end = self.base_offset, position
        for table in tables(self.open(), position, self.size_bytes, verified=False, first_bytes=LOOK_BYTES):
            following, end = Offset(table.last_offset(len(table) - 1) + 1), table.end
        if end != self.size_bytes:
            raise Damaged(end, "a batch is cut off")
        return following

    def search_time(self, timestamp_ms: int, from_offset: int) -> Search:
        """The first record at or after a time, and at or after `from_offset`. Raises OSError."""
        try:
            entry = self.time_index.lookup(timestamp_ms)
            if entry[0] >= 0 and not self._is_true(*entry):
                raise CorruptIndex("")
        except (CorruptIndex, FileNotFoundError):
            self.rebuild("its time index is missing or damaged")
            entry = self.time_index.lookup(timestamp_ms)
        located = self.locate(Offset(max(entry[1], from_offset, self.base_offset)))
        if located is None:
            return None
        position = located if isinstance(located, int) else located.position
        for batch, header, view in self.intact(position):
            if batch.last_offset < from_offset or header.max_timestamp < timestamp_ms:
                yield None
                continue
            hit = yield look_for_time(view, header, timestamp_ms, from_offset)
            if hit is not None:
                return hit
        return None

    def search_greatest_time(self, from_offset: int) -> Search:
        """The first record with the greatest timestamp. Looks into batches of the whole segment. Raises OSError."""
        best: Hit | None = None
        for batch, header, view in self.intact(0):
            if batch.last_offset < from_offset or (best is not None and header.max_timestamp <= best[0]):
                yield None
                continue
            hit = yield look_for_greatest(view, header, from_offset)
            if hit is not None and (best is None or hit[0] > best[0]):
                best = hit
        return best

    def aborted(self, fetch_offset: int, upper_offset: int) -> tuple[list[CompletedTxn], bool]:
        """Aborted transactions of this segment, see TxnIndex.collect. Raises CorruptIndex."""
        return self.txn_index.collect(fetch_offset, upper_offset)

    # ------------------------------------------------------------------------------------------ rebuilding

    def rebuild(self, reason: str | None) -> None:
        """Rebuild both indexes from the log; logged if a reason is given. Raises OSError.

        Cost: one pass over the segment.
        """
        self.start_indexes()
        self.bytes_since_entry = 0
        self._max_timestamp, self._offset_of_max_timestamp = -1, self.base_offset
        low: int = self.base_offset
        ceiling = low + OFFSETS_IN_SEGMENT_MAX + 1
        for table, first, stop in self.intact_rows(0):
            while first < stop:
                # A batch with an impossible offset would not fit the index.
                good = min(table.consistent_until(first, low, ceiling), stop)
                if good > first:
                    self.note_rows(table, first, good, table.position(first))
                    low = table.end_before(good, low)
                first = good + 1
        if self._max_timestamp >= 0:
            self.time_index.maybe_append(self._max_timestamp, Offset(self._offset_of_max_timestamp))
        self.offset_index.write()
        self.time_index.write()
        if reason is not None:
            log.warning("indexes rebuilt", extra={"file": self.path(LOG_SUFFIX), "reason": reason})

    # -------------------------------------------------------------------------------------------- cutting

    def truncate_to(self, offset: Offset) -> Offset:
        """Remove the batches that contain `offset` or come after it; returns the log's new end. Raises OSError.

        The batch that contains `offset` is removed as a whole, and the end is that of the last remaining batch: if
        compaction has left a gap, it is below `offset`, just as a restart would find it.
        """
        place = self.locate(offset)
        if place is not None:
            self.cut(place if isinstance(place, int) else place.position)
        try:
            self.offset_index.truncate_to(offset)
            self.time_index.truncate_to(offset)
            end_offset = self.next_offset() if self.size_bytes else self.base_offset
        except (CorruptIndex, FileNotFoundError, Damaged):
            self.rebuild("an index is missing or damaged")
            end_offset = self.next_offset() if self.size_bytes else self.base_offset
        # There may be an entry below `offset` for the batch that was removed as a whole.
        self.offset_index.truncate_to(end_offset)
        self.time_index.truncate_to(end_offset)
        self.txn_index.truncate_to(end_offset)
        self.load_tail()
        return end_offset

    def cut(self, position: Position) -> None:
        """Truncate the file at `position`; the caller adjusts the indexes."""
        file = self.open()
        os.ftruncate(file.fd, position)
        self.size_bytes = position
        self.key_index.drop()
        self.trusted_from = min(self.trusted_from, position)
        self.tail_offsets = []
        self.tail_positions = []
