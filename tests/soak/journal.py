"""What the members of a group wrote down, and what must be true of it. No I/O but reading the files.

Ownership. A member owns a partition from the beginning of its assign callback to the end of its revoke callback
(while it still reads and commits it has not let go), or until its process dies. Nobody may begin to own what
somebody else still owns, unless that one was fenced: its process did not run (stopped, starved) for so long
that its session ended, or it did not find the broker again within a session after that had been away; it owns
in its own belief only, until it hears of it.

Nobody's. A partition may be nobody's while the group cannot know better: for a session time-out after a member
went silent (died, did not run) or the broker came back, and everywhere for the short time that a rebalance
takes (`settle_s`) after somebody came or went. Every other moment without an owner is a fault. So is, whatever
happened meanwhile, to be nobody's for longer than one session time-out and one rebalance at a stretch
(`Rules.silence_s`).
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

FOREVER = float("inf")
TICK_S = 0.5
RUNS_WITHIN_S = 3 * TICK_S
"""A process that says nothing for longer did not run."""


class Span(NamedTuple):
    """[begin, end) in seconds of the monotonic clock."""

    begin: float
    end: float

    def overlaps(self, other: Span) -> bool:
        return self.begin < other.end and other.begin < self.end


class Owned(NamedTuple):
    member: str
    partition: int
    span: Span


class Commit(NamedTuple):
    member: str
    partition: int
    offset: int
    sent_at: float
    acked_at: float


@dataclass(frozen=True)
class Rules:
    """session_s, heartbeat_s: as the members are told. settle_s: what a rebalance may take.

    revoke_s: how long a member of the consumer protocol may take to confirm that it gave partitions up (its
    rebalance time-out): Kafka's rule, and needed, because librdkafka now and then never confirms and is fenced.
    grace_s: two owners for so short a time are no fault: librdkafka may say that it released partitions while its
    callback still runs.
    """

    session_s: float
    heartbeat_s: float
    settle_s: float
    revoke_s: float = 0.0
    grace_s: float = 0.25

    @property
    def silence_s(self) -> float:
        """From the last sign of life of a member to the moment when others own what it had."""
        return self.session_s + self.settle_s + self.revoke_s


@dataclass
class Story:
    """What a whole group did."""

    owned: list[Owned] = field(default_factory=list)
    silent: list[Span] = field(default_factory=list)  # some process did not run, or died at the begin
    doubtful: dict[str, list[Span]] = field(default_factory=dict)  # member -> when it may have been fenced
    came_or_went: list[float] = field(default_factory=list)
    reads: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    commits: list[Commit] = field(default_factory=list)


def lines_of(path: Path) -> list[list[Any]]:
    """The journal's lines; the last one may be cut off by a kill."""
    lines = path.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


def tell(
    journals: Iterable[list[list[Any]]], rules: Rules, *, end: float, broker_away: Iterable[Span] = ()
) -> Story:
    """journals: the lines of each process, in order. `end`: when the looking ends."""
    story = Story()
    away = list(broker_away)
    for lines in journals:
        _tell_process(story, lines, rules, end)
        for member, events in _by_member(lines).items():
            story.doubtful[member] += [_doubt_after(row.end, events, rules) for row in away]
    return story


def _by_member(lines: list[list[Any]]) -> dict[str, list[list[Any]]]:
    events: dict[str, list[list[Any]]] = defaultdict(list)
    for line in lines:
        if line[1]:
            events[line[1]].append(line)
    return events


def _tell_process(story: Story, lines: list[list[Any]], rules: Rules, end: float) -> None:
    if not lines:
        return
    times = sorted(line[2] for line in lines)
    closed = {line[1] for line in lines if line[0] == "closed"}
    members = {line[1] for line in lines if line[1]}
    pauses = [Span(a, b) for a, b in pairwise(times) if b - a > RUNS_WITHIN_S]
    died_at = times[-1]
    if not members <= closed and end - died_at > RUNS_WITHIN_S:
        pauses.append(Span(died_at, FOREVER))
    story.silent += pauses
    story.came_or_went.append(times[0])
    story.came_or_went += [line[2] for line in lines if line[0] == "closed"]
    for member, events in _by_member(lines).items():
        _tell_member(
            story, member, events, min(died_at, end) if pauses and pauses[-1].end == FOREVER else end
        )
        story.doubtful[member] = [_doubt(pause, events, rules) for pause in pauses]


def _tell_member(story: Story, member: str, events: list[list[Any]], last: float) -> None:
    begun: dict[int, float] = {}
    for line in events:
        kind, at = line[0], line[2]
        if kind == "assign":
            story.came_or_went += [at] if not begun else []
            for partition in line[3]:
                begun.setdefault(partition, at)
        elif kind == "revoke":
            for partition in list(begun) if line[3] == "all" else line[3]:
                if partition in begun:
                    story.owned.append(Owned(member, partition, Span(begun.pop(partition), at)))
        elif kind == "read":
            story.reads[line[3]].append((line[4], line[5]))
        elif kind == "commit":
            for partition, offset in line[3].items():
                story.commits.append(Commit(member, int(partition), offset, line[4], at))
    for partition, at in begun.items():
        story.owned.append(Owned(member, partition, Span(at, last)))


def _doubt(pause: Span, events: list[list[Any]], rules: Rules) -> Span:
    """From when a member that did not run may have been fenced, to when it had heard of it."""
    begin = pause.begin + rules.session_s - rules.heartbeat_s - TICK_S
    if pause.end < begin:
        return Span(begin, begin)
    return Span(begin, _hears_at(pause.end, events))


def _doubt_after(back_at: float, events: list[list[Any]], rules: Rules) -> Span:
    """The broker came back: who did not find it again within a session was fenced, until it had heard of it."""
    begin = back_at + rules.session_s - TICK_S
    return Span(begin, _hears_at(begin, events))


def _hears_at(at: float, events: list[list[Any]]) -> float:
    return min((line[2] for line in events if line[0] == "revoke" and line[2] > at), default=FOREVER)


# --- what must be true


def owned_twice(story: Story, rules: Rules) -> list[str]:
    """Faults: somebody began to own what another member owned."""
    faults = []
    by_partition: dict[int, list[Owned]] = defaultdict(list)
    for owned in story.owned:
        by_partition[owned.partition].append(owned)
    for partition, owners in by_partition.items():
        owners.sort(key=lambda owned: owned.span)
        for index, later in enumerate(owners):
            for earlier in owners[:index]:
                if not earlier.span.overlaps(later.span) or earlier.member == later.member:
                    continue
                common = Span(later.span.begin, min(earlier.span.end, later.span.end))
                if common.end - common.begin <= rules.grace_s:
                    continue
                fenced = [*story.doubtful.get(earlier.member, ()), *story.doubtful.get(later.member, ())]
                if not any(doubt.begin <= common.begin and common.end <= doubt.end for doubt in fenced):
                    faults.append(
                        f"partition {partition}: {later.member} began at {common.begin:.3f} while"
                        f" {earlier.member} owned it until {earlier.span.end:.3f}"
                    )
    return faults


def unowned(story: Story, partitions: int, whole: Span) -> dict[int, list[Span]]:
    """When each partition was nobody's, within `whole`."""
    by_partition: dict[int, list[Span]] = {partition: [] for partition in range(partitions)}
    for topic in story.owned:
        by_partition[topic.partition].append(topic.span)
    free_spans = {}
    for partition, spans in by_partition.items():
        at, free = whole.begin, []
        for span in sorted(spans):
            if span.begin > at:
                free.append(Span(at, min(span.begin, whole.end)))
            at = max(at, span.end)
        if at < whole.end:
            free.append(Span(at, whole.end))
        free_spans[partition] = [span for span in free if span.begin < span.end <= whole.end]
    return free_spans


def excuses(story: Story, rules: Rules, broker_away: Iterable[Span]) -> list[Span]:
    """When a partition may be nobody's; merged and sorted."""
    spans = [Span(at - rules.settle_s, at + rules.settle_s + rules.revoke_s) for at in story.came_or_went]
    for silence in story.silent:
        back = silence.begin if silence.end == FOREVER else silence.end
        spans.append(Span(silence.begin - TICK_S, back + rules.silence_s))
    spans += [Span(away.begin, away.end + rules.silence_s) for away in broker_away]
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span.begin <= merged[-1].end:
            merged[-1] = Span(merged[-1].begin, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def nobodys(free: Mapping[int, list[Span]], excused: list[Span]) -> list[str]:
    """Faults: moments without an owner that nothing excuses."""
    faults = []
    for partition, spans in free.items():
        for span in spans:
            slot = bisect_right(excused, Span(span.begin, FOREVER)) - 1
            if slot < 0 or excused[slot].end < span.end:
                faults.append(
                    f"partition {partition} was nobody's from {span.begin:.3f} to {span.end:.3f}"
                    f" ({span.end - span.begin:.1f} s)"
                )
    return faults


def nobodys_for_long(free: Mapping[int, list[Span]], rules: Rules, broker_away: Iterable[Span]) -> list[str]:
    """Faults: longer without an owner than one session and one rebalance; a broker that was away begins anew."""
    away = list(broker_away)
    faults = []
    for partition, spans in free.items():
        for span in spans:
            allowed = rules.silence_s
            allowed += sum(row.end - row.begin + rules.session_s for row in away if row.overlaps(span))
            if span.end - span.begin > allowed:
                faults.append(
                    f"partition {partition} was nobody's for {span.end - span.begin:.1f} s from {span.begin:.3f},"
                    f" longer than {allowed:.1f} s"
                )
    return faults


def not_read(story: Story, end_offsets: Mapping[int, int]) -> list[str]:
    """Faults: records that nobody read."""
    faults = []
    for partition, end_offset in end_offsets.items():
        reached = 0
        for first, last in sorted(story.reads.get(partition, [])):
            if first > reached:
                faults.append(f"partition {partition}: nobody read {reached} to {first - 1}")
            reached = max(reached, last + 1)
        if reached < end_offset:
            faults.append(f"partition {partition}: nobody read {reached} to {end_offset - 1}")
    return faults


def went_back(commits: Iterable[Commit]) -> list[str]:
    """Faults: a commit that was sent after another was acknowledged, is below it, and was accepted."""
    faults = []
    by_partition: dict[int, list[Commit]] = defaultdict(list)
    for commit in commits:
        by_partition[commit.partition].append(commit)
    for partition, commits_of_partition in by_partition.items():
        acknowledged = sorted(commits_of_partition, key=lambda commit: commit.acked_at)
        times = [commit.acked_at for commit in acknowledged]
        highest: list[Commit] = []
        for commit in acknowledged:
            highest.append(commit if not highest or commit.offset >= highest[-1].offset else highest[-1])
        for commit in commits_of_partition:
            slot = bisect_left(times, commit.sent_at) - 1
            if slot >= 0 and highest[slot].offset > commit.offset:
                faults.append(
                    f"partition {partition}: {commit.member} committed {commit.offset} after"
                    f" {highest[slot].member} had committed {highest[slot].offset}"
                )
    return faults
