"""Opens a partition's folder: after a clean stop from checkpoints and snapshots, otherwise by scanning.

After an unclean stop everything above the recovery point is read again: each batch's length, magic and checksum are
verified, and indexes are rebuilt. Intact batches are kept and served at their own offsets; damaged ones are skipped or set
aside (segment_recovery.py); a torn write at the end of the log is removed. After a clean stop the log must end where it was
noted to end; otherwise the last segments are read as after an unclean one. Interrupted compactions and deletions are
completed or undone first.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas.cores.epochs import LeaderEpochs
from barnabas.cores.partition import PartitionCore
from barnabas.records.units import Offset
from barnabas.storage import checkpoints
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import CorruptCheckpoint, LogDirOffline
from barnabas.storage.files import make_folder, remove_quietly
from barnabas.storage.logs import missing, producer_snapshot
from barnabas.storage.logs.log import Log
from barnabas.storage.logs.rebuilding import rebuild_txn_index, reload_producers, set_aside_overlapped
from barnabas.storage.logs.segment_recovery import recover_segment
from barnabas.storage.logs.swap import finish_swaps
from barnabas.storage.scan import Damaged
from barnabas.storage.segments.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    KINDS,
    LOG_SUFFIX,
    OFFSET_MAX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
)

log = logging.getLogger("barnabas.storage")

NAMES_TOLD: Final = 5


class Truncated(NamedTuple):
    """What a recovery cut off."""

    offset: int
    bytes: int
    reason: str
    kept_in: str | None


@dataclass(slots=True)
class Mended:
    """What was found and repaired while the logs of a log dir were opened; several threads add to it."""

    scanned_bytes: list[int] = field(default_factory=list)
    cut: list[tuple[str, int]] = field(default_factory=list)
    """(log, bytes) of removed torn writes."""
    rebuilt: list[str] = field(default_factory=list)
    """The log of each segment that had lost an index."""
    epochs: list[str] = field(default_factory=list)
    """Logs that had lost their leader epochs."""

    @property
    def nothing(self) -> bool:
        """Whether nothing was lost."""
        return not (self.cut or self.rebuilt or self.epochs)

    def log_fields(self) -> dict[str, object]:
        """The fields of a log line, without those that are zero."""
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

    def tell(self, log_dir: str, logs: int, *, clean: bool) -> None:
        """Write one log line for the whole log dir."""
        fields = {"log_dir": log_dir, "logs": logs, **self.log_fields()}
        if logs and not clean:
            level = logging.INFO if self.nothing else logging.WARNING
            log.log(level, "logs recovered after an unclean stop", extra=fields)
        elif not self.nothing:
            log.warning("logs repaired after a clean stop", extra=fields)


def _some(names: Iterable[str]) -> str:
    ordered = sorted(set(names))
    more = len(ordered) - NAMES_TOLD
    return ", ".join(ordered[:NAMES_TOLD]) + (f" and {more} more" if more > 0 else "")


def create_log(folder: str, config: LogConfig, now_ms: int) -> Log:
    """Create a new, empty log in `folder`, and the folder. Raises LogDirOffline."""
    try:
        make_folder(folder)
        segment = Segment.create(
            folder, 0, config.segment_index_bytes, now_ms, interval=config.index_interval_bytes
        )
        segment.file = None  # reopened by the first append: idle partitions keep no file open
    except OSError as error:
        raise LogDirOffline(os.path.dirname(folder), error) from error
    core = PartitionCore()
    created = Log(folder, config, core, [segment], recovery_point=0, last_snapshot_offset=0)
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
    """The log in `folder`. clean: the last broker stopped cleanly, so that no scan is needed.

    The offsets come from the log dir's checkpoints; 0 if they have none. mended: collects what was found. Raises
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
    """The steps of `open_log`, and the data passed between them.

    `names` are the files in the folder, read only once: a broker with 10,000 partitions runs this 10,000 times when it
    starts, mostly for empty or short logs, and the start-up time is the time of the file system calls.
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
        self.hole_from: Offset | None = None

    def run(self, clean: bool, recovery_point: int, log_start_offset: int, high_watermark: int) -> Log:
        segments = self.segments
        self._bring_back_indexes(len(segments) if clean else self._first_to_recover(recovery_point))
        epochs, epochs_lost = self._read_epochs()
        start_offset = Offset(max(log_start_offset, segments[0].base_offset))
        core = PartitionCore(start_offset, epochs)
        noted_end = recovery_point if clean and recovery_point > 0 else -1
        end_offset = self._end_when_clean(noted_end) if clean else None
        if end_offset is not None:
            for slot, segment in enumerate(segments[:-1]):
                if segment.size_bytes == 0:
                    self._tell_gap(slot, end_offset)
            recovery_point = end_offset
            core.reset(start_offset, Offset(max(end_offset, start_offset)))
            snapshots = _remove_snapshots(self.folder, self.snapshots, end_offset)
            last_snapshot = reload_producers(
                self.folder, core, segments, snapshots, skip_scan=True, from_start=epochs_lost
            )
        else:
            end_offset = self._recover(core, recovery_point, epochs_lost, noted_end)
            recovery_point = min(recovery_point, end_offset)
            last_snapshot = -1
        if start_offset > end_offset:
            core, last_snapshot = self._start_anew(start_offset), -1
            recovery_point = start_offset
        core.advance_high_watermark(Offset(high_watermark))
        opened = Log(
            self.folder,
            self.config,
            core,
            segments,
            recovery_point=recovery_point,
            last_snapshot_offset=last_snapshot,
        )
        opened.hole_from = self._missing_from()
        if core.epochs.dirty or epochs_lost:
            opened.save_epochs()
        self._report(opened)
        opened.release()
        return opened

    def _missing_from(self) -> Offset | None:
        """The first hole or damage found now or at an earlier start; noted in the folder."""
        noted = missing.read(self.folder) if missing.FILE in self.names else None
        damaged_from = [segment.base_offset for segment in self.segments if segment.damaged]
        damaged_from += [offset for offset in (noted, self.hole_from) if offset is not None]
        first = min(
            (Offset(offset) for offset in damaged_from if offset >= self.segments[0].base_offset),
            default=None,
        )
        if first is not None and first != noted:
            missing.write(self.folder, first)
        elif first is None and noted is not None:
            missing.remove(self.folder)
        return first

    def _start_anew(self, offset: Offset) -> PartitionCore:
        """According to the checkpoint everything on disk was deleted: an empty log that starts at `offset`."""
        for segment in self.segments:
            segment.delete_files()
        self.segments[:] = [Segment.create(self.folder, offset, self.config.segment_index_bytes, self.now_ms)]
        _remove_snapshots(self.folder, self.snapshots, -1)
        return PartitionCore(offset)

    def _bring_back_indexes(self, stop: int) -> None:
        """Rebuild the indexes of segments that have lost one; the scan of unclean segments does this by itself."""
        for segment in self.segments[:stop]:
            stem = f"{segment.base_offset:020d}"
            if segment.size_bytes and not {stem + INDEX_SUFFIX, stem + TIME_INDEX_SUFFIX} <= self.names:
                # Logged once for the whole log dir: a backup may have left out every index.
                segment.rebuild(None)
                rebuild_txn_index(self.folder, self.segments, segment, None)
                self.mended.rebuilt.append(os.path.basename(self.folder))

    def _read_epochs(self) -> tuple[LeaderEpochs, bool]:
        """(the epochs, whether they must be rebuilt from the batches)."""
        if checkpoints.LEADER_EPOCHS not in self.names:
            # Without epochs, a consumer that asks where its epoch ended would be sent back to the log's beginning.
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

    def _end_when_clean(self, noted_end: int) -> int | None:
        """The log's end according to the last index entry; None if the last segment is not as the last stop left it.

        noted_end: the log's end noted by that stop, -1 if there was none.
        """
        last = self.segments[-1]
        try:
            end_offset = last.next_offset() if last.size_bytes else last.base_offset
            reason = f"the log ends at {end_offset} and not at {noted_end}"
            if noted_end in (-1, end_offset):
                return end_offset
        except Damaged as damage:
            reason = str(damage)
        log.warning(
            "segment is damaged although the broker stopped cleanly; it is recovered",
            extra={"file": last.path(LOG_SUFFIX), "reason": reason},
        )
        return None

    def _first_to_recover(self, recovery_point: int) -> int:
        """The index of the segment that contains the recovery point."""
        from_offset = min(recovery_point, self.segments[-1].base_offset)
        return max(
            (i for i, segment in enumerate(self.segments) if segment.base_offset <= from_offset), default=0
        )

    def _recover(self, core: PartitionCore, recovery_point: int, epochs_lost: bool, clean_end: int) -> Offset:
        """Verify every batch of the segments that reach above the recovery point; returns the log's end."""
        segments = self.segments
        slot = self._first_to_recover(recovery_point)
        while slot and set_aside_overlapped(self.folder, segments, slot - 1):
            slot = self._first_to_recover(recovery_point)
        if clean_end >= 0:
            slot = max(slot - 1, 0)  # the previous segment may reach into the changed one
        base_offset = segments[slot].base_offset
        start_offset = core.log_start_offset
        core.reset(min(start_offset, base_offset), base_offset)
        snapshots = _remove_snapshots(self.folder, self.snapshots, base_offset)
        reload_producers(self.folder, core, segments[: slot + 1], snapshots, from_start=epochs_lost)
        end_offset = base_offset
        while slot < len(segments):
            segment = segments[slot]
            while set_aside_overlapped(self.folder, segments, slot):
                pass
            is_last = slot == len(segments) - 1
            ceiling = OFFSET_MAX if is_last else segments[slot + 1].base_offset
            self._tell_gap(slot, end_offset)
            if segment.base_offset > end_offset and self.hole_from is None:
                self.hole_from = end_offset  # perhaps a result of compaction, which copies of the log share
            self.mended.scanned_bytes.append(segment.size_bytes)
            dense = not self.config.compact
            end_offset, cut = recover_segment(
                segment, core, ceiling, is_last=is_last, dense=dense, earlier=segments[:slot]
            )
            if cut is not None:
                self.truncated = Truncated(end_offset, cut.bytes, cut.reason, cut.kept_in)
            slot += 1
        if clean_end > end_offset:
            end_offset = self._leave_a_gap(end_offset, clean_end)
        core.log_end_offset = end_offset
        core.epochs.truncate_from_end(end_offset)
        if start_offset <= end_offset:
            core.advance_log_start(start_offset)
        core.producers_loaded()
        return end_offset

    def _tell_gap(self, slot: int, end_offset: int) -> None:
        """Log that a segment is empty or missing, if compaction cannot have caused that."""
        segment = self.segments[slot]
        is_last = slot == len(self.segments) - 1
        if self.config.compact:
            return
        if segment.size_bytes == 0 and not is_last:
            _tell_lost(
                self.folder, segment.base_offset, self.segments[slot + 1].base_offset, "the file is empty"
            )
            if self.hole_from is None:
                self.hole_from = Offset(segment.base_offset)
        elif segment.base_offset > end_offset and slot and not self.segments[slot - 1].damaged:
            _tell_lost(self.folder, end_offset, segment.base_offset, "no segment holds them")

    def _leave_a_gap(self, end_offset: int, clean_end: int) -> Offset:
        """The last stop was clean and noted a later end: the offsets in between must not be used again."""
        _tell_lost(
            self.folder, end_offset, clean_end, "the log ended there at its last stop, which was clean"
        )
        if self.hole_from is None:
            self.hole_from = Offset(end_offset)
        last = self.segments[-1]
        if last.base_offset < clean_end:
            self.segments.append(
                Segment.create(self.folder, clean_end, self.config.segment_index_bytes, self.now_ms)
            )
        return Offset(clean_end)

    def _report(self, opened: Log) -> None:
        if self.truncated is not None:
            self.mended.cut.append((opened.name, self.truncated.bytes))
            log.warning(
                "torn tail cut off",
                extra={
                    "log": opened.name,
                    "offset": self.truncated.offset,
                    "bytes": self.truncated.bytes,
                    "reason": self.truncated.reason,
                    "kept_in": self.truncated.kept_in or "nothing: no batch in it is whole",
                },
            )


def _tell_lost(folder: str, start: int, end: int, reason: str) -> None:
    log.error(
        "records are missing",
        extra={"log": os.path.basename(folder), "from": start, "to": end - 1, "reason": reason},
    )


def _remove_snapshots(folder: str, snapshots: list[int], above_offset: int) -> list[int]:
    """Remove the snapshots above an offset; returns the rest."""
    for offset in snapshots:
        if offset > above_offset:
            remove_quietly(producer_snapshot.path_of(folder, offset))
    return [offset for offset in snapshots if offset <= above_offset]


def _tidy(folder: str) -> tuple[dict[int, int], set[str]]:
    """Complete or undo what was interrupted. Returns (base offset -> size of each segment, the names of the files that
    are there now). Raises OSError.

    `.deleted` and `.cleaned` files are removed: they belong to a deletion, or to a compaction that had not finished
    writing. `.swap` files are a finished compaction: they replace the segments that were compacted.
    """
    names = set(os.listdir(folder))
    if any(name.endswith(SWAP_SUFFIX) for name in names):
        names = finish_swaps(folder, names)
    unfinished = [name for name in names if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp"))]
    for name in unfinished:
        remove_quietly(os.path.join(folder, name))
        names.discard(name)
    sizes = {}
    for name in names:
        stem, suffix = name[:20], name[20:]
        if suffix == LOG_SUFFIX and stem.isdecimal() and stem.isascii():
            if int(stem) > OFFSET_MAX:
                log.error("not a segment: no offset is so high", extra={"file": os.path.join(folder, name)})
                continue
            sizes[int(stem)] = os.stat(os.path.join(folder, name)).st_size
    for name in list(names):
        stem, suffix = name[:20], name[20:]
        if suffix in KINDS[1:] and stem.isdecimal() and int(stem) not in sizes:
            remove_quietly(os.path.join(folder, name))
            names.discard(name)
            log.warning("index without a segment removed", extra={"file": os.path.join(folder, name)})
    return sizes, names
