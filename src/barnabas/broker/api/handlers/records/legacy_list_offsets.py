"""ListOffsets (key 2), version 0: offsets at segments' starts, by the time the segment was last written.

Clients before 0.10.1 ask for -1 (the end) or -2 (the start) and want one offset; a time returns the newest segment
that was complete by then and all before it, newest first. Source: Kafka's legacyFetchOffsetsBefore.
"""

from __future__ import annotations

import os
from typing import Final

from barnabas.broker.api.context import Context
from barnabas.broker.api.conversion import known_to_old_clients
from barnabas.broker.partitions.partition import Partition
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST: Final = -1
EARLIEST: Final = -2


def handle(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """At most `max_num_offsets` offsets for each partition; NOT_LEADER_OR_FOLLOWER if another broker leads it."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_answer(context, topic.name, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(context: Context, topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index, old_style_offsets=[])
    partition = context.services.partitions.get(topic, asked.partition_index)
    if partition is None:
        answer.error_code = context.services.partitions.why_missing(topic, asked.partition_index)
        return answer
    if not partition.is_leader:
        answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return answer
    try:
        offsets = offsets_before(partition, asked.timestamp, context.services.clock.now_ms())
    except OSError:
        answer.error_code = known_to_old_clients(ErrorCode.KAFKA_STORAGE_ERROR)
        return answer
    answer.old_style_offsets = offsets[: max(asked.max_num_offsets, 0)]
    return answer


def offsets_before(partition: Partition, timestamp_ms: int, now_ms: int) -> list[int]:
    """The offsets that had been reached at `timestamp_ms`, newest first. Raises OSError."""
    start: int = partition.log_start_offset
    end, log = partition.high_watermark, partition.log
    if timestamp_ms == EARLIEST:
        return [start]
    points = [
        (max(segment.base_offset, start), os.stat(segment.path(".log")).st_mtime * 1000)
        for segment in log.segments
    ]
    if log.active.size_bytes:
        points.append((log.log_end_offset, now_ms))
    while points and timestamp_ms != LATEST and points[-1][1] > timestamp_ms:
        points.pop()
    offsets = [offset for offset, _ in reversed(points)]
    visible = [offset for offset in offsets if offset <= end]
    return visible if len(visible) == len(offsets) else [end, *visible]
