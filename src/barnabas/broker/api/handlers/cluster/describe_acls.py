"""DescribeAcls (key 29), versions 0 to 3. There is no authorizer, and so there are no rules, as Kafka says it then."""

from __future__ import annotations

from typing import Final

from barnabas.broker.api.context import Context
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

NO_AUTHORIZER: Final = "No Authorizer is configured on the broker"


def handle(context: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
