"""ShareAcknowledge (key 79), versions 1 and 2: accept, release, reject or (since 2) renew locked records.

Session epoch -1 ends the session: records that the member still holds become available to others.
"""

from __future__ import annotations

from collections.abc import Awaitable
from uuid import UUID

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.shares.acknowledging import (
    Acked,
    Acks,
    acknowledge,
    acknowledge_in_turns,
    acks_of,
    is_much,
)
from barnabas.broker.api.handlers.shares.share_fetch import session_key
from barnabas.cores.group.share.session import FINAL_EPOCH, SessionKey, ShareSession
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


def handle(
    context: Context, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse | Awaitable[ShareAcknowledgeResponse]:
    """Answers once the changes are stored. INVALID_RECORD_STATE for records that the member does not hold, whose lock
    has expired for example.
    """
    shares = context.services.shares
    try:
        key = session_key(request)
        session = shares.sessions.acknowledge(key, request.share_session_epoch)
    except ApiError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message)
    acks, is_last = acks_of(request.topics), request.share_session_epoch == FINAL_EPOCH
    if is_much(acks):
        return _in_turns(context, key, session, acks, is_last)
    acked = acknowledge(context, key, acks)
    if is_last:
        shares.sessions.close(key)
        shares.end_session(session)
    return _when_stored(context, key, acked) if acked.pending else _respond(context, key, acked)


async def _in_turns(
    context: Context, key: SessionKey, session: ShareSession, acks: Acks, is_last: bool
) -> ShareAcknowledgeResponse:
    acked = await acknowledge_in_turns(context, key, acks)
    if is_last:
        context.services.shares.sessions.close(key)
        context.services.shares.end_session(session)
    return await _when_stored(context, key, acked)


async def _when_stored(context: Context, key: SessionKey, acked: Acked) -> ShareAcknowledgeResponse:
    await acked.stored()
    return _respond(context, key, acked)


def _respond(context: Context, key: SessionKey, acked: Acked) -> ShareAcknowledgeResponse:
    topics: dict[UUID, ShareAcknowledgeTopicResponse] = {}
    for (topic_id, index), refusal in acked.errors.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=[])
        topic.partitions.append(
            PartitionData(
                partition_index=index,
                error_code=ErrorCode.NONE if refusal is None else refusal.code,
                error_message=None if refusal is None else refusal.message,
            )
        )
    lock_ms = context.services.shares.options_of(key.group_id).limits.record_lock_duration_ms
    return ShareAcknowledgeResponse(acquisition_lock_timeout_ms=lock_ms, responses=list(topics.values()))
