"""ListOffsets (key 2), versions 1 to 11: offsets by time, and the special times below zero.

-1 latest, -2 earliest, -3 the record with the greatest timestamp (since 7), -4 earliest local (since 8), -5 latest
tiered (since 9), -6 earliest not yet tiered (since 11). Without tiered storage -4 equals -2, and -5 finds nothing.
legacy_list_offsets.py handles version 0.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator
from typing import Final

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.once import by_topic
from barnabas.broker.partitions.partition import Partition
from barnabas.records.units import Offset
from barnabas.runtime.pace import in_pieces
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
READ_COMMITTED: Final = 1
NOT_AVAILABLE_FROM: Final = 5
NOWHERE: Final = (-1, -1)
SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


def handle(
    context: Context, request: ListOffsetsRequest
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    """A partition that is named twice is an error, as in Kafka, because each row may ask for another time.

    Thousands of partitions, or searches by time on the disk, take many turns.
    """
    answer = ListOffsetsResponse(topics=[])
    looking = in_pieces(
        asyncio.get_running_loop(), context.services.clock, _look_up_all(context, request, answer)
    )
    if not looking.done():
        return _answered(looking, answer)
    looking.result()
    return answer


async def _answered(looking: asyncio.Future[None], answer: ListOffsetsResponse) -> ListOffsetsResponse:
    await looking
    return answer


def _look_up_all(
    context: Context, request: ListOffsetsRequest, answer: ListOffsetsResponse
) -> Iterator[None]:
    named = Counter(
        (topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions
    )
    for topic, partitions in by_topic(
        request.topics, lambda t: t.name, lambda t: t.partitions, lambda p: p.partition_index
    ):
        if not partitions:
            continue
        rows: list[ListOffsetsPartitionResponse] = []
        answer.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        for asked in partitions:
            if named[topic.name, asked.partition_index] == 1:
                row = _answer(context, topic.name, asked, request.isolation_level == READ_COMMITTED)
            else:
                row = ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index,
                    error_code=ErrorCode.INVALID_REQUEST,
                    timestamp=-1,
                    offset=-1,
                    leader_epoch=-1,
                )
            rows.append(row)
            yield


def _answer(
    context: Context, topic: str, asked: ListOffsetsPartition, read_committed: bool
) -> ListOffsetsPartitionResponse:
    index = asked.partition_index
    answer = ListOffsetsPartitionResponse(partition_index=index, timestamp=-1, offset=-1, leader_epoch=-1)
    if not _is_known(context.version, asked.timestamp):
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        return answer
    partition = context.services.partitions.get(topic, index)
    if partition is None:
        answer.error_code = context.services.partitions.why_missing(topic, index)
        return answer
    answer.error_code = partition.leader_error(asked.current_leader_epoch)
    if answer.error_code:
        return answer
    try:
        answer.timestamp, answer.offset = _look_up(partition, asked.timestamp, read_committed)
    except ApiError as error:
        is_new = error.code is ErrorCode.OFFSET_NOT_AVAILABLE and context.version < NOT_AVAILABLE_FROM
        answer.error_code = ErrorCode.LEADER_NOT_AVAILABLE if is_new else error.code
        return answer
    if answer.offset >= 0 and context.version >= 4:  # the field came with version 4
        answer.leader_epoch = partition.epoch_at(Offset(answer.offset))
    return answer


def _is_known(version: int, timestamp_ms: int) -> bool:
    """Whether a negative time has a meaning in this version."""
    return version >= SINCE.get(timestamp_ms, 0) and timestamp_ms >= EARLIEST_PENDING_UPLOAD


def _look_up(partition: Partition, timestamp_ms: int, read_committed: bool) -> tuple[int, int]:
    """(timestamp, offset) for what was asked; (-1, -1) where there is none. Raises ApiError."""
    if timestamp_ms == LATEST and not partition.high_watermark_is_known:
        raise ApiError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{partition} has a new leader, which does not know yet how far the others have come",
        )
    if timestamp_ms == LATEST:
        return -1, partition.last_stable_offset if read_committed else partition.high_watermark
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        return -1, partition.log_start_offset
    if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOWHERE
    readable_to = partition.last_stable_offset if read_committed else partition.high_watermark
    found = (
        partition.max_timestamp()
        if timestamp_ms == MAX_TIMESTAMP
        else partition.offset_for_time(timestamp_ms)
    )
    return found if found is not None and found[1] < readable_to else NOWHERE
