"""One partition's log: its segments, its appends and reads, its retention, and the core beside it.

One thread (the shard's loop) owns a Log: appends, reads, rolls, retention and truncation are its alone.
`flush` may run in any thread beside them. All times come in as arguments.

A batch comes with its checksum verified and its base offset and leader epoch patched in; the log writes the
bytes as they are and tells the core.
"""

from __future__ import annotations

import os
from bisect import bisect_right

from barnabas.cores.producers import CompletedTxn
from barnabas.records.batch import batches
from barnabas.storage import producer_snapshot
from barnabas.storage.errors import CorruptIndex, LogDirOffline, OffsetOutOfRange
from barnabas.storage.files import FileSlice, fsync_dir, remove_quietly
from barnabas.storage.log_writer import Doomed, LogWriter
from barnabas.storage.segment import SWAP_SUFFIX, Nothing, Segment


class Log(LogWriter):
    """See the module. Made by recovery.open_log and recovery.create_log."""

    __slots__ = ()

    # ----------------------------------------------------------------------------------------- replication

    def append_replicated(self, records: bytes | bytearray | memoryview, now_ms: int) -> int:
        """Appends checked batches as a leader wrote them, with their offsets and epochs; returns the new end.

        Raises OffsetOutOfRange when one lies below the log's end, LogDirOffline.
        """
        view = memoryview(records)
        core = self.core
        start_offset = -1
        for position, header in batches(view):
            if header.base_offset < core.log_end_offset and core.log_start_offset == core.log_end_offset:
                # Begun at the leader's log start, which lies in the middle of a batch: that batch comes whole.
                start_offset = core.log_start_offset
                self.truncate_fully_and_start_at(header.base_offset, now_ms)
            if header.base_offset < core.log_end_offset:
                raise OffsetOutOfRange(
                    f"{self.name}: a replicated batch starts at {header.base_offset}, below the log's end "
                    f"{core.log_end_offset}"
                )
            if header.base_offset > core.log_end_offset:
                # A gap left by compaction: the tail's rule that offsets follow each other ends here.
                self._active.tail_offsets, self._active.tail_positions = [], []
            batch = view[position : position + header.size_bytes]
            self._write(batch, header.base_offset, header, now_ms)
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
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool = True,
        upper_offset: int | None = None,
    ) -> FileSlice | None:
        """Whole batches from the one that holds `offset`, in one segment; None when there are none.

        Batches at or above `upper_offset` (a high watermark, a last stable offset) are left out. The first
        batch may lie partly below `offset` and be larger than `max_bytes` (with `at_least_one`). Raises
        OffsetOutOfRange below the log's start or past its end, LogDirOffline.
        """
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
        try:
            while slot < len(segments):
                segment = segments[slot]
                slot += 1
                following = segments[slot].base_offset if slot < len(segments) else end_offset
                upper = upper_offset if upper_offset is not None and upper_offset < following else None
                found = segment.read(offset, max_bytes, at_least_one=at_least_one, upper_offset=upper)
                if isinstance(found, FileSlice):
                    return found
                if upper is not None or found is Nothing.STOP:
                    return None
        except OSError as error:
            raise LogDirOffline(self.log_dir, error) from error
        return None

    def aborted(self, offset: int, upper_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions with records in [offset, upper_offset)."""
        return [
            (one.producer_id, one.first_offset) for one in self.aborted_transactions(offset, upper_offset)
        ]

    def aborted_transactions(self, offset: int, upper_offset: int) -> list[CompletedTxn]:
        """Those whose records overlap [offset, upper_offset). Raises LogDirOffline."""
        found: list[CompletedTxn] = []
        slot = max(bisect_right(self._bases, offset) - 1, 0)
        for segment in self._segments[slot:]:
            try:
                some, complete = segment.aborted(offset, upper_offset)
            except CorruptIndex as error:
                self._rebuild_txn_index(segment, str(error))
                some, complete = segment.aborted(offset, upper_offset)
            except OSError as error:
                raise LogDirOffline(self.log_dir, error) from error
            found += some
            if complete:
                break
        return found

    def _rebuild_txn_index(self, segment: Segment, reason: str) -> None:
        from barnabas.storage.recovery import rebuild_txn_index

        try:
            rebuild_txn_index(self.folder, self._segments, segment, reason)
        except OSError as error:
            raise LogDirOffline(self.log_dir, error) from error

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record at or after a time, None when all are older.

        Decodes the one batch that holds it. Raises LogDirOffline.
        """
        try:
            self._make_ready()
            for segment in self._segments:
                if segment.max_timestamp >= timestamp_ms:
                    found = segment.offset_for_timestamp(timestamp_ms, self.core.log_start_offset)
                    if found is not None:
                        return found
        except OSError as error:
            raise LogDirOffline(self.log_dir, error) from error
        return None

    def max_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record that has the greatest timestamp; None in an empty log."""
        try:
            self._make_ready()
            best: tuple[int, int] | None = None
            by_age = sorted(self._segments, key=lambda segment: -segment.max_timestamp)
            for segment in by_age:
                if segment.max_timestamp < 0 or (best is not None and segment.max_timestamp <= best[0]):
                    break
                found = segment.offset_for_timestamp(segment.max_timestamp, self.core.log_start_offset)
                if found is None:
                    # The record with that timestamp was compacted away or lies below the log's start.
                    found = segment.greatest_timestamp(self.core.log_start_offset)
                if found is not None and (best is None or found[0] > best[0]):
                    best = found
            return best
        except OSError as error:
            raise LogDirOffline(self.log_dir, error) from error

    # ------------------------------------------------------------------------------------------- flushing

    @property
    def unflushed_messages(self) -> int:
        return self.core.log_end_offset - self.recovery_point

    @property
    def must_flush_now(self) -> bool:
        """`flush.messages` is reached: acknowledgements must wait for `flush`."""
        return self.core.log_end_offset - self.recovery_point >= self.config.flush_messages

    def needs_flush(self, now_ms: int) -> bool:
        """Whether `flush.messages`, `flush.ms` or a roll since the last flush ask for one."""
        unflushed = self.core.log_end_offset - self.recovery_point
        if unflushed <= 0:
            return False
        return (
            unflushed >= self.config.flush_messages
            or now_ms - self.last_flush_ms >= self.config.flush_ms
            or self.recovery_point < self._active.base_offset
        )

    def flush(self, now_ms: int | None = None, *, upto_active: bool = False) -> int:
        """Forces what was written before the call to disk and moves the recovery point; returns it.

        Safe in any thread while the owner appends. upto_active: only the segments that are finished. Raises LogDirOffline.
        """
        with self._flush_lock:
            # The end before the segments: one that is rolled in between holds nothing below the target.
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
                if self.is_new:
                    fsync_dir(self.log_dir)
                    self.is_new = False
            except FileNotFoundError:
                # Retention or deletion took the segment meanwhile: what is gone needs no flush.
                return self.recovery_point
            except OSError as error:
                raise LogDirOffline(self.log_dir, error) from error
            self.recovery_point = max(self.recovery_point, target)
            if now_ms is not None:
                self.last_flush_ms = now_ms
            return self.recovery_point

    # ------------------------------------------------------------------------------------------ retention

    def delete_old_segments(self, now_ms: int) -> int:
        """Applies retention by time, size and log start; returns how many segments went.

        The active segment never goes; when even it is expired, a new one is rolled first. Raises
        LogDirOffline.
        """
        try:
            count = self._count_expired(now_ms)
            if count == 0:
                return 0
            if count == len(self._segments):
                self.roll(now_ms)
            doomed = self._segments[:count]
            self._set_segments(self._segments[count:])
            self._doom(doomed, now_ms)
            self.core.advance_log_start(self._segments[0].base_offset)
            if self.core.epochs.dirty:
                self.save_epochs()
            return count
        except OSError as error:
            raise LogDirOffline(self.log_dir, error) from error

    def _count_expired(self, now_ms: int) -> int:
        """How many segments from the oldest on may go, each below the high watermark."""
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

    def advance_log_start(self, offset: int) -> bool:
        """DeleteRecords: records below `offset` are not served any more; True when that is news.

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

    def replace_segments(self, new: Segment, old: list[Segment], now_ms: int) -> bool:
        """Puts a compacted segment in the place of those that it was made from; False when they are not all
        there any more, because retention or a truncation took some.

        A crash at any point leaves the old segments or the new one: until the `.log` is called `.swap` the old
        ones count, from then on the new one (recovery.finish_swaps). Raises LogDirOffline.
        """
        with self._flush_lock:
            segments = self._segments
            first = next((i for i, one in enumerate(segments) if one is old[0]), -1)
            if first < 0 or segments[first : first + len(old)] != old or old[-1] is self._active:
                return False
            try:
                new.change_suffix(SWAP_SUFFIX)
                fsync_dir(self.folder)
                self._doom(old, now_ms, keep_snapshot_of=new.base_offset)
                new.change_suffix("")
                fsync_dir(self.folder)
            except OSError as error:
                raise LogDirOffline(self.log_dir, error) from error
            self._set_segments([*segments[:first], new, *segments[first + len(old) :]])
        return True

    def remove_doomed(self, now_ms: int) -> None:
        """Removes the files whose delay is over. Raises OSError. Any thread, one at a time."""
        while self.doomed and self.doomed[0].due_ms <= now_ms:
            for path in self.doomed.pop(0).paths:
                remove_quietly(path)

    # ------------------------------------------------------------------------------------------ truncation

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Cuts the log so that it ends at `offset` or below; True when something went.

        A batch that holds `offset` goes as a whole. Raises LogDirOffline.
        """
        core = self.core
        if offset >= core.log_end_offset:
            return False
        if offset < core.log_start_offset or offset < self._bases[0]:
            self.truncate_fully_and_start_at(offset, now_ms)
            return True
        with self._flush_lock:
            try:
                keep = bisect_right(self._bases, offset)
                doomed = self._segments[keep:]
                self._doom(doomed, now_ms)
                self._set_segments(self._segments[:keep])
                end_offset = self._active.truncate_to(offset)
                self._reload(min(core.log_start_offset, end_offset), end_offset)
                self._prepare()
            except OSError as error:
                raise LogDirOffline(self.log_dir, error) from error
        return True

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Drops everything; the log starts and ends at `offset`. Raises LogDirOffline."""
        with self._flush_lock:
            try:
                self._doom(self._segments, now_ms)
                created = self._new_segment(offset, now_ms)
                self._set_segments([created])
                self.core.epochs.clear()
                self._reload(offset, offset)
            except OSError as error:
                raise LogDirOffline(self.log_dir, error) from error

    def _reload(self, log_start_offset: int, log_end_offset: int) -> None:
        """After a cut: epochs, producers and the recovery point follow the new end."""
        from barnabas.storage.recovery import reload_producers

        for offset in producer_snapshot.offsets_in(self.folder):
            if offset > log_end_offset:
                remove_quietly(producer_snapshot.path_of(self.folder, offset))
        self.core.reset(log_start_offset, log_end_offset)
        self.last_snapshot_offset = reload_producers(self.folder, self.core, self._segments)
        self.recovery_point = min(self.recovery_point, log_end_offset)
        self.first_dirty_offset = min(self.first_dirty_offset, log_end_offset)
        self.save_epochs()

    # --------------------------------------------------------------------------------------------- the end

    def close(self) -> None:
        """Flushes, brings indexes and the producer snapshot up to date, lets go of the files.

        Raises LogDirOffline. A log dir whose logs all closed may be marked as cleanly shut down.
        """
        try:
            if self._prepared:
                self._active.finish()
            if self.core.epochs.dirty:
                self.save_epochs()
            if self.recovery_point < self.core.log_end_offset:
                self.flush()
            self.take_snapshot()
            for path in [path for doomed in self.doomed for path in doomed.paths]:
                remove_quietly(path)
        except OSError as error:
            raise LogDirOffline(self.log_dir, error) from error
        self.doomed.clear()
        self.release()

    def take_over_from(self, other: Log, now_ms: int) -> None:
        """This log, a copy of `other` up to its end, becomes what the partition goes on with; `other` ends.

        What is known beside the records (offsets, epochs, producers) is the partition's and stays one object.
        Raises LogDirOffline.
        """
        core = other.core
        if self.log_end_offset < core.log_end_offset:
            # Damaged batches at the end were not copied; their offsets shall not be given out again.
            self.core.log_end_offset = core.log_end_offset
            self.roll(now_ms)
        self.core = core
        self.first_dirty_offset = min(other.first_dirty_offset, core.log_end_offset)
        self.set_config(other.config)
        self.save_epochs()
        self.last_snapshot_offset = -1
        try:
            self.take_snapshot()
        except OSError as error:
            raise LogDirOffline(self.log_dir, error) from error

    def relocate(self, folder: str) -> None:
        """Renames the log's folder, within its log dir, while it goes on; durable with the next flush.

        Raises LogDirOffline.
        """
        with self._flush_lock:
            try:
                os.rename(self.folder, folder)
            except OSError as error:
                raise LogDirOffline(self.log_dir, error) from error
            self.doomed = [
                Doomed(due, [os.path.join(folder, os.path.basename(path)) for path in paths])
                for due, paths in self.doomed
            ]
            self.folder = folder
            self.log_dir, self.name = os.path.split(folder)
            self.is_new = True
            for segment in self._segments:
                segment.relocate(folder)

    def abandon(self) -> None:
        """The log was deleted or its disk has failed: nothing more is written; readers finish what they have.

        A later use raises LogDirOffline, because the files are not found under their names any more.
        """
        self.doomed.clear()
        for segment in self._segments:
            segment.file = None

    def release(self) -> None:
        """Closes files (as soon as no reader uses them) and gives index memory back; any use opens them.

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
    """The offset at which `segment` ends, as far as `target`."""
    slot = segments.index(segment) + 1
    return min(segments[slot].base_offset, target) if slot < len(segments) else target
