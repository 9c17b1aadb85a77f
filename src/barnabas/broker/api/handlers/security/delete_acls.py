"""DeleteAcls (key 31), versions 0 to 3: remove the access rules that match filters. Since 1 with prefixed resource names."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.api.access import refuse
from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.security.describe_acls import (
    filter_of,
    matching_in_turns,
    part_of,
    require_authorizer,
)
from barnabas.cores.acl import Filter, Operation, Resource, Rule, Rules, matching
from barnabas.runtime.pace import Pace
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

Matches = list[tuple[Resource, Rule]]


async def handle(context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """A result for each filter, with the rules that it has removed; one filter that is refused does not stop the
    others.
    """
    pace, results = Pace(context.services.clock), []
    for row in request.filters:
        result = DeleteAclsFilterResult(error_message=None)
        results.append(result)
        try:
            require_authorizer(context)
            if not context.allows_cluster(Operation.ALTER):
                raise refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            deleted = await _delete(context, pace, filter_of(row))
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        result.matching_acls = await pace.map(_row, deleted)
    return DeleteAclsResponse(filter_results=results)


def _row(deleted: tuple[Resource, Rule]) -> DeleteAclsMatchingAcl:
    resource, rule = deleted
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=resource.type,
        resource_name=resource.name,
        pattern_type=resource.pattern,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


async def _delete(context: Context, pace: Pace, wanted: Filter) -> Matches:
    """Delete the rules that a filter matches, those of some hundred resources in one change, and return them. Raises
    ApiError."""
    deleted: Matches = []
    rules_by_resource = await matching_in_turns(pace, context.services.image.acls, wanted)
    async for resources in pace.pieces(rules_by_resource):
        matched: dict[Resource, list[Rule]] = {}

        def without(
            rules: Rules, of: tuple[Resource, ...] = resources, matched: dict[Resource, list[Rule]] = matched
        ) -> Mapping[Resource, frozenset[Rule]]:
            matched.clear()
            matched.update(matching(part_of(rules, of), wanted))
            return {resource: rules[resource] - set(gone) for resource, gone in matched.items()}

        await context.services.controller.options.alter_acls(without)
        deleted += [(resource, rule) for resource, gone in matched.items() for rule in gone]
    return deleted
