"""All that Burrow's API tells about one cluster, from commits and ends of logs that somebody else reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.monitor.burrow.window import COMMITS_MAX, Commit, Status, Window, verdict

EXPIRE_MS: Final = 7 * 24 * 3_600_000
"""Burrow's `expire-group`: a group that has not committed for so long is not listed."""
LISTED_MS: Final = 60_000

Key = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The verdict about one partition of a group. start, end: the first and last commit of the window."""

    topic: str
    partition: int
    owner: str
    client: str
    status: Status
    start: Commit | None
    end: Commit | None
    lag: int
    complete: float


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The verdict about a group: that of its worst partition, ERR at most. complete: how many partitions have whole windows,
    0 to 1."""

    group: str
    status: Status
    partitions: tuple[PartitionStatus, ...]

    @property
    def complete(self) -> float:
        if not self.partitions:
            return 0.0
        return sum(row.complete == 1.0 for row in self.partitions) / len(self.partitions)

    @property
    def lag(self) -> int:
        return sum(row.lag for row in self.partitions)

    @property
    def slowest(self) -> PartitionStatus | None:
        """The partition with the greatest lag."""
        return max(self.partitions, key=lambda row: row.lag, default=None)


@dataclass(slots=True)
class Board:
    """One cluster. ends: the log's end of each partition at the last looks, the newest last."""

    ends: dict[Key, deque[int]] = field(default_factory=dict)
    groups: dict[str, dict[Key, Window]] = field(default_factory=dict)

    def note_ends(self, ends: Mapping[Key, int], there: Collection[Key] | None = None) -> None:
        """A look at all logs. there: all partitions, those without a leader, too (None: those of `ends`); one that
        is not among them is gone, with what groups have committed there."""
        there = ends if there is None else there
        for key, end in ends.items():
            self.ends.setdefault(key, deque(maxlen=COMMITS_MAX)).append(end)
        for key in [key for key in self.ends if key not in there]:
            del self.ends[key]
        for windows in self.groups.values():
            for key in [key for key in windows if key not in there]:
                del windows[key]

    def note_commit(self, group: str, key: Key, offset: int, timestamp_ms: int) -> None:
        """A group's commit. Those in partitions that are not known yet are left out, as Burrow does."""
        end = self.end(key)
        if end is None:
            return
        window = self.groups.setdefault(group, {}).setdefault(key, Window())
        window.add(Commit(offset, timestamp_ms, max(end - offset, 0)))

    def note_offset(self, group: str, key: Key, offset: int, at_ms: int) -> None:
        """What a group has committed, if its commits cannot be seen: an offset that is new was committed at `at_ms`."""
        window = self.groups.get(group, {}).get(key)
        if window is None or not window.commits or window.commits[-1].offset != offset:
            self.note_commit(group, key, offset, at_ms)

    def note_older(self, group: str, key: Key, offset: int, at_ms: int) -> None:
        """What a group has committed that nothing is known of: it was before `at_ms`."""
        if key not in self.groups.get(group, {}):
            self.note_commit(group, key, offset, at_ms)

    def forget_commit(self, group: str, key: Key) -> None:
        """The group's offset in a partition was deleted."""
        windows = self.groups.get(group, {})
        windows.pop(key, None)
        if not windows:
            self.groups.pop(group, None)

    def note_readers(self, group: str, readers: Mapping[Key, tuple[str, str]]) -> None:
        """Who reads the partitions: host and client.id."""
        for key, window in self.groups.get(group, {}).items():
            window.owner, window.client = readers.get(key, ("", ""))

    def keep_groups(self, names: Iterable[str], now_ms: int) -> None:
        """Forget groups that do not exist any more, or have not committed for a week. One that is not among the names may
        have been created after they were listed, and stays for a minute."""
        there = set(names)
        for group, windows in list(self.groups.items()):
            last_ms = max((w.commits[-1].timestamp_ms for w in windows.values() if w.commits), default=0)
            if now_ms - last_ms > (EXPIRE_MS if group in there else LISTED_MS):
                del self.groups[group]

    def end(self, key: Key) -> int | None:
        """The log's end at the last look."""
        ends = self.ends.get(key)
        return ends[-1] if ends else None

    def topics(self) -> dict[str, list[int]]:
        """The ends of the logs of each topic, by partition number."""
        partitions: dict[str, list[int]] = {}
        for topic, number in sorted(self.ends):
            rows = partitions.setdefault(topic, [])
            rows += [0] * (number + 1 - len(rows))
            rows[number] = self.ends[topic, number][-1]
        return partitions

    def status(self, group: str, now_ms: int) -> GroupStatus | None:
        """The verdict about a group; None if there is none of the name."""
        windows = self.groups.get(group)
        if windows is None:
            return None
        rows = tuple(self._partition(key, window, now_ms) for key, window in sorted(windows.items()))
        worst = max((row.status for row in rows), default=Status.OK)
        return GroupStatus(group, min(worst, Status.ERR), rows)

    def _partition(self, key: Key, window: Window, now_ms: int) -> PartitionStatus:
        lag = window.lag(self.end(key))
        commits = tuple(window.commits)
        status = verdict(commits, self.ends.get(key, ()), lag, now_ms)
        first, last = (commits[0], commits[-1]) if commits else (None, None)
        return PartitionStatus(*key, window.owner, window.client, status, first, last, lag, window.complete)
