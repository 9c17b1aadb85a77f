"""Produce (key 0), versions 0 to 2: message sets of producers older than 0.11, appended as record batches.

Versions 0 and 1 use magic 0 (no timestamps), 2 uses magic 1 and its answer has the append time. Some clients send either
magic in any version, so only the magic of each message counts.
"""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.broker.api.context import Context
from barnabas.broker.api.conversion import Converting, batches_of, is_packed, known_to_old_clients
from barnabas.broker.api.handlers.records.produce import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    Pending,
    accepted,
    acknowledged,
    find_partition,
    refused,
)
from barnabas.broker.api.preparing import prepare
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)


def handle(context: Context, request: ProduceRequest) -> Awaitable[ProduceResponse | None]:
    """Answers once the records are acknowledged; None for acks=0. If such a request fails, the connection closes, since
    nothing else could tell the producer.
    """
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                # The frame is borrowed, and conversion continues after this call has returned.
                data.records = bytes(data.records)
    context.connection.keep_room()
    return _append_all(context, request)


async def _append_all(context: Context, request: ProduceRequest) -> ProduceResponse | None:
    answer = ProduceResponse(responses=[])
    pending: Pending = []
    failed = False
    for topic in request.topic_data:
        partitions = []
        for data in topic.partition_data:
            try:
                result = await _append(context, topic, data, request.acks, pending)
            except ApiError as error:
                result = refused(data, ErrorCode(known_to_old_clients(error.code)), error.message)
                failed = True
            partitions.append(result)
        answer.responses.append(TopicProduceResponse(name=topic.name, partition_responses=partitions))
    context.connection.release_room()
    if request.acks != ACKS_NONE:
        return await acknowledged(answer, pending, request.timeout_ms)
    if failed:
        context.connection.close("a produce request with acks=0 failed")
    return None


async def _append(
    context: Context,
    topic: TopicProduceData,
    data: PartitionProduceData,
    acks: int,
    pending: Pending,
) -> PartitionProduceResponse:
    """Raises ApiError. A message set too large for one batch becomes several, which are acknowledged together."""
    if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; 0, 1 and -1 (all) are allowed")
    max_bytes = find_partition(context, topic, data.index).config.max_message_bytes
    message_set: bytes = data.records or b""
    conversions = context.services.conversions
    batches, records = await conversions.run(
        len(message_set),
        lambda: batches_of(message_set, max_bytes),
        context.connection,
        packed=is_packed(message_set),
    )
    # Looked up again: the partition may have gone while the thread converted.
    partition = find_partition(context, topic, data.index)
    prepared = [await prepare(context, partition, memoryview(bytearray(batch))) for batch in batches]
    partition = find_partition(context, topic, data.index)
    appended = [
        partition.append(
            batch.records,
            acks_all=acks == ACKS_ALL,
            zstd_allowed=True,
            schemas_checked=True,
            converted_for=batch.converted_for,
        )
        for batch in prepared
    ]
    who = Converting.by(context.client_id, context.connection.client_software, "up")
    conversions.count(who, records, sum(map(len, batches)))
    result = accepted(data, appended[0], pending)
    pending.extend((result, promise) for promise in appended[1:] if not promise.is_ready)
    return result
