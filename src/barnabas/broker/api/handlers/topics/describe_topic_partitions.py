"""DescribeTopicPartitions (key 75), version 0: topics a page at a time, for admin clients."""

from __future__ import annotations

from typing import Any

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.topics.rows import partition_rows
from barnabas.config import broker_network
from barnabas.cores.acl import Operation, ResourceType
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_topic_partitions import (
    CursorResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle(context: Context, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """Topics in order of name, from the cursor on, until the page is full.

    The refusals of topics that the client named and may not see stand after the page and are not a part of it: neither its
    length nor the next cursor says anything about these topics.
    """
    image = context.services.image
    cursor = request.cursor
    asked = sorted({topic.name for topic in request.topics})
    names = asked or sorted(filter(context.sees_topic, image.topics))
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    hidden = [
        name for name in names if asked and not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)
    ]
    left = min(
        max(request.response_partition_limit, 1),
        context.services.config.get(broker_network.MAX_REQUEST_PARTITION_SIZE_LIMIT),
    )
    answer = DescribeTopicPartitionsResponse()
    if cursor is not None and cursor.partition_index < 0:
        answer.topics = [
            DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name)
            for name in names
        ]
        return answer
    for name in sorted(set(names).difference(hidden)):
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
    answer.topics += [
        DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
        for name in hidden
    ]
    return answer


def _topic(context: Context, name: str, first: int, limit: int) -> DescribeTopicPartitionsResponseTopic:
    topic = context.services.image.topics.get(name)
    if topic is None:
        error = context.services.controller.topics.name_error(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DescribeTopicPartitionsResponseTopic(error_code=error, name=name)
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        topic_authorized_operations=context.operations(ResourceType.TOPIC, name),
        partitions=partition_rows(context.services, topic, _row, first, limit),
    )


def _row(**fields: Any) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(eligible_leader_replicas=[], last_known_elr=[], **fields)
