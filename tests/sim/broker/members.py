"""Simulated members of consumer groups, of the classic and of the newer protocol."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from barnabas.sim.history import CommitHistory, GenerationHistory
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.sim.broker.consumers import Fetcher
from tests.sim.broker.wire import Client, Lost

if TYPE_CHECKING:
    from tests.sim.broker.world import Topic, World

SESSION_MS = 6_000
GROUPS_FROM = 8
"""The version of OffsetFetch that asks for several groups."""
NAMES_ONLY = 9
"""The last version of OffsetCommit and OffsetFetch that names topics by name."""
LATER = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS,
}
REFUSED = {
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


class Group:
    """One group over one topic: what its members have committed."""

    def __init__(self, world: World, name: str, topic: Topic) -> None:
        self.name = name
        self.topic = topic
        self.commits = {
            index: CommitHistory(f"{name} {topic.name}-{index}") for index in range(topic.partitions)
        }
        self.generations = GenerationHistory(name)
        self.world = world

    @property
    def waiting_for(self) -> str | None:
        """What the group has still to commit."""
        for index, commits in self.commits.items():
            history = self.world.partition(self.topic.name, index)
            if not history.is_read_from(max(commits.newest, 0)):
                at = f"{commits.newest} of {history.name}, which reaches {history.watermark}"
                return f"{self.name} has committed {at}"
        return None

    def on_power_cut(self) -> None:
        self.generations.on_power_cut()
        for commits in self.commits.values():
            commits.on_power_cut()


class Rejoin(Exception):
    """This membership is over; begin a new one."""


class Member(Client):
    """What members of both protocols do: read, commit, and now and then vanish."""

    def __init__(self, world: World, name: str, group: Group) -> None:
        super().__init__(world, name)
        self.group = group
        self.fetcher = Fetcher(self, group.topic, name)
        self.fetcher.wait_ms = 0
        self.member_id = ""
        self.generation = -1
        self.uncommitted = False
        self.beat_s = 1.0

    async def run(self) -> None:
        while not self.world.over:
            try:
                await self._find_coordinator()
                await self._take_part()
            except Lost:
                await self.rest()
            except Rejoin:
                await self.rest(0.2)
            self.fetcher.positions.clear()
            self.fetcher.forget_session()
        self.close()

    async def _find_coordinator(self) -> None:
        version_asked = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group.name])
        answer = await self.call(version_asked, low=4)
        code = answer.coordinators[0].error_code
        if code:
            if code not in LATER:
                self.world.fail("failed", f"{self.name} finds no coordinator: {code}")
            raise Rejoin

    async def _take_part(self) -> None:
        raise NotImplementedError

    def _vanishes(self) -> bool:
        """Whether this member is killed now: it says nothing to anybody."""
        return self.world.quiet_since_s is None and self.chance.random() < 0.02

    def _has_to_commit(self) -> bool:
        """Also when a power cut has taken what was committed before, and nothing new has come since."""
        commits, positions = self.group.commits, self.fetcher.positions
        return self.uncommitted or any(commits[index].newest < at for index, at in positions.items())

    async def _read_some(self) -> None:
        if self.fetcher.positions and await self.fetcher.poll():
            self.uncommitted = True

    async def _begin_at_commits(self, partitions: list[int]) -> None:
        """Take up partitions where the group has left them."""
        if not partitions:
            return
        marks = {index: self.group.commits[index].begin_read() for index in partitions}
        cuts = self.world.power_cuts
        rows = [OffsetFetchRequestTopics(name=self.group.topic.name, partition_indexes=partitions)]
        asked = OffsetFetchRequestGroup(group_id=self.group.name, topics=rows)
        answer = await self.call(OffsetFetchRequest(groups=[asked]), low=GROUPS_FROM, high=NAMES_ONLY)
        group = answer.groups[0]
        if group.error_code:
            raise Rejoin
        for row in group.topics[0].partitions:
            if row.error_code:
                raise Rejoin
            if cuts == self.world.power_cuts:
                commits = self.group.commits[row.partition_index]
                commits.on_read(row.committed_offset, marks[row.partition_index], self.name)
            self.fetcher.positions[row.partition_index] = max(row.committed_offset, 0)

    async def _commit(self) -> None:
        """Commit all positions. Raises Rejoin when the group goes on without this member."""
        positions = dict(self.fetcher.positions)
        if not positions:
            return
        rows = [
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=position, committed_metadata=""
            )
            for index, position in positions.items()
        ]
        request = OffsetCommitRequest(
            group_id=self.group.name,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=self.group.topic.name, partitions=rows)],
        )
        await self.wire()
        begun = {index: self.group.commits[index].begin(position) for index, position in positions.items()}
        newest, generation, cuts = self.group.generations.newest, self.generation, self.world.power_cuts
        answer = await self.call(request, low=self.commit_low, high=NAMES_ONLY)
        for row in answer.topics[0].partitions:
            commits, commit = self.group.commits[row.partition_index], begun[row.partition_index]
            if not row.error_code:
                if cuts == self.world.power_cuts:
                    commits.acked(commit)
                    self._check_generation(generation, newest)
                self.uncommitted = False
            elif row.error_code in REFUSED:
                commits.refused(commit)
                if row.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
                    raise Rejoin

    commit_low = 5

    def _check_generation(self, generation: int, newest: int) -> None:
        pass


class ClassicMember(Member):
    """JoinGroup, SyncGroup, Heartbeat."""

    async def _take_part(self) -> None:
        assigned = await self._join()
        await self._begin_at_commits(assigned)
        next_beat_s = self.world.loop.time()
        while not self.world.over:
            if self._vanishes():
                self.member_id = ""
                self.close()
                raise Rejoin
            await self._read_some()
            now_s = self.world.loop.time()
            if now_s >= next_beat_s:
                next_beat_s = now_s + self.beat_s
                if self._has_to_commit():
                    await self._commit()
                await self._beat()
            if not self.fetcher.positions or not self.uncommitted:
                await self.rest(0.5 if self.world.quiet_since_s is None else 1.5)
        await self._leave()

    async def _beat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group.name, generation_id=self.generation, member_id=self.member_id
        )
        answer = await self.call(request)
        if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if answer.error_code:
            raise Rejoin

    async def _join(self) -> list[int]:
        request = JoinGroupRequest(
            group_id=self.group.name,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")],
        )
        joined = await self.call(request, wait_s=15, high=9)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            raise Rejoin
        if joined.error_code:
            if joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            elif joined.error_code not in LATER:
                self.world.fail("failed", f"{self.name} cannot join: {ErrorCode(joined.error_code).name}")
            raise Rejoin
        self.member_id, self.generation = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == self.member_id:
            members = [member.member_id for member in joined.members]
            for number, member in enumerate(members):
                mine = bytes(range(self.group.topic.partitions))[number :: len(members)]
                assignments.append(SyncGroupRequestAssignment(member_id=member, assignment=mine))
        sync = SyncGroupRequest(
            group_id=self.group.name,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        cuts = self.world.power_cuts
        synced = await self.call(sync, wait_s=15)
        if synced.error_code:
            raise Rejoin
        if cuts == self.world.power_cuts:
            self.group.generations.on_synced(self.generation)
        return list(synced.assignment)

    def _check_generation(self, generation: int, newest: int) -> None:
        self.group.generations.on_commit_acked(generation, newest, self.name)

    async def _leave(self) -> None:
        identity = MemberIdentity(member_id=self.member_id)
        await self.call(LeaveGroupRequest(group_id=self.group.name, members=[identity]), low=3)


class ConsumerMember(Member):
    """ConsumerGroupHeartbeat: the broker assigns."""

    commit_low = 9

    async def _take_part(self) -> None:
        self.member_id, self.generation = "", 0
        self._assigned: list[int] = []
        await self._beat()
        next_beat_s = self.world.loop.time() + self.beat_s
        while not self.world.over:
            if self._vanishes():
                self.close()
                raise Rejoin
            if set(self._assigned) != set(self.fetcher.positions):
                if self.uncommitted:
                    await self._commit()
                await self._change_partitions()
                next_beat_s = 0.0
            await self._read_some()
            now_s = self.world.loop.time()
            if now_s >= next_beat_s:
                next_beat_s = now_s + self.beat_s
                if self._has_to_commit():
                    await self._commit()
                await self._beat()
            if not self.fetcher.positions or not self.uncommitted:
                await self.rest(0.5 if self.world.quiet_since_s is None else 2.0)
        self.generation = -1
        await self._beat()

    async def _change_partitions(self) -> None:
        for index in set(self.fetcher.positions) - set(self._assigned):
            del self.fetcher.positions[index]
        self.fetcher.forget_session()
        fresh = [index for index in self._assigned if index not in self.fetcher.positions]
        if fresh:
            await self._begin_at_commits(fresh)

    async def _beat(self) -> None:
        topic = self.group.topic
        owned = [
            TopicPartitions(
                topic_id=await self.world.topic_id(self, topic), partitions=sorted(self.fetcher.positions)
            )
        ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group.name,
            member_id=self.member_id,
            member_epoch=self.generation,
            rebalance_timeout_ms=SESSION_MS,
            subscribed_topic_names=[topic.name],
            topic_partitions=owned if self.fetcher.positions else [],
        )
        answer: Any = await self.call(request, high=0)
        if answer.error_code:
            if answer.error_code not in LATER | REFUSED:
                self.world.fail("failed", f"{self.name}: heartbeat refused with {answer.error_code}")
            raise Rejoin
        self.member_id, self.generation = answer.member_id, answer.member_epoch
        if answer.assignment is not None:
            self._assigned = [index for row in answer.assignment.topic_partitions for index in row.partitions]


async def settled(group: Group, deadline_s: float) -> bool:
    """Wait until a group has committed everything; False when the time is over."""
    while group.waiting_for is not None:
        if group.world.loop.time() > deadline_s:
            return False
        await asyncio.sleep(0.5)
    return True
