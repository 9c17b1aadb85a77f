"""DeleteTopics (key 20), versions 0 to 6. Since 6 topics may be named by their id."""

from __future__ import annotations

from functools import partial
from typing import Final

from barnabas.broker.context import Context
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

STATES_FROM = 6
QUOTA_ERROR_FROM: Final = 5


async def handle(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    if context.version >= STATES_FROM:
        return DeleteTopicsResponse(responses=[await _delete(context, state) for state in request.topics])
    return DeleteTopicsResponse(
        responses=[await _delete(context, DeleteTopicState(name=name)) for name in request.topic_names]
    )


async def _delete(context: Context, state: DeleteTopicState) -> DeletableTopicResult:
    result = DeletableTopicResult(name=state.name, topic_id=state.topic_id)
    name = state.name
    try:
        if name is None:
            name = context.broker.partitions.name_of(state.topic_id)
            if name is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {state.topic_id}")
            result.name = name
        result.topic_id = await context.broker.controller.delete_topic(
            name,
            charge=partial(
                context.broker.quotas.charge_mutation, context, strict=context.version >= QUOTA_ERROR_FROM
            ),
        )
    except ApiError as error:
        result.error_code = error.code
        result.error_message = error.message
    return result
