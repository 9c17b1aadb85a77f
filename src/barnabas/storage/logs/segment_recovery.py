"""Reads a whole segment again after an unclean stop: intact batches are indexed and applied to the core, others are
repaired, skipped, or, at the end of the log, cut off.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cores.partition import PartitionCore
from barnabas.records.control import marker_of
from barnabas.records.units import Offset, Position
from barnabas.storage.batch_table import BatchTable
from barnabas.storage.files import open_new
from barnabas.storage.scan import Damaged, tables
from barnabas.storage.segments.segment import LOG_SUFFIX, OFFSET_MAX, OFFSETS_IN_SEGMENT_MAX, Segment
from barnabas.storage.segments.survey import Fate, Verdict, original_of, survey

if TYPE_CHECKING:
    from barnabas.storage.files import LogFile

log = logging.getLogger("barnabas.storage")

DAMAGED_SUFFIX: Final = ".damaged"


class Cut(NamedTuple):
    """What was cut off a segment's end; `kept_in` is the file that now contains it, None for a torn write."""

    bytes: int
    reason: str
    kept_in: str | None


def recover_segment(
    segment: Segment,
    core: PartitionCore,
    ceiling: int = OFFSET_MAX,
    *,
    is_last: bool = True,
    dense: bool = False,
    earlier: Sequence[Segment] = (),
) -> tuple[Offset, Cut | None]:
    """Verify a segment's batches, rebuild its indexes and apply the batches to the core, which is at the segment's base
    offset.

    Returns (the offset after the last whole batch, what was cut off its end). ceiling: base offset of the next segment.
    is_last: nothing follows, so incomplete data at the end is a torn write and is removed; elsewhere it is kept but
    never served. dense: the log was never compacted. earlier: the segments before this one, in which the original of a
    batch that seems to be damaged may be found. Raises OSError.
    """
    ceiling = min(ceiling, segment.base_offset + OFFSETS_IN_SEGMENT_MAX + 1)
    return _Rescan(segment, core, ceiling, dense, earlier).run(is_last)


class _Rescan:
    def __init__(
        self, segment: Segment, core: PartitionCore, ceiling: int, dense: bool, earlier: Sequence[Segment]
    ) -> None:
        self.dense = dense
        self.earlier = earlier
        self.segment = segment
        self.core = core
        self.ceiling = ceiling
        self.end_offset: Offset = segment.base_offset
        self.position = 0
        """Position of the next piece."""
        self.whole_to = Position(0)
        """Position after the last whole batch."""
        self.lost: list[Verdict] = []

    def run(self, is_last: bool) -> tuple[Offset, Cut | None]:
        segment = self.segment
        segment.damaged = {}
        segment.start_indexes()
        segment.txn_index.start_empty()
        segment.bytes_since_entry = 0
        segment.set_max_timestamp(-1, segment.base_offset)
        file = segment.open()
        while self.position < segment.size_bytes:
            if not self._walk(file):
                verdicts = survey(
                    file, self.position, segment.size_bytes, self.end_offset, self.ceiling, dense=self.dense
                )
                for verdict in verdicts:
                    self._apply(file, self._doubted(file, verdict, is_last))
        cut = self._cut_tail(file) if is_last and self.whole_to < segment.size_bytes else None
        for verdict in self.lost:
            segment.note_damage(verdict.piece.position, verdict.piece.size_bytes, verdict.reason)
        segment.trusted_from = 0 if not segment.damaged else segment.size_bytes
        segment.finish()
        segment.offset_index.write()
        segment.time_index.write()
        return self.end_offset, cut

    def _walk(self, file: LogFile) -> bool:
        """Process batches as long as they are whole and in place; True if that was so up to the end."""
        try:
            for table in tables(file, self.position, self.segment.size_bytes, verified=True):
                stop = table.in_order_until(0, self.end_offset, self.ceiling)
                if stop:
                    self._take(table, 0, stop)
                if stop < len(table):
                    return False
        except Damaged:
            return False
        return self.position == self.segment.size_bytes

    def _take(self, table: BatchTable, first: int, stop: int) -> None:
        self.whole_to = self.position = self.segment.note_rows(table, first, stop, table.position(first))
        self.end_offset = Offset(table.last_offset(stop - 1) + 1)
        learn(self.core, self.segment, table, first, stop)

    def _doubted(self, file: LogFile, verdict: Verdict, is_last: bool) -> Verdict:
        """The verdict, changed to lost for a batch that nothing but the segment's own bytes confirms."""
        piece = verdict.piece
        if verdict.fate is Fate.MOVED and piece.base_offset < self.segment.base_offset:
            holder = next((s for s in reversed(self.earlier) if s.base_offset <= piece.base_offset), None)
            if holder and original_of(file, piece, holder.open(), holder.size_bytes) is not None:
                return Verdict(piece, Fate.LOST, -1, f"a copy of a batch in {holder.path(LOG_SUFFIX)}")
        if verdict.fate is Fate.KEPT and is_last and self.dense:
            ends_log = self.whole_to == piece.position == self.segment.size_bytes - piece.size_bytes
            if ends_log and piece.base_offset != self.end_offset:
                # A log that was never compacted has no gaps, and no later batch confirms this one.
                reason = f"offset {piece.base_offset} at the log's end, where {self.end_offset} belongs"
                return Verdict(piece, Fate.LOST, -1, reason)
        return verdict

    def _apply(self, file: LogFile, verdict: Verdict) -> None:
        piece = verdict.piece
        if verdict.fate is Fate.LOST:
            self.lost.append(verdict)
            self.position = piece.position + piece.size_bytes
            return
        if verdict.fate is Fate.MOVED:
            self.segment.move_batch(piece.position, piece.base_offset, verdict.base_offset)
        table = BatchTable()
        data = memoryview(os.pread(file.fd, piece.size_bytes, piece.position))
        table.read(data, piece.position, piece.position + piece.size_bytes, verified=True)
        self._take(table, 0, 1)

    def _cut_tail(self, file: LogFile) -> Cut:
        """Remove what follows the last whole batch of the log; unless it is a torn write, it is kept in a separate file."""
        segment, start = self.segment, self.whole_to
        size = segment.size_bytes - start
        tail = [verdict for verdict in self.lost if verdict.piece.position >= start]
        self.lost = [verdict for verdict in self.lost if verdict.piece.position < start]
        kept_in = None
        if any(verdict.piece.base_offset >= 0 for verdict in tail):
            # Batches of full length: a bit was flipped, or one of them was written out of order.
            kept_in = f"{segment.path(LOG_SUFFIX)}.{start}{DAMAGED_SUFFIX}"
            copy_range(file, start, segment.size_bytes, kept_in)
        segment.cut(start)
        return Cut(size, tail[0].reason if tail else "a batch is cut off", kept_in)


def copy_range(file: LogFile, start: int, end: int, path: str) -> None:
    """Copy bytes [start, end) of a file to a new one. Raises OSError."""
    with open(open_new(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC), "wb") as target:
        while start < end:
            data = os.pread(file.fd, min(1 << 20, end - start), start)
            if not data:
                break
            target.write(data)
            start += len(data)


def learn(core: PartitionCore, segment: Segment | None, table: BatchTable, first: int, stop: int) -> None:
    """Apply intact batches of our own log to the core, as far as they matter to it; add aborted transactions to the
    transaction index of `segment`."""
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
