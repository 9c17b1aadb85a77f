"""DescribeConfigs (key 32), versions 0 to 4: every option with its value, source and synonyms."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.once import once
from barnabas.runtime.pace import in_pieces
from barnabas.wire.errors import ApiError
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


async def handle(context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Each resource once, with its error or its options. A few hundred options take a millisecond: many resources are
    described in many turns."""
    results: list[DescribeConfigsResult] = []

    def describe_all() -> Iterator[None]:
        for resource in once(request.resources, lambda r: (r.resource_type, r.resource_name)):
            results.append(_describe(context, request, resource))
            yield

    await in_pieces(asyncio.get_running_loop(), context.services.clock, describe_all())
    return DescribeConfigsResponse(results=results)


def _describe(
    context: Context, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
    )
    try:
        entries = context.services.controller.configs.describe(resource.resource_type, resource.resource_name)
    except ApiError as error:
        result.error_code = error.code
        result.error_message = error.message
        return result
    # An empty list of keys means all, as null does; Kafka reads it the same way.
    wanted = set(resource.configuration_keys or ())
    result.configs = [
        DescribeConfigsResourceResult(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_default=entry.is_default and context.version == 0,  # later versions name the source instead
            is_sensitive=entry.sensitive,
            synonyms=[
                DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
                for synonym in entry.synonyms
            ]
            if request.include_synonyms
            else [],
            config_type=entry.config_type,
            documentation=entry.doc if request.include_documentation else None,
        )
        for entry in entries
        if not wanted or entry.name in wanted
    ]
    return result
