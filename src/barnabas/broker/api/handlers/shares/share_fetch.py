"""ShareFetch (key 78), versions 1 and 2: records for a member of a share group, with piggybacked acknowledgements.

Since 2 the member chooses between locking whole batches and locking no more records than it asked for (KIP-1206), and may
renew its locks (KIP-1222). Records are sent as slices of the log's files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from functools import partial
from typing import Any, Final
from uuid import UUID

from barnabas.broker.api.access import refuse
from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.shares.acknowledging import (
    Acked,
    Acks,
    acknowledge,
    acknowledge_in_turns,
    acks_of,
    is_much,
)
from barnabas.broker.coordinators.shares.fetching import ShareReading, ShareWaiter, Wanted
from barnabas.cores.acl import Operation, ResourceType
from barnabas.cores.group.share.partition import AcquireMode
from barnabas.cores.group.share.session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionKey,
    ShareSession,
    ShareTopicPartition,
)
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

MODES: Final = frozenset(AcquireMode)


def handle(
    context: Context, request: ShareFetchRequest
) -> ShareFetchResponse | Awaitable[ShareFetchResponse]:
    """Acknowledgements are handled first, then records are locked for the member. Without records, the answer comes
    after `max_wait_ms`; with acknowledgements it does not wait.
    """
    shares = context.services.shares
    epoch, acks = request.share_session_epoch, acks_of(request.topics)
    try:
        key = session_key(request)
        if epoch == FINAL_EPOCH:
            session = shares.sessions.require(key)
        elif epoch == INITIAL_EPOCH and acks:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a request that opens a session cannot acknowledge")
        elif request.share_acquire_mode not in MODES:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"unknown acquire mode {request.share_acquire_mode}")
        else:
            named, forgotten = _partitions(request.topics), _forgotten(request)
            session = shares.sessions.fetch(key, epoch, named, forgotten, context.connection)
            context.connection.call_when_closed(shares, partial(shares.on_closed, context.connection))
    except ApiError as error:
        refusal = ShareFetchResponse(error_code=error.code, error_message=error.message)
        if error.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return _slowly(refusal, request.max_wait_ms)
        return refusal
    if is_much(acks):
        return _in_turns(context, request, key, session, acks)
    return _go_on(context, request, key, session, acknowledge(context, key, acks))


async def _in_turns(
    context: Context, request: ShareFetchRequest, key: SessionKey, session: ShareSession, acks: Acks
) -> ShareFetchResponse:
    acked = await acknowledge_in_turns(context, key, acks)
    answer = _go_on(context, request, key, session, acked)
    return answer if isinstance(answer, ShareFetchResponse) else await answer


def _go_on(
    context: Context, request: ShareFetchRequest, key: SessionKey, session: ShareSession, acked: Acked
) -> ShareFetchResponse | Awaitable[ShareFetchResponse]:
    """The records, after the acknowledgements."""
    shares = context.services.shares
    wanted = Wanted(
        request.min_bytes,
        min(request.max_bytes, context.services.fetch_bytes_max),
        request.max_records,
        AcquireMode(request.share_acquire_mode),
    )
    reading = ShareReading(shares, session, wanted, partial(_refusal, context, key.group_id))
    if request.share_session_epoch == FINAL_EPOCH:
        shares.sessions.close(key)
        shares.end_session(session)
        return _answer(context, reading, acked)
    if request.is_renew_ack or not session.partitions or wanted.max_records <= 0:
        return _answer(context, reading, acked)
    if reading.read(time_is_up=bool(acked)) or request.max_wait_ms <= 0:
        return _answer(context, reading, acked)
    waiter = ShareWaiter(context.services.loop, reading, request.max_wait_ms)
    return _later(context, waiter, acked)


def _refusal(context: Context, group_id: str, topic_id: UUID) -> ApiError | None:
    """Why the member may not read a topic of its session: its rights may have changed since it named the topic."""
    if not context.allows(Operation.READ, ResourceType.GROUP, group_id):
        return refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    name = context.services.partitions.name_of(topic_id)
    if name is not None and not context.allows(Operation.READ, ResourceType.TOPIC, name):
        return refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return None


async def _slowly(refusal: ShareFetchResponse, wait_ms: int) -> ShareFetchResponse:
    """A refused member would retry at once, so the refusal is held back for as long as the member was willing to wait."""
    await asyncio.sleep(max(wait_ms, 0) / 1000)
    return refusal


def _answer(
    context: Context, reading: ShareReading, acked: Acked
) -> ShareFetchResponse | Awaitable[ShareFetchResponse]:
    """The answer: at once, unless acknowledgements are still being stored."""
    return _when_stored(context, reading, acked) if acked.pending else _respond(context, reading, acked)


async def _when_stored(context: Context, reading: ShareReading, acked: Acked) -> ShareFetchResponse:
    await acked.stored()
    return _respond(context, reading, acked)


async def _later(context: Context, waiter: ShareWaiter, acked: Acked) -> ShareFetchResponse:
    reading = await context.answer_of(waiter)
    await acked.stored()
    return _respond(context, reading, acked)


def session_key(request: Any) -> SessionKey:
    """The group id and the member id. Raises ApiError."""
    if not request.group_id or not request.member_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the group id and the member id must be given")
    return SessionKey(request.group_id, request.member_id)


def _partitions(topics: Any) -> Iterator[ShareTopicPartition]:
    for topic in topics:
        for partition in topic.partitions:
            yield topic.topic_id, partition.partition_index


def _forgotten(request: ShareFetchRequest) -> Iterator[ShareTopicPartition]:
    for topic in request.forgotten_topics_data:
        for index in topic.partitions:
            yield topic.topic_id, index


def _respond(context: Context, reading: ShareReading, acked: Acked) -> ShareFetchResponse:
    topics: dict[UUID, ShareFetchableTopicResponse] = {}
    for partition in dict.fromkeys((*acked.errors, *reading.taken, *reading.errors)):
        topic_id, index = partition
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ShareFetchableTopicResponse(topic_id=topic_id, partitions=[])
        topic.partitions.append(_partition(index, reading, acked.errors.get(partition), partition))
    options = context.services.shares.options_of(reading.session.key.group_id)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=options.limits.record_lock_duration_ms, responses=list(topics.values())
    )


def _partition(
    index: int, reading: ShareReading, ack_error: ApiError | None, partition: ShareTopicPartition
) -> PartitionData:
    data = PartitionData(partition_index=index, records=b"", acquired_records=[])
    error, taken = reading.errors.get(partition), reading.taken.get(partition)
    if error is not None:
        data.error_code, data.error_message = error.code, error.message
    if ack_error is not None:
        data.acknowledge_error_code, data.acknowledge_error_message = ack_error.code, ack_error.message
    if taken is not None:
        data.records = taken.records
        data.acquired_records = [
            AcquiredRecords(first_offset=run.first, last_offset=run.last, delivery_count=run.delivery_count)
            for run in taken.acquired
        ]
    return data
