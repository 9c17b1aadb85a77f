"""CreatePartitions (key 37), versions 0 to 3: let a topic grow. It cannot shrink."""

from __future__ import annotations

from functools import partial
from typing import Final

from barnabas.broker.context import Context
from barnabas.wire.errors import ApiError
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

QUOTA_ERROR_FROM: Final = 3


async def handle(context: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[await _grow(context, topic, request.validate_only) for topic in request.topics]
    )


async def _grow(
    context: Context, topic: CreatePartitionsTopic, validate_only: bool
) -> CreatePartitionsTopicResult:
    assignments = None
    if topic.assignments is not None:
        assignments = [tuple(one.broker_ids) for one in topic.assignments]
    try:
        await context.broker.controller.create_partitions(
            topic.name,
            topic.count,
            assignments,
            validate_only=validate_only,
            charge=partial(
                context.broker.quotas.charge_mutation, context, strict=context.version >= QUOTA_ERROR_FROM
            ),
        )
    except ApiError as error:
        return CreatePartitionsTopicResult(
            name=topic.name, error_code=error.code, error_message=error.message
        )
    return CreatePartitionsTopicResult(name=topic.name)
