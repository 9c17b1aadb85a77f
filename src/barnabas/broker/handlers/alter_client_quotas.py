"""AlterClientQuotas (key 49), versions 0 and 1: set and remove quotas of users, client ids and addresses."""

from __future__ import annotations

from barnabas.broker.context import Context
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityDataResponse,
    EntryData,
    EntryDataResponse,
)


async def handle(context: Context, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[await _alter(context, entry, request.validate_only) for entry in request.entries]
    )


async def _alter(context: Context, entry: EntryData, validate_only: bool) -> EntryDataResponse:
    result = EntryDataResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        entity=[
            EntityDataResponse(entity_type=one.entity_type, entity_name=one.entity_name)
            for one in entry.entity
        ],
    )
    try:
        await context.broker.controller.alter_quotas(
            {one.entity_type: one.entity_name for one in entry.entity},
            [(one.key, None if one.remove else one.value) for one in entry.ops],
            validate_only=validate_only,
        )
    except ApiError as error:
        result.error_code = error.code
        result.error_message = error.message
    return result
