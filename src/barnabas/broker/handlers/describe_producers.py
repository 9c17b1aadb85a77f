"""DescribeProducers (key 61), version 0: the idempotent and transactional producers that partitions remember."""

from __future__ import annotations

from barnabas.broker.context import Context
from barnabas.wire.errors import ApiError
from barnabas.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(context: Context, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_described(context, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _described(context: Context, topic: str, index: int) -> PartitionResponse:
    try:
        partition = context.broker.partitions.require(topic, index)
    except ApiError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=one.producer_id,
                producer_epoch=one.epoch,
                last_sequence=one.last_sequence,
                last_timestamp=one.last_timestamp,
                coordinator_epoch=one.coordinator_epoch,
                current_txn_start_offset=one.txn_first_offset,
            )
            for one in partition.log.core.producers
        ],
    )
