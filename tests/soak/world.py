"""A broker, groups of real consumers in processes, a producer, and the faults that befall them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.soak import journal
from tests.soak.journal import Rules, Span
from tests.support.admin import admin, create_topic
from tests.support.process import BrokerProcess

SCRIPT = Path(__file__).parent / "member.py"
RECORD = bytes(100)


@dataclass(frozen=True)
class Protocol:
    """One group's sort of members. libraries: each new process takes the next one."""

    protocol: str
    strategy: str = ""
    libraries: tuple[str, ...] = ("confluent-kafka",)

    @property
    def name(self) -> str:
        return f"{self.protocol}-{self.strategy or 'server'}-{len(self.libraries)}"


class Members:
    """One process with one or more members."""

    def __init__(self, command: Sequence[str], journal_path: Path, names: list[str]) -> None:
        self.names, self.journal_path = names, journal_path
        self.log = journal_path.with_suffix(".log").open("wb")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def signal(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def end(self, number: int, timeout_s: float = 60) -> bool:
        """True when it ended by itself in time."""
        self.signal(number)
        try:
            self.process.wait(timeout_s)
            ended = True
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            ended = False
        self.log.close()
        return ended


class Group:
    def __init__(self, world: World, kind: Protocol, sizes: Sequence[int]) -> None:
        self.world, self.kind, self.name = world, kind, f"soak-{kind.name}"
        self.alive: list[Members] = []
        self.all: list[Members] = []
        for size in sizes:
            self.start(size)

    def start(self, size: int) -> None:
        number = len(self.all)
        library = self.kind.libraries[number % len(self.kind.libraries)]
        names = [f"{number}.{index}" for index in range(size)]
        world = self.world
        settings = {
            "library": library, "bootstrap": world.broker.bootstrap, "group": self.name, "topic": world.topic,
            "protocol": self.kind.protocol, "strategy": self.kind.strategy, "names": names,
            "session_ms": int(world.rules.session_s * 1000), "heartbeat_ms": int(world.rules.heartbeat_s * 1000),
            "rebalance_ms": int(world.rules.revoke_s * 1000),
        }  # fmt: skip
        path = world.folder / f"{self.name}-{number}.journal"
        members = Members([sys.executable, str(SCRIPT), str(path), json.dumps(settings)], path, names)
        self.alive.append(members)
        self.all.append(members)

    def take(self) -> Members:
        return self.alive.pop(self.world.random.randrange(len(self.alive)))

    def story(self, end: float) -> journal.Story:
        paths = [members.journal_path for members in self.all if members.journal_path.exists()]
        lines = [journal.lines_of(path) for path in paths]
        return journal.tell(lines, self.world.rules, end=end, broker_away=self.world.broker_away)

    def all_owned(self) -> bool:
        """Whether every partition has an owner now, and every living member has started."""
        now = time.monotonic()
        story = self.story(now)
        free = journal.unowned(story, self.world.partitions, Span(now - 0.001, now))
        return not any(free.values())


class Feeder(threading.Thread):
    """Writes records at a steady rate, over restarts of the broker; counts what was acknowledged."""

    def __init__(self, world: World, records_per_s: int) -> None:
        super().__init__(daemon=True)
        self.world, self.records_per_s = world, records_per_s
        self.acknowledged = 0
        self.stopping = threading.Event()
        self.producer = Producer(
            {"bootstrap.servers": world.broker.bootstrap, "enable.idempotence": True, "linger.ms": 20,
             "message.timeout.ms": 120_000, "reconnect.backoff.max.ms": 500}
        )  # fmt: skip

    def run(self) -> None:
        number, began = 0, time.monotonic()
        while not self.stopping.is_set():
            while number < (time.monotonic() - began) * self.records_per_s:
                self.producer.produce(
                    self.world.topic, RECORD, partition=number % self.world.partitions, on_delivery=self._told
                )
                number += 1
            self.producer.poll(0)
            time.sleep(0.05)
        self.producer.flush(60)

    def _told(self, error: Any, _: Any) -> None:
        self.acknowledged += error is None


class Watch(threading.Thread):
    """Reads the groups' committed offsets again and again: none may ever be lower than it was."""

    def __init__(self, bootstrap: str, names: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.bootstrap, self.names = bootstrap, names
        self.client: AdminClient = admin(bootstrap)
        self.seen: dict[tuple[str, int], int] = {}
        self.faults: list[str] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(1.0):
            for name in self.names:
                try:
                    self.look(name)
                except (KafkaException, TimeoutError):
                    # The broker is away. librdkafka's admin client may never find a coordinator again for which
                    # it had a request under way then: another one goes on.
                    self.client = admin(self.bootstrap)

    def look(self, name: str) -> dict[int, int]:
        asked = self.client.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name)], request_timeout=5
        )
        offsets = {row.partition: row.offset for row in asked[name].result(20).topic_partitions}
        for partition, offset in offsets.items():
            before = self.seen.get((name, partition), -1)
            if offset < before:
                self.faults.append(f"{name}: the offset of {partition} went from {before} to {offset}")
            self.seen[name, partition] = offset
        return offsets


@dataclass
class World:
    broker: BrokerProcess
    folder: Path
    rules: Rules
    random: random.Random
    partitions: int
    topic: str = "soak"
    groups: list[Group] = field(default_factory=list)
    broker_away: list[Span] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    _stopped: list[Members] = field(default_factory=list)
    _runs_again_at: float = 0.0

    def begin(self, kinds: Sequence[Protocol], sizes: Sequence[int], records_per_s: int) -> None:
        """Groups of members of the given process sizes each, and everything owned."""
        create_topic(self.broker.bootstrap, self.topic, self.partitions)
        self.feeder = Feeder(self, records_per_s)
        self.feeder.start()
        self.groups = [Group(self, kind, sizes) for kind in kinds]
        self.watch = Watch(self.broker.bootstrap, [group.name for group in self.groups])
        self.watch.start()
        self.until(lambda: all(group.all_owned() for group in self.groups), "all partitions owned")
        self.began_at = time.monotonic()

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float = 90) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"waited {timeout_s} s for: {what}"
            time.sleep(0.25)

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    # --- what befalls them

    def kill(self, group: Group, processes: int) -> None:
        for _ in range(processes):
            victim = group.take()
            self.count("members killed", len(victim.names))
            victim.end(signal.SIGKILL)
            group.start(len(victim.names))

    def leave(self, group: Group, processes: int) -> None:
        for _ in range(processes):
            leaver = group.take()
            self.count("members that left", len(leaver.names))
            leaver.signal(signal.SIGTERM)
            group.start(len(leaver.names))

    def stall(self, group: Group, processes: int, seconds: float) -> None:
        """They do not run for a while, and do not know of it."""
        for victim in self.random.sample(group.alive, processes):
            self.count("members stopped", len(victim.names))
            victim.signal(signal.SIGSTOP)
            self._stopped.append(victim)
            self._runs_again_at = time.monotonic() + seconds
            threading.Timer(seconds, victim.signal, (signal.SIGCONT,)).start()

    def crash_broker(self, away_s: float) -> None:
        gone_at = time.monotonic()
        self.count("broker killed")
        self.broker.kill()
        time.sleep(away_s)
        self.broker.start()
        self.broker_away.append(Span(gone_at, time.monotonic()))

    def stall_broker(self, seconds: float) -> None:
        """It does not run, and finds all that was sent meanwhile when it wakes up."""
        gone_at = time.monotonic()
        self.count("broker stopped")
        os.kill(self.broker.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.broker.pid, signal.SIGCONT)
        self.broker_away.append(Span(gone_at, time.monotonic()))

    def rest(self) -> None:
        """Until the last fault is over, and a little longer: then nothing is excused any more."""
        running = max(self._runs_again_at - time.monotonic(), 0)
        time.sleep(running + self.rules.session_s + self.rules.settle_s + 2)

    # --- the end

    def lag(self) -> int:
        total = 0
        for group in self.groups:
            committed = self.watch.look(group.name)
            total += sum(end - max(committed.get(p, 0), 0) for p, end in self.ends.items())
        return total

    def end_offsets(self) -> dict[int, int]:
        config = {"bootstrap.servers": self.broker.bootstrap, "group.id": "ends"}
        asking = Consumer(config)
        topics = [TopicPartition(self.topic, partition) for partition in range(self.partitions)]
        ends = {topic.partition: asking.get_watermark_offsets(topic, timeout=20)[1] for topic in topics}
        asking.close()
        return ends

    def finish(self) -> dict[str, Any]:
        """Everything is read and committed, then all leave; what was found. Raises AssertionError for faults."""
        for stopped in self._stopped:
            stopped.signal(signal.SIGCONT)
        self.feeder.stopping.set()
        self.feeder.join(90)
        self.watch.stopping.set()
        self.watch.join(60)
        self.watch.client = admin(self.broker.bootstrap)
        self.ends = self.end_offsets()
        self.until(lambda: self.lag() == 0, "no lag", 120)
        ended_at = time.monotonic()
        for group in self.groups:
            for members in group.alive:
                members.signal(signal.SIGTERM)
        for group in self.groups:
            for members in group.all:
                if members.process.poll() is None:
                    members.end(signal.SIGTERM)
        faults = list(self.watch.faults)
        if sum(self.ends.values()) < self.feeder.acknowledged:
            faults.append(f"{self.feeder.acknowledged} acknowledged, {sum(self.ends.values())} in the log")
        found: dict[str, Any] = {"records": self.feeder.acknowledged, **self.counts}
        for group in self.groups:
            found[group.name] = self._judge(group, Span(self.began_at, ended_at), faults)
        assert not faults, "\n".join([f"{len(faults)} faults", *faults[:40], json.dumps(found)])
        return found

    def _judge(self, group: Group, whole: Span, faults: list[str]) -> dict[str, Any]:
        rules = self.rules if group.kind.protocol == "consumer" else replace(self.rules, revoke_s=0.0)
        story = group.story(whole.end)
        free = journal.unowned(story, self.partitions, whole)
        excused = journal.excuses(story, rules, self.broker_away)
        found = [
            *journal.owned_twice(story, rules),
            *journal.nobodys(free, excused),
            *journal.nobodys_for_long(free, rules, self.broker_away),
            *journal.not_read(story, self.ends),
            *journal.went_back(story.commits),
        ]
        faults += [f"{group.name}: {fault}" for fault in found]
        watched = whole.end - whole.begin
        inside = [Span(max(row.begin, whole.begin), min(row.end, whole.end)) for row in excused]
        return {
            "members": sum(len(members.names) for members in group.all),
            "assignments": len(story.owned),
            "commits": len(story.commits),
            "longest unowned s": round(
                max((s.end - s.begin for ss in free.values() for s in ss), default=0), 1
            ),
            "seconds watched": round(watched),
            "seconds without excuse": round(watched - sum(max(0, s.end - s.begin) for s in inside)),
        }

    def close(self) -> None:
        """Ends every process, whatever happened."""
        for group in self.groups:
            for members in group.all:
                if members.process.poll() is None:
                    members.end(signal.SIGKILL)
        for thread in (getattr(self, "feeder", None), getattr(self, "watch", None)):
            if thread is not None:
                thread.stopping.set()
