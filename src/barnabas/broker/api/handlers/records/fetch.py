"""Fetch (key 1), versions 4 to 18; legacy_fetch.py handles older ones.

Since 7 sessions (KIP-227), 10 topics whose `compression.type` is zstd (KIP-110), 11 reading from the nearest replica
(KIP-392), 12 the epoch of the last fetched record and divergence (KIP-595), 13 topic ids, 16 node endpoints. Records are
sent as slices of the log's files.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.broker.api.context import Context
from barnabas.broker.api.nearest import nearest, sends_consumers_on
from barnabas.broker.partitions.fetching import FetchWaiter, Limit, Limits, News, Reading
from barnabas.broker.partitions.partition import PartitionRead
from barnabas.cores.acl import Operation, ResourceType
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
    from barnabas.broker.api.services import Services
    from barnabas.broker.partitions.partition import Partition
    from barnabas.broker.partitions.throttling import Throttle

ZSTD_FROM = 10
RACKS_FROM = 11
TOPIC_IDS_FROM = 13
READ_COMMITTED = 1
PARTITIONS_AT_ONCE_MAX = 2_000
WAIT_IN_PIECES_MS_MAX = 500
PAUSE_IN_PIECES_S = 0.005
SESSION_IDS = (1 << 31) - 1
"""The number of possible fetch session ids: positive 31-bit integers."""


def handle(context: Context, request: FetchRequest) -> FetchResponse | Awaitable[FetchResponse]:
    """Answers at once if there is enough to read, and otherwise after `max_wait_ms` at the latest. An error of the
    session is the error of the whole answer; every other error is that of one partition.
    """
    services = context.services
    by_topic_id = context.version >= TOPIC_IDS_FROM
    try:
        plan = services.fetch_sessions.plan(
            request.session_id,
            request.session_epoch,
            _named(request, by_topic_id),
            _forgotten(request, by_topic_id),
            by_topic_id=by_topic_id,
            fresh_id=services.entropy.below(SESSION_IDS) + 1 if request.session_epoch == INITIAL_EPOCH else 0,
            now_ms=int(services.clock.monotonic_ms()),
            owner=context.connection,
        )
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    if plan.full and plan.session is not None:
        connection = context.connection
        connection.call_when_closed(
            services.fetch_sessions, lambda: services.fetch_sessions.owner_gone(connection)
        )
    state = request.replica_state
    replica_id, replica_epoch = (
        (request.replica_id, -1) if state is None else (state.replica_id, state.replica_epoch)
    )
    find = _finder(context, replica_id, replica_epoch, zstd=context.version >= ZSTD_FROM)
    if replica_id >= 0:
        _note_follower(context, plan, find, replica_id, replica_epoch)
    reading = Reading(
        plan,
        find,
        min_bytes=request.min_bytes,
        max_bytes=min(request.max_bytes, services.fetch_bytes_max),
        read_committed=request.isolation_level == READ_COMMITTED,
        by_replica=replica_id >= 0,
        from_follower=replica_id < 0 and context.version >= RACKS_FROM,
        prefer=nearest(services, request.rack_id) if replica_id < 0 else None,
        limits=_limits(services.replication.throttles.leader, replica_id) if replica_id >= 0 else None,
        tells_high_watermark=replica_id >= 0 and sends_consumers_on(services),
        last_reads=[asked.last_read for asked in plan.partitions] if replica_id >= 0 else (),
    )
    if len(plan.partitions) > PARTITIONS_AT_ONCE_MAX:
        return _in_pieces(services, plan, reading, request.max_wait_ms, by_topic_id)
    if reading.read() or request.max_wait_ms <= 0 or not plan.partitions:
        return _respond(services, plan, reading, by_topic_id)
    waiter = FetchWaiter(services.loop, reading, request.max_wait_ms)
    return _later(context, waiter, plan, by_topic_id)


def _limits(throttle: Throttle, follower: int) -> Limits | None:
    """What the leader throttle allows for a fetch by `follower`; None when nothing is throttled."""
    if not throttle.is_on:
        return None
    limit = Limit.HELD_BACK if throttle.wait_ms() else Limit.COUNTED
    return lambda partition: limit if throttle.limits(partition, follower) else None


async def _in_pieces(
    services: Services, plan: FetchPlan, reading: Reading, wait_ms: int, by_topic_id: bool
) -> FetchResponse:
    """A fetch from so many partitions that other work must run in between."""
    if not await reading.read_in_pieces() and wait_ms > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(wait_ms, WAIT_IN_PIECES_MS_MAX) / 1000):
                await _until_answerable(reading)
    return _respond(services, plan, reading, by_topic_id)


async def _until_answerable(reading: Reading) -> None:
    """Look again whenever a partition has something new, but not all the time: a look at thousands takes milliseconds."""
    news = News(reading)
    try:
        # Something may have come to the first partitions while the last ones were read: look once more, now that news count.
        while not await reading.read_in_pieces():
            await news.came.wait()
            news.came.clear()
            await asyncio.sleep(PAUSE_IN_PIECES_S)
    finally:
        news.forget()


async def _later(context: Context, waiter: FetchWaiter, plan: FetchPlan, by_topic_id: bool) -> FetchResponse:
    return _respond(context.services, plan, await context.answer_of(waiter), by_topic_id)


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
                log_start_offset=asked.log_start_offset,
            )


def _forgotten(request: FetchRequest, by_topic_id: bool) -> Iterator[Key]:
    for topic in request.forgotten_topics_data:
        ref: TopicRef = topic.topic_id if by_topic_id else topic.topic
        for partition in topic.partitions:
            yield (ref, partition)


Find = Callable[[FetchPartition], tuple["Partition | None", ErrorCode]]


def _note_follower(
    context: Context, plan: FetchPlan, find: Find, replica_id: int, replica_epoch: int
) -> None:
    """Learn from a follower's request how far it has copied. Before reading, so the answer has the new high watermark.

    Of the thousands of partitions of a session, few have changed since its last request. `last_read` stays where nothing
    has: such a partition need not be read again.
    """
    now_ms = context.services.clock.monotonic_ms()
    is_valid = context.allows_cluster(Operation.CLUSTER_ACTION) and not _is_outdated(
        context.services, replica_id, replica_epoch
    )
    for asked in plan.partitions:
        last: PartitionRead | None = asked.last_read
        if last is not None:
            known = last.partition
            if (
                is_valid
                and known is not None
                and known.note_idle_fetch(replica_id, last, replica_epoch, now_ms)
            ):
                continue
            asked.last_read = None
        partition, error = find(asked)
        if partition is not None and not error:
            partition.note_replica_fetch(replica_id, asked, replica_epoch)


def _finder(context: Context, replica_id: int, replica_epoch: int, *, zstd: bool) -> Find:
    """The function that finds partitions for one request. replica_id: the follower that asks, -1 for a consumer;
    replica_epoch: its broker epoch, -1 if it does not say."""
    services = context.services
    if replica_id < 0:
        return consumers_finder(context, zstd=zstd)

    def find(asked: FetchPartition) -> tuple[Partition | None, ErrorCode]:
        if not context.allows_cluster(Operation.CLUSTER_ACTION):
            return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partition, error = find_partition(services, asked, zstd=zstd)
        if _is_outdated(services, replica_id, replica_epoch):
            return None, ErrorCode.NOT_LEADER_OR_FOLLOWER
        if partition is not None and not error and not _is_follower(services, partition, replica_id):
            return None, ErrorCode.NOT_LEADER_OR_FOLLOWER
        return partition, error

    return find


def _is_outdated(services: Services, replica_id: int, replica_epoch: int) -> bool:
    """Whether a request was sent before the broker registered anew, and is read late: it says nothing about the broker's
    present logs."""
    return 0 <= replica_epoch < (services.controller.epoch_of(replica_id) or -1)


def _is_follower(services: Services, partition: Partition, replica_id: int) -> bool:
    """Whether `replica_id` is a replica that copies the partition from this broker."""
    return replica_id in partition.image.replicas and replica_id != services.controller.node_id


def consumers_finder(context: Context, *, zstd: bool) -> Find:
    """The function that finds partitions for a consumer. Every fetch, also within a session, checks the right to read."""
    services = context.services
    if services.authorizer is None:
        return lambda asked: find_partition(services, asked, zstd=zstd)

    def find(asked: FetchPartition) -> tuple[Partition | None, ErrorCode]:
        name = services.partitions.name_of(asked.topic) if isinstance(asked.topic, UUID) else str(asked.topic)
        if name is not None and not context.allows(Operation.READ, ResourceType.TOPIC, name):
            return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return find_partition(services, asked, zstd=zstd)

    return find


def find_partition(
    services: Services, asked: FetchPartition, *, zstd: bool
) -> tuple[Partition | None, ErrorCode]:
    """The partition to read, or an error. zstd: whether the reader's version supports zstd."""
    if isinstance(asked.topic, UUID):
        name = services.partitions.name_of(asked.topic)
        if name is None:
            return None, ErrorCode.UNKNOWN_TOPIC_ID
    else:
        name = str(asked.topic)
    partition = services.partitions.get(name, asked.partition)
    if partition is None:
        return None, services.partitions.why_missing(name, asked.partition)
    if not zstd and partition.config.compression_type == "zstd":
        return None, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return partition, partition.epoch_error(asked.current_leader_epoch)


def _respond(services: Services, plan: FetchPlan, reading: Reading, by_topic_id: bool) -> FetchResponse:
    if reading.limited_bytes:
        services.replication.throttles.leader.note(reading.limited_bytes)
    topics: dict[TopicRef, FetchableTopicResponse] = {}
    served: list[Key] = []
    for read in reading.reads:
        asked = read.asked
        if reading.by_replica:
            asked.last_read = read if _can_stay(read) else None
        if not plan.full and not _is_news(read):
            continue
        asked.told_high_watermark = read.high_watermark
        asked.told_log_start_offset = read.log_start_offset
        topic = topics.get(asked.topic)
        if topic is None:
            topic = topics[asked.topic] = _topic(asked.topic, by_topic_id)
        topic.partitions.append(_partition(read))
        note_read(read, by_replica=reading.by_replica)
        if read.records is not None:
            served.append((asked.topic, asked.partition))
    if plan.session is not None:
        served_last(plan.session, served)
    session_id = plan.session.session_id if plan.session is not None else 0
    return FetchResponse(session_id=session_id, responses=list(topics.values()))


def note_read(read: PartitionRead, *, by_replica: bool) -> None:
    """Count what a reader gets of a partition."""
    partition, records = read.partition, read.records
    if partition is None:
        return
    if read.error:
        partition.failed_fetches += 1
    size_bytes = 0 if records is None else len(records) if isinstance(records, bytes) else records.size
    if by_replica:
        partition.replicated_out += size_bytes
    else:
        partition.note_fetched(size_bytes)


def _is_news(read: PartitionRead) -> bool:
    return (
        read.records is not None
        or read.error != ErrorCode.NONE
        or read.diverging is not None
        or read.preferred >= 0
        or read.high_watermark != read.asked.told_high_watermark
        or read.log_start_offset != read.asked.told_log_start_offset
    )


def _can_stay(read: PartitionRead) -> bool:
    """Whether a follower's next request may be answered from the same read, if nothing changes until then."""
    return read.records is None and not read.error and read.diverging is None and read.partition is not None


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
        aborted_transactions=([] if read.partition is None else None)
        if aborted is None
        else [AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted],
        records=read.records if read.records is not None else b"",
        preferred_read_replica=read.preferred,
    )
    if read.diverging is not None:
        data.diverging_epoch = EpochEndOffset(epoch=read.diverging[0], end_offset=read.diverging[1])
    return data
