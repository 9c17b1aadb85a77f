"""Share groups under crashes, stalls, lies, failed appends and restarts: members, queues and what is stored of them.

Each seed is one history: `pytest tests/sim/group -k share_seed7`. The group's core assigns, one core per partition
hands out, one core keeps the states; each writes to a log that may refuse, and all are rebuilt from their logs
now and then. Whoever was told that a record is accepted never sees it again, nobody else does either, and once
the faults stop every record is accepted or given up.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from barnabas.cores.decision import Decision
from barnabas.cores.group import (
    DeleteShareState,
    GroupLimits,
    InitializeShareState,
    ShareHeartbeat,
    ShareHeartbeatReply,
    ShareInitialized,
)
from barnabas.cores.group.share.group import ShareGroup
from barnabas.cores.group.share.partition import (
    AckBatch,
    AcquireMode,
    ShareChange,
    ShareLimits,
    SharePartitionCore,
)
from barnabas.cores.group.share.state import ShareKey, ShareStateCore
from barnabas.sim.coordinators import check_follows_log
from barnabas.wire.errors import ApiError, ErrorCode
from tests.scenarios.group.driver import Driver
from tests.support.examples import one_in

SESSION_MS = 45_000
LOCK_MS = 5_000
LIMITS = ShareLimits(record_lock_duration_ms=LOCK_MS, partition_max_record_locks=40)
GONE = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
Place = tuple[UUID, int]


class Unwritten(Exception):
    """The log of the states refused a record; the change is taken back."""


@dataclass
class Member:
    name: str
    life: int = 0
    epoch: int = 0
    assigned: frozenset[Place] = frozenset()
    held: list[tuple[Place, int]] = field(default_factory=list)
    next_beat_ms: int = 0
    stalled_until_ms: int = 0

    @property
    def member_id(self) -> str:
        return f"{self.name}-{self.life}"

    def crash(self) -> None:
        self.life, self.epoch, self.assigned, self.held = self.life + 1, 0, frozenset(), []


class Stored:
    """The share coordinator and its log."""

    def __init__(self, chance: random.Random) -> None:
        self.core = ShareStateCore(updates_per_snapshot=7)
        self.replayed = ShareStateCore(updates_per_snapshot=7)
        """Fed with nothing but the log."""
        self.log: list[tuple[bytes, bytes | None]] = []
        self.random = chance
        self.faults = True

    def append(self, change: Decision) -> None:
        if not change.entries:
            return
        if self.faults and self.random.random() < 0.05:
            raise Unwritten
        for entry in change.encoded():
            self.log.append(entry)
            self.replayed.replay(*entry)
        self.core.apply(change)
        check_follows_log(self.core, self.replayed)

    def rebuild(self) -> None:
        core = ShareStateCore(self.core.updates_per_snapshot)
        for key, value in self.log:
            core.replay(key, value)
        check_follows_log(self.core, core)
        self.core = core


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.driver = Driver(GroupLimits(share_session_timeout_ms=SESSION_MS))
        self.driver.check_every_step = False
        self.driver.set_topics(t=2)
        self.stored = Stored(self.random)
        self.queues: dict[Place, SharePartitionCore] = {}
        self.ends: dict[Place, int] = {}
        self.members = [Member(f"m{index}") for index in range(self.random.randint(2, 5))]
        self.faults = True
        self.accepted: set[tuple[Place, int]] = set()
        self.given_up: set[tuple[Place, int]] = set()
        self.tokens = 0
        self.leader_epoch = 0

    # --- the broker's part

    def key(self, place: Place) -> ShareKey:
        return ShareKey("g", *place)

    def queue(self, place: Place) -> SharePartitionCore:
        if place not in self.queues:
            state, change = self.stored.core.read(self.driver.now_ms, self.key(place), self.leader_epoch)
            self.stored.append(change)
            if state.start_offset < 0:
                write = (self.key(place), state.state_epoch, self.leader_epoch, 0, ())
                self.stored.append(self.stored.core.write(self.driver.now_ms, *write))
            self.queues[place] = SharePartitionCore(LIMITS, max(state.start_offset, 0), state.batches)
        return self.queues[place]

    def store(self, place: Place, change: ShareChange) -> None:
        """Raises Unwritten. What was given up is known before that: it may be heard of twice, but never not at all."""
        self.given_up.update((place, letter.offset) for letter in change.dead_letters)
        if not change.must_store:
            return
        state = self.stored.core.states[self.key(place)]
        try:
            self.stored.append(
                self.stored.core.write(
                    self.driver.now_ms,
                    self.key(place),
                    state.state_epoch,
                    self.leader_epoch,
                    change.start_offset,
                    change.writes,
                )
            )
        except Unwritten:
            self.queues[place].abandon(change)
            raise

    def carry_out_effects(self) -> None:
        effects, self.driver.effects = self.driver.effects, []
        for effect in effects:
            if isinstance(effect, InitializeShareState):
                if self.faults and self.random.random() < 0.1:
                    continue  # the coordinator crashed before; it is asked again
                places = [(effect.topic_id, index) for index in effect.partitions]
                try:
                    for place in places:
                        change = self.stored.core.initialize(
                            self.driver.now_ms, self.key(place), effect.state_epoch, -1
                        )
                        self.stored.append(change)
                except Unwritten:
                    continue
                topics = {effect.topic_id: effect.partitions}
                self.driver.step(ShareInitialized(None, self.driver.now_ms, "g", topics))
            else:
                assert not isinstance(effect, DeleteShareState), "nothing is deleted here"

    # --- members

    def beat(self, member: Member) -> None:
        now_ms, joins = self.driver.now_ms, member.epoch == 0
        if now_ms < member.next_beat_ms:
            return
        member.next_beat_ms = now_ms + 5_000
        self.tokens += 1
        topics = frozenset(["t"]) if joins else None
        event = ShareHeartbeat(self.tokens, now_ms, "g", member.member_id, member.epoch, topics=topics)
        self.driver.step(event)
        for token, reply in self.driver.take_replies():
            if token == self.tokens:
                self.heard(member, reply)

    def heard(self, member: Member, reply: ShareHeartbeatReply) -> None:
        if reply.error in GONE:
            member.crash()
            member.next_beat_ms = self.driver.now_ms + 500
        elif reply.error is ErrorCode.NONE:
            member.epoch = reply.member_epoch
            if reply.assignment is not None:
                member.assigned = reply.assignment
        else:
            member.next_beat_ms = self.driver.now_ms + 1_000

    def take(self, member: Member) -> None:
        place = self.random.choice(sorted(member.assigned))
        queue = self.queue(place)
        offset = queue.next_fetch_offset()
        if offset is None or offset >= self.ends[place]:
            return
        last = min(offset + self.random.randint(0, 9), self.ends[place] - 1)
        mode = self.random.choice(list(AcquireMode))
        change = queue.acquire(
            self.driver.now_ms, member.member_id, offset, [(offset, last)], 5, mode, last + 1
        )
        self.store(place, change)
        for first, end, _ in change.acquired:
            for taken in range(first, end + 1):
                assert (place, taken) not in self.accepted, "what was accepted is handed out again"
                member.held.append((place, taken))

    def settle(self, member: Member) -> None:
        place, offset = member.held.pop(0)
        kind = self.random.choice([ACCEPT, ACCEPT, ACCEPT, RELEASE, REJECT, RENEW])
        try:
            change = self.queue(place).acknowledge(
                self.driver.now_ms, member.member_id, [AckBatch(offset, offset, (kind,))]
            )
        except ApiError as refusal:  # its lock ran out, or the broker restarted
            if refusal.code is not ErrorCode.INVALID_RECORD_STATE:
                raise
            return
        if kind == RENEW:
            member.held.append((place, offset))
        self.store(place, change)
        if kind == ACCEPT and change.steps:
            assert (place, offset) not in self.accepted
            self.accepted.add((place, offset))

    def lie(self, member: Member) -> None:
        """Settle what another one holds: it is refused."""
        others = [acquired for other in self.members if other is not member for acquired in other.held]
        if others:
            place, offset = self.random.choice(others)
            queue = self.queue(place)
            record = queue.records.get(offset)
            acks = [AckBatch(offset, offset, (ACCEPT,))]
            if offset >= queue.start and (record is None or record.member_id != member.member_id):
                with pytest.raises(ApiError):
                    queue.acknowledge(self.driver.now_ms, member.member_id, acks)

    # --- the world

    def mischief(self) -> None:
        member, kind = self.random.choice(self.members), self.random.random()
        if kind < 0.3:
            member.stalled_until_ms = self.driver.now_ms + self.random.randint(1, 2 * SESSION_MS)
        elif kind < 0.6:
            gone = member.member_id
            member.crash()
            if self.random.random() < 0.5:  # its connection was lost, and the broker noticed
                for place, queue in self.queues.items():
                    self.store(place, queue.release_member(gone))
        elif kind < 0.8:
            self.lie(member)
        elif kind < 0.85:
            self.driver.set_topics(t=self.random.randint(2, 4) if len(self.ends) < 4 else 4)
        elif kind < 0.9:
            self.restart()

    def restart(self) -> None:
        """kill -9: all memory is rebuilt from the logs, and locks are gone."""
        self.driver.reload()
        self.stored.rebuild()
        self.queues.clear()
        self.leader_epoch += 1

    def produce(self) -> None:
        for info in self.driver.topics.values():
            for index in range(info.partitions):
                place = (info.topic_id, index)
                self.ends[place] = self.ends.get(place, 0) + self.random.choice([0, 0, 1, 3])

    def turn(self) -> None:
        if self.faults:
            self.produce()
            if self.random.random() < 0.03:
                self.driver.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
        try:
            if self.faults and self.random.random() < 0.05:
                self.mischief()
            for member in self.members:
                if self.driver.now_ms < member.stalled_until_ms:
                    continue
                self.beat(member)
                if member.assigned and self.random.random() < 0.5:
                    self.take(member)
                while member.held and self.random.random() < 0.8:
                    self.settle(member)
        except Unwritten:
            pass
        self.driver.fail_next = None
        self.carry_out_effects()
        self.driver.advance(self.random.choice([0, 10, 500, 1_000]))
        for place, queue in self.queues.items():
            try:
                self.store(place, queue.release_expired(self.driver.now_ms))
            except Unwritten:
                continue

    def done(self) -> bool:
        return all(
            place in self.queues and self.queues[place].start >= end
            for place, end in self.ends.items()
            if end
        )


@pytest.mark.parametrize("seed", one_in(3, range(25)), ids=lambda seed: f"share_seed{seed}")
def test_share_history(seed: int) -> None:
    world = World(seed)
    for index in range(400):
        world.turn()
        if index % 40 == 0:
            world.driver.check()
    world.faults = world.stored.faults = False
    turns = 0
    while not world.done():
        world.turn()
        turns += 1
        assert turns < 5_000, f"seed {seed}: the queues are stuck"
    world.restart()
    world.driver.check()
    group = world.driver.core.state.groups["g"]
    assert isinstance(group, ShareGroup)
    every = {(place, offset) for place, end in world.ends.items() for offset in range(end)}
    assert world.accepted | world.given_up == every
