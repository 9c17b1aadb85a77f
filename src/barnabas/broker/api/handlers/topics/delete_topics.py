"""DeleteTopics (key 20), versions 0 to 6. Since 6 topics may be given by id."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.once import TOPIC_TWICE, once
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.wire.primitives import ZERO_UUID

STATES_FROM = 6
QUOTA_ERROR_FROM: Final = 5


async def handle(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """A result for each topic, by name or by id. Its files go later, in the background."""
    states = request.topics
    if context.version < STATES_FROM:
        states = [DeleteTopicState(name=name) for name in request.topic_names]
    named = Counter((state.name, state.topic_id) for state in states)
    responses = []
    for state in once(states, lambda state: (state.name, state.topic_id)):
        if named[state.name, state.topic_id] == 1:
            responses.append(await _delete(context, state))
        else:
            responses.append(
                DeletableTopicResult(
                    name=state.name,
                    topic_id=state.topic_id,
                    error_code=ErrorCode.INVALID_REQUEST,
                    error_message=TOPIC_TWICE,
                )
            )
    return DeleteTopicsResponse(responses=responses)


async def _delete(context: Context, state: DeleteTopicState) -> DeletableTopicResult:
    result = DeletableTopicResult(name=state.name, topic_id=state.topic_id)
    name = state.name
    try:
        if (name is None) == (state.topic_id == ZERO_UUID):
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "a topic is named by its name or by its id, not by both"
            )
        if name is None:
            name = context.services.partitions.name_of(state.topic_id)
            if name is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {state.topic_id}")
            result.name = name
        result.topic_id = await context.services.controller.topics.delete(
            name,
            charge=partial(
                context.services.quotas.charge_mutation, context, strict=context.version >= QUOTA_ERROR_FROM
            ),
        )
    except ApiError as error:
        result.error_code = error.code
        result.error_message = error.message
    return result
