"""The last commits of a group in one partition, and the verdict about them by Burrow's rules.

Source: Burrow's wiki, "Consumer Lag Evaluation Rules". Times are milliseconds since 1970.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import Final

COMMITS_MAX: Final = 10
"""Burrow's `intervals`."""
MIN_DISTANCE_MS: Final = 0
"""Burrow's `min-distance`: a commit that follows sooner takes the place of the one before, with its time."""


class Status(IntEnum):
    """A verdict. Those of groups end with ERR; what is worse is said of partitions only."""

    NOTFOUND = 0
    OK = 1
    WARN = 2
    ERR = 3
    STOP = 4
    STALL = 5
    REWIND = 6


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed offset. lag: against the log's end as it was known at that time."""

    offset: int
    timestamp_ms: int
    lag: int


@dataclass(slots=True)
class Window:
    """The last commits in one partition, the oldest first. owner, client: who reads it: its host and its client.id."""

    commits: deque[Commit] = field(default_factory=lambda: deque(maxlen=COMMITS_MAX))
    owner: str = ""
    client: str = ""

    def add(self, commit: Commit, min_distance_ms: int = MIN_DISTANCE_MS) -> None:
        """A commit that was made after the others; one that is older than the last is not added."""
        if self.commits:
            last = self.commits[-1]
            if commit.timestamp_ms < last.timestamp_ms:
                return
            if commit.timestamp_ms - last.timestamp_ms < min_distance_ms:
                # The first one's time stays: otherwise frequent commits would never be a second entry.
                self.commits[-1] = Commit(commit.offset, last.timestamp_ms, commit.lag)
                return
        self.commits.append(commit)

    @property
    def complete(self) -> float:
        """How much of the window is filled, 0 to 1."""
        return len(self.commits) / COMMITS_MAX

    def lag(self, end: int | None) -> int:
        """Offsets between the last commit and the log's end; 0 if either is unknown."""
        if not self.commits or end is None:
            return 0
        return max(end - self.commits[-1].offset, 0)


def verdict(commits: Sequence[Commit], ends: Iterable[int], lag: int, now_ms: int) -> Status:
    """What the commits of one partition, the oldest first, say. ends: the log's end at the last few looks. lag: now.

    A partition without lag is never wrong. STOP: the group has not committed for longer than its last commits took, and was
    behind at every look. The others are only said if no commit had caught up: REWIND: an offset went back. STALL: commits
    go on, offsets do not. WARN: the lag did not shrink between any two commits.
    """
    if lag == 0 or not commits:
        return Status.OK
    offsets = [commit.offset for commit in commits]
    first_ms, last_ms = commits[0].timestamp_ms, commits[-1].timestamp_ms
    was_caught_up = any(end <= offsets[-1] for end in ends)
    if now_ms - last_ms > last_ms - first_ms and not was_caught_up:
        return Status.STOP
    lags = [commit.lag for commit in commits]
    if 0 in lags:
        return Status.OK
    if any(later < earlier for earlier, later in pairwise(offsets)):
        return Status.REWIND
    if len(set(offsets)) == 1:
        return Status.STALL
    if all(later >= earlier for earlier, later in pairwise(lags)):
        return Status.WARN
    return Status.OK
