"""Rebuilds the state besides a log's batches from the batches: producers, aborted transactions, the true end.

Used when a log is opened (recovery.py), and when a log in use turns out to have a damaged file (log.py).
"""

from __future__ import annotations

import logging
import os

from barnabas.cores.partition import PartitionCore
from barnabas.records.units import Offset
from barnabas.storage.errors import CorruptCheckpoint, CorruptIndex
from barnabas.storage.files import remove_quietly
from barnabas.storage.logs import producer_snapshot
from barnabas.storage.logs.segment_recovery import learn
from barnabas.storage.scan import Damaged, tables
from barnabas.storage.segments.index import BEGINNING
from barnabas.storage.segments.segment import OFFSETS_IN_SEGMENT_MAX, Segment

log = logging.getLogger("barnabas.storage")


def set_aside_overlapped(folder: str, segments: list[Segment], slot: int) -> bool:
    """Remove the next segment from the list, and its file from use, if this one already contains its offsets; True if so.

    Such a segment comes from elsewhere. It would move the log's end back, and offsets would be used twice.
    Raises OSError.
    """
    if slot + 1 >= len(segments):
        return False
    segment, following = segments[slot], segments[slot + 1]
    reach = whole_reach(segment, following.base_offset)
    if reach <= following.base_offset:
        return False
    # If the second next segment follows seamlessly, the one in between does not belong here, however far it reaches.
    is_seamless = slot + 2 < len(segments) and segments[slot + 2].base_offset == reach
    if not is_seamless and whole_reach(following) > reach:
        return False
    name = following.set_aside()
    del segments[slot + 1]
    log.error(
        "a segment whose offsets another one holds was set aside",
        extra={"log": os.path.basename(folder), "file": name, "base_offset": following.base_offset},
    )
    return True


def whole_reach(segment: Segment, from_offset: Offset | None = None) -> Offset:
    """The offset after the last intact batch in its right place; the base offset if there is none.

    from_offset: verify only the batches from this offset on. Raises OSError.
    """
    position, end_offset = BEGINNING, segment.base_offset
    if from_offset is not None and segment.size_bytes:
        try:
            position = segment.offset_index.lookup(from_offset)[1]
        except (CorruptIndex, FileNotFoundError):
            position = BEGINNING
        if not 0 <= position < segment.size_bytes or not segment.is_plausible(position, from_offset):
            position = BEGINNING
    ceiling = segment.base_offset + OFFSETS_IN_SEGMENT_MAX + 1
    try:
        for table in tables(segment.open(), position, segment.size_bytes, verified=True):
            if position and table.start == position:
                end_offset = table.base_offset(0)
            stop = table.in_order_until(0, end_offset, ceiling)
            if stop:
                end_offset = Offset(table.last_offset(stop - 1) + 1)
            if stop < len(table):
                break
    except Damaged:
        pass
    return end_offset


def reload_producers(
    folder: str,
    core: PartitionCore,
    segments: list[Segment],
    snapshots: list[int] | None = None,
    *,
    skip_scan: bool = False,
    from_start: bool = False,
) -> int:
    """Fill the core's producers from the newest intact snapshot and the batches after it. snapshots: offsets of the
    snapshots in the folder, if the caller knows them.

    Returns the offset of the snapshot that is up to date with the log's end, or -1. skip_scan: a cleanly closed log without
    any snapshot (Kafka created it before there were snapshots, or it was restored from a backup) starts without producers
    instead of being scanned completely; one with damaged snapshots is scanned, since otherwise a producer's retry would be
    taken for new records. from_start: replay from the log's start, because the leader epochs must be rebuilt as well.
    """
    end_offset = core.log_end_offset
    replay_from: int = core.log_start_offset
    found_snapshot = was_damaged = False
    for offset in reversed(producer_snapshot.offsets_in(folder) if snapshots is None else snapshots):
        path = producer_snapshot.path_of(folder, offset)
        try:
            rows = producer_snapshot.read(path)
        except CorruptCheckpoint as error:
            log.warning(
                "producer snapshot is damaged and removed", extra={"file": path, "reason": str(error)}
            )
            remove_quietly(path)
            was_damaged = True
            continue
        core.producers.load(rows)
        replay_from, found_snapshot = offset, True
        break
    if from_start or found_snapshot or was_damaged or not skip_scan:
        replay(core, segments, core.log_start_offset if from_start else replay_from, replay_from)
    core.log_end_offset = end_offset
    core.producers_loaded()
    return replay_from if found_snapshot and replay_from == end_offset else -1


def replay(core: PartitionCore, segments: list[Segment], epochs_from: int, producers_from: int) -> None:
    """Apply the log's batches up to the core's end: epochs from one offset on, producers from another.

    Damaged batches are skipped. Raises OSError.
    """
    end_offset = core.log_end_offset
    start = min(epochs_from, producers_from)
    for slot, segment in enumerate(segments):
        following = segments[slot + 1].base_offset if slot + 1 < len(segments) else end_offset
        if following <= start or segment.base_offset >= end_offset:
            continue
        located = segment.locate(Offset(max(start, segment.base_offset)))
        if located is None:
            continue
        position = located if isinstance(located, int) else located.position
        for table, first, stop in segment.intact_rows(position):
            upto = min(table.below(first, end_offset), stop)
            learned_from = min(table.below(first, producers_from), upto)
            for i in table.telling(first, learned_from):
                core.assign_epoch(table.leader_epoch(i), table.base_offset(i))
            learn(core, None, table, learned_from, upto)
            if upto < stop:
                break
    core.log_end_offset = end_offset


def rebuild_txn_index(folder: str, segments: list[Segment], segment: Segment, reason: str | None) -> None:
    """Rebuild a segment's aborted transactions, starting from the previous snapshot. reason: for the log, None to log
    nothing.

    Raises OSError.
    """
    core = PartitionCore()
    core.log_end_offset = segment.base_offset
    slot = segments.index(segment)
    snapshots = [row for row in producer_snapshot.offsets_in(folder) if row <= segment.base_offset]
    replay_from: int = segments[0].base_offset
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
        learn(core, segment, table, first, stop)
    if segment.txn_index.entries and reason is not None:
        log.warning(
            "transaction index rebuilt",
            extra={
                "file": segment.txn_index.path,
                "entries": len(segment.txn_index.entries),
                "reason": reason,
            },
        )
