"""A follower's fetch costs little for the partitions in which nothing has happened, and is answered as if all were read."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.api.handlers.records import fetch
from barnabas.broker.partitions.partition import Partition
from barnabas.broker.server import BrokerServer
from barnabas.config.loader import load
from barnabas.cores.replication import InSyncReplicas
from barnabas.records.batch import Record, build_batch
from barnabas.records.units import Offset
from barnabas.wire.header import decode_response_header, encode_request
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

FOLLOWERS = (98, 99)
PARTITIONS = 6
VERSION = 15
BATCH = build_batch([Record(0, 1_600_000_000_000, None, b"x" * 100)])
WAIT_S = 60


class Follower:
    """Fetches in a session from where its logs end; its logs are numbers."""

    def __init__(
        self, node_id: int, partitions: list[Partition], streams: tuple[asyncio.StreamReader, Any]
    ) -> None:
        self.node_id = node_id
        self.epoch = -1
        self._partitions = partitions
        self._reader, self._writer = streams
        self._session = [0, 0]
        self._told: dict[int, tuple[int, int, int]] = {}
        self.starts = [0] * PARTITIONS
        self.ends = [0] * PARTITIONS
        self.left_out: set[int] = set()

    async def fetch(self, takes: bool = True) -> list[tuple[object, ...]]:
        """The rows of the answer. takes: add the records to the own logs."""
        now = {
            index: (int(self._partitions[index].leader_epoch), self.ends[index], self.starts[index])
            for index in range(PARTITIONS)
            if index not in self.left_out
        }
        changed = {index: asked for index, asked in now.items() if self._told.get(index) != asked}
        forgotten = [index for index in self._told if index not in now]
        self._told = now
        topic_id = self._partitions[0].topic_id
        rows = [
            FetchPartition(
                partition=index, current_leader_epoch=epoch, fetch_offset=end, log_start_offset=start,
                last_fetched_epoch=-1, partition_max_bytes=1000,
            )
            for index, (epoch, end, start) in changed.items()
        ]  # fmt: skip
        gone = [ForgottenTopic(topic_id=topic_id, partitions=forgotten)] if forgotten else []
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self.node_id, replica_epoch=self.epoch),
            max_wait_ms=0, min_bytes=1, max_bytes=10_000, session_id=self._session[0], session_epoch=self._session[1],
            topics=[FetchTopic(topic_id=topic_id, partitions=rows)] if rows else [], forgotten_topics_data=gone,
        )  # fmt: skip
        self._writer.write(encode_request(request, VERSION, 1, "follower"))
        frame = await self._reader.readexactly(int.from_bytes(await self._reader.readexactly(4), "big"))
        answer = FetchResponse.decode(frame, VERSION, decode_response_header(frame, 1, VERSION)[1])
        assert not answer.error_code
        self._session = [answer.session_id, self._session[1] + 1]
        partition_rows: list[tuple[object, ...]] = []
        for row in (row for topic in answer.responses for row in topic.partitions):
            size = len(row.records or b"")
            if takes:
                self.ends[row.partition_index] += size // len(BATCH)
            partition_rows.append(
                (row.partition_index, row.error_code, row.high_watermark, row.log_start_offset, size)
            )
        return partition_rows


Scenario = Callable[[BrokerServer, list[Partition], list[Follower]], Awaitable[None]]


def run(folder: Path, scenario: Scenario) -> None:
    async def main() -> None:
        options = {"log.dirs": str(folder / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
        broker = BrokerServer(load(None, options))
        await broker.start()
        try:
            await broker.services.controller.topics.create("t", PARTITIONS, 1, {}, {})
            partitions = [broker.services.partitions.require("t", index) for index in range(PARTITIONS)]
            for partition in partitions:
                take_role(broker, partition)
            port = broker.ports["PLAINTEXT"]
            followers = [
                Follower(node_id, partitions, await asyncio.open_connection("127.0.0.1", port))
                for node_id in FOLLOWERS
            ]
            await asyncio.wait_for(scenario(broker, partitions, followers), WAIT_S)
        finally:
            await broker.stop()

    asyncio.run(main())


def take_role(
    broker: BrokerServer, partition: Partition, isr: tuple[int, ...] = FOLLOWERS, **changes: Any
) -> None:
    image = broker.services.image.partition("t", partition.index)
    assert image is not None
    leader = broker.services.controller.node_id
    replicas = changes.pop("replicas", (leader, *FOLLOWERS))
    partition.take_role(replace(image, replicas=replicas, isr=(leader, *isr), **changes))


def append(partition: Partition) -> None:
    partition.append(memoryview(bytearray(BATCH)), acks_all=False, zstd_allowed=True)


def test_only_what_has_changed_is_looked_up_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 5,000 partitions of one leader, a look at each took 40 ms of each write with acks=all."""
    read: list[int] = []
    looked_up: list[int] = []

    def counting_read(partition: Partition, *args: Any, **kwargs: Any) -> Any:
        read.append(partition.index)
        return plain_read(partition, *args, **kwargs)

    def counting_find(services: Any, asked: Any, **kwargs: Any) -> Any:
        looked_up.append(asked.partition)
        return plain_find(services, asked, **kwargs)

    plain_read, plain_find = Partition.read, fetch.find_partition
    monkeypatch.setattr(Partition, "read", counting_read)
    monkeypatch.setattr(fetch, "find_partition", counting_find)

    async def scenario(broker: BrokerServer, partitions: list[Partition], followers: list[Follower]) -> None:
        for _ in range(3):
            for follower in followers:
                await follower.fetch()
        for _ in range(3):
            read.clear()
            looked_up.clear()
            await followers[0].fetch()
            assert (read, looked_up) == ([], [])
        append(partitions[2])
        rows = await followers[0].fetch()
        assert [row[0] for row in rows] == [2]
        assert set(read) == set(looked_up) == {2}
        await followers[1].fetch()
        for _ in range(2):
            for follower in followers:
                await follower.fetch()
        assert partitions[2].high_watermark == 1
        assert set(read) == set(looked_up) == {2}

    run(tmp_path, scenario)


async def _story(
    broker: BrokerServer,
    partitions: list[Partition],
    followers: list[Follower],
    seed: int,
    journal: list[Any],
) -> None:
    chance = random.Random(seed)
    epoch = 10
    for _ in range(250):
        what = chance.random()
        partition = chance.choice(partitions)
        follower = chance.choice(followers)
        if what < 0.55:
            journal.append((follower.node_id, await follower.fetch(takes=chance.random() < 0.9)))
        elif what < 0.7:
            if partition.is_leader:
                append(partition)
        elif what < 0.78:
            epoch += 1
            leader = broker.services.controller.node_id
            isr = chance.choice([FOLLOWERS, FOLLOWERS, FOLLOWERS[:1], ()])
            replicas = chance.choice([(leader, *FOLLOWERS), (leader, *FOLLOWERS), (leader, *FOLLOWERS[:1])])
            leads = chance.choice([leader, leader, leader, FOLLOWERS[0]])
            leader_epoch = epoch if chance.random() < 0.5 else max(partition.leader_epoch, 0)
            take_role(
                broker, partition, isr, leader=leads, leader_epoch=leader_epoch, partition_epoch=epoch,
                replicas=replicas,
            )  # fmt: skip
        elif what < 0.84:
            follower.left_out ^= {partition.index}
        elif what < 0.88:
            follower.epoch = chance.choice([-1, 5, 6, 7])
        elif what < 0.92:
            follower.starts[partition.index] = min(partition.log_start_offset, follower.ends[partition.index])
        elif what < 0.96:
            follower.ends[partition.index] = chance.randint(0, partition.log_end_offset)
        elif partition.is_leader and partition.high_watermark > partition.log_start_offset:
            low = chance.randint(partition.log_start_offset + 1, partition.high_watermark)
            partition.delete_before(Offset(low))
        journal.append([
            (
                known.high_watermark, known.low_watermark, known.wanted_in_sync, known.is_leader,
                [(known._replicas.end_of(node), known._replicas.epoch_of(node)) for node in FOLLOWERS],
            )
            for known in partitions
        ])  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_the_short_way_answers_and_notes_what_the_long_way_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    journals: dict[str, list[Any]] = {"short": [], "long": []}
    taken = 0
    plain = Partition.note_idle_fetch

    def counting(partition: Partition, *args: Any) -> bool:
        nonlocal taken
        was_taken = plain(partition, *args)
        taken += was_taken
        return was_taken

    for way, note in (("short", counting), ("long", lambda *_: False)):
        monkeypatch.setattr(Partition, "note_idle_fetch", note)

        async def scenario(
            broker: BrokerServer, partitions: list[Partition], followers: list[Follower], way: str = way
        ) -> None:
            await _story(broker, partitions, followers, seed, journals[way])

        run(tmp_path / way, scenario)
    assert taken > 50
    assert journals["short"] == journals["long"]


@pytest.mark.parametrize("seed", range(50))
def test_an_idle_fetch_leaves_the_same_knowledge_of_the_follower(seed: int) -> None:
    """What counts for the in-sync set: since when a follower is behind."""
    chance = random.Random(seed)
    short, long = InSyncReplicas(1, (2, 3)), InSyncReplicas(1, (2, 3))
    end, now_ms = Offset(0), 0.0
    for replicas in (short, long):
        replicas.begin((2, 3), now_ms)
    at = {2: Offset(0), 3: Offset(0)}
    for _ in range(200):
        now_ms += chance.choice([0, 1, 10_000])
        end = Offset(end + chance.choice([0, 0, 0, 1]))
        node = chance.choice([2, 3])
        at[node] = Offset(chance.randint(at[node], end))
        long.note_fetch(node, at[node], end, now_ms, 7)
        if at[node] != end or not short.note_idle_fetch(node, end, -1, now_ms, 7):
            short.note_fetch(node, at[node], end, now_ms, 7)
        for known, same in ((short._known[n], long._known[n]) for n in (2, 3)):
            assert [getattr(known, name) for name in known.__slots__] == [
                getattr(same, name) for name in same.__slots__
            ]
        assert short.lagging(end, now_ms, 15_000) == long.lagging(end, now_ms, 15_000)
