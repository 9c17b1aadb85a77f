"""IncrementalAlterConfigs (key 44), versions 0 and 1: set, delete, append to or subtract from options."""

from __future__ import annotations

from collections import Counter

from barnabas.broker.api.context import Context
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    context: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """A result for each resource: it is changed as a whole or not at all; INVALID_REQUEST if the request names it
    twice.
    """
    named = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    responses = []
    for resource in request.resources:
        if named[resource.resource_type, resource.resource_name] > 1:
            text = "the request names this resource more than once"
            responses.append(_response(resource, ErrorCode.INVALID_REQUEST, text))
        else:
            responses.append(await _alter(context, resource, request.validate_only))
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(
    context: Context, resource: AlterConfigsResource, validate_only: bool
) -> AlterConfigsResourceResponse:
    changes = [(change.name, change.config_operation, change.value) for change in resource.configs]
    try:
        await context.services.controller.options.alter_configs(
            resource.resource_type, resource.resource_name, changes, validate_only=validate_only
        )
    except ApiError as error:
        return _response(resource, error.code, error.message)
    return _response(resource, ErrorCode.NONE, None)


def _response(
    resource: AlterConfigsResource, code: ErrorCode, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
