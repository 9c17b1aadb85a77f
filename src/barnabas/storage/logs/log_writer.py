"""Appends to one partition's log: limits and rolls, epochs and producer snapshots.

The reading half is in log_reader.py, the rules of ownership in log.py.
"""

from __future__ import annotations

import os
import threading
import zlib
from typing import Final

from barnabas.cores.partition import PartitionCore
from barnabas.records.batch import BatchHeader
from barnabas.records.control import marker_of
from barnabas.records.units import LeaderEpoch, Offset, Position
from barnabas.storage import checkpoints
from barnabas.storage.append_state import LogState
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import CorruptIndex, LogDirOffline, LogUnreadable
from barnabas.storage.files import pwrite_all
from barnabas.storage.logs import producer_snapshot
from barnabas.storage.logs.doomed import Doomed
from barnabas.storage.logs.rebuilding import rebuild_txn_index
from barnabas.storage.logs.swap import Swap
from barnabas.storage.segments.segment import DELETED_SUFFIX, OFFSETS_IN_SEGMENT_MAX, Segment

INT64_MAX: Final = (1 << 63) - 1


class LogWriter(LogState):
    """The appending half of a Log, and the state shared by both halves."""

    __slots__ = (
        "_bases",
        "_prepared",
        "_segments",
        "doomed",
        "first_dirty_offset",
        "flush_lock",
        "folder",
        "hole_from",
        "is_new",
        "last_flush_ms",
        "last_snapshot_offset",
        "log_dir",
        "name",
        "swap",
    )

    def __init__(
        self,
        folder: str,
        config: LogConfig,
        core: PartitionCore,
        segments: list[Segment],
        *,
        recovery_point: int,
        last_snapshot_offset: int,
    ) -> None:
        self.folder = folder
        self.log_dir, self.name = os.path.split(folder)
        self.config = config
        self.core = core
        self.recovery_point = recovery_point
        self.last_snapshot_offset = last_snapshot_offset
        self.last_flush_ms: float | None = None
        """By the monotonic clock; None until the first `flush_due`, which counts as a flush."""
        self.doomed: list[Doomed] = []
        self.is_new = False
        self.hole_from: Offset | None = None
        """The first offset that recovery found missing from all segments although later ones exist, or the base offset of
        the first segment in which it found damage; see missing.py."""
        self.first_dirty_offset = 0
        """The log has been compacted below this offset; stored in the log dir's cleaner checkpoint."""
        self.flush_lock = threading.Lock()
        self.swap: Swap | None = None
        """The swap by which a compacted segment is about to replace others."""
        self._set_segments(segments)

    # -------------------------------------------------------------------------------------------- offsets

    @property
    def log_start_offset(self) -> Offset:
        """The first offset that is served."""
        return self.core.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        """The offset that the next record gets."""
        return self.core.log_end_offset

    @property
    def segments(self) -> list[Segment]:
        """In ascending order; the last one is active. Must not be modified."""
        return self._segments

    @property
    def active(self) -> Segment:
        """The segment that takes appends."""
        return self._active

    @property
    def size_bytes(self) -> int:
        """The size of all segments together, without their indexes."""
        return sum([segment.size_bytes for segment in self._segments])

    def _set_segments(self, segments: list[Segment]) -> None:
        """Create new lists, so that threads that iterate over the old ones are not disturbed."""
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._active = segments[-1]
        self._prepared = False
        # No batch fits until `_prepare` has determined the limits.
        self._size_limit = -1
        self._offset_limit = -1
        self._roll_after = -1

    def _prepare(self) -> None:
        """Make the active segment ready for the first append: file open, timestamps known, limits set."""
        active = self._active
        active.open()
        if not active.tail_offsets:
            active.load_tail()
        self._prepared = True
        self._set_limits()

    def _make_ready(self) -> None:
        if not self._prepared:
            self._prepare()

    def _set_limits(self) -> None:
        active, config = self._active, self.config
        active.interval = config.index_interval_bytes
        self._size_limit = config.segment_bytes
        if active.indexes_full:
            self._size_limit = 0
        self._offset_limit = min(active.base_offset + OFFSETS_IN_SEGMENT_MAX, INT64_MAX)
        self._roll_after = INT64_MAX
        if active.size_bytes and active.first_timestamp >= 0:
            self._roll_after = min(active.first_timestamp + self._roll_ms(), INT64_MAX)

    def _roll_ms(self) -> int:
        """`segment.ms` less this segment's share of `segment.jitter.ms`. Partitions created together should not roll
        together, but the same segment must roll at the same time after a restart."""
        config = self.config
        segment_ms = config.segment_ms
        if config.compact:
            # The active segment is never compacted: it must be rolled in time for `max.compaction.lag.ms`.
            segment_ms = min(segment_ms, config.max_compaction_lag_ms)
        if config.segment_jitter_ms <= 0:
            return segment_ms
        seed = zlib.crc32(f"{self.name}-{self._active.base_offset}".encode())
        return max(segment_ms - seed % (min(config.segment_jitter_ms, segment_ms) + 1), 0)

    def set_config(self, config: LogConfig) -> None:
        """Use changed topic configs from now on."""
        self.config = config
        if self._prepared:
            self._set_limits()

    # ------------------------------------------------------------------------------------------ appending

    def append(
        self,
        records: bytes | bytearray | memoryview,
        header: BatchHeader,
        leader_epoch: LeaderEpoch,
        now_ms: int,
    ) -> int:
        """Append one checked batch, already patched for the log's end; returns its base offset.

        header: as produced; its base offset and epoch are ignored. Raises LogDirOffline.
        """
        core = self.core
        base_offset = core.log_end_offset
        self._write(records, base_offset, header, now_ms)
        if header.attributes & 0x20:
            self._apply_control(records, header, base_offset, leader_epoch, now_ms)
        else:
            core.apply(header, base_offset, leader_epoch, now_ms)
        if core.epochs.dirty:
            self.save_epochs()
        return base_offset

    def _write(
        self,
        records: bytes | bytearray | memoryview,
        base_offset: Offset,
        header: BatchHeader,
        now_ms: int,
    ) -> None:
        segment = self._active
        size = len(records)
        position = Position(segment.size_bytes)
        last_offset = base_offset + header.last_offset_delta
        max_timestamp = header.max_timestamp
        if (
            position + size > self._size_limit
            or last_offset > self._offset_limit
            or max_timestamp > self._roll_after
        ):
            segment = self._segment_for(size, base_offset, last_offset, max_timestamp, now_ms)
            position = Position(segment.size_bytes)
        try:
            if position == 0:
                # Not before the first record, so that thousands of empty partitions have only one file each.
                segment.offset_index.create_file()
                segment.time_index.create_file()
            file = segment.file or segment.open()
            if os.pwrite(file.fd, records, position) != size:
                pwrite_all(file.fd, records, position)
        except OSError as error:
            raise LogDirOffline(self.log_dir, error) from error
        segment.size_bytes = position + size
        if position == 0:
            segment.first_timestamp = max_timestamp
            if max_timestamp >= 0:
                self._roll_after = min(max_timestamp + self._roll_ms(), INT64_MAX)
        if segment.note_append(base_offset, last_offset, position, size, max_timestamp):
            self._size_limit = 0

    def _segment_for(
        self, size: int, base_offset: Offset, last_offset: int, max_timestamp: int, now_ms: int
    ) -> Segment:
        """The segment for a batch that exceeds the cached limits; rolls if a limit has really been reached."""
        try:
            if not self._prepared:
                self._prepare()
            else:
                self._set_limits()
        except OSError as error:
            raise LogDirOffline(self.log_dir, error) from error
        segment = self._active
        if segment.size_bytes == 0:
            if last_offset > self._offset_limit:
                self._replace_empty_active(base_offset, now_ms)
            return self._active
        if (
            segment.size_bytes + size > self._size_limit
            or last_offset > self._offset_limit
            or max_timestamp > self._roll_after
            or (segment.first_timestamp < 0 and now_ms - segment.created_ms > self._roll_ms())
        ):
            return self.roll(now_ms, base_offset)
        return segment

    def _replace_empty_active(self, base_offset: Offset, now_ms: int) -> None:
        self.doom([self._active])
        created = self._new_segment(base_offset, now_ms)
        self._set_segments([*self._segments[:-1], created])
        self._prepare()

    def doom(self, segments: list[Segment], *, keep_snapshot_of: int = -1) -> None:
        """Rename the files of segments to `.deleted`; `remove_doomed` removes them after the delay."""
        paths = []
        for segment in segments:
            segment.file = None
            segment.change_suffix(DELETED_SUFFIX)
            paths += segment.paths()
            snapshot = producer_snapshot.path_of(self.folder, segment.base_offset)
            kept = segment.base_offset in (self.last_snapshot_offset, keep_snapshot_of)
            if not kept and os.path.exists(snapshot):
                os.replace(snapshot, snapshot + DELETED_SUFFIX)
                paths.append(snapshot + DELETED_SUFFIX)
        self.doomed.append(Doomed(paths, self.config.file_delete_delay_ms))

    def _call_off_swap(self) -> None:
        """Called before segments are removed for other reasons: an unfinished swap would bring them back. Raises OSError."""
        if self.swap is not None:
            self.swap.cancel()

    def _new_segment(self, base_offset: Offset, now_ms: int) -> Segment:
        config = self.config
        return Segment.create(
            self.folder,
            base_offset,
            config.segment_index_bytes,
            now_ms,
            interval=config.index_interval_bytes,
        )

    def _apply_control(
        self,
        records: bytes | bytearray | memoryview,
        header: BatchHeader,
        base_offset: Offset,
        leader_epoch: LeaderEpoch,
        now_ms: int,
    ) -> None:
        marker = marker_of(records, header)
        completed = self.core.apply_marker(header, base_offset, leader_epoch, marker, now_ms)
        if completed is not None and completed.aborted:
            try:
                self._active.txn_index.append(completed)
            except CorruptIndex as error:
                self._rebuild_txn_index(self._active, str(error))  # this also finds the new marker in the log
            except OSError as error:
                raise LogDirOffline(self.log_dir, error) from error

    def _rebuild_txn_index(self, segment: Segment, reason: str) -> None:
        try:
            rebuild_txn_index(self.folder, self._segments, segment, reason)
        except OSError as error:
            raise LogUnreadable(self.folder, error) from error

    def save_epochs(self) -> None:
        """Write the leader epochs; durable with the next flush. Raises LogDirOffline."""
        path = os.path.join(self.folder, checkpoints.LEADER_EPOCHS)
        try:
            checkpoints.write_epochs(path, self.core.epochs.entries(), sync=False)
        except OSError as error:
            raise LogDirOffline(self.log_dir, error) from error
        self.core.epochs.dirty = False

    def roll(self, now_ms: int, base_offset: Offset | None = None) -> Segment:
        """Start a new active segment at the log's end (or at a replicated batch's offset beyond it).

        Raises LogDirOffline.
        """
        base_offset = self.core.log_end_offset if base_offset is None else base_offset
        if base_offset == self._active.base_offset and self._active.size_bytes == 0:
            return self._active
        try:
            self._active.finish()
            created = self._new_segment(base_offset, now_ms)
            self._set_segments([*self._segments, created])
            self._prepare()
            self.take_snapshot()
        except OSError as error:
            raise LogDirOffline(self.log_dir, error) from error
        return created

    def take_snapshot(self, *, sync: bool = False) -> None:
        """Write the current producers, unless they are on disk already. Raises OSError."""
        offset = self.core.log_end_offset
        if offset != self.last_snapshot_offset:
            path = producer_snapshot.path_of(self.folder, offset)
            producer_snapshot.write(path, self.core.producers.snapshot(), sync=sync)
            self.last_snapshot_offset = offset
