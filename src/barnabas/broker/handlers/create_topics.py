"""CreateTopics (key 19), versions 0 to 7. Since 4 counts may be -1 (the broker's defaults), 5 configs are echoed."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final

from barnabas.broker.context import Context
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

QUOTA_ERROR_FROM: Final = 6


async def handle(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    named = Counter(topic.name for topic in request.topics)
    results: list[CreatableTopicResult] = []
    for topic in request.topics:
        if named[topic.name] > 1:
            if all(one.name != topic.name for one in results):
                results.append(
                    _refused(
                        topic.name, ErrorCode.INVALID_REQUEST, "the request names this topic more than once"
                    )
                )
            continue
        results.append(await _create(context, topic, request.validate_only))
    return CreateTopicsResponse(topics=results)


async def _create(context: Context, topic: CreatableTopic, validate_only: bool) -> CreatableTopicResult:
    controller = context.broker.controller
    try:
        created = await controller.create_topic(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            {one.partition_index: tuple(one.broker_ids) for one in topic.assignments},
            {one.name: one.value for one in topic.configs},
            validate_only=validate_only,
            charge=partial(
                context.broker.quotas.charge_mutation, context, strict=context.version >= QUOTA_ERROR_FROM
            ),
        )
    except ApiError as error:
        return _refused(topic.name, error.code, error.message)
    return CreatableTopicResult(
        name=topic.name,
        topic_id=created.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(created.partitions),
        replication_factor=len(created.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=one.name,
                value=one.value,
                read_only=one.read_only,
                config_source=one.source,
                is_sensitive=one.sensitive,
            )
            for one in controller.describe_new_topic(created)
        ],
    )


def _refused(name: str, code: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message, configs=None)
