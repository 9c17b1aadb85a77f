"""DeleteAcls (key 31), versions 0 to 3. There is no authorizer, and so there is nothing to delete."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.cluster.describe_acls import NO_AUTHORIZER
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def handle(context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
            for _ in request.filters
        ]
    )
