"""Which parts of a segment may be served: checksums and offsets of batches are checked when they are first read, and
damage is repaired or skipped.
"""

from __future__ import annotations

import logging
import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from barnabas.records.batch import BatchHeader
from barnabas.records.units import Offset, Position
from barnabas.storage.errors import CorruptIndex
from barnabas.storage.files import pwrite_all
from barnabas.storage.scan import (
    ANY_OFFSET,
    LOOK_BYTES,
    SMALLEST_BYTES,
    Damaged,
    FoundBatch,
    boundary_before,
    first_from,
    found_at,
    tables,
)
from barnabas.storage.segments.index import BEGINNING
from barnabas.storage.segments.segment_files import (
    LOG_SUFFIX,
    OFFSET_MAX,
    OFFSETS_IN_SEGMENT_MAX,
    SegmentFiles,
)
from barnabas.storage.segments.survey import Fate, survey

if TYPE_CHECKING:
    from barnabas.storage.batch_table import BatchTable

log = logging.getLogger("barnabas.storage")

_INT64: Final = struct.Struct(">q")


class Overlap(Exception):
    """A whole batch claims offsets of the next segment, which begins at `ceiling` and may not belong to the log."""

    def __init__(self, ceiling: int) -> None:
        super().__init__(f"batches reach beyond {ceiling}")
        self.ceiling = ceiling


class SegmentChecks(SegmentFiles):
    """See the module."""

    __slots__ = ()

    def rebuild(self, reason: str | None) -> None:
        """See Segment.rebuild."""
        raise NotImplementedError

    def locate(self, offset: Offset) -> FoundBatch | Position | None:
        """The first batch whose last offset is at or after `offset`: a FoundBatch, or just its position if it is in the
        tail. None if the segment ends before. Raises OSError.
        """
        if self.size_bytes == 0:
            return None
        tail = self.tail_offsets
        if tail and offset >= tail[0]:
            slot = bisect_right(tail, offset) - 1
            if slot == len(tail) - 1 and offset != tail[slot]:
                # The offset may be beyond the last batch; only its header shows that.
                return self._find(self.tail_positions[slot], offset)
            # A batch within the tail reaches up to the next one: appended offsets have no gaps.
            return self.tail_positions[slot]
        for attempt in (1, 2):
            try:
                position = self.offset_index.lookup(offset)[1]
                if 0 <= position < self.size_bytes:
                    # Only from the start of a batch can damage be distinguished from a wrong index entry.
                    if attempt == 2 or self.is_plausible(position, offset):
                        return self._find(position, offset)
                elif attempt == 2:
                    return None
            except (CorruptIndex, FileNotFoundError, Damaged):
                if attempt == 2:
                    raise
            self.rebuild("its offset index is missing or damaged")
        return None

    def _find(self, position: int, offset: Offset) -> FoundBatch | None:
        """The first batch from the boundary `position` on whose last offset is at or after `offset`; damage is skipped.
        Only headers are read if there is no damage."""
        file, start = self.open(), position
        while position < self.size_bytes:
            stop, behind = self._next_damage(position)
            try:
                batch = first_from(file, position, stop, offset)
                if batch is not None:
                    return batch
                boundary = stop if stop < position + SMALLEST_BYTES else boundary_before(file, position, stop)
            except Damaged as damage:
                boundary = damage.position
            if boundary < stop and self._mend_at(start, boundary):
                continue
            position = behind
        return None

    def _next_damage(self, position: int) -> tuple[int, int]:
        """(start, end) of the first known damage at or after `position`; the file's end for both if there is none."""
        at = min((at for at in self.damaged if at >= position), default=self.size_bytes)
        return at, at + self.damaged.get(at, 0)

    def _mend_at(self, start: int, boundary: int) -> bool:
        """`_mend` from a boundary on, which is preceded by whole batches from byte `start` on."""
        low: int = self.base_offset
        exact, last = boundary == 0, None
        try:
            for table in tables(self.open(), start, boundary, verified=False):
                last = table.last_offset(len(table) - 1)
        except Damaged:
            last = None
        if last is not None and self.base_offset <= last <= self.base_offset + OFFSETS_IN_SEGMENT_MAX:
            low = last + 1
        return self._mend(boundary, low, self.base_offset + OFFSETS_IN_SEGMENT_MAX + 1, exact=exact)

    def is_plausible(self, position: int, offset: Offset) -> bool:
        """Whether a batch starts at `position`, as an index says, at or below `offset`, and is whole."""
        if position == 0:
            return True
        try:
            batch = first_from(self.open(), position, self.size_bytes, ANY_OFFSET)
        except Damaged:
            return False
        if batch is None or not self.base_offset <= batch.base_offset <= offset:
            return False
        end = position + batch.size_bytes
        if position >= self.trusted_from or self._checked.covers(position, end):
            return True
        return any(table.is_intact(0) for table in tables(self.open(), position, end, verified=True))

    def _check(self, start: int, end: int, ceiling: int) -> tuple[int, int] | None:
        """Check the batches in [start, end), and those since the last index entry; (end of the intact ones, where to
        continue behind the damage), or None if damage was found or repaired, so that the caller must look again.
        """
        upto = min(end, self.trusted_from)
        position = whole_to = self._known_boundary_before(start)
        low: int = self.base_offset
        exact = position == 0
        while position < upto:
            at, behind = self._next_damage(position)
            stop = min(at, upto)
            trouble: tuple[int, int, bool] | None = None
            before: tuple[int, int, bool] = (position, low, exact)
            try:
                for table in tables(self.open(), position, stop, verified=True):
                    odd = min(table.intact_until(0), table.consistent_until(0, low, ceiling))
                    if odd < len(table):
                        # An overlap with the previous row, in another table, may be that row's fault.
                        own = odd or not table.is_intact(0)
                        low = table.end_before(odd, low)
                        exact = exact or odd > 0
                        if table.is_intact(odd) and table.last_offset(odd) >= ceiling:
                            self._note_overlap(ceiling)
                        trouble = (table.position(odd), low, exact) if own else before
                        break
                    last = len(table) - 1
                    before = (table.position(last), table.end_before(last, low), exact or last > 0)
                    low, exact, whole_to = table.last_offset(last) + 1, True, table.end
            except Damaged as damage:
                trouble = (damage.position, low, exact)
            if trouble is None and whole_to < stop:
                trouble = (whole_to, low, exact)
            if trouble is not None:
                if self._mend(trouble[0], trouble[1], ceiling, exact=trouble[2]):
                    return None
                break  # `end` is no boundary
            alone = stop == upto == whole_to and not self._is_followed(upto, before, low)
            if alone and self._mend(before[0], before[1], ceiling, exact=before[2]):
                return None
            if at < upto and at >= start:
                self._checked.note(start, at)
                return at, behind
            position, exact = max(stop, behind if at < upto else stop), False
            whole_to = max(whole_to, position)
        if whole_to <= start:
            return start, start
        self._checked.note(start, whole_to)
        return (end if whole_to == self.trusted_from else whole_to), whole_to

    def mend_end(self, offset: Offset, ceiling: int) -> bool:
        """Called once if there is no batch from `offset` on although the next segment begins only at `ceiling`: a batch may
        have a wrong offset. True if something was repaired or noted. Raises Overlap, OSError."""
        if self.is_end_checked or not self.trusted_from:
            return False
        self.is_end_checked = True
        try:
            position = self.offset_index.lookup(offset)[1]
        except (CorruptIndex, FileNotFoundError):
            position = BEGINNING
        if not 0 <= position < self.size_bytes or not self.is_plausible(position, offset):
            position = BEGINNING
        return self._check(position, self.size_bytes, ceiling) is None

    def _note_overlap(self, ceiling: int) -> None:
        """Raise Overlap, once for each next segment."""
        if ceiling not in self.overlaps:
            raise Overlap(ceiling)

    def _is_followed(self, end: int, last: tuple[int, int, bool], end_offset: int) -> bool:
        """Whether the batch at byte `end` confirms the offsets of the batch before it, if a gap makes those doubtful.

        last: (position of that batch, end offset of its predecessor, whether that is exact). end_offset: its own end offset.
        """
        if end >= self.size_bytes:
            return True
        try:
            before = first_from(self.open(), last[0], end, ANY_OFFSET)
            following = first_from(self.open(), end, self.size_bytes, ANY_OFFSET)
        except Damaged:
            return False
        if before is None or before.base_offset == last[1]:
            return True
        return following is not None and following.base_offset >= end_offset

    def _known_boundary_before(self, position: int) -> int:
        """A batch boundary below `position` that the index knows, or `position` itself.

        The last but one is preferred, since a wrong offset at the last one shows only in comparison with the batch before
        it. Boundaries without a plausible batch are not used.
        """
        try:
            known = last = self.offset_index.lookup_position(Position(position - 1)) if position else 0
            if last:
                known = self.offset_index.lookup_position(Position(last - 1))
            for boundary in (known, last):
                if boundary < position and (boundary == 0 or self.is_plausible(boundary, OFFSET_MAX)):
                    return boundary
        except (CorruptIndex, FileNotFoundError):
            pass
        return position

    def _mend(self, position: int, low: int, ceiling: int, *, exact: bool) -> bool:
        """Restore damaged base offsets, and note other damage; True if there was any. See survey for the arguments.
        Raises OSError."""
        changed = False
        for verdict in survey(self.open(), position, self.trusted_from, low, ceiling, exact=exact):
            piece = verdict.piece
            if verdict.fate is Fate.MOVED:
                self.move_batch(piece.position, piece.base_offset, verdict.base_offset)
                changed = True
            elif verdict.fate is Fate.LOST and piece.position not in self.damaged:
                self.note_damage(piece.position, piece.size_bytes, verdict.reason)
                changed = True
        return changed

    def move_batch(self, position: int, old_offset: int, base_offset: int) -> None:
        """Set the base offset of a batch, which its checksum does not cover. Raises OSError."""
        pwrite_all(self.open().fd, _INT64.pack(base_offset), position)
        log.warning(
            "a batch's base offset was damaged and is repaired",
            extra={"file": self.path(LOG_SUFFIX), "position": position, "was": old_offset, "is": base_offset},
        )

    def intact(self, position: int) -> Iterator[tuple[FoundBatch, BatchHeader, memoryview]]:
        """The batches from `position` on with a correct checksum; their bytes are valid for one step."""
        for table, first, stop in self.intact_rows(position):
            for i in range(first, stop):
                yield found_at(table, i), table.header(i), table.view(i)

    def intact_rows(self, position: int) -> Iterator[tuple[BatchTable, int, int]]:
        """The same as runs of rows [first, stop), each with its table, which is valid until the next step."""
        start = position
        while position < self.size_bytes:
            stop, behind = self._next_damage(position)
            boundary = position
            try:
                for table in tables(self.open(), position, stop, verified=True, first_bytes=LOOK_BYTES):
                    broken = table.intact_until(0)
                    if broken:
                        yield table, 0, broken
                    boundary = table.end if broken == len(table) else table.position(broken)
                    if broken < len(table):
                        break
            except Damaged as damage:
                boundary = damage.position
            if boundary < stop and self._mend_at(start, boundary):
                position = start = boundary
            else:
                position = behind
