"""DescribeConfigs (key 32), versions 0 to 4: every option with its value, source and synonyms."""

from __future__ import annotations

from barnabas.broker.context import Context
from barnabas.wire.errors import ApiError
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_describe(context, request, one) for one in request.resources])


def _describe(
    context: Context, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
    )
    try:
        entries = context.broker.controller.describe_configs(resource.resource_type, resource.resource_name)
    except ApiError as error:
        result.error_code = error.code
        result.error_message = error.message
        return result
    # An empty list of keys means all, as null does: so Kafka reads it too.
    wanted = set(resource.configuration_keys or ())
    result.configs = [
        DescribeConfigsResourceResult(
            name=one.name,
            value=one.value,
            read_only=one.read_only,
            config_source=one.source,
            is_default=one.is_default and context.version == 0,  # later versions tell the source instead
            is_sensitive=one.sensitive,
            synonyms=[
                DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
                for synonym in one.synonyms
            ]
            if request.include_synonyms
            else [],
            config_type=one.config_type,
            documentation=one.doc if request.include_documentation else None,
        )
        for one in entries
        if not wanted or one.name in wanted
    ]
    return result
