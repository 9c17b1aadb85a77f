"""DescribeProducers (key 61), version 0: the idempotent and transactional producers that partitions remember."""

from __future__ import annotations

from functools import partial

from barnabas.broker.api.context import Context
from barnabas.runtime.pace import Pace
from barnabas.wire.errors import ApiError
from barnabas.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


async def handle(context: Context, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """A row for each partition; NOT_LEADER_OR_FOLLOWER if another broker leads it. `current_txn_start_offset` is -1
    without an open transaction.
    """
    pace, answer = Pace(context.services.clock), DescribeProducersResponse()
    for topic in request.topics:
        rows = await pace.map(partial(_described, context, topic.name), topic.partition_indexes)
        answer.topics.append(TopicResponse(name=topic.name, partitions=rows))
        await pace.rest()
    return answer


def _described(context: Context, topic: str, index: int) -> PartitionResponse:
    try:
        illegal = context.services.controller.topics.name_error(topic)
        if illegal is not None:
            raise ApiError(illegal, f"{topic!r} is not a valid topic name")
        partition = context.services.partitions.require_leader(topic, index)
    except ApiError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.txn_first_offset,
            )
            for producer in partition.log.core.producers
        ],
    )
