"""A broker in this process whose share groups are asked by hand-made requests."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.shares import (
    describe_share_group_offsets,
    share_acknowledge,
    share_fetch,
    share_group_heartbeat,
)
from barnabas.broker.net.connection import Connection
from barnabas.broker.partitions.partition import Partition
from barnabas.broker.server import BrokerServer
from barnabas.config.dynamic import Operation, Resource
from barnabas.config.loader import load
from barnabas.cores.group.share.state import ShareKey
from barnabas.records.batch import Record, build_batch, read_records
from barnabas.runtime.clock import ManualClock
from barnabas.runtime.machine import Machine
from barnabas.runtime.timing import RequestTimes
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from barnabas.wire.messages.share_acknowledge import AcknowledgementBatch as AckRange
from barnabas.wire.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from barnabas.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.support.connections import admitted

TIMING = RequestTimes().of("test").begin(0, 0, 0, None)
GROUP = "g"


LOCK_MS = 30_000


LONG_MS = 20_000


ACCEPT, RELEASE, REJECT = 1, 2, 3


Runs = list[tuple[int, int, int]]


class Stage:
    """One broker with a clock that the test moves, a topic `t` of one partition, and members of group `g`."""

    def __init__(self, broker: BrokerServer, clock: ManualClock, connection: Connection) -> None:
        self.broker = broker
        self.clock = clock
        self.connection = connection
        self.epochs: dict[str, int] = {}

    @property
    def topic_id(self) -> UUID:
        return self.broker.services.image.topics["t"].topic_id

    @property
    def partition(self) -> Partition:
        return self.broker.services.partitions.require("t", 0)

    @property
    def key(self) -> ShareKey:
        return ShareKey(GROUP, self.topic_id, 0)

    def context(self, version: int = 2) -> Context:
        return Context(self.broker.services, self.connection, version, 1, "test", TIMING)

    async def option(self, name: str, value: str) -> None:
        changes = [(name, int(Operation.SET), value)]
        await self.broker.services.controller.options.alter_configs(Resource.GROUP, GROUP, changes)

    async def join(self, reset: str = "earliest") -> None:
        """The group reads `t` from `reset` on."""
        await self.option("share.auto.offset.reset", reset)
        epoch = 0
        for _ in range(60_000):  # the states' topic is made by a thread
            request = ShareGroupHeartbeatRequest(
                group_id=GROUP, member_id="a", member_epoch=epoch, subscribed_topic_names=["t"]
            )
            answer = await share_group_heartbeat.handle(self.context(1), request)
            assert answer.error_code == ErrorCode.NONE, answer.error_message
            epoch = answer.member_epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                return
            await asyncio.sleep(0.001)
        raise AssertionError("nothing was assigned")

    def produce(self, count: int, **options: Any) -> None:
        records = [Record(0, self.clock.now_ms(), None, b"%d" % i) for i in range(count)]
        batch = build_batch(records, **options)
        if options.get("transactional"):  # as if a coordinator had let it in
            self.partition.append_built(batch)
        else:
            self.partition.append(memoryview(bytearray(batch)), acks_all=True, zstd_allowed=True)

    def request(self, member: str, epoch: int | None = None, **limits: int) -> ShareFetchRequest:
        values = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 100, **limits}
        return ShareFetchRequest(
            group_id=GROUP,
            member_id=member,
            share_session_epoch=self.epochs.get(member, 0) if epoch is None else epoch,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=[FetchPartition(partition_index=0)])],
            **values,
        )

    def send(self, member: str, epoch: int | None = None, **limits: int) -> Any:
        """The answer to a ShareFetch, or what will be it."""
        request = self.request(member, epoch, **limits)
        if epoch is None:
            self.epochs[member] = request.share_session_epoch + 1
        return share_fetch.handle(self.context(), request)

    def fetch(self, member: str, **limits: int) -> Runs:
        answer = self.send(member, **limits)
        assert not isinstance(answer, Awaitable)
        return acquired(answer)

    def acknowledge(
        self, member: str, first: int, last: int, kind: int, epoch: int | None = None
    ) -> tuple[int, int]:
        """(error of the request, error of the partition)."""
        request = ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=member,
            share_session_epoch=self.epochs[member] if epoch is None else epoch,
            topics=[
                AcknowledgeTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        AcknowledgePartition(
                            partition_index=0,
                            acknowledgement_batches=[
                                AckRange(first_offset=first, last_offset=last, acknowledge_types=[kind])
                            ],
                        )
                    ],
                )
            ],
        )
        if epoch is None:
            self.epochs[member] += 1
        answer = share_acknowledge.handle(self.context(), request)
        return answer.error_code, answer.responses[0].partitions[0].error_code if answer.responses else 0

    async def offsets(self) -> tuple[int, int]:
        """(start offset, lag) of the group."""
        asked = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)
        answer = await describe_share_group_offsets.handle(
            self.context(1), DescribeShareGroupOffsetsRequest(groups=[asked])
        )
        row = answer.groups[0].topics[0].partitions[0]
        return row.start_offset, row.lag

    def advance(self, by_ms: int) -> None:
        self.clock.advance(by_ms)
        self.broker.services.shares.poll_timers()


def acquired(answer: Any) -> Runs:
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    rows = [row for topic in answer.responses for row in topic.partitions]
    assert all(row.error_code == ErrorCode.NONE for row in rows)
    runs = [(r.first_offset, r.last_offset, r.delivery_count) for row in rows for r in row.acquired_records]
    for row in rows:  # what was locked is among what is sent
        sent = (
            {record.offset for record in read_records(row.records.read())} if row.acquired_records else set()
        )
        for run in row.acquired_records:
            assert {run.first_offset, run.last_offset} <= sent
    return runs


@asynccontextmanager
async def stage(data: Path, clock: ManualClock | None = None, **options: str) -> AsyncIterator[Stage]:
    clock = clock or ManualClock()
    texts = {
        "log.dirs": str(data),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "offsets.topic.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        **{name.replace("__", "."): value for name, value in options.items()},
    }
    broker = BrokerServer(load(None, texts), machine=Machine(clock=clock))
    await broker.start()
    listening = socket.create_server(("127.0.0.1", 0))
    far = socket.create_connection(listening.getsockname())
    near, _ = listening.accept()
    near.setblocking(False)
    try:
        if "t" not in broker.services.image.topics:
            await broker.services.controller.topics.create("t", 1, 1, {}, {})
        yield Stage(broker, clock, admitted(broker, near))
    finally:
        await broker.stop()
        for sock in (near, far, listening):
            sock.close()


def run(data: Path, scenario: Callable[[Stage], Awaitable[None]], **options: str) -> None:
    async def main() -> None:
        async with stage(data, **options) as on:
            await on.join()
            await scenario(on)

    asyncio.run(main())
