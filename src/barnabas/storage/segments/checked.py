"""Records which parts of a file have been checked: intervals of positions, merged as they grow."""

from __future__ import annotations


class Checked:
    """Disjoint intervals [low, high) of a file's bytes."""

    __slots__ = ("_intervals",)

    def __init__(self) -> None:
        self._intervals: list[tuple[int, int]] = []

    def covers(self, start: int, end: int) -> bool:
        """Whether all of [start, end) has been noted."""
        return any(low <= start and end <= high for low, high in self._intervals)

    def note(self, start: int, end: int) -> None:
        """Take in [start, end); intervals that it touches become one with it."""
        apart = []
        for low, high in self._intervals:
            if high < start or low > end:
                apart.append((low, high))
            else:
                start, end = min(low, start), max(high, end)
        apart.append((start, end))
        self._intervals = apart
