"""One segment of a log: a `.log` file with its indexes, named by the offset of its first record.

A segment that this process wrote is trusted: every batch was checked when it came. What was on disk before
is checked once, when it is read for the first time; a batch whose checksum does not hold is never served, it
is stepped over like a gap and named in the log.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.cores.producers import CompletedTxn
from barnabas.records.batch import LOG_OVERHEAD, BatchHeader
from barnabas.storage.checked import Checked
from barnabas.storage.errors import CorruptIndex
from barnabas.storage.files import OPEN_FILES, FileSlice, LogFile, remove_quietly
from barnabas.storage.formats import records_in
from barnabas.storage.index import OffsetIndex, TimeIndex
from barnabas.storage.scan import (
    LOOK_BYTES,
    Damaged,
    Found,
    boundary_before,
    first_from,
    found_at,
    tables,
)
from barnabas.storage.txn_index import TxnIndex

if TYPE_CHECKING:
    from barnabas.storage.batch_table import BatchTable

__all__ = ["FileSlice", "Segment"]

log = logging.getLogger("barnabas.storage")

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"

OFFSETS_IN_SEGMENT_MAX: Final = (1 << 31) - 1
OFFSET_MAX: Final = (1 << 63) - 1
TAIL_BATCHES: Final = 1024
UNKNOWN_MS: Final = -2


class Nothing(Enum):
    """Why a read of one segment found no batch."""

    FURTHER_ON = "no batch from the offset on is in this segment"
    STOP = "the next batch may not be served: it is too large, or at or above the upper offset"


class Segment:
    """See the module. Appends come from Log, which keeps the counters here for speed."""

    __slots__ = (
        "__weakref__",
        "_checked",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "base_offset",
        "bytes_since_entry",
        "created_ms",
        "damaged",
        "file",
        "first_timestamp",
        "folder",
        "interval",
        "offset_index",
        "size_bytes",
        "suffix",
        "tail_offsets",
        "tail_positions",
        "time_index",
        "trusted_from",
        "txn_index",
    )

    def __init__(
        self,
        folder: str,
        base_offset: int,
        size_bytes: int,
        index_bytes_max: int,
        *,
        interval: int = 4096,
        suffix: str = "",
    ) -> None:
        """interval: bytes of log between two index entries, where this class writes them."""
        self.folder = folder
        self.interval = interval
        self.base_offset = base_offset
        self.suffix = suffix
        self.size_bytes = size_bytes
        self.file: LogFile | None = None
        self.offset_index = OffsetIndex(self.path(INDEX_SUFFIX), base_offset, index_bytes_max)
        self.time_index = TimeIndex(self.path(TIME_INDEX_SUFFIX), base_offset, index_bytes_max)
        self.txn_index = TxnIndex(self.path(TXN_INDEX_SUFFIX))
        self.bytes_since_entry = 0
        self.created_ms = 0
        self.first_timestamp = -1
        self._max_timestamp = UNKNOWN_MS
        self._offset_of_max_timestamp = base_offset
        # Where the last appended batches lie: base offsets and positions, for readers at the tail.
        self.tail_offsets: list[int] = []
        self.tail_positions: list[int] = []
        # Below this position nothing is known to be intact but what has been checked.
        self.trusted_from = size_bytes
        self._checked = Checked()
        self.damaged: dict[int, int] = {}

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
        """A new, empty segment; a left-over file of the same name is emptied. Raises OSError."""
        segment = cls(folder, base_offset, 0, index_bytes_max, interval=interval, suffix=suffix)
        segment.file = LogFile(segment.path(LOG_SUFFIX), create=True)
        if os.fstat(segment.file.fd).st_size:
            # Only then: ext4 writes a file that was cut to nothing to disk in the middle of its close.
            os.ftruncate(segment.file.fd, 0)
        segment.created_ms = now_ms
        segment.start_indexes()
        segment.txn_index.start_empty()
        segment._max_timestamp = -1
        return segment

    def path(self, kind: str) -> str:
        """The path of the segment's file of one kind (`.log`, `.index`, ...)."""
        return os.path.join(self.folder, f"{self.base_offset:020d}{kind}{self.suffix}")

    def paths(self) -> list[str]:
        return [self.path(kind) for kind in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)]

    def open(self) -> LogFile:
        """The open file. Raises OSError."""
        file = self.file
        if file is None:
            file = self.file = LogFile(self.path(LOG_SUFFIX))
            OPEN_FILES.opened(self)
        return file

    def start_indexes(self) -> None:
        self.offset_index.start_empty()
        self.time_index.start_empty()

    def relocate(self, folder: str) -> None:
        """The folder has been renamed."""
        self.folder = folder
        _, self.offset_index.path, self.time_index.path, self.txn_index.path = self.paths()

    def change_suffix(self, suffix: str) -> None:
        """Renames the files, those that exist; indexes first, so that a `.log` never misses one."""
        old = self.paths()
        self.suffix = suffix
        new = self.paths()
        for before, after in reversed(list(zip(old, new, strict=True))):
            if os.path.exists(before):
                os.replace(before, after)
        self.offset_index.path, self.time_index.path, self.txn_index.path = new[1:]

    # ----------------------------------------------------------------------------------------- timestamps

    @property
    def max_timestamp(self) -> int:
        """The greatest timestamp of the batches, -1 when none has one."""
        if self._max_timestamp == UNKNOWN_MS:
            self._load_max_timestamp()
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the batch with the greatest timestamp."""
        if self._max_timestamp == UNKNOWN_MS:
            self._load_max_timestamp()
        return self._offset_of_max_timestamp

    def set_max_timestamp(self, timestamp: int, offset: int) -> None:
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

    def _is_true(self, timestamp: int, offset: int) -> bool:
        """Whether the batch that holds `offset` has the greatest timestamp that a time index entry says.

        No entry, (-1, base offset), is true only where the first batch has no timestamp either, or no records
        any more.
        """
        found = self.locate(offset) if self.base_offset <= offset <= OFFSET_MAX else None
        if found is None:
            return self.size_bytes == 0
        for _, header, _ in self.intact(found if isinstance(found, int) else found.position):
            return (header.max_timestamp if header.record_count else -1) == timestamp
        return False

    def load_tail(self) -> None:
        """Makes a segment that was not written by this process ready for appends: its first and greatest
        timestamps, and how far behind the last index entry is. Raises OSError.
        """
        if self.size_bytes == 0:
            self._max_timestamp, self._offset_of_max_timestamp = -1, self.base_offset
            self.first_timestamp, self.bytes_since_entry = -1, 0
            self.start_indexes()
            return
        self._load_max_timestamp()
        position = self.offset_index.last()[1]
        self.bytes_since_entry = self.size_bytes - position
        for found, header, _ in self.intact(position):
            if header.record_count and header.max_timestamp > self._max_timestamp:
                self.set_max_timestamp(header.max_timestamp, found.last_offset)
        for _, header, _ in self.intact(0):
            self.first_timestamp = header.max_timestamp
            break

    def earliest_timestamp(self) -> int:
        """The first batch's timestamp, which stands for the oldest; a far future where it has none."""
        if self.first_timestamp < 0:
            for _, header, _ in self.intact(0):
                self.first_timestamp = header.max_timestamp
                break
        return self.first_timestamp if self.first_timestamp >= 0 else OFFSET_MAX

    def age_timestamp(self) -> int:
        """What retention goes by: the greatest timestamp, or the file's own where no record has one."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return int(os.stat(self.path(LOG_SUFFIX)).st_mtime * 1000)

    # ------------------------------------------------------------------------------------------ appending

    def note_append(
        self, base_offset: int, last_offset: int, position: int, size: int, max_timestamp: int
    ) -> bool:
        """Index work for a batch that lies at `position`; True when an index is full now.

        Log has written the batch, or will at the turn's end.
        """
        full = False
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset
        if self.bytes_since_entry > self.interval:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)
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
    ) -> int:
        """`note_append` for the rows [first, stop) of a table, which lie one behind the other from `position` on;
        returns the byte behind them. What the tail would know of them is left to the indexes.
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
        """Whether the segment must be rolled for its indexes: the time index keeps room for a last entry."""
        return self.offset_index.is_full or self.time_index.room_entries <= 1

    def finish(self) -> None:
        """The segment takes no more appends: its greatest timestamp gets its entry."""
        if self.max_timestamp >= 0:
            self.time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)
        self.tail_offsets = []
        self.tail_positions = []

    def sync(self) -> None:
        """Forces file and indexes to disk. Raises OSError. Any thread."""
        file = self.open()  # held by name: another thread's opening may take it from the segment meanwhile
        os.fdatasync(file.fd)
        self.offset_index.write(sync=True)
        self.time_index.write(sync=True)
        self.txn_index.sync()

    # -------------------------------------------------------------------------------------------- reading

    def locate(self, offset: int) -> Found | int | None:
        """Where the first batch lies whose last offset is at or after `offset`: a Found, or just its position
        where the tail knows it. None when the segment ends before. Raises OSError.
        """
        if self.size_bytes == 0:
            return None
        tail = self.tail_offsets
        if tail and offset >= tail[0]:
            slot = bisect_right(tail, offset) - 1
            if slot == len(tail) - 1 and offset != tail[slot]:
                # It may lie past the last batch, which only the header tells.
                return self._find(self.tail_positions[slot], offset)
            # A batch in the middle of the tail reaches up to the next one: appended offsets have no gaps.
            return self.tail_positions[slot]
        for attempt in (1, 2):
            try:
                position = self.offset_index.lookup(offset)[1]
                if 0 <= position < self.size_bytes:
                    found = self._find(position, offset)
                    if found is None or attempt == 2 or self._plausible(position, offset):
                        return found
                elif attempt == 2:
                    return None
            except (CorruptIndex, FileNotFoundError, Damaged):
                if attempt == 2:
                    raise
            self.rebuild("its offset index is missing or damaged")
        return None

    def _find(self, position: int, offset: int) -> Found | None:
        """Steps over damage from one known boundary to the next that the index knows."""
        file = self.open()
        while True:
            try:
                return first_from(file, position, self.size_bytes, offset)
            except Damaged as damage:
                after = self.offset_index.next_position(damage.position)
                if after is None:
                    self.note_damage(damage.position, self.size_bytes - damage.position, str(damage))
                    return None
                self.note_damage(damage.position, after - damage.position, str(damage))
                position = after

    def _plausible(self, position: int, offset: int) -> bool:
        """Whether a batch that an index named starts at `position`, at or below `offset`."""
        if position == 0:
            return True
        try:
            found = first_from(self.open(), position, self.size_bytes, -1)
        except Damaged:
            return False
        return found is not None and self.base_offset <= found.base_offset <= offset

    def read(
        self, offset: int, max_bytes: int, *, at_least_one: bool, upper_offset: int | None
    ) -> FileSlice | Nothing:
        """Whole batches from the one that holds `offset` on, those below `upper_offset`. Raises OSError."""
        found = self.locate(offset)
        misled = False
        while found is not None:
            start = found if isinstance(found, int) else found.position
            end = self.size_bytes if upper_offset is None else self._position_of_upper(upper_offset)
            if start >= end:
                return Nothing.STOP
            if end - start > max_bytes:
                end = self._cut_at(start, start + max_bytes)
                if end <= start:
                    if not at_least_one:
                        return Nothing.STOP
                    end = start + self._size_at(start)
            if start < self.trusted_from and not self._checked.covers(start, min(end, self.trusted_from)):
                intact_to, skip_to = self._check(start, end)
                if skip_to == start and not misled:
                    # No batch ends where the index said that one does.
                    misled = True
                    self.rebuild("its offset index does not fit the log")
                    found = self.locate(offset)
                    continue
                if intact_to == start:
                    skip_to = max(skip_to, start + LOG_OVERHEAD)
                    found = self._find(skip_to, offset) if skip_to < self.size_bytes else None
                    continue
                end = intact_to
            return FileSlice(self.open(), start, end - start)
        return Nothing.FURTHER_ON

    def _position_of_upper(self, upper_offset: int) -> int:
        found = self.locate(upper_offset)
        if found is None:
            return self.size_bytes
        return found if isinstance(found, int) else found.position

    def _cut_at(self, start: int, limit: int) -> int:
        """The last batch boundary at or before `limit`, not below `start`."""
        positions = self.tail_positions
        if positions and limit >= positions[0]:
            return max(positions[bisect_right(positions, limit) - 1], start)
        try:
            known = max(self.offset_index.lookup_position(limit), start)
            if known != start and not self._plausible(known, OFFSET_MAX):
                known = start
            return boundary_before(self.open(), known, min(limit, self.size_bytes))
        except (CorruptIndex, FileNotFoundError):
            return boundary_before(self.open(), start, min(limit, self.size_bytes))
        except Damaged as damage:
            return max(damage.position, start)

    def _size_at(self, position: int) -> int:
        slot = bisect_left(self.tail_positions, position)
        if slot < len(self.tail_positions) and self.tail_positions[slot] == position:
            following = slot + 1
            end = self.tail_positions[following] if following < len(self.tail_positions) else self.size_bytes
            return end - position
        found = first_from(self.open(), position, self.size_bytes, -1)
        return 0 if found is None else found.size_bytes

    # ------------------------------------------------------------------------------------------ checking

    def _check(self, start: int, end: int) -> tuple[int, int]:
        """Checks the batches in [start, end); (end of the intact ones, where to go on behind the damage)."""
        intact_to = start
        try:
            for table in tables(self.open(), start, min(end, self.trusted_from), verified=True):
                known = [i for i in map(table.beginning_at, self.damaged) if i >= 0]
                stop = min(table.intact_until(0), *known, len(table))
                intact_to = table.end if stop == len(table) else table.position(stop)
                if intact_to > start:
                    self._checked.note(start, intact_to)
                if stop < len(table):
                    self.note_damage(intact_to, table.size(stop), table.fault(stop))
                    return intact_to, intact_to + table.size(stop)
        except Damaged as damage:
            after = self.offset_index.next_position(damage.position)
            skip_to = self.size_bytes if after is None else after
            self.note_damage(damage.position, skip_to - damage.position, str(damage))
            return intact_to, skip_to
        return (end if intact_to == self.trusted_from else intact_to), intact_to

    def note_damage(self, position: int, size: int, reason: str) -> None:
        if position not in self.damaged:
            self.damaged[position] = size
            log.error(
                "damaged batch is not served",
                extra={"file": self.path(LOG_SUFFIX), "position": position, "bytes": size, "reason": reason},
            )

    # ------------------------------------------------------------------------------------------ look-ups

    def next_offset(self) -> int:
        """The offset after the last batch, from the last index entry on. Raises Damaged, OSError."""
        position = 0
        try:
            last_offset, last_position = self.offset_index.last()
            if 0 <= last_position < self.size_bytes and self._plausible(last_position, last_offset):
                position = last_position
        except (CorruptIndex, FileNotFoundError):
            self.rebuild("its offset index is missing or damaged")
            position = self.offset_index.last()[1]
        following, end = self.base_offset, position
        for table in tables(self.open(), position, self.size_bytes, verified=False, first_bytes=LOOK_BYTES):
            following, end = table.last_offset(len(table) - 1) + 1, table.end
        if end != self.size_bytes:
            raise Damaged(end, "a batch is cut off")
        return following

    def offset_for_timestamp(self, timestamp_ms: int, from_offset: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record at or after a time, and at or after `from_offset`."""
        try:
            entry = self.time_index.lookup(timestamp_ms)
            if entry[0] >= 0 and not self._is_true(*entry):
                raise CorruptIndex("")
        except (CorruptIndex, FileNotFoundError):
            self.rebuild("its time index is missing or damaged")
            entry = self.time_index.lookup(timestamp_ms)
        located = self.locate(max(entry[1], from_offset, self.base_offset))
        if located is None:
            return None
        position = located if isinstance(located, int) else located.position
        for found, header, view in self.intact(position):
            if found.last_offset < from_offset:
                continue
            if header.max_timestamp < timestamp_ms:
                continue
            for record in records_in(view, header):
                if record.timestamp >= timestamp_ms and record.offset >= from_offset:
                    return record.timestamp, record.offset
        return None

    def greatest_timestamp(self, from_offset: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record that has the greatest timestamp. Decodes the segment."""
        best: tuple[int, int] | None = None
        for found, header, view in self.intact(0):
            if found.last_offset >= from_offset and (best is None or header.max_timestamp > best[0]):
                for record in records_in(view, header):
                    if record.offset >= from_offset and (best is None or record.timestamp > best[0]):
                        best = record.timestamp, record.offset
        return best

    def intact(self, position: int) -> Iterator[tuple[Found, BatchHeader, memoryview]]:
        """The batches from `position` on whose checksum holds; their bytes are valid for one step."""
        for table, first, stop in self.intact_rows(position):
            for i in range(first, stop):
                yield found_at(table, i), table.header(i), table.view(i)

    def intact_rows(self, position: int) -> Iterator[tuple[BatchTable, int, int]]:
        """The same as runs of rows [first, stop), each with its table, which is of use until the next step."""
        try:
            for table in tables(
                self.open(), position, self.size_bytes, verified=True, first_bytes=LOOK_BYTES
            ):
                first = 0
                while first < len(table):
                    stop = table.intact_until(first)
                    if stop > first:
                        yield table, first, stop
                    first = stop + 1
        except Damaged:
            return

    def aborted(self, fetch_offset: int, upper_offset: int) -> tuple[list[CompletedTxn], bool]:
        """Aborted transactions of this segment, see TxnIndex.collect. Raises CorruptIndex."""
        return self.txn_index.collect(fetch_offset, upper_offset)

    # ------------------------------------------------------------------------------------------ rebuilding

    def rebuild(self, reason: str | None) -> None:
        """Builds both indexes anew from the log, and tells it when a reason is given. Raises OSError.

        Cost: one pass over the segment.
        """
        self.start_indexes()
        self.bytes_since_entry = 0
        self._max_timestamp, self._offset_of_max_timestamp = -1, self.base_offset
        for table, first, stop in self.intact_rows(0):
            self.note_rows(table, first, stop, table.position(first))
        if self._max_timestamp >= 0:
            self.time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)
        self.offset_index.write()
        self.time_index.write()
        if reason is not None:
            log.warning("indexes rebuilt", extra={"file": self.path(LOG_SUFFIX), "reason": reason})

    # -------------------------------------------------------------------------------------------- cutting

    def truncate_to(self, offset: int) -> int:
        """Drops the batches that hold `offset` or come after it; returns the log's new end. Raises OSError.

        The batch that holds `offset` goes as a whole, and the end is that of the last batch left: where
        compaction has made a gap it lies below `offset`, as a restart would find it.
        """
        found = self.locate(offset)
        if found is not None:
            self.cut(found if isinstance(found, int) else found.position)
        try:
            self.offset_index.truncate_to(offset)
            self.time_index.truncate_to(offset)
            end_offset = self.next_offset() if self.size_bytes else self.base_offset
        except (CorruptIndex, FileNotFoundError, Damaged):
            self.rebuild("an index is missing or damaged")
            end_offset = self.next_offset() if self.size_bytes else self.base_offset
        # An entry of the batch that went as a whole may lie below `offset`.
        self.offset_index.truncate_to(end_offset)
        self.time_index.truncate_to(end_offset)
        self.txn_index.truncate_to(end_offset)
        self.load_tail()
        return end_offset

    def cut(self, position: int) -> None:
        """Cuts the file at `position`; the indexes are the caller's."""
        file = self.open()
        os.ftruncate(file.fd, position)
        self.size_bytes = position
        self.trusted_from = min(self.trusted_from, position)
        self.tail_offsets = []
        self.tail_positions = []

    def delete_files(self) -> None:
        """Removes the files, whatever of them exists. Raises OSError."""
        self.file = None
        for path in self.paths():
            remove_quietly(path)

    def __repr__(self) -> str:
        return f"Segment({Path(self.path(LOG_SUFFIX)).name}, {self.size_bytes} bytes)"
