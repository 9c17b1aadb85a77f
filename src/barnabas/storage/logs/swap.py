"""Replaces segments with the compacted segment that was made from them.

The steps; short ones run on the owner's thread, those that wait for the disk in another thread:

    write_range  (thread)  `<base>.covers.swap` says which segments the new one stands for; both are synced
    begin        (owner)   the new segment's files are renamed from `.cleaned` to `.swap`, the `.log` last
    sync         (thread)  the names are synced: from here on a power cut, too, leaves the new one
    finish       (owner)   the old ones are renamed to `.deleted`, the new one loses its suffix

A crash before the `.log` is renamed to `.swap` leaves the old segments; after that, the new one is verified and replaces
them at the next start (`finish_swaps`). Retention or truncation in between cancels the swap first, so that no restart brings
back what they have removed. Source of the names: Kafka's LogSegments and LogLoader.
"""

from __future__ import annotations

import logging
import os
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol

from barnabas.storage import checkpoints
from barnabas.storage.errors import CorruptCheckpoint, LogDirOffline
from barnabas.storage.files import fsync_dir, remove_quietly
from barnabas.storage.scan import Damaged, tables
from barnabas.storage.segments.segment import (
    DELETED_SUFFIX,
    KINDS,
    LOG_SUFFIX,
    OFFSET_MAX,
    SWAP_SUFFIX,
    Segment,
)

log = logging.getLogger("barnabas.storage")

COVERS_SUFFIX: Final = ".covers"
DAMAGED_SUFFIX: Final = ".damaged"


class Range(NamedTuple):
    """What a new segment replaces: the base offsets of the old ones, and the end offset of the last; and the new segment's
    own size, -1 if unknown."""

    end_offset: int
    size_bytes: int
    bases: tuple[int, ...]


class SwappingLog(Protocol):
    """The part of a log that a swap uses."""

    folder: str
    log_dir: str
    swap: Swap | None

    @property
    def flush_lock(self) -> AbstractContextManager[Any]: ...
    @property
    def segments(self) -> list[Segment]: ...
    def doom(self, segments: list[Segment], *, keep_snapshot_of: int = -1) -> None: ...
    def exchange(self, olds: list[Segment], new: Segment) -> None: ...


class Swap:
    """The swap of one new segment; see the module. `olds`: neighbours in ascending order, none of them active."""

    def __init__(self, owner: SwappingLog, new: Segment, olds: list[Segment], end_offset: int) -> None:
        self._log = owner
        self.new = new
        self._olds = olds
        self._end_offset = end_offset
        self._done = False

    @property
    def _covers(self) -> str:
        return os.path.join(self.new.folder, f"{self.new.base_offset:020d}{COVERS_SUFFIX}{SWAP_SUFFIX}")

    def write_range(self) -> None:
        """Write the `.covers.swap` file. Raises OSError. Any thread."""
        bases = tuple(segment.base_offset for segment in self._olds)
        checkpoints.write_numbers(self._covers, [self._end_offset, self.new.size_bytes, *bases])

    def begin(self) -> bool:
        """Rename to `.swap`; False if some of the old segments are gone. Raises LogDirOffline."""
        if not self._is_possible():
            self.cancel()
            return False
        try:
            self.new.change_suffix(SWAP_SUFFIX)
        except OSError as error:
            raise LogDirOffline(self._log.log_dir, error) from error
        self._log.swap = self
        return True

    def sync(self) -> None:
        """Make the renames durable. Raises LogDirOffline. Any thread."""
        try:
            fsync_dir(self.new.folder)
        except FileNotFoundError:
            return  # deleted or moved meanwhile; `finish` will notice
        except OSError as error:
            raise LogDirOffline(self._log.log_dir, error) from error

    def finish(self) -> bool:
        """Put the new segment in place; False if the swap was cancelled meanwhile. Raises LogDirOffline."""
        owner, new = self._log, self.new
        if owner.swap is not self or not self._is_possible():
            self.cancel()
            return False
        with owner.flush_lock:
            owner.swap = None
            self._done = True
            try:
                owner.doom(self._olds, keep_snapshot_of=new.base_offset)
                new.change_suffix("")
                remove_quietly(self._covers)
            except OSError as error:
                raise LogDirOffline(owner.log_dir, error) from error
            owner.exchange(self._olds, new)
        return True

    def cancel(self) -> None:
        """Keep the old segments and remove the new one's files, the `.log` first. Raises OSError."""
        if self._done:
            return
        self._done = True
        if self._log.swap is self:
            self._log.swap = None
        self.new.delete_files()
        remove_quietly(self._covers)

    def _is_possible(self) -> bool:
        if self._done or self.new.folder != self._log.folder:
            return False
        segments, olds = self._log.segments, self._olds
        first = next((i for i, segment in enumerate(segments) if segment is olds[0]), -1)
        return first >= 0 and segments[first : first + len(olds)] == olds and olds[-1] is not segments[-1]


def finish_swaps(folder: str, names: set[str]) -> set[str]:
    """Complete interrupted swaps; returns the names of the files that exist afterwards. Raises OSError.

    Called before `.deleted` files are removed: if the new segment is damaged, the old ones are restored.
    """
    bases = {int(n[:20]) for n in names if n[20:] == LOG_SUFFIX + SWAP_SUFFIX and n[:20].isdecimal()}
    for base in sorted(bases):
        _finish_swap(folder, names, base)
    for name in os.listdir(folder):
        if name.endswith(SWAP_SUFFIX):
            # Only an index has been renamed, not yet the `.log`: the swap is undone.
            remove_quietly(os.path.join(folder, name))
    return set(os.listdir(folder))


def _finish_swap(folder: str, names: set[str], base: int) -> None:
    path = os.path.join(folder, f"{base:020d}{LOG_SUFFIX}{SWAP_SUFFIX}")
    swap = Segment(folder, base, os.stat(path).st_size, 1 << 20, suffix=SWAP_SUFFIX)
    following, fault = _verified(swap)
    covered = _read_range(folder, base)
    if covered is None:
        # Written by Kafka: only its last batch shows how far it reaches.
        covered = Range(following, -1, ())
    if fault is None and covered.size_bytes not in (-1, swap.size_bytes):
        fault = f"it has {swap.size_bytes} bytes and not {covered.size_bytes}"
    olds = sorted(_covered(names, covered, base, LOG_SUFFIX))
    doomed = sorted(_covered(names, covered, base, LOG_SUFFIX + DELETED_SUFFIX))
    if fault is not None and (olds or doomed):
        swap.file = None
        for kind in KINDS:
            aside = os.path.join(folder, f"{base:020d}{kind}{SWAP_SUFFIX}")
            if os.path.exists(aside):
                os.replace(aside, aside + DAMAGED_SUFFIX)
        for old in doomed:
            if old not in olds:
                Segment(folder, old, 0, 1 << 20, suffix=DELETED_SUFFIX).change_suffix("")
        log.error(
            "interrupted compaction left a damaged segment; the old ones are taken back",
            extra={"file": path + DAMAGED_SUFFIX, "reason": fault, "segments": len({*olds, *doomed})},
        )
        return
    # The old segments are removed first and the new one renamed last, so that this can be interrupted and repeated.
    for old in olds:
        for kind in KINDS:
            remove_quietly(os.path.join(folder, f"{old:020d}{kind}"))
    swap.change_suffix("")
    remove_quietly(os.path.join(folder, f"{base:020d}{COVERS_SUFFIX}{SWAP_SUFFIX}"))
    fields = {"file": swap.path(LOG_SUFFIX), "reason": fault}
    log.warning("interrupted compaction finished", extra={k: v for k, v in fields.items() if v is not None})


def _verified(swap: Segment) -> tuple[int, str | None]:
    """(the offset after the last intact batch, what is wrong with the segment or None). Raises OSError."""
    following: int = swap.base_offset
    position = 0
    try:
        for table in tables(swap.open(), 0, swap.size_bytes, verified=True):
            stop = min(table.intact_until(0), table.consistent_until(0, following, OFFSET_MAX))
            if stop:
                following = table.last_offset(stop - 1) + 1
            if stop < len(table):
                return following, table.fault(
                    stop
                ) or f"offset {table.base_offset(stop)} after {following - 1}"
            position = table.end
    except Damaged as damage:
        return following, str(damage)
    if position != swap.size_bytes:
        return following, f"the batch at byte {position} is cut off"
    return following, None


def _read_range(folder: str, base: int) -> Range | None:
    path = os.path.join(folder, f"{base:020d}{COVERS_SUFFIX}{SWAP_SUFFIX}")
    try:
        end_offset, size_bytes, *bases = checkpoints.read_numbers(path)
    except (CorruptCheckpoint, FileNotFoundError, ValueError):
        return None
    return Range(end_offset, size_bytes, tuple(bases))


def _covered(names: set[str], covered: Range, base: int, kind: str) -> set[int]:
    """The base offsets of the segments with files of one kind that the new segment replaces."""
    bases = {int(name[:20]) for name in names if name[20:] == kind and name[:20].isdecimal()}
    if covered.bases:
        return bases & set(covered.bases)
    return {old for old in bases if base <= old < max(covered.end_offset, base + 1)}
