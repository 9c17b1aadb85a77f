"""One partition's log: its segments, its appends and reads, its retention, and its core.

One thread (the shard's loop) owns a Log: only this thread appends, reads, rolls, applies retention and truncates.
`flush` may run in any thread at the same time. All times are passed as arguments.

Batches must have a verified checksum, and their base offset and leader epoch set. The log writes the bytes unchanged
and applies their headers to the core.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Literal

from barnabas.cores.producers import CompletedTxn
from barnabas.records.batch import HEADER_BYTES, batches, read_header
from barnabas.records.units import Offset
from barnabas.storage import missing, producer_snapshot
from barnabas.storage.doomed import remove_due
from barnabas.storage.errors import CorruptIndex, LogDirOffline, LogUnreadable, OffsetOutOfRange
from barnabas.storage.files import FileSlice, fsync_dir, remove_quietly
from barnabas.storage.log_writer import LogWriter
from barnabas.storage.rebuilding import reload_producers, set_aside_overlapped
from barnabas.storage.searching import Hit, Search, finish
from barnabas.storage.segment import EmptySlice, Nothing, Overlap, Segment

logger = logging.getLogger("barnabas.storage")


class _Read(Enum):
    AGAIN = "segments were changed meanwhile: begin again"


class Log(LogWriter):
    """See the module. Made by recovery.open_log and recovery.create_log."""

    __slots__ = ()

    # ----------------------------------------------------------------------------------------- replication

    def append_replicated(self, records: bytes | bytearray | memoryview, now_ms: int) -> int:
        """Append checked batches as a leader wrote them, with their offsets and epochs; returns the new end.

        Raises OffsetOutOfRange if one is below the log's end, LogDirOffline.
        """
        view = memoryview(records)
        core = self.core
        start_offset = Offset(-1)
        for position, header in batches(view):
            if header.base_offset < core.log_end_offset and core.log_start_offset == core.log_end_offset:
                # This log begins at the leader's log start, within a batch: the whole batch is sent.
                start_offset = core.log_start_offset
                self.truncate_fully_and_start_at(header.base_offset, now_ms)
            if header.base_offset < core.log_end_offset:
                raise OffsetOutOfRange(
                    f"{self.name}: a replicated batch starts at {header.base_offset}, below the log's end "
                    f"{core.log_end_offset}"
                )
            if header.base_offset > core.log_end_offset:
                # A gap left by compaction: the tail assumes consecutive offsets, so it must be dropped here.
                self._active.tail_offsets, self._active.tail_positions = [], []
            batch = view[position : position + header.size_bytes]
            self._write(batch, header.base_offset, header, now_ms)
            if header.record_count == 0:
                self._active.may_be_sparse = True
            epoch = header.partition_leader_epoch
            if header.is_control:
                self._apply_control(batch, header, header.base_offset, epoch, now_ms)
            else:
                core.apply(header, header.base_offset, epoch, now_ms)
        if start_offset >= 0:
            core.advance_log_start(min(start_offset, core.log_end_offset))
        if core.epochs.dirty:
            self.save_epochs()
        return core.log_end_offset

    # -------------------------------------------------------------------------------------------- reading

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
                found = self._read(offset, max_bytes, at_least_one, upper_offset, skip_empty)
                if found is not _Read.AGAIN:
                    return found
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
                found = segment.read(
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
            if isinstance(found, FileSlice):
                return found
            if isinstance(found, EmptySlice):
                empty = empty or found.slice
            if upper is not None or found is Nothing.STOP:
                break
            if slot < len(segments) and offset < following and not isinstance(found, EmptySlice):
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
        found: list[CompletedTxn] = []
        slot = max(bisect_right(self._bases, offset) - 1, 0)
        try:
            for segment in self._segments[slot:]:
                if not self._read_aborted(segment):
                    continue
                if records is not None:
                    upper_offset = self._end_of(records, upper_offset)
                    records = None
                some, complete = segment.aborted(offset, upper_offset)
                found += some
                if complete:
                    break
        except OSError as error:
            raise LogUnreadable(self.folder, error) from error
        return found

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
                search, found = begin(known), None
                try:
                    while known is self._segments or known == self._segments[: len(known)]:
                        found = yield search.send(found)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
        except OSError as error:
            raise LogDirOffline(self.log_dir, error) from error

    def _search_time(self, timestamp_ms: int, segments: list[Segment]) -> Search:
        for segment in segments:
            if segment.max_timestamp >= timestamp_ms:
                found = yield from segment.search_time(timestamp_ms, self.core.log_start_offset)
                if found is not None:
                    return found
        return None

    def _search_greatest_time(self, segments: list[Segment]) -> Search:
        best: Hit | None = None
        for segment in sorted(segments, key=lambda segment: -segment.max_timestamp):
            if segment.max_timestamp < 0 or (best is not None and segment.max_timestamp <= best[0]):
                break
            found = yield from segment.search_time(segment.max_timestamp, self.core.log_start_offset)
            if found is None:
                # The record with that timestamp was compacted away or is below the log's start.
                found = yield from segment.search_greatest_time(self.core.log_start_offset)
            if found is not None and (best is None or found[0] > best[0]):
                best = found
        return best

    # ------------------------------------------------------------------------------------------- flushing

    @property
    def unflushed_messages(self) -> int:
        """The number of offsets that have not been flushed to disk."""
        return self.core.log_end_offset - self.recovery_point

    @property
    def must_flush_now(self) -> bool:
        """Whether `flush.messages` is reached, so that acknowledgements must wait for `flush`."""
        return self.core.log_end_offset - self.recovery_point >= self.config.flush_messages

    def needs_flush(self, elapsed_ms: float) -> bool:
        """Whether a flush is due by `flush.messages` or `flush.ms`. elapsed_ms: the monotonic clock."""
        unflushed = self.core.log_end_offset - self.recovery_point
        if unflushed <= 0:
            return False
        return unflushed >= self.config.flush_messages or (
            self.last_flush_ms is not None and elapsed_ms - self.last_flush_ms >= self.config.flush_ms
        )

    @property
    def has_unflushed_segment(self) -> bool:
        """Whether a segment was rolled since the last flush."""
        return self.recovery_point < self._active.base_offset

    def flush(
        self, elapsed_ms: float | None = None, *, upto_active: bool = False, sync_log_dir: bool = True
    ) -> int:
        """Flush everything written before the call to disk and advance the recovery point; returns it.

        May run in any thread while the owner appends. elapsed_ms: the monotonic clock, from which `flush.ms` is counted
        again. upto_active: only the segments that have been rolled. sync_log_dir: False if the caller makes the folders of
        many new logs durable together. Raises LogDirOffline.
        """
        with self.flush_lock:
            # Take the end before the segments: a segment rolled in between has nothing below the target.
            target = self.core.log_end_offset
            segments = self._segments
            if upto_active:
                target = segments[-1].base_offset
            try:
                for segment in segments:
                    if segment.base_offset >= target:
                        break
                    if _end_of(segments, segment, target) > self.recovery_point:
                        segment.sync()
                fsync_dir(self.folder)
                if self.is_new and sync_log_dir:
                    fsync_dir(self.log_dir)
                    self.is_new = False
            except FileNotFoundError:
                # Retention or deletion has removed the segment meanwhile: no flush needed.
                return self.recovery_point
            except OSError as error:
                raise LogDirOffline(self.log_dir, error) from error
            self.recovery_point = max(self.recovery_point, target)
            if elapsed_ms is not None:
                self.last_flush_ms = elapsed_ms
            return self.recovery_point

    # ------------------------------------------------------------------------------------------ retention

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply retention by time, size and log start; returns how many segments were removed.

        The active segment is never removed; if even that has expired, a new one is rolled first. Raises
        LogDirOffline.
        """
        try:
            count = self._count_expired(now_ms)
            if count == 0:
                return 0
            self._call_off_swap()
            if count == len(self._segments):
                self.roll(now_ms)
            doomed = self._segments[:count]
            self._set_segments(self._segments[count:])
            self.doom(doomed)
            self.core.advance_log_start(self._segments[0].base_offset)
            if self.core.epochs.dirty:
                self.save_epochs()
            return count
        except OSError as error:
            raise LogDirOffline(self.log_dir, error) from error

    def _count_expired(self, now_ms: int) -> int:
        """How many of the oldest segments may be removed, all of them below the high watermark."""
        config, core, segments = self.config, self.core, self._segments
        left_bytes = self.size_bytes - config.retention_bytes if config.retention_bytes >= 0 else -1
        if config.delete and config.retention_ms >= 0 and len(segments) == 1:
            self._make_ready()
        count = 0
        for segment in segments:
            last = count == len(segments) - 1
            upper = core.log_end_offset if last else segments[count + 1].base_offset
            if core.high_watermark < upper or (last and segment.size_bytes == 0):
                break
            gone = not last and upper <= core.log_start_offset
            if not gone and config.delete:
                if config.retention_ms >= 0:
                    gone = now_ms - segment.age_timestamp() > config.retention_ms
                if not gone and left_bytes >= 0:
                    gone = left_bytes - segment.size_bytes >= 0
            if not gone:
                break
            left_bytes -= segment.size_bytes
            count += 1
        return count

    def advance_log_start(self, offset: Offset) -> bool:
        """DeleteRecords: no longer serve records below `offset`; True if the start has changed.

        Raises OffsetOutOfRange above the high watermark.
        """
        if offset > self.core.high_watermark:
            raise OffsetOutOfRange(
                f"{self.name}: offset {offset} is above the high watermark {self.core.high_watermark}"
            )
        moved = self.core.advance_log_start(offset)
        if self.core.epochs.dirty:
            self.save_epochs()
        return moved

    def exchange(self, olds: list[Segment], new: Segment) -> None:
        """Serve `new` in place of `olds`, whose files the caller has renamed; see storage/swap.py."""
        first = self._segments.index(olds[0])
        self._set_segments([*self._segments[:first], new, *self._segments[first + len(olds) :]])

    def remove_doomed(self, elapsed_ms: float) -> None:
        """Remove the files whose delay has passed. Raises OSError. Any thread, one at a time."""
        remove_due(self.doomed, elapsed_ms, remove_quietly)

    # ------------------------------------------------------------------------------------------ truncation

    def truncate_to(self, offset: Offset, now_ms: int) -> bool:
        """Truncate the log to end at `offset` or below; True if anything was removed.

        A batch that contains `offset` is removed as a whole. Raises LogDirOffline.
        """
        core = self.core
        if offset >= core.log_end_offset:
            return False
        if offset < core.log_start_offset or offset < self._bases[0]:
            self.truncate_fully_and_start_at(offset, now_ms)
            return True
        with self.flush_lock:
            try:
                self._call_off_swap()
                keep = bisect_right(self._bases, offset)
                doomed = self._segments[keep:]
                self.doom(doomed)
                self._set_segments(self._segments[:keep])
                end_offset = self._active.truncate_to(offset)
                self._reload(min(core.log_start_offset, end_offset), end_offset)
                self._prepare()
            except OSError as error:
                raise LogDirOffline(self.log_dir, error) from error
        return True

    def drop_damaged(self, now_ms: int) -> Offset | None:
        """Truncate the log at the first damage or hole that recovery found; returns the new end, None if there was none.

        For a log that is copied again from another replica, which has the missing records. Raises LogDirOffline.
        """
        found = [segment.base_offset for segment in self._segments if segment.damaged]
        if (
            self.hole_from is not None and self.hole_from >= self._bases[0]
        ):  # otherwise retention has removed the place
            found.append(self.hole_from)
        if not found:
            self.forget_missing()
            return None
        begin, start = min(found), self.core.log_start_offset
        if begin <= max(start, self._bases[0]) + 1:
            self.truncate_fully_and_start_at(start, now_ms)
        else:
            self.truncate_to(Offset(begin - 1), now_ms)  # in the previous segment, which is intact
        self.forget_missing()
        return self.core.log_end_offset

    def forget_missing(self) -> None:
        """The records found missing by recovery have been copied again, or no replica has them. Raises LogDirOffline."""
        if self.hole_from is None:
            return
        self.hole_from = None
        try:
            missing.remove(self.folder)
        except OSError as error:
            raise LogDirOffline(self.log_dir, error) from error

    def truncate_fully_and_start_at(self, offset: Offset, now_ms: int) -> None:
        """Remove everything; the log then starts and ends at `offset`. Raises LogDirOffline."""
        with self.flush_lock:
            try:
                self._call_off_swap()
                self.doom(self._segments)
                created = self._new_segment(offset, now_ms)
                self._set_segments([created])
                self.core.epochs.clear()
                self._reload(offset, offset)
            except OSError as error:
                raise LogDirOffline(self.log_dir, error) from error

    def _reload(self, log_start_offset: Offset, log_end_offset: Offset) -> None:
        """After a truncation: adjust epochs, producers and the recovery point to the new end."""
        for offset in producer_snapshot.offsets_in(self.folder):
            if offset > log_end_offset:
                remove_quietly(producer_snapshot.path_of(self.folder, offset))
        self.core.reset(log_start_offset, log_end_offset)
        self.last_snapshot_offset = reload_producers(self.folder, self.core, self._segments)
        self.recovery_point = min(self.recovery_point, log_end_offset)
        self.first_dirty_offset = min(self.first_dirty_offset, log_end_offset)
        self.save_epochs()
        if self.hole_from is not None and log_end_offset <= self.hole_from:
            self.forget_missing()

    # --------------------------------------------------------------------------------------------- the end

    def close(self) -> None:
        """Flush, update the indexes and the producer snapshot on disk, close the files. Raises LogDirOffline.

        Once all logs of a log dir are closed, and it has been synced, it may be marked as cleanly shut down.
        """
        try:
            self._call_off_swap()
            if self._prepared:
                self._active.finish()
            if self.core.epochs.dirty:
                self.save_epochs()
            if self.recovery_point < self.core.log_end_offset:
                self.flush(sync_log_dir=False)
            self.take_snapshot()
            for path in [path for doomed in self.doomed for path in doomed.paths]:
                remove_quietly(path)
        except OSError as error:
            raise LogDirOffline(self.log_dir, error) from error
        self.doomed.clear()
        self.release()

    def take_over_from(self, other: Log, now_ms: int) -> None:
        """Make this log, a copy of `other` up to its end, the partition's log; `other` ends.

        The state besides the records (offsets, epochs, producers) belongs to the partition and stays the same object.
        Raises LogDirOffline.
        """
        core = other.core
        if self.log_end_offset < core.log_end_offset:
            # Damaged batches at the end were not copied; their offsets must not be used again.
            self.core.log_end_offset = core.log_end_offset
            self.roll(now_ms)
        self.core = core
        self.first_dirty_offset = min(other.first_dirty_offset, core.log_end_offset)
        self.hole_from = other.hole_from
        self.set_config(other.config)
        self.save_epochs()
        self.last_snapshot_offset = -1
        try:
            if self.hole_from is not None:
                missing.write(self.folder, self.hole_from)
            self.take_snapshot()
        except OSError as error:
            raise LogDirOffline(self.log_dir, error) from error

    def relocate(self, folder: str) -> None:
        """Rename the log's folder within its log dir, while the log is in use; durable with the next flush.

        Raises LogDirOffline.
        """
        with self.flush_lock:
            try:
                os.rename(self.folder, folder)
            except OSError as error:
                raise LogDirOffline(self.log_dir, error) from error
            for doomed in self.doomed:
                doomed.paths = [os.path.join(folder, os.path.basename(path)) for path in doomed.paths]
            self.folder = folder
            self.log_dir, self.name = os.path.split(folder)
            self.is_new = True
            for segment in self._segments:
                segment.relocate(folder)
            if self.swap is not None:
                self.swap.new.relocate(folder)

    def abandon(self) -> None:
        """The log was deleted or its disk has failed: nothing more is written, but readers can finish.

        Later use raises LogDirOffline, because the files no longer have their names.
        """
        self.doomed.clear()
        self.swap = None
        for segment in self._segments:
            segment.file = None

    def release(self) -> None:
        """Close the files (as soon as no reader uses them) and free the memory of indexes; the next use reopens them.

        Raises LogDirOffline.
        """
        try:
            if self._prepared:
                self._active.finish()
            for segment in self._segments:
                segment.offset_index.write()
                segment.time_index.write()
                segment.file = None
                segment.offset_index.unload()
                segment.time_index.unload()
        except OSError as error:
            raise LogDirOffline(self.log_dir, error) from error
        self._set_segments(self._segments)

    def __repr__(self) -> str:
        return f"Log({self.name}, {self.core.log_start_offset}..{self.core.log_end_offset})"


def _end_of(segments: list[Segment], segment: Segment, target: int) -> int:
    """The offset at which `segment` ends, at most `target`."""
    slot = segments.index(segment) + 1
    return min(segments[slot].base_offset, target) if slot < len(segments) else target
