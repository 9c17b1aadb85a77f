"""A fetch that waits on many partitions looks again only at those that have something new."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.partitions.fetching import FetchWaiter, Reading
from barnabas.broker.partitions.partition import Partition
from barnabas.broker.server import BrokerServer
from barnabas.config.loader import load
from barnabas.cores.fetch import FetchPartition, FetchPlan
from barnabas.records.batch import Record, build_batch
from barnabas.wire.errors import ErrorCode

PARTITIONS = 40
BATCH = build_batch([Record(0, 1_600_000_000_000, None, b"x" * 100)])


def test_only_partitions_with_news_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    plain_read = Partition.read

    def counted(self: Partition, *args: Any, **kwargs: Any) -> Any:
        read.append(self.index)
        return plain_read(self, *args, **kwargs)

    async def main() -> None:
        config = load(None, {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"})
        broker = BrokerServer(config)
        await broker.start()
        try:
            await broker.services.controller.topics.create("t", PARTITIONS, 1, {}, {})
            monkeypatch.setattr(Partition, "read", counted)
            answer = await waiting(broker)
        finally:
            await broker.stop()
        assert [read.asked.partition for read in answer.reads] == list(range(PARTITIONS))
        records_by_partition = {
            read.asked.partition: read.records for read in answer.reads if read.records is not None
        }
        assert {index: len(records) for index, records in records_by_partition.items()} == {
            3: 2 * len(BATCH),
            7: len(BATCH),
        }
        assert [read.error for read in answer.reads if read.error] == [ErrorCode.KAFKA_STORAGE_ERROR]

    async def waiting(broker: BrokerServer) -> Reading:
        asked = tuple(FetchPartition("t", index, 0, 1 << 20) for index in range(PARTITIONS))
        reading = Reading(
            FetchPlan(asked, None, True),
            lambda one: (broker.services.partitions.get("t", one.partition), ErrorCode.NONE),
            min_bytes=1 << 20,
            max_bytes=1 << 20,
            read_committed=False,
        )
        assert not reading.read()
        waiter = FetchWaiter(broker.services.loop, reading, 60_000)
        for index in (3, 7, 3):
            partition = broker.services.partitions.get("t", index)
            assert partition is not None
            read.clear()
            partition.append(memoryview(bytearray(BATCH)), acks_all=False, zstd_allowed=True)
            await asyncio.sleep(0.01)
            assert index in read
            assert set(read) <= {3, 7}
            assert not waiter.future.done()
        offline = broker.services.partitions.get("t", 20)
        assert offline is not None
        offline.go_offline("/somewhere")
        return await asyncio.wait_for(waiter.future, 10)

    asyncio.run(main())
