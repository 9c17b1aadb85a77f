"""Members of a classic group that join, stall, crash, lie and come back, over a log that fails and reloads.

Each seed is one history: `pytest tests/sim/group -k seed17`. What must hold in all of them:
* memory and log never differ (Driver.check, after every step that may have changed something);
* a partition has at most one owner in a generation, and commits never go back to an older generation;
* every request is answered exactly once, and once the faults stop the group becomes stable and owns all.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from barnabas.cores.group import (
    CommitOffsets,
    CommitReply,
    GroupLimits,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    LeavingMember,
    OffsetToCommit,
    SyncGroup,
    SyncReply,
)
from barnabas.cores.group.classic.group import ClassicState
from barnabas.wire.errors import ErrorCode
from tests.scenarios.group.driver import Driver
from tests.scenarios.group.stage import subscription
from tests.support.examples import one_in

SESSION_MS = 10_000
REBALANCE_MS = 20_000
PARTITIONS = [("t", index) for index in range(7)]
APPEND_ERRORS = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.MESSAGE_TOO_LARGE]


@dataclass
class Client:
    """A well-behaved client; the world around it makes it crash and stall."""

    name: str
    instance: str | None
    life: int = 0  # grows with every crash: answers to a former life are not heard
    member_id: str = ""
    generation_id: int = -1
    step: str = "join"  # join | sync | stable | waiting
    leads: tuple[str, ...] = ()
    owned: list[tuple[str, int]] = field(default_factory=list)
    next_beat_ms: int = 0
    stalled_until_ms: int = 0
    protocols: tuple[str, ...] = ("range", "sticky")

    def crash(self) -> None:
        self.life += 1
        self.member_id, self.generation_id, self.step, self.leads, self.owned = "", -1, "join", (), []


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        delay_ms = self.random.choice([0, 0, 3_000])
        size_max = self.random.choice([1_000, 1_000, 4])
        self.driver = Driver(GroupLimits(group_initial_rebalance_delay_ms=delay_ms, group_max_size=size_max))
        self.driver.check_every_step = False
        self.clients = [
            Client(f"c{index}", f"i{index}" if self.random.random() < 0.4 else None)
            for index in range(self.random.randint(2, 6))
        ]
        self.asked: dict[str, Callable[[Any], None]] = {}
        self.answered: set[str] = set()
        self.tokens = 0
        self.owners: dict[int, dict[tuple[str, int], str]] = {}
        self.newest_commit_generation = -1
        self.faults = True

    # --- asking and hearing

    def token(self, hear: Callable[[Any], None]) -> str:
        self.tokens += 1
        token = f"#{self.tokens}"
        self.asked[token] = hear
        return token

    def deliver(self) -> None:
        while replies := self.driver.take_replies():
            for token, reply in replies:
                assert token not in self.answered, f"{token} is answered twice"
                self.answered.add(token)
                self.asked.pop(token)(reply)

    def to(self, client: Client, heard: Callable[[Client, Any], None]) -> str:
        life = client.life
        return self.token(lambda reply: heard(client, reply) if client.life == life else None)

    # --- what a client does

    def event_of(self, client: Client) -> Any:
        now_ms = self.driver.now_ms
        if client.step == "join":
            client.step = "waiting"
            self.tokens += 1
            metadata = subscription(["t"], ",".join(f"t-{number}" for _, number in client.owned))
            return JoinGroup(
                self.to(client, self.heard_join),
                now_ms,
                "g",
                client.member_id,
                f"{self.tokens}",
                client.name,
                "/h",
                SESSION_MS,
                REBALANCE_MS,
                "consumer",
                tuple((p, metadata) for p in client.protocols),
                client.instance,
            )
        if client.step == "sync":
            client.step = "waiting"
            shares = {}
            for index, member_id in enumerate(client.leads):
                mine = PARTITIONS[index :: len(client.leads)]
                shares[member_id] = ",".join(str(partition) for _, partition in mine).encode()
            return SyncGroup(
                self.to(client, self.heard_sync),
                now_ms,
                "g",
                client.generation_id,
                client.member_id,
                shares,
                client.instance,
            )
        if client.step == "stable" and client.owned and self.random.random() < 0.3:
            return self.commit_of(client, client.generation_id, client.member_id)
        if client.step == "stable" and now_ms >= client.next_beat_ms:
            client.next_beat_ms = now_ms + SESSION_MS // 3
            token = self.to(client, self.heard_beat)
            return Heartbeat(token, now_ms, "g", client.generation_id, client.member_id, client.instance)
        return None

    def commit_of(self, client: Client, generation_id: int, member_id: str) -> CommitOffsets:
        topic, partition = self.random.choice(client.owned or PARTITIONS)
        offsets = (OffsetToCommit(topic, partition, self.random.randrange(1_000)),)

        def heard(reply: CommitReply) -> None:
            if reply.error is ErrorCode.NONE and generation_id >= 0:
                assert generation_id >= self.newest_commit_generation, (
                    "a commit of an older generation passed"
                )
                self.newest_commit_generation = generation_id

        return CommitOffsets(
            self.token(heard), self.driver.now_ms, "g", offsets, generation_id, member_id, client.instance
        )

    def heard_join(self, client: Client, reply: JoinReply) -> None:
        client.step = "join"
        if reply.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            client.member_id = reply.member_id
        if reply.error is ErrorCode.NONE:
            client.generation_id = reply.generation_id
            client.leads = tuple(member.member_id for member in reply.members)
            client.step = "sync"
        elif reply.error is ErrorCode.FENCED_INSTANCE_ID:
            client.crash()
        elif reply.error is ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id = ""
        elif reply.error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            client.crash()
            client.stalled_until_ms = self.driver.now_ms + SESSION_MS

    def heard_sync(self, client: Client, reply: SyncReply) -> None:
        client.step = "join"
        if reply.error is ErrorCode.NONE:
            client.step = "stable"
            client.owned = [("t", int(number)) for number in reply.assignment.decode().split(",") if number]
            owners = self.owners.setdefault(client.generation_id, {})
            for partition in client.owned:
                # A static member is one owner under all its ids: the newest of them is the only one heard.
                mine = client.instance or client.member_id
                owner = owners.setdefault(partition, mine)
                assert owner == mine, f"{partition} has two owners in generation {client.generation_id}"
        elif reply.error is ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id = ""
        elif reply.error is ErrorCode.FENCED_INSTANCE_ID:
            client.crash()

    def heard_beat(self, client: Client, reply: HeartbeatReply) -> None:
        match reply.error:
            case ErrorCode.NONE | ErrorCode.NOT_COORDINATOR | ErrorCode.COORDINATOR_NOT_AVAILABLE:
                pass
            case ErrorCode.UNKNOWN_SERVER_ERROR:
                pass
            case ErrorCode.REBALANCE_IN_PROGRESS:
                client.step = "join"
            case ErrorCode.ILLEGAL_GENERATION:
                client.step, client.owned = "join", []
            case ErrorCode.UNKNOWN_MEMBER_ID:
                client.step, client.owned, client.member_id = "join", [], ""
            case ErrorCode.FENCED_INSTANCE_ID:
                client.crash()
            case _:
                raise AssertionError(reply.error)

    # --- what the world does to it

    def mischief(self) -> Any:
        """An event that no well-behaved client would send now, or None."""
        client = self.random.choice(self.clients)
        now_ms, kind = self.driver.now_ms, self.random.random()
        other = self.random.choice(self.clients)
        if kind < 0.2:
            return self.commit_of(client, client.generation_id - self.random.randint(0, 2), other.member_id)
        if kind < 0.4:
            token = self.token(lambda reply: None)
            shares = {other.member_id: b"0,1,2,3,4,5,6"}
            return SyncGroup(token, now_ms, "g", client.generation_id - 1, client.member_id, shares)
        if kind < 0.6:
            client.stalled_until_ms = now_ms + self.random.randint(1, 2 * SESSION_MS)
        elif kind < 0.8:
            client.crash()
            client.stalled_until_ms = now_ms + self.random.randint(0, 2 * SESSION_MS)
        elif client.member_id:
            leaving = (LeavingMember(client.member_id, client.instance),)
            if client.step == "stable":
                client.crash()
                client.stalled_until_ms = now_ms + self.random.randint(0, SESSION_MS)
            # Otherwise somebody else removes the member, maybe while a request of it waits for an answer.
            return LeaveGroup(self.token(self.heard_leave), now_ms, "g", leaving)
        return None

    def heard_leave(self, reply: LeaveReply) -> None:
        assert reply.error is not ErrorCode.UNKNOWN_SERVER_ERROR or self.faults

    def turn(self) -> None:
        events: list[Any] = []
        if self.faults and self.random.random() < 0.08:
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
        self.driver.fail_next = None
        self.deliver()
        self.driver.advance(self.random.choice([0, 10, 100, 500]))
        self.deliver()
        if self.faults and self.random.random() < 0.005:
            self.driver.reload()
            self.deliver()
            self.driver.check()

    def calm(self) -> bool:
        """Stable, and every client that fits owns its share in the current generation."""
        group = self.driver.core.state.groups.get("g")
        if group is None or group.state is not ClassicState.STABLE or group.pending_sync_ids:
            return False
        members = [c for c in self.clients if c.step == "stable" and c.generation_id == group.generation_id]
        wanted = min(len(self.clients), self.driver.limits.group_max_size)
        return len(members) >= wanted == len(group.members)


@pytest.mark.parametrize("seed", one_in(3, range(30)), ids=lambda seed: f"seed{seed}")
def test_history(seed: int) -> None:
    world = World(seed)
    for index in range(1_500):
        world.turn()
        if index % 50 == 0:
            world.driver.check()
    world.faults = False
    turns = 0
    while not world.calm():
        world.turn()
        turns += 1
        assert turns < 4_000, f"seed {seed}: the group does not become stable"
    world.driver.check()
    waiting = [token for token, _ in world.asked.items()]
    assert not waiting, f"seed {seed}: requests {waiting} are never answered"
    group = world.driver.core.state.groups["g"]
    owned = sorted(p for c in world.clients if c.generation_id == group.generation_id for p in c.owned)
    assert owned == PARTITIONS
