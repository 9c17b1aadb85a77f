"""Light members of consumer groups: the protocol and nothing else, hundreds of them on one event loop.

They do what the Java client does, with its intervals: a classic member heartbeats every 3 s, the leader
assigns by range; a member of the consumer protocol (KIP-848) obeys the interval that the broker tells it and
answers at once when it has given up or taken partitions. `Table` watches who owns what.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import time
import uuid
from typing import Any, Final

from barnabas.wire.header import decode_response_header, encode_request
from barnabas.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from barnabas.wire.records_schemas.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from barnabas.wire.schema import Message
from bench.requests import BenchError

SESSION_MS: Final = 45_000
REBALANCE_MS: Final = 60_000
CLASSIC_BEAT_S: Final = 3.0
UNKNOWN_MEMBER, ILLEGAL_GENERATION, REBALANCING, MEMBER_ID_REQUIRED = 25, 22, 27, 79
NOT_THERE_YET: Final = frozenset({14, 15, 16})  # the coordinator loads, or is about to be known
FENCED_EPOCH, UNRELEASED = 110, 111
VERSIONS: Final = {3: 12, 8: 8, 10: 4, 11: 9, 12: 4, 13: 5, 14: 5, 19: 7, 68: 1}
"""What both brokers serve, by API."""


class Table:
    """Who owns which partition now; `stable` is set while every one has its one owner and shares are even."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.members: dict[Member, frozenset[int]] = {}
        self.stable = asyncio.Event()
        self.changes = 0
        self._owned = 0

    def own(self, member: Member, partitions: frozenset[int]) -> None:
        self._owned += len(partitions) - len(self.members.get(member, ()))
        self.members[member] = partitions
        self._look()

    def forget(self, member: Member) -> None:
        self._owned -= len(self.members.pop(member, ()))
        self._look()

    def _look(self) -> None:
        self.changes += 1
        if self._owned == self.partitions and self._is_even():
            self.stable.set()
        else:
            self.stable.clear()

    def _is_even(self) -> bool:
        least = self.partitions // max(len(self.members), 1)
        shares = self.members.values()
        if any(len(share) < least for share in shares):
            return False
        return len(frozenset().union(*shares)) == self.partitions


class Link:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._ids = itertools.count()

    @classmethod
    async def to(cls, port: int) -> Link:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, request: Message, response: type[Any]) -> Any:
        version = VERSIONS[request.API_KEY]
        body = await self.ask_raw(encode_request(request, version, next(self._ids), "bench"))
        _, position = decode_response_header(body, request.API_KEY, version)
        return response.decode(body, version, position)

    async def ask_raw(self, frame: bytes) -> bytes:
        """The answer to a frame as it is, correlation id first."""
        self._writer.write(frame)
        size = struct.unpack(">i", await self._reader.readexactly(4))[0]
        return await self._reader.readexactly(size)

    async def find_coordinator(self, group: str) -> None:
        """Waits until the group has one, which makes the offsets topic. Raises BenchError."""
        for _ in range(300):
            request = FindCoordinatorRequest(coordinator_keys=[group])
            answer: FindCoordinatorResponse = await self.ask(request, FindCoordinatorResponse)
            if not answer.coordinators[0].error_code:
                return
            await asyncio.sleep(0.1)
        raise BenchError(f"no coordinator for {group!r}: error {answer.coordinators[0].error_code}")

    def close(self) -> None:
        self._writer.close()


class Member:
    """One member; `run` until cancelled, `leave` to go in order."""

    def __init__(self, port: int, group: str, topic: str, topic_id: uuid.UUID, table: Table) -> None:
        self.port, self.group, self.topic, self.topic_id, self.table = port, group, topic, topic_id, table
        self.member_id = ""
        self.epoch = 0
        self.owned: frozenset[int] = frozenset()
        self.requests = 0
        self._task: asyncio.Task[None] | None = None
        self.link: Link | None = None

    def start(self) -> None:
        self.table.own(self, frozenset())
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        self.link = await Link.to(self.port)
        await self.work()

    async def work(self) -> None:
        raise NotImplementedError

    async def ask(self, request: Message, response: type[Any]) -> Any:
        assert self.link is not None
        self.requests += 1
        return await self.link.ask(request, response)

    def own(self, partitions: frozenset[int]) -> None:
        self.owned = partitions
        self.table.own(self, partitions)

    def check(self) -> None:
        """Raises what the member failed with."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def stop(self) -> None:
        """Goes away without a word (the session has to end), or after `leave`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.link is not None:
            self.link.close()
        self.table.forget(self)

    async def leave(self) -> None:
        """Says that it leaves, over a connection of its own: the usual one may wait for an answer."""
        link = await Link.to(self.port)
        await self.farewell(link)
        link.close()
        await self.stop()

    async def farewell(self, link: Link) -> None:
        raise NotImplementedError


class ClassicMember(Member):
    protocol = "classic"

    async def work(self) -> None:
        while True:
            joined = await self._join()
            if not await self._sync(joined):
                continue
            while True:
                await asyncio.sleep(CLASSIC_BEAT_S)
                beat = HeartbeatRequest(
                    group_id=self.group, generation_id=self.epoch, member_id=self.member_id
                )
                error = (await self.ask(beat, HeartbeatResponse)).error_code
                if error:
                    break
            self.own(frozenset())  # eager: everything is given up before the next join
            if error == UNKNOWN_MEMBER:
                self.member_id = ""
            elif error not in (REBALANCING, ILLEGAL_GENERATION, *NOT_THERE_YET):
                raise BenchError(f"heartbeat was answered with error {error}")

    async def _join(self) -> JoinGroupResponse:
        subscription = ConsumerProtocolSubscription(topics=[self.topic]).encode_versioned(3)
        while True:
            request = JoinGroupRequest(
                group_id=self.group, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.member_id, protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
            )  # fmt: skip
            joined: JoinGroupResponse = await self.ask(request, JoinGroupResponse)
            if not joined.error_code:
                self.member_id, self.epoch = joined.member_id, joined.generation_id
                return joined
            if joined.error_code == MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
            elif joined.error_code == UNKNOWN_MEMBER:
                self.member_id = ""
            elif joined.error_code in NOT_THERE_YET:
                await asyncio.sleep(0.1)
            elif joined.error_code != REBALANCING:
                raise BenchError(f"join was answered with error {joined.error_code}")

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        shares = []
        if joined.leader == self.member_id:
            shares = self._assign(sorted(member.member_id for member in joined.members))
        request = SyncGroupRequest(
            group_id=self.group, generation_id=self.epoch, member_id=self.member_id,
            protocol_type="consumer", protocol_name="range", assignments=shares,
        )  # fmt: skip
        synced: SyncGroupResponse = await self.ask(request, SyncGroupResponse)
        if synced.error_code in (REBALANCING, ILLEGAL_GENERATION, *NOT_THERE_YET):
            return False
        if synced.error_code == UNKNOWN_MEMBER:
            self.member_id = ""
            return False
        if synced.error_code:
            raise BenchError(f"sync was answered with error {synced.error_code}")
        rows = ConsumerProtocolAssignment.decode_versioned(synced.assignment).assigned_partitions
        self.own(frozenset(number for row in rows for number in row.partitions))
        return True

    def _assign(self, members: list[str]) -> list[SyncGroupRequestAssignment]:
        each, extra = divmod(self.table.partitions, len(members))
        shares, begin = [], 0
        for index, member_id in enumerate(members):
            end = begin + each + (index < extra)
            row = TopicPartition(topic=self.topic, partitions=list(range(begin, end)))
            data = ConsumerProtocolAssignment(assigned_partitions=[row]).encode_versioned(3)
            shares.append(SyncGroupRequestAssignment(member_id=member_id, assignment=data))
            begin = end
        return shares

    async def farewell(self, link: Link) -> None:
        who = MemberIdentity(member_id=self.member_id)
        await link.ask(LeaveGroupRequest(group_id=self.group, members=[who]), LeaveGroupResponse)


class ConsumerMember(Member):
    protocol = "consumer"

    async def work(self) -> None:
        self.member_id = str(uuid.uuid4())
        partitions_told: frozenset[int] | None = None  # what the broker was last told that this member owns
        while True:
            request = ConsumerGroupHeartbeatRequest(
                group_id=self.group, member_id=self.member_id, member_epoch=self.epoch
            )
            if self.epoch == 0:
                request.rebalance_timeout_ms = REBALANCE_MS
                request.subscribed_topic_names = [self.topic]
                request.topic_partitions = []
                partitions_told = frozenset()
            elif partitions_told != self.owned:
                request.topic_partitions = self._rows()
                partitions_told = self.owned
            answer: ConsumerGroupHeartbeatResponse = await self.ask(request, ConsumerGroupHeartbeatResponse)
            if answer.error_code in NOT_THERE_YET:
                await asyncio.sleep(0.1)
                continue
            if answer.error_code in (FENCED_EPOCH, UNKNOWN_MEMBER):
                self.epoch = 0
                self.own(frozenset())
                continue
            if answer.error_code:
                raise BenchError(f"heartbeat was answered with {answer.error_code}: {answer.error_message}")
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                rows = answer.assignment.topic_partitions
                self.own(frozenset(number for row in rows for number in row.partitions))
            if self.owned == partitions_told:
                await asyncio.sleep(answer.heartbeat_interval_ms / 1000)

    def _rows(self) -> list[TopicPartitions]:
        if not self.owned:
            return []
        return [TopicPartitions(topic_id=self.topic_id, partitions=sorted(self.owned))]

    async def farewell(self, link: Link) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=-1
        )
        await link.ask(request, ConsumerGroupHeartbeatResponse)


KINDS: Final[dict[str, type[Member]]] = {"classic": ClassicMember, "consumer": ConsumerMember}


async def until_stable(table: Table, members: list[Member], timeout_s: float) -> float:
    """Seconds until the table is stable. Raises BenchError when it takes too long or a member failed."""
    began = time.monotonic()
    while not table.stable.is_set():
        left = began + timeout_s - time.monotonic()
        if left <= 0:
            owned = sum(len(share) for share in table.members.values())
            raise BenchError(
                f"not stable within {timeout_s:.0f} s: {owned} of {table.partitions} partitions owned"
            )
        for member in members:
            member.check()
        try:
            await asyncio.wait_for(table.stable.wait(), min(left, 0.5))
        except TimeoutError:
            pass
    return time.monotonic() - began
