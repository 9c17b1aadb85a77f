"""CreateAcls (key 30), versions 0 to 3: add access rules. Since 1 with prefixed resource names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.broker.api.access import refuse
from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.security.describe_acls import known, require_authorizer
from barnabas.cores.acl import (
    CLUSTER_NAME,
    SUPPORTED,
    WILDCARD,
    Operation,
    Pattern,
    Permission,
    Resource,
    ResourceType,
    Rule,
    Rules,
)
from barnabas.runtime.pace import Pace
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


async def handle(context: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    """A result for each rule: INVALID_REQUEST for one that makes no sense. The valid ones are stored in changes of some
    hundred rules; an error while these are stored is the result of all of them.
    """
    pace, answer = Pace(context.services.clock), CreateAclsResponse()
    async for rows in pace.pieces(request.creations):
        answer.results += await _created(context, rows)
    return answer


async def _created(context: Context, rows: Sequence[AclCreation]) -> list[AclCreationResult]:
    """The results of some rows, whose rules are stored in one change."""
    results = [AclCreationResult(error_message=None) for _ in rows]
    wanted: list[tuple[Resource, Rule]] = []
    for row, result in zip(rows, results, strict=True):
        try:
            require_authorizer(context)
            if not context.allows_cluster(Operation.ALTER):
                raise refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            wanted.append(_checked(row))
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
    if wanted:
        try:
            await context.services.controller.options.alter_acls(lambda rules: _added(rules, wanted))
        except ApiError as error:
            for result in results:
                if not result.error_code:
                    result.error_code, result.error_message = error.code, error.message
    return results


def _added(rules: Rules, wanted: list[tuple[Resource, Rule]]) -> Mapping[Resource, frozenset[Rule]]:
    changed: dict[Resource, frozenset[Rule]] = {}
    for resource, rule in wanted:
        before = changed.get(resource, rules.get(resource, frozenset()))
        if rule not in before:
            changed[resource] = before | {rule}
    return changed


def _checked(row: AclCreation) -> tuple[Resource, Rule]:
    """The resource and the rule of one row. Raises ApiError INVALID_REQUEST."""
    kind, pattern = known(ResourceType, row.resource_type), known(Pattern, row.resource_pattern_type)
    operation, permission = known(Operation, row.operation), known(Permission, row.permission_type)
    if kind is ResourceType.ANY or pattern in (Pattern.ANY, Pattern.MATCH):
        raise _bad("a rule is about one type of resource, by a literal name or a prefix")
    if operation is Operation.ANY or permission is Permission.ANY:
        raise _bad("a rule allows or denies one operation, or ALL")
    if not row.resource_name:
        raise _bad("a rule needs the name of a resource, or *")
    if kind is ResourceType.CLUSTER and row.resource_name != CLUSTER_NAME:
        raise _bad(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if pattern is Pattern.PREFIXED and row.resource_name == WILDCARD:
        raise _bad("* is every name; as a prefix it would mean names that begin with a star")
    if ":" not in row.principal or row.principal.endswith(":"):
        raise _bad(f"principal {row.principal!r} is not TYPE:NAME, for example User:alice")
    if not row.host:
        raise _bad("a rule needs a host, or *")
    if operation is not Operation.ALL and operation not in SUPPORTED[kind]:
        raise _bad(f"{operation.name} is nothing that can be done with a resource of type {kind.name}")
    return Resource(kind, pattern, row.resource_name), Rule(row.principal, row.host, operation, permission)


def _bad(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, why)
