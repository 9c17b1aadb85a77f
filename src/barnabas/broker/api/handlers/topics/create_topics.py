"""CreateTopics (key 19), versions 0 to 7. Since 4 counts may be -1 (the broker's defaults), 5 configs are echoed."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.once import TOPIC_TWICE
from barnabas.cores.acl import Operation, ResourceType
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
    """A result for each topic, INVALID_REQUEST for one that is named twice; with `validate_only`, nothing is created."""
    named = Counter(topic.name for topic in request.topics)
    results: list[CreatableTopicResult] = []
    for topic in request.topics:
        if named[topic.name] > 1:
            if all(result.name != topic.name for result in results):
                results.append(_refused(topic.name, ErrorCode.INVALID_REQUEST, TOPIC_TWICE))
            continue
        results.append(await _create(context, topic, request.validate_only))
    return CreateTopicsResponse(topics=results)


async def _create(context: Context, topic: CreatableTopic, validate_only: bool) -> CreatableTopicResult:
    controller = context.services.controller
    try:
        _require_each_once(topic)
        created = await controller.topics.create(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            {assignment.partition_index: tuple(assignment.broker_ids) for assignment in topic.assignments},
            {config.name: config.value for config in topic.configs},
            validate_only=validate_only,
            charge=partial(
                context.services.quotas.charge_mutation, context, strict=context.version >= QUOTA_ERROR_FROM
            ),
        )
    except ApiError as error:
        return _refused(topic.name, error.code, error.message)
    if not context.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name, quietly=True):
        # Who may create a topic may not see for that reason what the brokers' defaults are (KIP-525).
        return CreatableTopicResult(
            name=topic.name,
            topic_id=created.topic_id,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=[],
        )
    return CreatableTopicResult(
        name=topic.name,
        topic_id=created.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(created.partitions),
        replication_factor=len(created.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=row.name,
                value=row.value,
                read_only=row.read_only,
                config_source=row.source,
                is_sensitive=row.sensitive,
            )
            for row in controller.configs.describe_topic(created.name)
        ],
    )


def _require_each_once(topic: CreatableTopic) -> None:
    seen: set[int] = set()
    for assignment in topic.assignments:
        if assignment.partition_index in seen:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {assignment.partition_index}",
            )
        seen.add(assignment.partition_index)


def _refused(name: str, code: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message, configs=[])
