"""ListConfigResources (key 74), versions 0 and 1: the resources that have options.

Version 0 was ListClientMetricsResources and covers only that type. Since 1 the request names types; an empty list
means all types.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.api.context import Context
from barnabas.config.dynamic import Resource
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

TYPES_FROM: Final = 1


def handle(context: Context, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """Names of the resources of the wanted types; UNSUPPORTED_VERSION for a type that does not exist."""
    types = set(request.resource_types) or {int(kind) for kind in Resource}
    if context.version < TYPES_FROM:
        types = {Resource.CLIENT_METRICS}
    if not types <= {int(kind) for kind in Resource}:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(types)
            for name in _names(context, kind)
        ]
    )


def _names(context: Context, kind: int) -> list[str]:
    image = context.services.image
    if kind == Resource.TOPIC:
        return sorted(image.topics)
    if kind in (Resource.BROKER, Resource.BROKER_LOGGER):
        return [str(broker_id) for broker_id in sorted(image.brokers)]
    folder = "groups" if kind == Resource.GROUP else "client-metrics"
    return sorted(name for (where, name), texts in image.configs.items() if where == folder and texts)
