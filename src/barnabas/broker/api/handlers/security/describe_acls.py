"""DescribeAcls (key 29), versions 0 to 3: the access rules that match a filter. Since 1 with prefixed resource names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, TypeVar

from barnabas.broker.api.context import Context
from barnabas.cores.acl import (
    Filter,
    Operation,
    Pattern,
    Permission,
    Resource,
    ResourceType,
    Rule,
    Rules,
    matching,
)
from barnabas.runtime.pace import Pace
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

E = TypeVar("E", bound=IntEnum)
NO_AUTHORIZER: Final = "No Authorizer is configured on the broker"


async def handle(context: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """The rules, grouped by resource; SECURITY_DISABLED if the broker has no authorizer. Version 0 gets rules for
    literal names only, because it cannot express others.
    """
    try:
        require_authorizer(context)
        wanted = filter_of(request)
    except ApiError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    pace, answer = Pace(context.services.clock), DescribeAclsResponse(error_message=None)
    rules_by_resource = await matching_in_turns(pace, context.services.image.acls, wanted)
    for resource, rules in rules_by_resource.items():
        if context.version > 0 or resource.pattern is Pattern.LITERAL:
            row = DescribeAclsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                pattern_type=resource.pattern,
                acls=await pace.map(_described, rules),
            )
            answer.resources.append(row)
    return answer


async def matching_in_turns(pace: Pace, rules: Rules, wanted: Filter) -> Mapping[Resource, list[Rule]]:
    """What `matching` finds, with rests in between, in which rules may change."""
    rules_by_resource: dict[Resource, list[Rule]] = {}
    async for piece in pace.pieces(sorted(rules)):
        rules_by_resource.update(matching(part_of(rules, piece), wanted))
    return rules_by_resource


def part_of(rules: Rules, resources: Iterable[Resource]) -> Rules:
    """The rules of some of the resources."""
    return {resource: rules[resource] for resource in resources if resource in rules}


def _described(rule: Rule) -> AclDescription:
    return AclDescription(
        principal=rule.principal, host=rule.host, operation=rule.operation, permission_type=rule.permission
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
