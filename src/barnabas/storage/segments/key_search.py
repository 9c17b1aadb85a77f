"""Where in a log a key may be, by the key indexes of its segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from barnabas.storage.segments.segment import Segment


@dataclass(slots=True)
class FoundKey:
    """What a search found: ranges of offsets, both ends included, in order; what lies outside of them was skipped."""

    ranges: list[tuple[int, int]] = field(default_factory=list)
    segments: int = 0
    segments_skipped: int = 0
    records_skipped: int = 0
    bytes_skipped: int = 0
    bytes_unindexed: int = 0

    def add(self, first: int, last: int) -> None:
        """A range behind those that are there."""
        if self.ranges and self.ranges[-1][1] >= first - 1:
            self.ranges[-1] = (self.ranges[-1][0], max(last, self.ranges[-1][1]))
        elif last >= first:
            self.ranges.append((first, last))


def search(segments: Sequence[Segment], end_offset: int, key: bytes) -> FoundKey:
    """Ask the key indexes of segments, the last of which ends before `end_offset`. Raises OSError. Any thread."""
    hits = FoundKey()
    bounds = [segment.base_offset for segment in segments[1:]]
    for segment, end in zip(segments, [*bounds, end_offset], strict=True):
        _ask(hits, segment, end, key)
    return hits


def _ask(hits: FoundKey, segment: Segment, end_offset: int, key: bytes) -> None:
    size, first = segment.size_bytes, int(segment.base_offset)
    if size == 0:
        return
    hits.segments += 1
    covered, is_skipped = 0, True
    for stretch, may_have in segment.key_index.look_up(key, size):
        covered, after = stretch.stop, stretch.last_offset + 1
        if may_have:
            hits.add(first, stretch.last_offset)
            is_skipped = False
        else:
            hits.records_skipped += stretch.records
            hits.bytes_skipped += stretch.stop - stretch.start
        first = max(first, after)
    if covered < size:
        hits.add(first, end_offset - 1)
        hits.bytes_unindexed += size - covered
        is_skipped = False
    hits.segments_skipped += is_skipped
