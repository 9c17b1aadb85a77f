"""RestoreTopic (key 30004, our own), version 0: a deleted topic comes back with its records."""

from __future__ import annotations

from functools import partial

from barnabas.broker.api.context import Context
from barnabas.cores.acl import CLUSTER_NAME, Operation, ResourceType
from barnabas.cores.controller import require_binned
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.topic_bin import RestoreTopicRequest, RestoreTopicResponse


async def handle(context: Context, request: RestoreTopicRequest) -> RestoreTopicResponse:
    """Needs the rights to delete the topic that it was and to create the one that it becomes."""
    controller = context.services.controller
    try:
        binned = require_binned(controller.image, request.topic_id)
        may_create = context.allows(
            Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, quietly=True
        ) or context.allows(Operation.CREATE, ResourceType.TOPIC, request.name)
        if not may_create or not context.allows(Operation.DELETE, ResourceType.TOPIC, binned.name):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        topic = await controller.topics.restore(
            request.topic_id,
            request.name,
            charge=partial(context.services.quotas.charge_mutation, context, strict=True),
        )
    except ApiError as error:
        return RestoreTopicResponse(error_code=error.code, error_message=error.message)
    return RestoreTopicResponse(partitions=len(topic.partitions))
