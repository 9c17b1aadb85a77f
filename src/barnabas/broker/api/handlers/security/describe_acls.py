"""DescribeAcls (key 29), versions 0 to 3: the access rules that match a filter. Since 1 with prefixed resource names."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, TypeVar

from barnabas.broker.api.context import Context
from barnabas.cores.acl import Filter, Operation, Pattern, Permission, ResourceType, matching
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

E = TypeVar("E", bound=IntEnum)
NO_AUTHORIZER: Final = "No Authorizer is configured on the broker"


def handle(context: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """The rules, grouped by resource; SECURITY_DISABLED if the broker has no authorizer. Version 0 gets rules for
    literal names only, because it cannot express others.
    """
    try:
        require_authorizer(context)
        wanted = filter_of(request)
    except ApiError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    return DescribeAclsResponse(
        error_message=None,
        resources=[
            DescribeAclsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                pattern_type=resource.pattern,
                acls=[
                    AclDescription(
                        principal=rule.principal,
                        host=rule.host,
                        operation=rule.operation,
                        permission_type=rule.permission,
                    )
                    for rule in rules
                ],
            )
            for resource, rules in matching(context.services.image.acls, wanted)
            if context.version > 0 or resource.pattern is Pattern.LITERAL
        ],
    )


def require_authorizer(context: Context) -> None:
    """Raises ApiError SECURITY_DISABLED when the broker has no authorizer that would apply access rules."""
    if context.services.authorizer is None:
        raise ApiError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def filter_of(request: Any) -> Filter:
    """The filter in a DescribeAcls request or in one row of DeleteAcls. Raises ApiError INVALID_REQUEST."""
    pattern = getattr(request, "pattern_type_filter", None)
    return Filter(
        known(ResourceType, request.resource_type_filter),
        known(Pattern, Pattern.LITERAL if pattern is None else pattern),
        request.resource_name_filter,
        request.principal_filter,
        request.host_filter,
        known(Operation, request.operation),
        known(Permission, request.permission_type),
    )


def known(kind: type[E], value: int) -> E:
    """The member of an enum by its number. Raises ApiError INVALID_REQUEST."""
    try:
        return kind(value)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{kind.__name__} {value} is not known") from None
