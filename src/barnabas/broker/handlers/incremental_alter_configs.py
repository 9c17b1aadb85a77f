"""IncrementalAlterConfigs (key 44), versions 0 and 1: set, delete, append to or subtract from options."""

from __future__ import annotations

from barnabas.broker.context import Context
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
    return IncrementalAlterConfigsResponse(
        responses=[await _alter(context, one, request.validate_only) for one in request.resources]
    )


async def _alter(
    context: Context, resource: AlterConfigsResource, validate_only: bool
) -> AlterConfigsResourceResponse:
    result = AlterConfigsResourceResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    changes = [(one.name, one.config_operation, one.value) for one in resource.configs]
    try:
        await context.broker.controller.alter_configs(
            resource.resource_type, resource.resource_name, changes, validate_only=validate_only
        )
    except ApiError as error:
        result.error_code = error.code
        result.error_message = error.message
    return result
