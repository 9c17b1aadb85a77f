"""CreatePartitions (key 37), versions 0 to 3: add partitions to a topic. A topic cannot shrink."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.once import TOPIC_TWICE, once
from barnabas.cores.links import require_not_linked
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

QUOTA_ERROR_FROM: Final = 3


async def handle(context: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """A result for each topic, INVALID_REQUEST for one that is named twice; with `validate_only`, nothing changes."""
    named = Counter(topic.name for topic in request.topics)
    results = []
    for topic in once(request.topics, lambda topic: topic.name):
        if named[topic.name] > 1:
            results.append(
                CreatePartitionsTopicResult(
                    name=topic.name, error_code=ErrorCode.INVALID_REQUEST, error_message=TOPIC_TWICE
                )
            )
        else:
            results.append(await _grow(context, topic, request.validate_only))
    return CreatePartitionsResponse(results=results)


async def _grow(
    context: Context, topic: CreatePartitionsTopic, validate_only: bool
) -> CreatePartitionsTopicResult:
    assignments = None
    if topic.assignments is not None:
        assignments = [tuple(assignment.broker_ids) for assignment in topic.assignments]
    try:
        require_not_linked(context.services.image, topic.name)
        await context.services.controller.topics.add_partitions(
            topic.name,
            topic.count,
            assignments,
            validate_only=validate_only,
            charge=partial(
                context.services.quotas.charge_mutation, context, strict=context.version >= QUOTA_ERROR_FROM
            ),
        )
    except ApiError as error:
        return CreatePartitionsTopicResult(
            name=topic.name, error_code=error.code, error_message=error.message
        )
    return CreatePartitionsTopicResult(name=topic.name)
