"""One partition's log: its segments, its appends and reads, its retention, and its core.

Appending is in log_writer.py, reading in log_reader.py; here is what changes the log as a whole.

One thread (the shard's loop) owns a Log: only this thread appends, reads, rolls, applies retention and truncates.
`flush` may run in any thread at the same time. All times are passed as arguments.

Batches must have a verified checksum, and their base offset and leader epoch set. The log writes the bytes unchanged
and applies their headers to the core.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right

from barnabas.records.batch import batches
from barnabas.records.units import Offset
from barnabas.storage.errors import LogDirOffline, OffsetOutOfRange
from barnabas.storage.files import fsync_dir, remove_quietly
from barnabas.storage.logs import missing, producer_snapshot
from barnabas.storage.logs.doomed import remove_due
from barnabas.storage.logs.log_reader import LogReader
from barnabas.storage.logs.rebuilding import reload_producers
from barnabas.storage.segments.segment import Segment

logger = logging.getLogger("barnabas.storage")


class Log(LogReader):
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
        """Serve `new` in place of `olds`, whose files the caller has renamed; see storage/logs/swap.py."""
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
        damaged_from = [segment.base_offset for segment in self._segments if segment.damaged]
        if (
            self.hole_from is not None and self.hole_from >= self._bases[0]
        ):  # otherwise retention has removed the place
            damaged_from.append(self.hole_from)
        if not damaged_from:
            self.forget_missing()
            return None
        begin, start = min(damaged_from), self.core.log_start_offset
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
