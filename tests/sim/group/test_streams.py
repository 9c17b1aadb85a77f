"""Streams groups (KIP-1071) under crashes, stalls, lies and lost answers.

Instances have one to three threads, which share a folder of state; their topology has a repartition topic, which the broker
creates after a heartbeat; topics are deleted and come back, and the number of standby tasks changes.

Each seed is one history: `pytest tests/sim/group -k streams_seed7`. Beside what Driver.check demands after the steps (log
and memory agree, no task is active twice or twice in one process), what the threads themselves believe is compared. Once the
faults stop, all tasks are assigned, evenly, and every thread works on exactly what it was given.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from barnabas.cores.group import (
    CommitOffsets,
    CommitReply,
    GroupLimits,
    OffsetToCommit,
    StreamsHeartbeat,
    StreamsHeartbeatReply,
)
from barnabas.cores.group.streams.group import NO_TASKS, StreamsGroup, StreamsState, Tasks
from barnabas.cores.group.streams.topology import NewTopic
from barnabas.wire.errors import ErrorCode
from tests.scenarios.group.driver import Driver
from tests.scenarios.group.streams import TOPOLOGIES
from tests.support.examples import one_in

SESSION_MS = 45_000
APPEND_ERRORS = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR]
TRY_AGAIN = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNRELEASED_INSTANCE_ID,
}
SOURCES = {"0": "lines", "1": "words"}


@dataclass
class Thread:
    name: str
    process: str
    instance: str | None
    life: int = 0
    member_id: str = ""
    epoch: int = 0
    owned: Tasks = NO_TASKS
    assigned: Tasks = NO_TASKS
    next_beat_ms: int = 0
    stalled_until_ms: int = 0

    def crash(self) -> None:
        self.life += 1
        self.member_id, self.epoch, self.owned, self.assigned = "", 0, NO_TASKS, NO_TASKS


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.driver = Driver(
            GroupLimits(
                streams_session_timeout_ms=SESSION_MS,
                streams_initial_rebalance_delay_ms=self.random.choice([0, 3_000]),
                streams_assignment_interval_ms=self.random.choice([0, 1_000]),
                streams_num_standby_replicas=self.random.choice([0, 0, 1, 2]),
            )
        )
        self.driver.check_every_step = False
        self.sizes = {"lines": 5}
        self.driver.set_topics(**self.sizes)
        self.threads = [
            Thread(
                f"t{process}{number}",
                f"p{process}",
                f"i{process}{number}" if self.random.random() < 0.2 else None,
            )
            for process in range(self.random.randint(1, 3))
            for number in range(self.random.randint(1, 3))
        ]
        self.faults = True
        self.tokens = 0
        self.asked: dict[str, Callable[[Any], None]] = {}
        self.missing: tuple[NewTopic, ...] = ()

    def to(self, thread: Thread, heard: Callable[[Thread, Any], None]) -> str:
        life = thread.life
        self.tokens += 1
        token = f"#{self.tokens}"
        self.asked[token] = lambda reply: heard(thread, reply) if thread.life == life else None
        return token

    def deliver(self) -> None:
        while replies := self.driver.take_replies():
            for token, reply in replies:
                hear = self.asked.pop(token)
                if isinstance(reply, StreamsHeartbeatReply) and reply.missing:
                    self.missing = reply.missing
                if self.faults and self.random.random() < 0.02:
                    continue  # the answer is lost; the member asks again
                hear(reply)

    # --- threads

    def event_of(self, thread: Thread) -> Any:
        now_ms = self.driver.now_ms
        if thread.owned.minus(thread.assigned) != NO_TASKS and self.random.random() < 0.5:
            thread.owned = thread.owned.both(thread.assigned)  # it takes a while to close a task
            thread.next_beat_ms = now_ms
        if thread.epoch > 0 and thread.owned.active and self.random.random() < 0.2:
            return self.commit_of(thread, thread.epoch)
        if now_ms < thread.next_beat_ms:
            return None
        thread.next_beat_ms = now_ms + 5_000
        joins = thread.epoch == 0
        if joins and not thread.member_id:
            self.tokens += 1
            thread.member_id = f"{thread.name}-{self.tokens}"
        return StreamsHeartbeat(
            self.to(thread, self.heard),
            now_ms,
            "g",
            thread.member_id,
            thread.epoch,
            client_id=thread.name,
            client_host="/h",
            instance_id=thread.instance,
            rebalance_timeout_ms=20_000 if joins else -1,
            topology=TOPOLOGIES["count"] if joins else None,
            owned=NO_TASKS if joins else thread.owned,
            process_id=thread.process if joins else None,
        )

    def heard(self, thread: Thread, reply: StreamsHeartbeatReply) -> None:
        if reply.error in TRY_AGAIN:
            thread.next_beat_ms = self.driver.now_ms + 1_000
        elif reply.error in (
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
        ):
            thread.crash()
            thread.next_beat_ms = self.driver.now_ms + 500
        else:
            assert reply.error is ErrorCode.NONE, reply
            thread.epoch = reply.member_epoch
            thread.next_beat_ms = min(thread.next_beat_ms, self.driver.now_ms + reply.heartbeat_interval_ms)
            if reply.tasks is not None:
                thread.assigned = reply.tasks
            if thread.owned.minus(thread.assigned) == NO_TASKS:
                self.own(thread, thread.assigned)

    def own(self, thread: Thread, tasks: Tasks) -> None:
        group = self.driver.core.state.groups.get("g")
        new = tasks.minus(thread.owned)
        for other in self.threads:
            if other is thread or not isinstance(group, StreamsGroup) or other.member_id not in group.members:
                continue
            both = new.active & other.owned.active
            assert not both, f"{both} active in {thread.name} and {other.name}"
            if other.process == thread.process:
                here = frozenset().union(*other.owned) & frozenset().union(*new)
                assert not here, f"{here} twice in {thread.process}"
        thread.owned = tasks

    def commit_of(self, thread: Thread, epoch: int) -> CommitOffsets:
        part, number = self.random.choice(sorted(thread.owned.active))
        member_id = thread.member_id

        def heard(thread: Thread, reply: CommitReply) -> None:
            group = self.driver.core.state.groups.get("g")
            if (
                reply.error is ErrorCode.NONE
                and isinstance(group, StreamsGroup)
                and member_id in group.members
            ):
                member = group.members[member_id]
                since = member.active_epochs.get((part, number), member.epoch)
                assert since <= epoch <= member.epoch, "a commit with a wrong epoch passed"

        offsets = (OffsetToCommit(SOURCES[part], number, self.random.randrange(1_000)),)
        return CommitOffsets(
            self.to(thread, heard), self.driver.now_ms, "g", offsets, epoch, member_id, thread.instance
        )

    # --- the world

    def mischief(self) -> Any:
        thread, kind, now_ms = self.random.choice(self.threads), self.random.random(), self.driver.now_ms
        if kind < 0.25:
            thread.stalled_until_ms = now_ms + self.random.randint(1, 2 * SESSION_MS)
        elif kind < 0.5:
            leaves, member_id, instance = thread.epoch > 0, thread.member_id, thread.instance
            thread.crash()
            thread.stalled_until_ms = now_ms + self.random.randint(0, SESSION_MS)
            if leaves and self.random.random() < 0.5:
                epoch = -2 if instance and self.random.random() < 0.7 else -1
                token = self.to(thread, lambda thread, reply: None)
                return StreamsHeartbeat(token, now_ms, "g", member_id, epoch, instance_id=instance)
        elif kind < 0.6:
            self.sizes.pop(self.random.choice(["lines", "words", "counts"]), None)
            self.driver.set_topics(**self.sizes)
        elif kind < 0.65:
            replicas = self.random.choice([0, 1, 2])
            self.driver.limits = replace(self.driver.limits, streams_num_standby_replicas=replicas)
            self.driver.core.set_limits(self.driver.limits)
        elif thread.owned.active and kind < 0.8:
            return self.commit_of(thread, thread.epoch - self.random.randint(0, 2))
        elif thread.epoch > 0:
            # Somebody speaks in the name of a member, with a wrong epoch and with tasks it may not have.
            token = self.to(thread, lambda thread, reply: None)
            epoch = thread.epoch + self.random.choice([-1, 1, 7])
            if epoch > 0:
                owned = Tasks(frozenset({("0", 0)}), frozenset({("1", 1)}))
                return StreamsHeartbeat(token, now_ms, "g", thread.member_id, epoch, owned=owned)
        return None

    def create_topics(self) -> None:
        """The broker's part after a heartbeat; and sooner or later somebody brings a deleted source topic back."""
        created = {topic.name: topic.partitions for topic in self.missing if self.random.random() < 0.3}
        if "lines" not in self.sizes and self.random.random() < 0.1:
            created["lines"] = 5
        if created:
            self.sizes = {**self.sizes, **created}
            self.driver.set_topics(**self.sizes)
            self.missing = tuple(topic for topic in self.missing if topic.name not in self.sizes)

    def turn(self) -> None:
        events: list[Any] = []
        if self.faults and self.random.random() < 0.06:
            events.append(self.mischief())
        for _ in range(self.random.randint(1, 3)):
            thread = self.random.choice(self.threads)
            if self.driver.now_ms >= thread.stalled_until_ms:
                events.append(self.event_of(thread))
        if self.faults and self.random.random() < 0.03:
            self.driver.fail_next = self.random.choice(APPEND_ERRORS)
        for event in events:
            if event is not None:
                self.driver.step(event)
                self.deliver()
        self.create_topics()
        self.driver.fail_next = None
        self.driver.advance(self.random.choice([0, 10, 100, 1_000]))
        self.deliver()
        if self.faults and self.random.random() < 0.005:
            self.driver.reload()
            self.deliver()
            self.driver.check()

    def calm(self) -> bool:
        group = self.driver.core.state.groups.get("g")
        return (
            isinstance(group, StreamsGroup)
            and group.state is StreamsState.STABLE
            and group.topics_seen == self.driver.core.state.topics.version
            and sorted(group.members) == sorted(thread.member_id for thread in self.threads)
            and all(thread.owned == group.members[thread.member_id].assigned for thread in self.threads)
        )


@pytest.mark.parametrize("seed", one_in(3, range(20)), ids=lambda seed: f"streams_seed{seed}")
def test_streams_history(seed: int) -> None:
    world = World(seed)
    for index in range(1_000):
        world.turn()
        if index % 40 == 0:
            world.driver.check()
    world.faults = False
    turns = 0
    while not world.calm():
        world.turn()
        turns += 1
        assert turns < 5_000, f"seed {seed}: the group does not come to rest"
    world.driver.check()
    group = world.driver.core.state.groups["g"]
    assert isinstance(group, StreamsGroup)
    assert set(group.owners) == {(part, number) for part in ("0", "1") for number in range(5)}
    counts = [len(thread.owned.active) for thread in world.threads]
    replicas = world.driver.limits.streams_num_standby_replicas
    assert max(counts) - min(counts) <= 1 or replicas, counts
    processes = len({thread.process for thread in world.threads})
    copies = sum(len(thread.owned.standby) for thread in world.threads)
    assert copies == 5 * min(replicas, processes - 1)
