"""What is wrong by a rule: a look at a cluster, and what is remembered of earlier looks, give findings."""

from __future__ import annotations

import fnmatch
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from barnabas.monitor.alerts.rules import Rule
from barnabas.monitor.burrow.board import Board
from barnabas.monitor.snapshot import Snapshot

KEPT_MS: Final = 6 * 3_600_000
KEPT_EVERY_MS: Final = 60_000
GROWTH_MS_MIN: Final = 5 * 60_000
"""The growth of a disk is not estimated from less."""
RESTART_SHOWN_MS: Final = 5 * 60_000
"""How long it is said that a broker was restarted."""
HOUR_S: Final = 3600.0


class Finding(NamedTuple):
    """Something that is wrong. subject: what, such as `group billing`; the same while it is wrong. text: a sentence."""

    subject: str
    value: float
    text: str


class Certificate(NamedTuple):
    """A certificate that was looked at. left_s: time until it ends; None if it could not be looked at, with the reason."""

    address: str
    left_s: float | None
    reason: str = ""


class Copied(NamedTuple):
    """A copied topic of a link. lag: offsets that are missing. waiting_s: the age of its newest record while there are newer
    ones. trouble: why it is not copied; empty while it is. A link whose source does not answer has one of topic `*`."""

    link: str
    topic: str
    lag: int = 0
    waiting_s: float = 0.0
    trouble: str = ""


@dataclass(slots=True)
class Past:
    """What is remembered of a cluster. disks, topics: each minute, for hours. away: brokers that are missing, since when."""

    before: Snapshot | None = None
    last: Snapshot | None = None
    disks: deque[tuple[int, dict[tuple[int, str], int]]] = field(default_factory=deque)
    topics: deque[tuple[int, dict[str, int]]] = field(default_factory=deque)
    away: dict[int, int] = field(default_factory=dict)
    returned: dict[int, int] = field(default_factory=dict)

    def note(self, seen: Snapshot) -> None:
        """The next look; one at a cluster that did not answer says nothing about its brokers."""
        if not seen.brokers:
            return
        known = {*self.away, *(self.last.brokers if self.last else ())}
        for broker in known - set(seen.brokers):
            self.away.setdefault(broker, seen.now_ms)
        for broker in set(self.away) & set(seen.brokers):
            del self.away[broker]
            self.returned[broker] = seen.now_ms
        self.returned = {
            broker: at for broker, at in self.returned.items() if seen.now_ms - at < RESTART_SHOWN_MS
        }
        self.before, self.last = self.last, seen
        if self.topics and seen.now_ms - self.topics[-1][0] < KEPT_EVERY_MS:
            return
        free = {(d.broker, d.path): d.free_bytes for d in seen.disks if d.free_bytes is not None}
        self.disks.append((seen.now_ms, free))
        self.topics.append((seen.now_ms, seen.topic_ends()))
        for kept in (self.disks, self.topics):
            while seen.now_ms - kept[0][0] > KEPT_MS:
                kept.popleft()


@dataclass(slots=True)
class View:
    """What rules look at. past: with the last look. copied: topics that links copy into the cluster. pipelines: (pipeline,
    state, reason) by server; a server that does not answer has one pipeline `*`, with the reason."""

    cluster: str
    now_ms: int
    past: Past
    board: Board
    trouble: str | None = None
    certificates: Iterable[Certificate] = ()
    pipelines: Mapping[str, Iterable[tuple[str, str, str]]] = field(default_factory=dict)
    copied: Iterable[Copied] = ()

    @property
    def seen(self) -> Snapshot:
        return self.past.last or Snapshot(self.now_ms, {}, {})


def findings(rule: Rule, view: View) -> list[Finding]:
    """All that is wrong by this rule."""
    if not matches(rule.clusters, view.cluster):
        return []
    return list(CONDITIONS[rule.kind](rule.values, view))


def matches(patterns: Iterable[str], name: str) -> bool:
    """Whether one of the patterns fits; * and ? stand for anything."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _lag(values: Mapping[str, Any], view: View) -> Iterator[Finding]:
    for group in view.seen.groups:
        if matches(values["group"], group.name) and group.records > values["above"]:
            text = f"group {group.name} has not read {group.records:,} records"
            yield Finding(f"group {group.name}", group.records, text)


def _time_lag(values: Mapping[str, Any], view: View) -> Iterator[Finding]:
    for group in view.seen.groups:
        seconds = group.waiting_s(view.now_ms)
        if matches(values["group"], group.name) and seconds is not None and seconds > values["above"]:
            text = f"the next record of group {group.name} has been waiting for {duration_text(seconds)}"
            yield Finding(f"group {group.name}", seconds, text)


def _verdict(values: Mapping[str, Any], view: View) -> Iterator[Finding]:
    for name in view.board.groups:
        status = view.board.status(name, view.now_ms) if matches(values["group"], name) else None
        for row in status.partitions if status else ():
            if row.status.name in values["status"]:
                text = f"group {name} is {row.status.name} in {row.topic}-{row.partition}, with a lag of {row.lag:,}"
                yield Finding(f"group {name} in {row.topic}-{row.partition}", row.lag, text)


def _no_consumer(values: Mapping[str, Any], view: View) -> Iterator[Finding]:
    for group in view.seen.groups:
        if matches(values["group"], group.name) and not group.members:
            text = f"group {group.name} has no members; {group.records:,} records wait for it"
            yield Finding(f"group {group.name}", group.records, text)


def _under_replicated(values: Mapping[str, Any], view: View) -> Iterator[Finding]:
    for topic, number in view.seen.under_replicated:
        if matches(values["topic"], topic):
            row = view.seen.partitions[topic, number]
            text = f"partition {topic}-{number} has {row.in_sync} of {row.replicas} replicas in sync"
            yield Finding(f"partition {topic}-{number}", row.in_sync, text)


def _offline(values: Mapping[str, Any], view: View) -> Iterator[Finding]:
    for topic, number in view.seen.offline:
        if matches(values["topic"], topic):
            yield Finding(f"partition {topic}-{number}", 0, f"partition {topic}-{number} has no leader")


def _broker_away(values: Mapping[str, Any], view: View) -> Iterator[Finding]:
    for broker, since_ms in view.past.away.items():
        seconds = (view.now_ms - since_ms) / 1000
        yield Finding(
            f"broker {broker}", seconds, f"broker {broker} has been away for {duration_text(seconds)}"
        )


def _broker_restarted(values: Mapping[str, Any], view: View) -> Iterator[Finding]:
    for broker in view.past.returned:
        yield Finding(f"broker {broker}", 1, f"broker {broker} was away and is back")


def _unreachable(values: Mapping[str, Any], view: View) -> Iterator[Finding]:
    if view.trouble is not None:
        yield Finding("cluster", 1, f"the cluster cannot be read: {view.trouble}")


def _disk_full(values: Mapping[str, Any], view: View) -> Iterator[Finding]:
    for disk in view.seen.disks:
        if disk.free_bytes is None:
            continue
        name = f"log dir {disk.path} of broker {disk.broker}"
        past = [
            (at, free[disk.broker, disk.path])
            for at, free in view.past.disks
            if (disk.broker, disk.path) in free
        ]
        seconds = full_in_s(past)
        if disk.free_bytes == 0 or (seconds is not None and seconds < values["within"]):
            text = f"{name} will be full in {duration_text(seconds or 0)} if it grows on like this"
            yield Finding(name, seconds or 0, text)


def full_in_s(past: list[tuple[int, int]]) -> float | None:
    """Seconds until nothing is free, along the line that fits (time in ms, free bytes) best; None if it is not shrinking."""
    if not past or past[-1][0] - past[0][0] < GROWTH_MS_MIN:
        return None
    middle_ms = sum(at for at, _ in past) / len(past)
    middle = sum(free for _, free in past) / len(past)
    spread = sum((at - middle_ms) ** 2 for at, _ in past)
    slope = sum((at - middle_ms) * (free - middle) for at, free in past) / spread
    return None if slope >= 0 else past[-1][1] / -slope / 1000


def _dead_letters(values: Mapping[str, Any], view: View) -> Iterator[Finding]:
    """New records of a topic of dead letters. A topic that appears within the window had none before."""
    if len(view.past.topics) < 2 and view.past.before is None:
        return
    start_ms = view.now_ms - values["window"] * 1000
    older = [ends for at, ends in view.past.topics if at <= start_ms]
    base = older[-1] if older else view.past.topics[0][1]
    for topic, end in view.seen.topic_ends().items():
        count = end - base.get(topic, 0)
        if matches(values["topic"], topic) and count > values["above"]:
            text = f"{count:,} dead letters in {topic} within {duration_text(values['window'])}"
            yield Finding(f"topic {topic}", count, text)


def _hot_partition(values: Mapping[str, Any], view: View) -> Iterator[Finding]:
    before, seen = view.past.before, view.seen
    if before is None or seen.now_ms <= before.now_ms:
        return
    rates: dict[str, dict[int, float]] = {}
    seconds = (seen.now_ms - before.now_ms) / 1000
    for (topic, number), row in seen.partitions.items():
        was = before.partitions.get((topic, number))
        if row.end is not None and was is not None and was.end is not None and row.end >= was.end:
            rates.setdefault(topic, {})[number] = (row.end - was.end) / seconds
    for topic, rates_of_topic in rates.items():
        if len(rates_of_topic) < 2 or not matches(values["topic"], topic):
            continue
        total = sum(rates_of_topic.values())
        for number, rate in rates_of_topic.items():
            others = (total - rate) / (len(rates_of_topic) - 1)
            if rate > values["above"] and rate > values["times"] * others:
                text = f"{topic}-{number} gets {rate:,.0f} records/s, the other partitions {others:,.0f} on average"
                yield Finding(f"partition {topic}-{number}", rate, text)


def _certificate(values: Mapping[str, Any], view: View) -> Iterator[Finding]:
    for certificate in view.certificates:
        if values["address"] and certificate.address not in values["address"]:
            continue
        if certificate.left_s is None:
            text = f"the certificate of {certificate.address} cannot be read: {certificate.reason}"
            yield Finding(f"certificate of {certificate.address}", 0, text)
        elif certificate.left_s < values["within"]:
            ends = f"ends in {duration_text(certificate.left_s)}" if certificate.left_s > 0 else "has ended"
            text = f"the certificate of {certificate.address} {ends}"
            yield Finding(f"certificate of {certificate.address}", certificate.left_s, text)


def _failed_pipeline(values: Mapping[str, Any], view: View) -> Iterator[Finding]:
    for name, state, reason in view.pipelines.get(values["server"], ()):
        if name == "*" or (state == "failed" and matches(values["pipeline"], name)):
            what = f"the server of pipelines {values['server']}" if name == "*" else f"pipeline {name}"
            yield Finding(what, 1, f"{what} {'does not answer' if name == '*' else 'has failed'}: {reason}")


def _copied(values: Mapping[str, Any], view: View) -> Iterator[Copied]:
    for row in view.copied:
        if matches(values["link"], row.link) and (row.topic == "*" or matches(values["topic"], row.topic)):
            yield row


def _mirror_lag(values: Mapping[str, Any], view: View) -> Iterator[Finding]:
    for row in _copied(values, view):
        if row.lag > values["above"]:
            text = f"the copy of {row.topic} by link {row.link} is {row.lag:,} records behind"
            yield Finding(f"topic {row.topic} of link {row.link}", row.lag, text)


def _mirror_time_lag(values: Mapping[str, Any], view: View) -> Iterator[Finding]:
    for row in _copied(values, view):
        if row.waiting_s > values["above"]:
            age = duration_text(row.waiting_s)
            text = f"the newest record in the copy of {row.topic} by link {row.link} is {age} old, and there are newer ones"
            yield Finding(f"topic {row.topic} of link {row.link}", row.waiting_s, text)


def _mirror_failed(values: Mapping[str, Any], view: View) -> Iterator[Finding]:
    for row in _copied(values, view):
        if row.trouble:
            what = f"link {row.link}" if row.topic == "*" else f"topic {row.topic} of link {row.link}"
            yield Finding(what, 1, f"{what} is not copied: {row.trouble}")


def duration_text(seconds: float) -> str:
    """`90 s`, `12 min`, `5 h`, `3 days`: as exact as it matters."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * HOUR_S:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / HOUR_S:.0f} h" if seconds < 48 * HOUR_S else f"{seconds / 24 / HOUR_S:.0f} days"


CONDITIONS: Final[Mapping[str, Callable[[Mapping[str, Any], View], Iterator[Finding]]]] = {
    "lag": _lag,
    "time_lag": _time_lag,
    "verdict": _verdict,
    "no_consumer": _no_consumer,
    "under_replicated": _under_replicated,
    "offline": _offline,
    "broker_away": _broker_away,
    "broker_restarted": _broker_restarted,
    "unreachable": _unreachable,
    "disk_full": _disk_full,
    "dead_letters": _dead_letters,
    "hot_partition": _hot_partition,
    "certificate": _certificate,
    "failed_pipeline": _failed_pipeline,
    "mirror_lag": _mirror_lag,
    "mirror_time_lag": _mirror_time_lag,
    "mirror_failed": _mirror_failed,
}
