"""PurgeTopics (key 30005, our own), version 0: deleted topics leave the bin for good."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.cores.acl import Operation, ResourceType
from barnabas.cores.controller import require_binned
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.topic_bin import PurgeTopicsRequest, PurgeTopicsResponse


async def handle(context: Context, request: PurgeTopicsRequest) -> PurgeTopicsResponse:
    """All or none of them. Their logs are removed within seconds."""
    controller = context.services.controller
    try:
        for topic_id in request.topic_ids:
            binned = require_binned(controller.image, topic_id)
            if not context.allows(Operation.DELETE, ResourceType.TOPIC, binned.name):
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        await controller.topics.purge(request.topic_ids)
    except ApiError as error:
        return PurgeTopicsResponse(error_code=error.code, error_message=error.message)
    return PurgeTopicsResponse()
