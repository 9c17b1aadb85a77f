"""DeleteRecords (key 21), versions 0 to 2: move the log start offset of partitions forward; -1 means to the end.

The records become unreachable at once; the files are deleted by the next run of retention. The answer waits until the
followers have moved their starts as well: otherwise the next leader would show the records again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.once import by_topic
from barnabas.broker.partitions.acknowledgement import Deletion, all_ready
from barnabas.cores.cluster_image import INTERNAL_TOPICS
from barnabas.cores.links import require_not_linked
from barnabas.records.units import Offset
from barnabas.runtime.pace import in_pieces
from barnabas.storage.errors import LogDirOffline, OffsetOutOfRange
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from barnabas.broker.partitions.partition import Partition

HIGH_WATERMARK: Final = -1


async def handle(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Each partition's low watermark, which may lie above the wanted offset; OFFSET_OUT_OF_RANGE beyond the high watermark,
    POLICY_VIOLATION if the topic is only compacted, REQUEST_TIMED_OUT if not all replicas have deleted in time.
    """
    answer = DeleteRecordsResponse(topics=[])
    waiting: list[tuple[Deletion, DeleteRecordsPartitionResult, Partition]] = []

    def delete_all() -> Iterator[None]:
        for topic, partitions in by_topic(
            request.topics, lambda t: t.name, lambda t: t.partitions, lambda p: p.partition_index
        ):
            if not partitions:
                continue
            row = DeleteRecordsTopicResult(name=topic.name, partitions=[])
            answer.topics.append(row)
            for asked in partitions:  # each may write a small file
                result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
                row.partitions.append(result)
                try:
                    partition, deletion = _delete(context, topic.name, asked.partition_index, asked.offset)
                    waiting.append((deletion, result, partition))
                except ApiError as error:
                    result.error_code = error.code
                yield

    await in_pieces(asyncio.get_running_loop(), context.services.clock, delete_all())
    await all_ready([deletion for deletion, _, _ in waiting], request.timeout_ms)
    for deletion, result, partition in waiting:
        if deletion.error is not None:
            result.error_code = deletion.error.code
        else:
            result.low_watermark = max(partition.low_watermark, deletion.next_offset)
    return answer


def _delete(context: Context, topic: str, index: int, offset: int) -> tuple[Partition, Deletion]:
    """Move the log start of a partition; the deletion is ready once its followers have done so as well."""
    partition = context.services.partitions.require_leader(topic, index)
    if topic in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is the broker's own")
    require_not_linked(context.services.image, topic)
    if partition.offline is not None:
        raise partition.unavailable()
    if not partition.config.delete:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic} does not allow deletion")
    target = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if target < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not a valid offset")
    try:
        return partition, partition.delete_before(Offset(target))
    except OffsetOutOfRange as error:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, str(error)) from None
    except LogDirOffline as error:
        context.services.partitions.write_failed(partition, error)
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
