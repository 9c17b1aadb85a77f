"""ListOffsets (key 2), versions 1 to 11: offsets by time, and the special times below zero.

-1 latest, -2 earliest, -3 the record with the greatest timestamp (since 7), -4 earliest local (since 8), -5 latest
tiered (since 9), -6 earliest not yet tiered (since 11). Without tiered storage -4 equals -2, and -5 finds nothing.
legacy_list_offsets.py handles version 0.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Generator, Iterator
from typing import Final, NamedTuple

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.once import by_topic
from barnabas.broker.partitions.partition import Partition
from barnabas.records.batch import CorruptBatch
from barnabas.records.units import Offset
from barnabas.runtime.pace import Pace, in_pieces
from barnabas.storage.searching import Search
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


class Later(NamedTuple):
    """A row that needs a batch unpacked, which a thread does."""

    row: ListOffsetsPartitionResponse
    topic: str
    asked: ListOffsetsPartition


def handle(
    context: Context, request: ListOffsetsRequest
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    """A partition that is named twice is an error, as in Kafka, because each row may ask for another time.

    Thousands of partitions, or searches by time on the disk, take many turns.
    """
    answer = ListOffsetsResponse(topics=[])
    later: list[Later] = []
    looking = in_pieces(
        asyncio.get_running_loop(), context.services.clock, _look_up_all(context, request, answer, later)
    )
    if not looking.done() or later:
        return _answered(context, request.isolation_level == READ_COMMITTED, looking, later, answer)
    looking.result()
    return answer


async def _answered(
    context: Context,
    read_committed: bool,
    looking: asyncio.Future[None],
    later: list[Later],
    answer: ListOffsetsResponse,
) -> ListOffsetsResponse:
    await looking
    for row, topic, asked in later:
        if context.connection.closed:
            break  # nobody waits: what has been asked for is not unpacked
        await _fill_unpacking(context, row, topic, asked, read_committed)
    return answer


def _look_up_all(
    context: Context, request: ListOffsetsRequest, answer: ListOffsetsResponse, later: list[Later]
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
            row = ListOffsetsPartitionResponse(
                partition_index=asked.partition_index, timestamp=-1, offset=-1, leader_epoch=-1
            )
            rows.append(row)
            if named[topic.name, asked.partition_index] > 1:
                row.error_code = ErrorCode.INVALID_REQUEST
            elif not (
                yield from _fill(context, row, topic.name, asked, request.isolation_level == READ_COMMITTED)
            ):
                later.append(Later(row, topic.name, asked))
            yield


def _fill(
    context: Context,
    row: ListOffsetsPartitionResponse,
    topic: str,
    asked: ListOffsetsPartition,
    read_committed: bool,
) -> Generator[None, None, bool]:
    """Fill in a row on the loop; False when a batch has to be unpacked for it."""
    partition = _led_partition(context, row, topic, asked)
    if partition is None:
        return True
    try:
        hit_or_end = _known(partition, asked.timestamp, read_committed)
        if hit_or_end is None:
            search, hit = _search(partition, asked.timestamp), None
            while True:
                look = search.send(hit)
                if look is not None and not look.is_quick:
                    search.close()
                    return False
                hit = None if look is None else look.run()
                yield
    except StopIteration as end:
        hit_or_end = _readable(partition, end.value, read_committed)
    except (ApiError, CorruptBatch) as error:
        _refuse(context, row, partition, error)
        return True
    _put(context, row, partition, hit_or_end)
    return True


async def _fill_unpacking(
    context: Context,
    row: ListOffsetsPartitionResponse,
    topic: str,
    asked: ListOffsetsPartition,
    read_committed: bool,
) -> None:
    """Fill in a row; a thread unpacks batches, one at a time for each client."""
    partition = _led_partition(context, row, topic, asked)
    if partition is None:
        return
    pace = Pace(context.services.clock)
    search, hit = _search(partition, asked.timestamp), None
    try:
        while not context.connection.closed:
            look = search.send(hit)
            hit = None
            if look is not None:
                run = context.services.conversions.run
                hit = await run(0, look.run, context.connection, packed=not look.is_quick)
            await pace.rest()
    except StopIteration as end:
        # The partition may have lost its leader meanwhile.
        if _led_partition(context, row, topic, asked) is partition:
            _put(context, row, partition, _readable(partition, end.value, read_committed))
    except (ApiError, CorruptBatch) as error:
        _refuse(context, row, partition, error)


def _led_partition(
    context: Context, row: ListOffsetsPartitionResponse, topic: str, asked: ListOffsetsPartition
) -> Partition | None:
    """The partition if this broker leads it; otherwise the row gets an error."""
    index = asked.partition_index
    if not _is_known(context.version, asked.timestamp):
        row.error_code = ErrorCode.UNSUPPORTED_VERSION
        return None
    partition = context.services.partitions.get(topic, index)
    if partition is None:
        row.error_code = context.services.partitions.why_missing(topic, index)
        return None
    row.error_code = partition.leader_error(asked.current_leader_epoch)
    return None if row.error_code else partition


def _put(
    context: Context,
    row: ListOffsetsPartitionResponse,
    partition: Partition,
    time_and_offset: tuple[int, int],
) -> None:
    row.timestamp, row.offset = time_and_offset
    if row.offset >= 0 and context.version >= 4:  # the field came with version 4
        row.leader_epoch = partition.epoch_at(Offset(row.offset))


def _refuse(
    context: Context,
    row: ListOffsetsPartitionResponse,
    partition: Partition,
    error: ApiError | CorruptBatch,
) -> None:
    code = (partition.unreadable(error) if isinstance(error, CorruptBatch) else error).code
    is_new = code is ErrorCode.OFFSET_NOT_AVAILABLE and context.version < NOT_AVAILABLE_FROM
    row.error_code = ErrorCode.LEADER_NOT_AVAILABLE if is_new else code


def _is_known(version: int, timestamp_ms: int) -> bool:
    """Whether a negative time has a meaning in this version."""
    return version >= SINCE.get(timestamp_ms, 0) and timestamp_ms >= EARLIEST_PENDING_UPLOAD


def _known(partition: Partition, timestamp_ms: int, read_committed: bool) -> tuple[int, int] | None:
    """(timestamp, offset) for what needs no search; (-1, -1) where there is none. Raises ApiError."""
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
    return None


def _search(partition: Partition, timestamp_ms: int) -> Search:
    return (
        partition.search_greatest_time()
        if timestamp_ms == MAX_TIMESTAMP
        else partition.search_time(timestamp_ms)
    )


def _readable(
    partition: Partition, time_and_offset: tuple[int, int] | None, read_committed: bool
) -> tuple[int, int]:
    """What was found, if consumers may see it."""
    readable_to = partition.last_stable_offset if read_committed else partition.high_watermark
    return time_and_offset if time_and_offset is not None and time_and_offset[1] < readable_to else NOWHERE
