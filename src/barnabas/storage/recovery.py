"""Opening a partition's folder: after a clean stop from checkpoints and snapshots, else by scanning.

After an unclean stop everything above the recovery point is read again: each batch's length, magic and
checksum is verified, indexes are built anew, and the log ends before the first batch that is torn. One line
says what was cut. Files of a compaction or deletion that was interrupted are finished or removed first.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cores.epochs import LeaderEpochs
from barnabas.cores.partition import PartitionCore
from barnabas.storage import checkpoints, producer_snapshot
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import CorruptCheckpoint, LogDirOffline
from barnabas.storage.files import remove_quietly
from barnabas.storage.log import Log
from barnabas.storage.log_writer import marker_of
from barnabas.storage.scan import Damaged, scan, tables
from barnabas.storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    Segment,
)

if TYPE_CHECKING:
    from barnabas.storage.batch_table import BatchTable

log = logging.getLogger("barnabas.storage")

NAMES_TOLD: Final = 5
_KINDS: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class Truncated(NamedTuple):
    """What a recovery cut off."""

    offset: int
    bytes: int
    segments: int
    reason: str


@dataclass(slots=True)
class Mended:
    """What was found and done while the logs of a log dir were opened; several threads add to it."""

    scanned_bytes: list[int] = field(default_factory=list)
    cut: list[tuple[str, int]] = field(default_factory=list)
    """(log, bytes) of torn tails."""
    rebuilt: list[str] = field(default_factory=list)
    """The log of each segment that had lost an index."""
    epochs: list[str] = field(default_factory=list)
    """Logs that had lost their leader epochs."""

    @property
    def nothing(self) -> bool:
        """Whether nothing had been lost."""
        return not (self.cut or self.rebuilt or self.epochs)

    def told(self) -> dict[str, object]:
        """As the fields of a log line; what did not happen is left out."""
        fields: dict[str, object] = {}
        if self.scanned_bytes:
            fields["scanned_bytes"] = sum(self.scanned_bytes)
        if self.cut:
            fields["cut_bytes"] = sum(size for _, size in self.cut)
            fields["cut_logs"] = _some(log for log, _ in self.cut)
        if self.rebuilt:
            fields["rebuilt_indexes"] = len(self.rebuilt)
            fields["rebuilt_logs"] = _some(self.rebuilt)
        if self.epochs:
            fields["rebuilt_epochs"] = _some(self.epochs)
        return fields


def _some(names: Iterable[str]) -> str:
    ordered = sorted(set(names))
    more = len(ordered) - NAMES_TOLD
    return ", ".join(ordered[:NAMES_TOLD]) + (f" and {more} more" if more > 0 else "")


def create_log(folder: str, config: LogConfig, now_ms: int) -> Log:
    """A new, empty log in `folder`, which is made. Raises LogDirOffline."""
    try:
        os.makedirs(folder, exist_ok=True)
        segment = Segment.create(
            folder, 0, config.segment_index_bytes, now_ms, interval=config.index_interval_bytes
        )
        segment.file = None  # opened again by the first append: thousands of idle partitions hold none
    except OSError as error:
        raise LogDirOffline(os.path.dirname(folder), error) from error
    core = PartitionCore()
    created = Log(folder, config, core, [segment], recovery_point=0, last_snapshot_offset=0, now_ms=now_ms)
    created.is_new = True
    return created


def open_log(
    folder: str,
    config: LogConfig,
    now_ms: int,
    *,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 0,
    mended: Mended | None = None,
) -> Log:
    """The log in `folder`. clean: the last broker stopped in order, so that nothing needs a scan.

    Offsets come from the log dir's checkpoints; 0 where they are silent. mended: is told what was found. Raises
    LogDirOffline.
    """
    try:
        sizes, names = _tidy(folder)
        segments = [
            Segment(folder, base, size, config.segment_index_bytes, interval=config.index_interval_bytes)
            for base, size in sorted(sizes.items())
        ]
        if not segments:
            segments = [Segment.create(folder, log_start_offset, config.segment_index_bytes, now_ms)]
        for segment in segments:
            segment.created_ms = now_ms
        return _Opening(folder, config, segments, names, now_ms, mended or Mended()).run(
            clean, recovery_point, log_start_offset, high_watermark
        )
    except OSError as error:
        raise LogDirOffline(os.path.dirname(folder), error) from error


class _Opening:
    """The steps of `open_log` and what they hand each other.

    `names` are the files in the folder, read once: a broker with 10,000 partitions starts with 10,000 of these,
    most of them for logs that are empty or short, and what each of them asks the file system is the start-up.
    """

    def __init__(
        self,
        folder: str,
        config: LogConfig,
        segments: list[Segment],
        names: set[str],
        now_ms: int,
        mended: Mended,
    ) -> None:
        self.folder = folder
        self.mended = mended
        self.names = names
        self.snapshots = producer_snapshot.offsets_among(names)
        self.config = config
        self.segments = segments
        self.now_ms = now_ms
        self.truncated: Truncated | None = None

    def run(self, clean: bool, recovery_point: int, log_start_offset: int, high_watermark: int) -> Log:
        segments = self.segments
        self._bring_back_indexes(len(segments) if clean else self._first_to_recover(recovery_point))
        epochs, epochs_lost = self._read_epochs()
        start_offset = max(log_start_offset, segments[0].base_offset)
        core = PartitionCore(start_offset, epochs)
        end_offset = self._end_when_clean() if clean else None
        if end_offset is not None:
            recovery_point = end_offset
            core.reset(start_offset, max(end_offset, start_offset))
            snapshots = _remove_snapshots(self.folder, self.snapshots, end_offset)
            last_snapshot = reload_producers(
                self.folder, core, segments, snapshots, skip_scan=True, from_start=epochs_lost
            )
        else:
            end_offset = self._recover(core, recovery_point, epochs_lost)
            recovery_point = min(recovery_point, end_offset)
            last_snapshot = -1
        if start_offset > end_offset:
            core, last_snapshot = self._start_anew(start_offset), -1
            recovery_point = start_offset
        core.advance_high_watermark(high_watermark)
        opened = Log(
            self.folder,
            self.config,
            core,
            segments,
            recovery_point=recovery_point,
            last_snapshot_offset=last_snapshot,
            now_ms=self.now_ms,
        )
        if core.epochs.dirty or epochs_lost:
            opened.save_epochs()
        self._report(opened)
        opened.release()
        return opened

    def _start_anew(self, offset: int) -> PartitionCore:
        """The checkpoint says that everything on disk was deleted: an empty log that starts where it says."""
        for segment in self.segments:
            segment.delete_files()
        self.segments[:] = [Segment.create(self.folder, offset, self.config.segment_index_bytes, self.now_ms)]
        _remove_snapshots(self.folder, self.snapshots, -1)
        return PartitionCore(offset)

    def _bring_back_indexes(self, stop: int) -> None:
        """Rebuilds the indexes of segments that have lost one; the scan of unclean ones does it by itself."""
        for segment in self.segments[:stop]:
            stem = f"{segment.base_offset:020d}"
            if segment.size_bytes and not {stem + INDEX_SUFFIX, stem + TIME_INDEX_SUFFIX} <= self.names:
                # Told once for the whole log dir: a backup may have left out every index.
                segment.rebuild(None)
                rebuild_txn_index(self.folder, self.segments, segment, None)
                self.mended.rebuilt.append(os.path.basename(self.folder))

    def _read_epochs(self) -> tuple[LeaderEpochs, bool]:
        """(the epochs, whether they must be found again in the batches)."""
        if checkpoints.LEADER_EPOCHS not in self.names:
            # Without epochs a consumer that asks where its epoch ended is sent to the log's beginning.
            lost = any(segment.size_bytes for segment in self.segments)
            if lost:
                self.mended.epochs.append(os.path.basename(self.folder))
            return LeaderEpochs(), lost
        path = os.path.join(self.folder, checkpoints.LEADER_EPOCHS)
        try:
            return LeaderEpochs(checkpoints.read_epochs(path)), False
        except CorruptCheckpoint as error:
            log.warning("leader epochs are rebuilt from the log", extra={"file": path, "reason": str(error)})
            return LeaderEpochs(), True

    def _end_when_clean(self) -> int | None:
        """The log's end by the last index entry; None when the last segment is not whole after all."""
        last = self.segments[-1]
        if last.size_bytes == 0:
            return last.base_offset
        try:
            return last.next_offset()
        except Damaged as damage:
            log.warning(
                "segment is damaged although the broker stopped cleanly; it is recovered",
                extra={"file": last.path(LOG_SUFFIX), "reason": str(damage)},
            )
            return None

    def _first_to_recover(self, recovery_point: int) -> int:
        """The number of the segment that holds the recovery point."""
        from_offset = min(recovery_point, self.segments[-1].base_offset)
        return max((i for i, one in enumerate(self.segments) if one.base_offset <= from_offset), default=0)

    def _recover(self, core: PartitionCore, recovery_point: int, epochs_lost: bool) -> int:
        """Verifies every batch of the segments that reach above the recovery point; the log's end."""
        segments = self.segments
        first = self._first_to_recover(recovery_point)
        base_offset = segments[first].base_offset
        start_offset = core.log_start_offset
        core.reset(min(start_offset, base_offset), base_offset)
        snapshots = _remove_snapshots(self.folder, self.snapshots, base_offset)
        reload_producers(self.folder, core, segments[: first + 1], snapshots, from_start=epochs_lost)
        end_offset = base_offset
        for slot in range(first, len(segments)):
            segment = segments[slot]
            size = segment.size_bytes
            end_offset, reason = recover_segment(segment, core)
            self.mended.scanned_bytes.append(size)
            if reason is not None:
                lost = size - segment.size_bytes + sum(one.size_bytes for one in segments[slot + 1 :])
                self.truncated = Truncated(end_offset, lost, len(segments) - slot - 1, reason)
                for later in segments[slot + 1 :]:
                    later.delete_files()
                del segments[slot + 1 :]
                break
        core.log_end_offset = end_offset
        core.epochs.truncate_from_end(end_offset)
        if start_offset <= end_offset:
            core.advance_log_start(start_offset)
        core.producers_loaded()
        return end_offset

    def _report(self, opened: Log) -> None:
        if self.truncated is not None:
            self.mended.cut.append((opened.name, self.truncated.bytes))
            log.warning(
                "torn tail cut off",
                extra={
                    "log": opened.name,
                    "offset": self.truncated.offset,
                    "bytes": self.truncated.bytes,
                    "segments": self.truncated.segments,
                    "reason": self.truncated.reason,
                },
            )


def _remove_snapshots(folder: str, snapshots: list[int], above_offset: int) -> list[int]:
    """Removes those above an offset; those that are left."""
    for offset in snapshots:
        if offset > above_offset:
            remove_quietly(producer_snapshot.path_of(folder, offset))
    return [offset for offset in snapshots if offset <= above_offset]


def recover_segment(segment: Segment, core: PartitionCore) -> tuple[int, str | None]:
    """Verifies a segment's batches, builds its indexes, cuts it before the first torn one; the core, which
    stands at the segment's base, learns the batches.

    Returns (the offset after the last whole batch, why it was cut or None). A batch in the middle whose
    checksum fails, but which is followed by whole ones, is no torn tail: it stays and is never served.
    Raises OSError.
    """
    segment.start_indexes()
    segment.txn_index.start_empty()
    segment.bytes_since_entry = 0
    segment.set_max_timestamp(-1, segment.base_offset)
    end_offset, position = segment.base_offset, 0
    suspect: tuple[int, int, str] | None = None
    reason = None
    try:
        for table in tables(segment.open(), 0, segment.size_bytes, verified=True):
            first = 0
            while first < len(table):
                stop = table.in_order_until(first, end_offset)
                if stop == first:
                    if suspect is None:
                        suspect = (table.position(first), end_offset, _fault(table, first, end_offset))
                    first += 1
                    continue
                start = table.position(first)
                if suspect is not None:
                    segment.note_damage(suspect[0], start - suspect[0], suspect[2])
                    suspect = None
                position = segment.note_rows(table, first, stop, start)
                end_offset = table.last_offset(stop - 1) + 1
                _learn(core, segment, table, first, stop)
                first = stop
    except Damaged as damage:
        reason = str(damage)
    if position < segment.size_bytes:
        reason = suspect[2] if suspect is not None else reason or "a batch is cut off"
        segment.cut(position)
    segment.trusted_from = 0 if not segment.damaged else segment.size_bytes
    segment.finish()
    segment.offset_index.write()
    segment.time_index.write()
    return end_offset, reason


def reload_producers(
    folder: str,
    core: PartitionCore,
    segments: list[Segment],
    snapshots: list[int] | None = None,
    *,
    skip_scan: bool = False,
    from_start: bool = False,
) -> int:
    """Fills the core's producers from the newest whole one of the snapshots (those in the folder, where the
    caller does not know them) and the batches after it.

    Returns the offset of the snapshot that is up to date with the log's end, or -1. skip_scan: a log that
    was closed cleanly and has no snapshot at all (Kafka made it before snapshots, or it was restored from a
    backup) starts with no producers rather than with a scan of everything. from_start: replay from the log's
    start, because the leader epochs are to be found again too.
    """
    end_offset = core.log_end_offset
    replay_from = core.log_start_offset
    found_snapshot = False
    for offset in reversed(producer_snapshot.offsets_in(folder) if snapshots is None else snapshots):
        path = producer_snapshot.path_of(folder, offset)
        try:
            rows = producer_snapshot.read(path)
        except CorruptCheckpoint as error:
            log.warning(
                "producer snapshot is damaged and removed", extra={"file": path, "reason": str(error)}
            )
            remove_quietly(path)
            continue
        core.producers.load(rows)
        replay_from, found_snapshot = offset, True
        break
    if from_start or not (skip_scan and not found_snapshot):
        replay(core, segments, core.log_start_offset if from_start else replay_from, replay_from)
    core.log_end_offset = end_offset
    core.producers_loaded()
    return replay_from if found_snapshot and replay_from == end_offset else -1


def _fault(table: BatchTable, i: int, end_offset: int) -> str:
    return table.fault(i) or f"offset {table.base_offset(i)} comes after {end_offset - 1}"


def _learn(core: PartitionCore, segment: Segment | None, table: BatchTable, first: int, stop: int) -> None:
    """Intact batches of our own log go through the core, as far as they matter to it; aborts go into
    `segment`'s transaction index."""
    for i in table.telling(first, stop):
        header, base_offset = table.header(i), table.base_offset(i)
        epoch = header.partition_leader_epoch
        if not header.is_control:
            core.apply(header, base_offset, epoch, header.max_timestamp)
            continue
        marker = marker_of(table.view(i), header)
        completed = core.apply_marker(header, base_offset, epoch, marker, header.max_timestamp)
        if completed is not None and completed.aborted and segment is not None:
            segment.txn_index.append(completed)


def replay(core: PartitionCore, segments: list[Segment], epochs_from: int, producers_from: int) -> None:
    """Applies the log's batches up to the core's end: epochs from one offset on, producers from another.

    Damaged batches are stepped over. Raises OSError.
    """
    end_offset = core.log_end_offset
    start = min(epochs_from, producers_from)
    for slot, segment in enumerate(segments):
        following = segments[slot + 1].base_offset if slot + 1 < len(segments) else end_offset
        if following <= start or segment.base_offset >= end_offset:
            continue
        located = segment.locate(max(start, segment.base_offset))
        if located is None:
            continue
        position = located if isinstance(located, int) else located.position
        for table, first, stop in segment.intact_rows(position):
            upto = min(table.below(first, end_offset), stop)
            learned_from = min(table.below(first, producers_from), upto)
            for i in table.telling(first, learned_from):
                core.assign_epoch(table.leader_epoch(i), table.base_offset(i))
            _learn(core, None, table, learned_from, upto)
            if upto < stop:
                break
    core.log_end_offset = end_offset


def rebuild_txn_index(folder: str, segments: list[Segment], segment: Segment, reason: str | None) -> None:
    """Finds a segment's aborted transactions again, from the snapshot before it; tells it with a reason.

    Raises OSError.
    """
    core = PartitionCore()
    core.log_end_offset = segment.base_offset
    slot = segments.index(segment)
    snapshots = [one for one in producer_snapshot.offsets_in(folder) if one <= segment.base_offset]
    replay_from = segments[0].base_offset
    for offset in reversed(snapshots):
        try:
            core.producers.load(producer_snapshot.read(producer_snapshot.path_of(folder, offset)))
        except CorruptCheckpoint:
            continue
        replay_from = offset
        break
    replay(core, segments[:slot], replay_from, replay_from)
    segment.txn_index.start_empty()
    for table, first, stop in segment.intact_rows(0):
        _learn(core, segment, table, first, stop)
    if segment.txn_index.entries and reason is not None:
        log.warning(
            "transaction index rebuilt",
            extra={
                "file": segment.txn_index.path,
                "entries": len(segment.txn_index.entries),
                "reason": reason,
            },
        )


def _tidy(folder: str) -> tuple[dict[int, int], set[str]]:
    """Finishes or removes what an interruption left; base offset -> size of each segment, and the names of the
    files that are there now. Raises OSError.

    `.deleted` and `.cleaned` files go: a deletion was under way, or a compaction that had not finished
    writing. `.swap` files are a finished compaction: they take the place of what they compacted.
    """
    names = set(os.listdir(folder))
    unfinished = [name for name in names if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp"))]
    for name in unfinished:
        remove_quietly(os.path.join(folder, name))
        names.discard(name)
    if any(name.endswith(SWAP_SUFFIX) for name in names):
        names = finish_swaps(folder, names)
    sizes = {}
    for name in names:
        stem, suffix = name[:20], name[20:]
        if suffix == LOG_SUFFIX and stem.isdecimal():
            sizes[int(stem)] = os.stat(os.path.join(folder, name)).st_size
    for name in list(names):
        stem, suffix = name[:20], name[20:]
        if suffix in _KINDS[1:] and stem.isdecimal() and int(stem) not in sizes:
            remove_quietly(os.path.join(folder, name))
            names.discard(name)
            log.warning("index without a segment removed", extra={"file": os.path.join(folder, name)})
    return sizes, names


def finish_swaps(folder: str, names: set[str]) -> set[str]:
    """Completes a replacement of segments that was interrupted, see Log.replace_segments. Raises OSError.

    A compacted segment reaches as far as what it was made from: its last batch stays even when it is empty.
    So the old segments are those that begin in its range. They go first and the new one is renamed last, so
    that a second interruption finds the same state.
    """
    logs = {int(n[:20]) for n in names if n[20:] == LOG_SUFFIX + SWAP_SUFFIX and n[:20].isdecimal()}
    olds = {int(n[:20]) for n in names if n[20:] == LOG_SUFFIX and n[:20].isdecimal()}
    for base in sorted(logs):
        size = os.stat(os.path.join(folder, f"{base:020d}{LOG_SUFFIX}{SWAP_SUFFIX}")).st_size
        swap = Segment(folder, base, size, 1 << 20, suffix=SWAP_SUFFIX)
        last_offset = base
        for found, _ in scan(swap.open(), 0, size):
            last_offset = found.last_offset
        for old in olds:
            if base <= old <= last_offset:
                for kind in _KINDS:
                    remove_quietly(os.path.join(folder, f"{old:020d}{kind}"))
        swap.change_suffix("")
        log.warning("interrupted compaction finished", extra={"file": swap.path(LOG_SUFFIX)})
    for name in names:
        if name.endswith(SWAP_SUFFIX):
            # An index whose `.log` was not yet called so: the compaction had not come to its turning point.
            remove_quietly(os.path.join(folder, name))
    return set(os.listdir(folder))
