"""The records of a log that cannot be read: those known so far, and a check of every batch for more.

The offsets of a damaged place are derived from the intact batches around it, since its own header may be damaged. All
functions only read, and may run in any thread beside the log's owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from barnabas.records.units import Position
from barnabas.storage.errors import CorruptIndex
from barnabas.storage.files import LogFile
from barnabas.storage.scan import ANY_OFFSET, Damaged, first_from, tables
from barnabas.storage.segments.segment import LOG_SUFFIX, OFFSETS_IN_SEGMENT_MAX, Segment
from barnabas.storage.segments.survey import Fate, survey

DAMAGED: Final = "damaged"
MISPLACED: Final = "misplaced"
MISSING: Final = "missing"


class Place(NamedTuple):
    """A damaged place in a log.

    kind: `damaged` bytes are skipped; a `misplaced` batch is intact but has a wrong base offset, which the next start after
    an unclean stop repairs; `missing` offsets have no bytes. `last_offset` is `first_offset` - 1 when no offset is lost.
    """

    kind: str
    file: str
    position: int
    size_bytes: int
    first_offset: int
    last_offset: int
    reason: str

    @property
    def records(self) -> int:
        """How many offsets cannot be read; a compacted log may have had fewer records there."""
        return self.last_offset - self.first_offset + 1 if self.kind != MISPLACED else 0


class View(NamedTuple):
    """A segment at this moment, for another thread; ceiling: base offset of the next segment, or the log's end."""

    segment: Segment
    path: str
    size_bytes: int
    ceiling: int
    damaged: dict[int, int]


def views(segments: Sequence[Segment], end_offset: int) -> list[View]:
    """Views of `segments`; must be called by the log's owner. end_offset: the end of the log."""
    ceilings = [segment.base_offset for segment in segments[1:]] + [end_offset]
    return [
        View(segment, segment.path(LOG_SUFFIX), segment.size_bytes, ceiling, dict(segment.damaged))
        for segment, ceiling in zip(segments, ceilings, strict=True)
    ]


def known(log: Iterable[View]) -> Iterator[Place]:
    """The damaged places that recovery and readers have found since the start. Raises OSError."""
    for view in log:
        if not view.damaged:
            continue
        try:
            file = LogFile(view.path, write=False)
        except FileNotFoundError:
            continue  # retention or compaction has removed it meanwhile
        before = 0
        for start, end in _joined(sorted(view.damaged.items())):
            first, last = _end_before(file, view, before, start), _base_behind(file, view, end) - 1
            yield Place(DAMAGED, view.path, start, end - start, first, last, "")
            before = end


def _joined(places: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Ordered (position, size) pairs as (start, end), with adjacent ones merged."""
    start = end = -1
    for position, size in places:
        if position > end:
            if end >= 0:
                yield start, end
            start = position
        end = max(end, position + size)
    if end >= 0:
        yield start, end


def _end_before(file: LogFile, view: View, low: int, position: int) -> int:
    """The offset after the last batch before byte `position`. Whole batches lie between byte `low` and that batch."""
    try:
        indexed: int = view.segment.offset_index.lookup_position(Position(position))
    except (CorruptIndex, FileNotFoundError):
        indexed = low
    for start in (indexed, low):
        end_offset = -1
        try:
            for table in tables(file, max(start, low), position, verified=False):
                end_offset = table.last_offset(len(table) - 1) + 1
        except Damaged:
            continue  # the index was wrong
        if end_offset >= 0:
            return end_offset
    return view.segment.base_offset


def _base_behind(file: LogFile, view: View, position: int) -> int:
    """The base offset of the batch at a byte; if there is none, that of the next segment."""
    try:
        batch = first_from(file, position, view.size_bytes, ANY_OFFSET)
    except Damaged:
        batch = None
    return view.ceiling if batch is None else batch.base_offset


class _Lost(NamedTuple):
    """Adjacent pieces that are not served. end_offset: that of the batch before them."""

    start: int
    end: int
    end_offset: int
    reason: str

    def place(self, path: str, following: int) -> Place:
        size_bytes = self.end - self.start
        return Place(DAMAGED, path, self.start, size_bytes, self.end_offset, following - 1, self.reason)


def check(
    path: str, size_bytes: int, base_offset: int, next_base_offset: int, *, compacted: bool
) -> Iterator[Place]:
    """Read a segment from beginning to end, and yield the damage in it or at its end. Raises OSError.

    next_base_offset: of the next segment, or the log's end. compacted: offsets between two segments may have been removed by
    compaction.
    """
    file = LogFile(path, write=False)
    ceiling = min(next_base_offset, base_offset + OFFSETS_IN_SEGMENT_MAX + 1)
    position, end_offset = 0, base_offset
    lost: _Lost | None = None
    while position < size_bytes:
        try:
            for table in tables(file, position, size_bytes, verified=True):
                stop = table.in_order_until(0, end_offset, ceiling)
                if stop:
                    if lost is not None:
                        yield lost.place(path, table.base_offset(0))
                        lost = None
                    position, end_offset = table.end_of(stop - 1), table.last_offset(stop - 1) + 1
                if stop < len(table):
                    break
        except Damaged:
            pass  # `survey` determines the damage
        for verdict in survey(file, position, size_bytes, end_offset, ceiling):
            piece = verdict.piece
            position = piece.position + piece.size_bytes
            if verdict.fate is Fate.LOST:
                lost = (lost or _Lost(piece.position, 0, end_offset, verdict.reason))._replace(end=position)
                continue
            if lost is not None:
                yield lost.place(path, verdict.base_offset)
                lost = None
            end_offset = verdict.base_offset + piece.offsets
            if verdict.fate is Fate.MOVED:
                first, last = verdict.base_offset, end_offset - 1
                yield Place(MISPLACED, path, piece.position, piece.size_bytes, first, last, verdict.reason)
    if lost is not None:
        yield lost.place(path, next_base_offset)
    elif end_offset < next_base_offset and not compacted:
        reason = "no batch holds them" if size_bytes else "the file is empty"
        yield Place(MISSING, path, size_bytes, 0, end_offset, next_base_offset - 1, reason)
