"""Produce (key 0), versions 0 to 2: message sets of producers older than 0.11, appended as record batches.

0 and 1 bring magic 0 (no timestamps), 2 brings magic 1 and is told the append time. Some clients send either
magic in any of them, so the magic of each message is what counts.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from barnabas.broker.context import Context
from barnabas.broker.conversion import batches_of, known_to_old_clients
from barnabas.broker.handlers.produce import ACKS_ALL, ACKS_LEADER, ACKS_NONE, find_partition, refused
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.partition import Partition


def handle(context: Context, request: ProduceRequest) -> Awaitable[ProduceResponse | None]:
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                # The frame is borrowed; conversion goes on after this call has returned.
                data.records = bytes(data.records)
    return _append_all(context, request)


async def _append_all(context: Context, request: ProduceRequest) -> ProduceResponse | None:
    answer = ProduceResponse(responses=[])
    to_flush: list[Partition] = []
    failed = False
    for topic in request.topic_data:
        partitions = []
        for data in topic.partition_data:
            try:
                one = await _append(context, topic, data, request.acks, to_flush)
            except ApiError as error:
                one = refused(data, ErrorCode(known_to_old_clients(error.code)), error.message)
                failed = True
            partitions.append(one)
        answer.responses.append(TopicProduceResponse(name=topic.name, partition_responses=partitions))
    for partition in to_flush:
        await context.broker.partitions.flush(partition)
    if request.acks != ACKS_NONE:
        return answer
    if failed:
        context.connection.close("a produce request with acks=0 failed")
    return None


async def _append(
    context: Context,
    topic: TopicProduceData,
    data: PartitionProduceData,
    acks: int,
    to_flush: list[Partition],
) -> PartitionProduceResponse:
    """Raises ApiError. A set that is too large for one batch becomes several, acknowledged together."""
    if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; 0, 1 and -1 (all) are allowed")
    max_bytes = find_partition(context, topic, data.index).config.max_message_bytes
    message_set: bytes = data.records or b""
    conversions = context.broker.conversions
    batches, records = await conversions.run(len(message_set), lambda: batches_of(message_set, max_bytes))
    # Found anew: while the thread converted, the partition may have gone.
    partition = find_partition(context, topic, data.index)
    appended = [
        partition.append(memoryview(bytearray(batch)), acks_all=acks == ACKS_ALL, zstd_allowed=True)
        for batch in batches
    ]
    conversions.count(context, "up", records, sum(map(len, batches)))
    if partition.log.must_flush_now and partition not in to_flush:
        to_flush.append(partition)
    return PartitionProduceResponse(
        index=data.index,
        error_code=ErrorCode.NONE,
        base_offset=appended[0].base_offset,
        log_append_time_ms=appended[0].log_append_time_ms,
        log_start_offset=appended[0].log_start_offset,
    )
