"""AlterClientQuotas (key 49), versions 0 and 1: set and remove quotas of users, client ids and addresses."""

from __future__ import annotations

from barnabas.broker.api.access import refuse
from barnabas.broker.api.context import Context
from barnabas.cores.acl import Operation
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityDataResponse,
    EntryData,
    EntryDataResponse,
)


async def handle(context: Context, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """A result for each entity: it is changed as a whole, or not at all with an error that says why."""
    return AlterClientQuotasResponse(
        entries=[await _alter(context, entry, request.validate_only) for entry in request.entries]
    )


async def _alter(context: Context, entry: EntryData, validate_only: bool) -> EntryDataResponse:
    result = EntryDataResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        entity=[
            EntityDataResponse(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in entry.entity
        ],
    )
    try:
        if not context.allows_cluster(Operation.ALTER_CONFIGS):
            raise refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        await context.services.controller.options.alter_quotas(
            {part.entity_type: part.entity_name for part in entry.entity},
            [(operation.key, None if operation.remove else operation.value) for operation in entry.ops],
            validate_only=validate_only,
        )
    except ApiError as error:
        result.error_code = error.code
        result.error_message = error.message
    return result
