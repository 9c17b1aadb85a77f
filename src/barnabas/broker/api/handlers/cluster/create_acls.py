"""CreateAcls (key 30), versions 0 to 3. There is no authorizer that would obey a rule: each is refused."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.cluster.describe_acls import NO_AUTHORIZER
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def handle(context: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
            for _ in request.creations
        ]
    )
