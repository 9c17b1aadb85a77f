"""AlterConfigs (key 33), versions 0 to 2: replace all of a resource's own options.

Options that the request does not name return to their default; the newer IncrementalAlterConfigs names only changes.
"""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """A result for each resource: it is changed as a whole, or not at all with an error that says what is allowed."""
    return AlterConfigsResponse(
        responses=[await _replace(context, resource, request.validate_only) for resource in request.resources]
    )


async def _replace(
    context: Context, resource: AlterConfigsResource, validate_only: bool
) -> AlterConfigsResourceResponse:
    result = AlterConfigsResourceResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    try:
        await context.services.controller.options.replace_configs(
            resource.resource_type,
            resource.resource_name,
            {config.name: config.value for config in resource.configs},
            validate_only=validate_only,
        )
    except ApiError as error:
        result.error_code = error.code
        result.error_message = error.message
    return result
