"""ShareAcknowledge (key 79), versions 1 and 2: accept, release, reject or (since 2) keep longer what is locked.

Session epoch -1 ends the session: what the member still holds goes to others.
"""

from __future__ import annotations

from uuid import UUID

from barnabas.broker.context import Context
from barnabas.broker.handlers.share_fetch import acknowledge, acks_of, session_key
from barnabas.cores.group.share_session import FINAL_EPOCH
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


def handle(context: Context, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    shares = context.broker.shares
    try:
        key = session_key(request)
        session = shares.sessions.acknowledge(key, request.share_session_epoch)
    except ApiError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message)
    acked = acknowledge(context, key, acks_of(request.topics))
    if request.share_session_epoch == FINAL_EPOCH:
        shares.sessions.close(key)
        shares.end_session(session)
    topics: dict[UUID, ShareAcknowledgeTopicResponse] = {}
    for (topic_id, index), refusal in acked.items():
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
    lock_ms = shares.options_of(key.group_id).limits.record_lock_duration_ms
    return ShareAcknowledgeResponse(acquisition_lock_timeout_ms=lock_ms, responses=list(topics.values()))
