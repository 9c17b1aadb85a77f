"""Fetch (key 1), versions 4 to 18; what is older goes to legacy_fetch.py.

Since 7 sessions (KIP-227), 10 topics whose `compression.type` is zstd (KIP-110), 12 epochs of the last fetched
record and divergence (KIP-595), 13 topic ids, 16 node endpoints. Records leave as slices of the log's files.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.broker.context import Context
from barnabas.broker.fetching import FetchWaiter, PartitionRead, Reading
from barnabas.cores.fetch import INITIAL_EPOCH, FetchPartition, FetchPlan, Key, TopicRef, served_last
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from barnabas.broker.partition import Partition
    from barnabas.broker.server import BrokerServer

BATCHES_FROM = 4
ZSTD_FROM = 10
TOPIC_IDS_FROM = 13
READ_COMMITTED = 1


def handle(context: Context, request: FetchRequest) -> FetchResponse | Awaitable[FetchResponse]:
    if context.version < BATCHES_FROM:
        from barnabas.broker.handlers import legacy_fetch

        return legacy_fetch.handle(context, request)
    broker = context.broker
    by_topic_id = context.version >= TOPIC_IDS_FROM
    try:
        plan = broker.fetch_sessions.plan(
            request.session_id,
            request.session_epoch,
            _named(request, by_topic_id),
            _forgotten(request, by_topic_id),
            by_topic_id=by_topic_id,
            fresh_id=broker.fresh_session_id() if request.session_epoch == INITIAL_EPOCH else 0,
            now_ms=broker.clock.now_ms(),
        )
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    reading = Reading(
        plan,
        lambda asked: find_partition(broker, asked, zstd=context.version >= ZSTD_FROM),
        min_bytes=request.min_bytes,
        max_bytes=min(request.max_bytes, broker.fetch_bytes_max),
        read_committed=request.isolation_level == READ_COMMITTED,
    )
    if reading.read() or request.max_wait_ms <= 0 or not plan.partitions:
        return _respond(plan, reading, by_topic_id)
    waiter = FetchWaiter(broker.shard, reading, request.max_wait_ms)
    context.connection.parked = waiter.give_up
    return _later(waiter, plan, by_topic_id)


async def _later(waiter: FetchWaiter, plan: FetchPlan, by_topic_id: bool) -> FetchResponse:
    return _respond(plan, await waiter.future, by_topic_id)


def _named(request: FetchRequest, by_topic_id: bool) -> Iterator[FetchPartition]:
    for topic in request.topics:
        ref: TopicRef = topic.topic_id if by_topic_id else topic.topic
        for asked in topic.partitions:
            yield FetchPartition(
                ref,
                asked.partition,
                asked.fetch_offset,
                asked.partition_max_bytes,
                asked.current_leader_epoch,
                asked.last_fetched_epoch,
            )


def _forgotten(request: FetchRequest, by_topic_id: bool) -> Iterator[Key]:
    for topic in request.forgotten_topics_data:
        ref: TopicRef = topic.topic_id if by_topic_id else topic.topic
        for partition in topic.partitions:
            yield (ref, partition)


def find_partition(
    broker: BrokerServer, asked: FetchPartition, *, zstd: bool
) -> tuple[Partition | None, ErrorCode]:
    """zstd: whether the reader's version promises that it can read it."""
    if isinstance(asked.topic, UUID):
        name = broker.partitions.name_of(asked.topic)
        if name is None:
            return None, ErrorCode.UNKNOWN_TOPIC_ID
    else:
        name = str(asked.topic)
    partition = broker.partitions.get(name, asked.partition)
    if partition is None:
        return None, broker.partitions.why_missing(name, asked.partition)
    if not zstd and partition.config.compression_type == "zstd":
        return None, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return partition, partition.epoch_error(asked.current_leader_epoch)


def _respond(plan: FetchPlan, reading: Reading, by_topic_id: bool) -> FetchResponse:
    topics: dict[TopicRef, FetchableTopicResponse] = {}
    served: list[Key] = []
    for read in reading.reads:
        asked = read.asked
        if not plan.full and not _is_news(read):
            continue
        asked.told_high_watermark = read.high_watermark
        asked.told_log_start_offset = read.log_start_offset
        topic = topics.get(asked.topic)
        if topic is None:
            topic = topics[asked.topic] = _topic(asked.topic, by_topic_id)
        topic.partitions.append(_partition(read))
        if read.records is not None:
            served.append((asked.topic, asked.partition))
    if plan.session is not None:
        served_last(plan.session, served)
    session_id = plan.session.session_id if plan.session is not None else 0
    return FetchResponse(session_id=session_id, responses=list(topics.values()))


def _is_news(read: PartitionRead) -> bool:
    return (
        read.records is not None
        or read.error != ErrorCode.NONE
        or read.diverging is not None
        or read.high_watermark != read.asked.told_high_watermark
        or read.log_start_offset != read.asked.told_log_start_offset
    )


def _topic(ref: TopicRef, by_topic_id: bool) -> FetchableTopicResponse:
    if by_topic_id:
        assert isinstance(ref, UUID)
        return FetchableTopicResponse(topic_id=ref, partitions=[])
    return FetchableTopicResponse(topic=str(ref), partitions=[])


def _partition(read: PartitionRead) -> PartitionData:
    aborted = read.aborted
    data = PartitionData(
        partition_index=read.asked.partition,
        error_code=read.error,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        aborted_transactions=None
        if aborted is None
        else [AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted],
        records=read.records if read.records is not None else b"",
    )
    if read.diverging is not None:
        data.diverging_epoch = EpochEndOffset(epoch=read.diverging[0], end_offset=read.diverging[1])
    return data
