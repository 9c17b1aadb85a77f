"""Writes single records through the console's own connection."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Final

from barnabas.admin import AsyncAdmin
from barnabas.admin.values import TopicPartition
from barnabas.client.errors import BrokerError, ClientError
from barnabas.records.batch import Record, build_batch
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

ACKS_ALL: Final = -1
TIMEOUT_MS: Final = 10_000
BATCH_BYTES: Final = 500_000
BATCH_RECORDS: Final = 500


async def produce(
    admin: AsyncAdmin,
    place: TopicPartition,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    timestamp_ms: int | None = None,
) -> int:
    """The offset of the new record, once all in-sync replicas have it. Raises ClientError.

    It is not repeated after a lost answer: there could be two records then.
    """
    when_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    return await _append(admin, place, [Record(0, when_ms, key, value, tuple(headers))])


async def produce_all(
    admin: AsyncAdmin, place: TopicPartition, records: Sequence[Record]
) -> AsyncIterator[int]:
    """Write records in their order, in batches; yields how many each batch has. Raises ClientError."""
    batch: list[Record] = []
    size = 0
    for record in records:
        more = (
            len(record.key or b"") + len(record.value or b"") + sum(len(v or b"") for _, v in record.headers)
        )
        if batch and (size + more > BATCH_BYTES or len(batch) >= BATCH_RECORDS):
            await _append(admin, place, batch)
            yield len(batch)
            batch, size = [], 0
        batch.append(record._replace(offset=len(batch)))
        size += more
    if batch:
        await _append(admin, place, batch)
        yield len(batch)


async def _append(admin: AsyncAdmin, place: TopicPartition, records: Sequence[Record]) -> int:
    batch = build_batch(records)
    leader = (await admin.connections.leaders([place]))[place]
    if isinstance(leader, ClientError):
        raise leader
    connection = await admin.connections.node(leader)
    rows = [PartitionProduceData(index=place.partition, records=memoryview(batch))]
    request = ProduceRequest(
        acks=ACKS_ALL,
        timeout_ms=TIMEOUT_MS,
        topic_data=[TopicProduceData(name=place.topic, partition_data=rows)],
    )
    answer: ProduceResponse = await connection.call(request, ProduceResponse)
    row = answer.responses[0].partition_responses[0]
    if row.error_code:
        admin.connections.forget_routes()
        raise BrokerError(row.error_code, f"producing to {place}", row.error_message)
    return int(row.base_offset)
