"""Consumer groups (KIP-848), also with classic members among them, under crashes, stalls, lies and lost answers.

Members name topics, match them with expressions, and change their minds; topics grow and new ones come, also while the
broker is matching.

Each seed is one history: `pytest tests/sim/group -k consumer_seed7`. Beside what Driver.check demands after
the steps (log and memory agree, no partition belongs to two members), what the clients themselves believe is
compared: when one starts on a partition, nobody who is still a member works on it. Once the faults stop, all
partitions are owned by the members and every client has caught up.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest

from barnabas.cores.group import (
    CommitOffsets,
    CommitReply,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    GroupLimits,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    OffsetToCommit,
    SyncGroup,
    SyncReply,
    TopicsMatched,
)
from barnabas.cores.group.classic.group import ClassicGroup, ClassicState
from barnabas.cores.group.consumer.group import ConsumerGroup, ConsumerState
from barnabas.wire.errors import ErrorCode
from tests.scenarios.group.driver import Driver
from tests.scenarios.group.stage import names_of, partition_of, share, subscription
from tests.support.examples import one_in

SESSION_MS = 45_000
CLASSIC_SESSION_MS = 10_000
REBALANCE_MS = 20_000
APPEND_ERRORS = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR]
TRY_AGAIN = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNRELEASED_INSTANCE_ID,
}
EXPRESSIONS = [None, None, "u.*", ".*new", "t|u"]
Partition = tuple[UUID, int]


@dataclass
class Client:
    name: str
    instance: str | None
    classic: bool
    wants: frozenset[str]
    regex: str | None = None
    subscribes: bool = True  # with its next heartbeat
    life: int = 0
    member_id: str = ""
    epoch: int = 0  # or the generation
    step: str = "join"  # join | sync | stable | waiting
    leads: tuple[str, ...] = ()
    owned: set[Partition] = field(default_factory=set)
    assigned: frozenset[Partition] = frozenset()
    next_beat_ms: int = 0
    stalled_until_ms: int = 0

    def crash(self) -> None:
        self.life += 1
        self.subscribes = True
        self.member_id, self.epoch, self.step, self.leads = "", 0, "join", ()
        self.owned, self.assigned = set(), frozenset()


class World:
    def __init__(self, seed: int, mixed: bool) -> None:
        self.random = random.Random(seed)
        self.mixed = mixed
        interval_ms = self.random.choice([0, 0, 3_000])  # between two assignments
        self.driver = Driver(
            GroupLimits(consumer_session_timeout_ms=SESSION_MS, consumer_assignment_interval_ms=interval_ms)
        )
        self.driver.check_every_step = False
        self.sizes = {"t": 4, "u": 3}
        self.driver.set_topics(**self.sizes)
        self.clients = [self.new_client(index) for index in range(self.random.randint(2, 6))]
        self.faults = True
        self.found: TopicsMatched | None = None
        """What the broker has found after a heartbeat, and has not yet told the group."""
        self.tokens = 0
        self.asked: dict[str, Callable[[Any], None]] = {}

    def new_client(self, index: int) -> Client:
        wants = self.random.choice([{"t", "u"}, {"t", "u"}, {"t"}, {"u"}])
        instance = f"i{index}" if self.random.random() < 0.3 else None
        classic = self.mixed and self.random.random() < 0.5
        return Client(f"c{index}", instance, classic, frozenset(wants), self.random.choice(EXPRESSIONS))

    def topics_of(self, client: Client) -> set[str]:
        """What a client subscribes to in the end."""
        regex = None if client.classic else client.regex
        return {name for name in self.sizes if name in client.wants or (regex and re.fullmatch(regex, name))}

    def to(self, client: Client, heard: Callable[[Client, Any], None]) -> str:
        life = client.life
        self.tokens += 1
        token = f"#{self.tokens}"
        self.asked[token] = lambda reply: heard(client, reply) if client.life == life else None
        return token

    def deliver(self) -> None:
        while replies := self.driver.take_replies():
            for token, reply in replies:
                hear = self.asked.pop(token)
                if self.faults and self.random.random() < 0.02 and isinstance(reply, ConsumerHeartbeatReply):
                    continue  # the answer is lost; the member asks again
                hear(reply)

    # --- clients of the new protocol

    def event_of(self, client: Client) -> Any:
        if client.classic:
            return self.classic_event_of(client)
        now_ms = self.driver.now_ms
        if client.owned - client.assigned and self.random.random() < 0.5:
            client.owned &= client.assigned  # it takes a while until the application has let go
            client.next_beat_ms = now_ms
        if client.epoch > 0 and client.owned and self.random.random() < 0.2:
            return self.commit_of(client, client.epoch)
        if now_ms < client.next_beat_ms:
            return None
        client.next_beat_ms = now_ms + 5_000
        joins = client.epoch == 0
        if joins and not client.member_id:
            self.tokens += 1
            client.member_id = f"{client.name}-{self.tokens}"
        owned = frozenset() if joins else frozenset(client.owned)
        subscribes = joins or client.subscribes
        return ConsumerHeartbeat(
            self.to(client, self.heard),
            now_ms,
            "g",
            client.member_id,
            client.epoch,
            client.name,
            "/h",
            client.instance,
            None,
            REBALANCE_MS if joins else -1,
            client.wants if subscribes else None,
            (client.regex or "") if subscribes else None,
            None,
            owned,
        )

    def heard(self, client: Client, reply: ConsumerHeartbeatReply) -> None:
        if reply.error in TRY_AGAIN:
            client.next_beat_ms = self.driver.now_ms + 1_000
        elif reply.error in (
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.FENCED_INSTANCE_ID,
        ):
            client.crash()
            client.next_beat_ms = self.driver.now_ms + 500
        else:
            assert reply.error is ErrorCode.NONE, reply
            client.epoch, client.subscribes = reply.member_epoch, False
            if reply.assignment is not None:
                client.assigned = reply.assignment
            if not client.owned - client.assigned:
                self.own(client, set(client.assigned))

    def own(self, client: Client, partitions: set[Partition]) -> None:
        group = self.driver.core.state.groups.get("g")
        for other in self.clients:
            both = (partitions - client.owned) & other.owned
            if other is client or not both or group is None:
                continue
            member = group.members.get(other.member_id)
            if isinstance(group, ClassicGroup):
                # A static member that did not join again keeps its place, but its generation is fenced.
                assert member is None or other.epoch != group.generation_id, f"{both} owned twice"
            else:
                assert member is None or other.classic, f"{both} owned by {client.name} and {other.name}"
        client.owned = partitions

    def commit_of(self, client: Client, epoch: int) -> CommitOffsets:
        names = {info.topic_id: name for name, info in self.driver.topics.items()}
        topic_id, number = self.random.choice(sorted(client.owned))
        member_id = client.member_id

        def heard(client: Client, reply: CommitReply) -> None:
            if reply.error is not ErrorCode.NONE:
                return
            group = self.driver.core.state.groups["g"]
            if isinstance(group, ConsumerGroup) and member_id in group.members:
                assert group.members[member_id].epoch == epoch, "a commit with a wrong epoch passed"

        offsets = (OffsetToCommit(names.get(topic_id, "gone"), number, self.random.randrange(1_000)),)
        return CommitOffsets(
            self.to(client, heard), self.driver.now_ms, "g", offsets, epoch, member_id, client.instance
        )

    # --- classic clients: eager, so that they own nothing while they join

    def classic_event_of(self, client: Client) -> Any:
        now_ms = self.driver.now_ms
        if client.step == "join":
            client.step, client.owned = "waiting", set()
            self.tokens += 1
            return JoinGroup(
                self.to(client, self.heard_join),
                now_ms,
                "g",
                client.member_id,
                f"{self.tokens}",
                client.name,
                "/h",
                CLASSIC_SESSION_MS,
                REBALANCE_MS,
                "consumer",
                (("range", subscription(sorted(client.wants))),),
                client.instance,
            )
        if client.step == "sync":
            client.step = "waiting"
            every = [f"{topic}-{number}" for topic, size in self.sizes.items() for number in range(size)]
            shares = {
                member_id: share(",".join(every[index :: len(client.leads)]))
                for index, member_id in enumerate(client.leads)
            }
            return SyncGroup(
                self.to(client, self.heard_sync),
                now_ms,
                "g",
                client.epoch,
                client.member_id,
                shares,
                client.instance,
            )
        if client.step == "stable" and now_ms >= client.next_beat_ms:
            client.next_beat_ms = now_ms + CLASSIC_SESSION_MS // 3
            token = self.to(client, self.heard_beat)
            return Heartbeat(token, now_ms, "g", client.epoch, client.member_id, client.instance)
        return None

    def heard_join(self, client: Client, reply: JoinReply) -> None:
        client.step = "join"
        if reply.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            client.member_id = reply.member_id
        elif reply.error not in TRY_AGAIN:
            client.crash()
        if reply.error is ErrorCode.NONE:
            client.epoch, client.step = reply.generation_id, "sync"
            client.leads = tuple(member.member_id for member in reply.members)

    def heard_sync(self, client: Client, reply: SyncReply) -> None:
        client.step = "join"
        if reply.error is ErrorCode.NONE:
            client.step = "stable"
            pairs = [partition_of(name) for name in names_of(reply.assignment).split(",") if "-" in name]
            self.own(client, {(self.driver.topics[topic].topic_id, number) for topic, number in pairs})
        elif reply.error not in TRY_AGAIN:
            client.crash()

    def heard_beat(self, client: Client, reply: HeartbeatReply) -> None:
        if reply.error is ErrorCode.REBALANCE_IN_PROGRESS:
            client.step = "join"
        elif reply.error is ErrorCode.ILLEGAL_GENERATION:
            client.step, client.owned = "join", set()
        elif reply.error is not ErrorCode.NONE and reply.error not in TRY_AGAIN:
            client.crash()

    # --- the world

    def mischief(self) -> Any:
        client, kind = self.random.choice(self.clients), self.random.random()
        now_ms = self.driver.now_ms
        if kind < 0.25:
            client.stalled_until_ms = now_ms + self.random.randint(1, 2 * SESSION_MS)
        elif kind < 0.5:
            leaves = self.random.random() < 0.5 and client.epoch > 0 and not client.classic
            member_id, instance = client.member_id, client.instance
            client.crash()
            client.stalled_until_ms = now_ms + self.random.randint(0, SESSION_MS)
            if self.mixed:
                client.classic = self.random.random() < 0.5
            if leaves:
                epoch = -2 if instance and self.random.random() < 0.7 else -1
                token = self.to(client, lambda client, reply: None)
                return ConsumerHeartbeat(token, now_ms, "g", member_id, epoch, instance_id=instance)
        elif kind < 0.6:
            self.change_topics()
        elif kind < 0.65:
            client.regex, client.subscribes = self.random.choice(EXPRESSIONS), True
        elif client.owned and kind < 0.8:
            return self.commit_of(client, client.epoch - self.random.randint(0, 2))
        elif client.epoch > 0:
            # Somebody speaks in the name of a member, with a wrong epoch and with partitions it may not have.
            token = self.to(client, lambda client, reply: None)
            owned = frozenset((info.topic_id, 0) for info in self.driver.topics.values())
            epoch = client.epoch + self.random.choice([-1, 1, 7])
            if epoch > 0:
                return ConsumerHeartbeat(token, now_ms, "g", client.member_id, epoch, owned=owned)
        return None

    def change_topics(self) -> None:
        name = self.random.choice(["t", "u", "t-new", "u-new"])
        self.sizes = {**self.sizes, name: self.random.randint(1, 6)}
        self.driver.set_topics(**self.sizes)

    def match(self) -> None:
        """The broker's part after heartbeats: it looks, and later tells the group what it has found."""
        if self.found is None and self.driver.core.must_match("g", self.driver.now_ms):
            self.found = self.driver.matched(None, "g")
            if self.faults and self.random.random() < 0.1:
                self.change_topics()
        if self.found is not None and self.random.random() < 0.5:
            self.driver.step(replace(self.found, now_ms=self.driver.now_ms))
            self.found = None

    def turn(self) -> None:
        events: list[Any] = []
        if self.faults and self.random.random() < 0.06:
            events.append(self.mischief())
        for _ in range(self.random.randint(1, 3)):
            client = self.random.choice(self.clients)
            if self.driver.now_ms >= client.stalled_until_ms:
                events.append(self.event_of(client))
        if self.faults and self.random.random() < 0.03:
            self.driver.fail_next = self.random.choice(APPEND_ERRORS)
        for event in events:
            if event is not None:
                self.driver.step(event)
                self.deliver()
        self.match()
        self.driver.fail_next = None
        self.driver.advance(self.random.choice([0, 10, 100, 1_000]))
        self.deliver()
        if self.faults and self.random.random() < 0.005:
            self.driver.reload()
            self.deliver()
            self.driver.check()

    def calm(self) -> bool:
        group = self.driver.core.state.groups.get("g")
        if isinstance(group, ClassicGroup):
            return (
                group.state is ClassicState.STABLE
                and not group.pending_sync_ids
                and sorted(group.members) == sorted(client.member_id for client in self.clients)
            )
        return (
            isinstance(group, ConsumerGroup)
            and group.state is ConsumerState.STABLE
            and group.topics_seen == self.driver.core.state.topics.version
            and self.found is None
            and not self.driver.core.must_match("g", self.driver.now_ms)
            and not any(client.subscribes for client in self.clients if not client.classic)
            and sorted(group.members) == sorted(client.member_id for client in self.clients)
            and all(client.owned == group.members[client.member_id].assigned for client in self.clients)
        )


def run(seed: int, mixed: bool) -> World:
    world = World(seed, mixed)
    for index in range(1_200):
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
    return world


@pytest.mark.parametrize("seed", one_in(3, range(25)), ids=lambda seed: f"consumer_seed{seed}")
def test_consumer_history(seed: int) -> None:
    world = run(seed, mixed=False)
    group = world.driver.core.state.groups["g"]
    assert isinstance(group, ConsumerGroup)
    wanted = {topic for client in world.clients for topic in world.topics_of(client)}
    every = {
        (world.driver.topics[topic].topic_id, number)
        for topic in wanted
        for number in range(world.sizes[topic])
    }
    assert set(group.owners) == every
    for client in world.clients:
        assert group.topics_of(group.members[client.member_id]) == world.topics_of(client)
        assert {topic_id for topic_id, _ in client.owned} <= {
            world.driver.topics[t].topic_id for t in world.topics_of(client)
        }


@pytest.mark.parametrize("seed", one_in(3, range(25)), ids=lambda seed: f"mixed_seed{seed}")
def test_history_of_both_protocols(seed: int) -> None:
    run(seed, mixed=True)
