"""DescribeTopicPartitions (key 75), version 0: topics a page at a time, for admin clients."""

from __future__ import annotations

from barnabas.broker.context import Context
from barnabas.broker.handlers.metadata import TOPIC_OPERATIONS
from barnabas.config import broker_network
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_topic_partitions import (
    CursorResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle(context: Context, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """Topics in order of name, from the cursor on, until the page is full."""
    image = context.broker.image
    cursor = request.cursor
    names = sorted({topic.name for topic in request.topics} or image.topics)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    left = min(
        max(request.response_partition_limit, 1),
        context.broker.config.get(broker_network.MAX_REQUEST_PARTITION_SIZE_LIMIT),
    )
    answer = DescribeTopicPartitionsResponse()
    for name in names:
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if left <= 0:
            answer.next_cursor = CursorResponse(topic_name=name, partition_index=first)
            break
        row = _topic(context, name, first, left)
        answer.topics.append(row)
        left -= len(row.partitions)
        topic = image.topics.get(name)
        if topic is not None and first + len(row.partitions) < len(topic.partitions):
            answer.next_cursor = CursorResponse(topic_name=name, partition_index=first + len(row.partitions))
            break
    return answer


def _topic(context: Context, name: str, first: int, limit: int) -> DescribeTopicPartitionsResponseTopic:
    topic = context.broker.image.topics.get(name)
    if topic is None:
        error = context.broker.name_error(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DescribeTopicPartitionsResponseTopic(error_code=error, name=name)
    page = sorted(topic.partitions.items())[first : first + limit]
    offline = context.broker.partitions.offline_of(name)
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        topic_authorized_operations=TOPIC_OPERATIONS,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=(
                    ErrorCode.NONE
                    if partition.leader >= 0 and index not in offline
                    else ErrorCode.LEADER_NOT_AVAILABLE
                ),
                partition_index=index,
                leader_id=-1 if index in offline else partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=list(partition.replicas) if index in offline else [],
            )
            for index, partition in page
        ],
    )
