"""The metrics of a broker while partitions change their roles."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from barnabas.broker.api.measuring import measure
from barnabas.broker.partitions.partition import Partition
from barnabas.broker.server import BrokerServer
from barnabas.config.loader import load
from barnabas.observe import metrics
from barnabas.observe.metric import Metric
from barnabas.records.batch import Record, build_batch
from barnabas.runtime.turns import Turns

OTHER = 99
ODD = "odd.topic_name-1"
RECORDS = 3
TURNS = Turns(asyncio.new_event_loop())


async def values(broker: BrokerServer) -> dict[tuple[Metric, tuple[str, ...]], float]:
    return {(sample.metric, sample.labels): sample.value for sample in await measure(broker.services, TURNS)}


def lead(broker: BrokerServer, partition: Partition, leader: int, epoch: int, isr: tuple[int, ...]) -> None:
    """The metadata gives the partition another leader and in-sync set."""
    me = broker.services.controller.node_id
    partition.take_role(
        replace(partition.image, leader=leader, leader_epoch=epoch, replicas=(me, OTHER), isr=isr)
    )


def append(partition: Partition) -> None:
    batch = build_batch([Record(0, 1_600_000_000_000, None, b"x")] * RECORDS)
    partition.append(memoryview(bytearray(batch)), acks_all=False, zstd_allowed=True)


def test_messages_count_over_epochs_and_replicas_that_lag_are_seen(tmp_path: Path) -> None:
    async def main() -> None:
        broker = BrokerServer(load(None, {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}))
        await broker.start()
        try:
            await broker.services.controller.topics.create(ODD, 1, 1, {}, {"min.insync.replicas": "2"})
            partition = broker.services.partitions.require(ODD, 0)
            me, epoch = broker.services.controller.node_id, partition.leader_epoch
            append(partition)
            assert (await values(broker))[metrics.MESSAGES_IN, (ODD,)] == RECORDS
            lead(broker, partition, OTHER, epoch + 1, (me, OTHER))
            values_now = await values(broker)
            assert values_now[metrics.MESSAGES_IN, (ODD,)] == RECORDS
            assert values_now[metrics.UNDER_REPLICATED, ()] == values_now[metrics.UNDER_MIN_ISR, ()] == 0
            lead(broker, partition, me, epoch + 2, (me,))
            append(partition)
            values_now = await values(broker)
            assert values_now[metrics.MESSAGES_IN, (ODD,)] == 2 * RECORDS
            assert values_now[metrics.UNDER_REPLICATED, ()] == values_now[metrics.UNDER_MIN_ISR, ()] == 1
            lead(broker, partition, me, epoch + 3, (me, OTHER))
            append(partition)
            values_now = await values(broker)
            assert values_now[metrics.MESSAGES_IN, (ODD,)] == 3 * RECORDS
            assert values_now[metrics.UNDER_REPLICATED, ()] == 0
            assert values_now[metrics.LOG_END, (ODD, "0")] == 3 * RECORDS
            partition.go_offline("its disk failed")
            assert (metrics.LOG_END, (ODD, "0")) not in await values(broker)
        finally:
            await broker.stop()

    asyncio.run(main())
