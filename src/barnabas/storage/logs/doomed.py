"""Files that are renamed at once, but removed only after `file.delete.delay.ms`, so that readers can finish."""

from __future__ import annotations

import contextlib
from collections.abc import Callable


class Doomed:
    """Files that are removed together: those of a segment, or the folder of a deleted log.

    The delay begins with the first call of `start_delay`: the storage reads no clock, and `remove_due` is called every
    second. It is measured by the monotonic clock, so that changes of the wall clock neither keep files nor remove them
    while they are being read.
    """

    __slots__ = ("_due_ms", "delay_ms", "paths")

    def __init__(self, paths: list[str], delay_ms: int) -> None:
        self.paths = paths
        self.delay_ms = delay_ms
        self._due_ms: float | None = None

    def start_delay(self, elapsed_ms: float) -> None:
        """Begin the delay, unless it has begun. elapsed_ms: the monotonic clock."""
        if self._due_ms is None:
            self._due_ms = elapsed_ms + self.delay_ms

    def is_due(self, elapsed_ms: float) -> bool:
        """Whether the delay has begun and passed. elapsed_ms: the monotonic clock."""
        return self._due_ms is not None and elapsed_ms >= self._due_ms


def remove_due(doomed: list[Doomed], elapsed_ms: float, remove: Callable[[str], object]) -> None:
    """Remove what is due, from the disk and from the list. Another thread may append to the list meanwhile."""
    for entry in list(doomed):
        entry.start_delay(elapsed_ms)
    for entry in [entry for entry in doomed if entry.is_due(elapsed_ms)]:
        for path in entry.paths:
            remove(path)
        with contextlib.suppress(ValueError):  # removed meanwhile, with an abandoned log
            doomed.remove(entry)
