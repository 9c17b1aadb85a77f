"""Files that are renamed at once and removed when `file.delete.delay.ms` has passed, so that readers can finish."""

from __future__ import annotations

import contextlib
from collections.abc import Callable


class Doomed:
    """What is removed together: a segment's renamed files, or the folder of a deleted log.

    The delay begins when `is_due` is first asked: the storage reads no clock itself, and whoever removes files asks
    every second. It is measured by the monotonic clock, so that a stepped wall clock neither keeps files nor takes
    them from under their readers.
    """

    __slots__ = ("_due_ms", "delay_ms", "paths")

    def __init__(self, paths: list[str], delay_ms: int) -> None:
        self.paths = paths
        self.delay_ms = delay_ms
        self._due_ms: float | None = None

    def is_due(self, elapsed_ms: float) -> bool:
        """Whether the delay is over. elapsed_ms: the monotonic clock."""
        if self._due_ms is None:
            self._due_ms = elapsed_ms + self.delay_ms
        return elapsed_ms >= self._due_ms


def remove_due(doomed: list[Doomed], elapsed_ms: float, remove: Callable[[str], object]) -> None:
    """Removes what is due, from the disk and from the list. The list may grow meanwhile, at its end, in another thread."""
    for entry in [entry for entry in doomed if entry.is_due(elapsed_ms)]:
        for path in entry.paths:
            remove(path)
        with contextlib.suppress(ValueError):  # its log has been abandoned meanwhile
            doomed.remove(entry)
