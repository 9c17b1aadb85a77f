"""DescribeClientQuotas (key 48), versions 0 and 1: the quotas of the users, client ids and addresses that match."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.cores.quota_entities import Component, matching_quotas
from barnabas.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


def handle(context: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    """Raises ApiError for a contradictory filter; it becomes the answer's error."""
    components = [
        Component(component.entity_type, component.match_type, component.match)
        for component in request.components
    ]
    quotas = matching_quotas(context.services.image.configs, components, strict=request.strict)
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                values=[ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in quotas
        ],
    )
