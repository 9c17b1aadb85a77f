"""The plain way to walk through a segment, batch by batch over its bytes: what the compiled one must equal."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.cores.partition import PartitionCore
from barnabas.records.batch import BatchHeader, CorruptBatch
from barnabas.records.control import marker_of
from barnabas.storage.formats import Damaged, FoundBatch, verify


def walk(data: bytes, start: int, end: int) -> Iterator[tuple[FoundBatch, memoryview]]:
    """Each whole batch in [start, end). Raises Damaged."""
    end = min(end, len(data))
    position = start
    while position + 26 <= end:
        base, length, _, magic = struct.unpack_from(">qiib", data, position)
        if length < 14 or not 0 <= magic <= 2:
            raise Damaged(position, f"length {length} and magic {magic}")
        size = length + 12
        if position + size > end:
            return
        if magic == 2 and size < 61:
            raise Damaged(position, f"length {length} and magic {magic}")
        last = base + struct.unpack_from(">i", data, position + 23)[0] if magic == 2 else base
        yield FoundBatch(position, size, magic, base, last), memoryview(data)[position : position + size]
        position += size


def first_from(data: bytes, start: int, end: int, offset: int) -> FoundBatch | None:
    return next((batch for batch, _ in walk(data, start, end) if batch.last_offset >= offset), None)


def boundary_before(data: bytes, start: int, limit: int) -> int:
    for batch, _ in walk(data, start, limit):
        start = batch.position + batch.size_bytes
    return start


class Recovered(NamedTuple):
    """What a recovery finds: see recovery.recover_segment."""

    end_offset: int
    size_bytes: int
    is_cut: bool
    entries: list[tuple[int, int]]
    times: list[tuple[int, int]]
    damaged: dict[int, int]
    aborted: list[int]


def recover(data: bytes, base_offset: int, interval: int, core: PartitionCore) -> Recovered:
    """Every batch through the core, one after another."""
    end_offset, position, since = base_offset, 0, 0
    max_timestamp, offset_of_max = -1, base_offset
    entries: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    damaged: dict[int, int] = {}
    aborted: list[int] = []
    suspect: int | None = None

    def note_time() -> None:
        if max_timestamp >= 0 and (not times or max_timestamp > times[-1][0]):
            times.append((max_timestamp, offset_of_max))

    try:
        for batch, view in walk(data, 0, len(data)):
            try:
                header = verify(view)
                if batch.base_offset < end_offset:
                    raise CorruptBatch("")
            except CorruptBatch:
                suspect = batch.position if suspect is None else suspect
                continue
            if suspect is not None:
                damaged[suspect] = batch.position - suspect
                suspect = None
            if header.record_count and header.max_timestamp > max_timestamp:
                max_timestamp, offset_of_max = header.max_timestamp, batch.last_offset
            if since > interval:
                entries.append((batch.last_offset, batch.position))
                note_time()
                since = 0
            since += batch.size_bytes
            end_offset, position = batch.last_offset + 1, batch.position + batch.size_bytes
            learn(core, batch, header, view, aborted)
    except Damaged:
        pass
    note_time()
    return Recovered(end_offset, position, position < len(data), entries, times, damaged, aborted)


def learn(
    core: PartitionCore, batch: FoundBatch, header: BatchHeader, view: memoryview, aborted: list[int]
) -> None:
    epoch = header.partition_leader_epoch
    if not header.is_control:
        core.apply(header, batch.base_offset, epoch, header.max_timestamp)
        return
    marker = marker_of(view, header)
    completed = core.apply_marker(header, batch.base_offset, epoch, marker, header.max_timestamp)
    if completed is not None and completed.aborted:
        aborted.append(completed.first_offset)
