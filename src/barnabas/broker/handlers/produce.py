"""Produce (key 0), versions 3 to 13; what is older goes to legacy_produce.py.

Since 7 zstd, 8 errors name records, 9 flexible, 10 tells the new leader, 13 topic ids. The record bytes are
checked by their header, patched and appended; nothing is decoded.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from barnabas.broker.context import Context
from barnabas.broker.partition import RecordsRefused
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.partition import Partition

BATCHES_FROM = 3
TOPIC_IDS_FROM = 13
ZSTD_FROM = 7
ACKS_NONE = 0
ACKS_LEADER = 1
ACKS_ALL = -1


def handle(
    context: Context, request: ProduceRequest
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    if context.version < BATCHES_FROM:
        from barnabas.broker.handlers import legacy_produce

        return legacy_produce.handle(context, request)
    acks = request.acks
    answer = ProduceResponse(responses=[])
    failed = False
    to_flush: list[Partition] = []
    for topic in request.topic_data:
        partitions = []
        for data in topic.partition_data:
            if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
                one = refused(
                    data, ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; 0, 1 and -1 (all) are allowed"
                )
            else:
                one = _append(context, topic, data, acks, to_flush)
            failed = failed or one.error_code != ErrorCode.NONE
            partitions.append(one)
        answer.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions)
        )
    if to_flush:
        return _flush_first(context, to_flush, answer if acks != ACKS_NONE else None)
    if acks != ACKS_NONE:
        return answer
    if failed:
        # A producer with acks=0 hears of an error in the only way left: its connection closes and it
        # asks for metadata again. So does Kafka.
        context.connection.close("a produce request with acks=0 failed")
    return None


async def _flush_first(
    context: Context, partitions: list[Partition], answer: ProduceResponse | None
) -> ProduceResponse | None:
    """The acknowledgement after `flush.messages` has been kept: the records are on the disk itself."""
    for partition in partitions:
        await context.broker.partitions.flush(partition)
    return answer


def refused(data: PartitionProduceData, code: ErrorCode, message: str | None) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=data.index, error_code=code, base_offset=-1, log_append_time_ms=-1, log_start_offset=-1,
        error_message=message,
    )  # fmt: skip


def _append(
    context: Context,
    topic: TopicProduceData,
    data: PartitionProduceData,
    acks: int,
    to_flush: list[Partition],
) -> PartitionProduceResponse:
    try:
        partition = find_partition(context, topic, data.index)
        appended = partition.append(
            data.records, acks_all=acks == ACKS_ALL, zstd_allowed=context.version >= ZSTD_FROM
        )
    except RecordsRefused as error:
        answer = refused(data, error.code, error.message)
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=error.message)
            for number in error.numbers
        ]
        return answer
    except ApiError as error:
        return refused(data, error.code, error.message)
    if partition.log.must_flush_now:
        to_flush.append(partition)
    return PartitionProduceResponse(
        index=data.index,
        error_code=ErrorCode.NONE,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )


def find_partition(context: Context, topic: TopicProduceData, index: int) -> Partition:
    """Raises ApiError."""
    partitions = context.broker.partitions
    name: str | None = topic.name
    if context.version >= TOPIC_IDS_FROM:
        name = partitions.name_of(topic.topic_id)
        if name is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic.topic_id}")
    partition = partitions.get(name or "", index)
    if partition is None:
        raise ApiError(
            partitions.why_missing(name or "", index), f"there is no {name}-{index} on this broker"
        )
    return partition
