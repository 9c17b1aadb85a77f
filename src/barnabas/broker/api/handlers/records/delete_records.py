"""DeleteRecords (key 21), versions 0 to 2: move the log start offset of partitions forward; -1 means to the end.

The records become unreachable at once; the files are deleted by the next run of retention.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.once import by_topic
from barnabas.cores.cluster_image import INTERNAL_TOPICS
from barnabas.records.units import Offset
from barnabas.runtime.pace import in_pieces
from barnabas.storage.errors import LogDirOffline, OffsetOutOfRange
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK: Final = -1


async def handle(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Each partition's new log start offset, which may lie above the wanted one; OFFSET_OUT_OF_RANGE beyond the high
    watermark, POLICY_VIOLATION if the topic is only compacted.
    """
    answer = DeleteRecordsResponse(topics=[])

    def delete_all() -> Iterator[None]:
        for topic, partitions in by_topic(
            request.topics, lambda t: t.name, lambda t: t.partitions, lambda p: p.partition_index
        ):
            if not partitions:
                continue
            row = DeleteRecordsTopicResult(name=topic.name, partitions=[])
            answer.topics.append(row)
            for asked in partitions:  # each may write a small file
                row.partitions.append(_delete(context, topic.name, asked))
                yield

    await in_pieces(asyncio.get_running_loop(), context.services.clock, delete_all())
    return answer


def _delete(context: Context, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
    try:
        result.low_watermark = _move_start(context, topic, asked.partition_index, asked.offset)
    except ApiError as error:
        result.error_code = error.code
    return result


def _move_start(context: Context, topic: str, index: int, offset: int) -> int:
    """The new log start offset, which is higher than `offset` if the log already started beyond it."""
    partition = context.services.partitions.require_leader(topic, index)
    if topic in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is the broker's own")
    if partition.offline is not None:
        raise partition.unavailable()
    if not partition.config.delete:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic} does not allow deletion")
    target = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if target < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not a valid offset")
    try:
        partition.log.advance_log_start(Offset(target))
    except OffsetOutOfRange as error:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, str(error)) from None
    except LogDirOffline as error:
        context.services.partitions.write_failed(partition, error)
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
    partition.wake_waiters()  # a share group's window may have room now
    return partition.log_start_offset
