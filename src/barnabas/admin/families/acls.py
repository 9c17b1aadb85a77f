"""Rules: who may do what with which resource."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.admin.errors import ResourceError
from barnabas.admin.looping import Family, blocking
from barnabas.admin.results import Results
from barnabas.admin.spread import spread, to_any
from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.async_connection import AsyncConnection
from barnabas.client.errors import ClientError, UnsupportedByBroker
from barnabas.cores.acl import CLUSTER_NAME, WILDCARD, Operation, Pattern, Permission, ResourceType
from barnabas.wire.messages import create_acls as wire_create
from barnabas.wire.messages import delete_acls as wire_delete
from barnabas.wire.messages import describe_acls as wire_describe
from barnabas.wire.schema import Message


@dataclass(frozen=True, slots=True)
class AclRule:
    """One rule. principal: `User:NAME`, `User:*` for everybody. host: the client's address, `*` for any."""

    resource: ResourceType
    name: str
    principal: str
    operation: Operation
    permission: Permission = Permission.ALLOW
    pattern: Pattern = Pattern.LITERAL
    host: str = WILDCARD


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which rules; what is None or ANY matches everything.

    Pattern.MATCH finds every rule that applies to a resource of this name. Principals are compared as they are: to find the
    rules for everybody, ask for `User:*`.
    """

    resource: ResourceType = ResourceType.ANY
    name: str | None = None
    principal: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY
    pattern: Pattern = Pattern.ANY
    host: str | None = None


class AsyncAcls:
    """`AsyncAdmin.acls`."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self._cluster = cluster

    async def list(self, which: AclFilter | None = None) -> Sequence[AclRule]:
        """The rules that match, None: all. Raises ResourceError (SECURITY_DISABLED where there is no authorizer)."""
        wanted = which or AclFilter()

        async def ask() -> Sequence[AclRule]:
            connection = await self._cluster.any()
            request = wire_describe.DescribeAclsRequest(
                **_filter(wanted, connection, wire_describe.DescribeAclsRequest)
            )
            answer = await connection.call(request, wire_describe.DescribeAclsResponse)
            if answer.error_code:
                raise ResourceError(answer.error_code, "list", "the rules", answer.error_message)
            return [
                AclRule(
                    ResourceType(resource.resource_type),
                    resource.resource_name,
                    rule.principal,
                    Operation(rule.operation),
                    Permission(rule.permission_type),
                    Pattern(resource.pattern_type),
                    rule.host,
                )
                for resource in answer.resources
                for rule in resource.acls
            ]

        return await self._cluster.retry(ask)

    async def create(self, rules: Iterable[AclRule]) -> Results[AclRule, None]:
        """Add rules; one that is there already is no failure."""

        async def ask(
            connection: AsyncConnection, batch: Sequence[AclRule]
        ) -> Mapping[AclRule, ClientError | None]:
            prefixes = connection.version_for(wire_create.CreateAclsRequest) >= 1
            if not prefixes and any(rule.pattern is Pattern.PREFIXED for rule in batch):
                raise UnsupportedByBroker(
                    f"{connection.address} knows no rules for prefixes (before Kafka 2.0)", "CreateAcls"
                )
            rows = [
                wire_create.AclCreation(
                    resource_type=rule.resource,
                    resource_name=rule.name,
                    resource_pattern_type=rule.pattern,
                    principal=rule.principal,
                    host=rule.host,
                    operation=rule.operation,
                    permission_type=rule.permission,
                )
                for rule in batch
            ]
            request = wire_create.CreateAclsRequest(creations=rows)
            answer = await connection.call(request, wire_create.CreateAclsResponse)
            return {
                rule: ResourceError(row.error_code, "add the rule for", _text(rule), row.error_message)
                if row.error_code
                else None
                for rule, row in zip(batch, answer.results, strict=True)
            }

        return await spread(self._cluster, rules, to_any(self._cluster), ask)

    async def delete(self, which: Iterable[AclFilter]) -> Results[AclFilter, Sequence[AclRule]]:
        """Delete the rules that match; the values are what was deleted."""

        async def ask(
            connection: AsyncConnection, batch: Sequence[AclFilter]
        ) -> Mapping[AclFilter, Sequence[AclRule] | ClientError]:
            rows = [
                wire_delete.DeleteAclsFilter(**_filter(wanted, connection, wire_delete.DeleteAclsRequest))
                for wanted in batch
            ]
            request = wire_delete.DeleteAclsRequest(filters=rows)
            answer = await connection.call(request, wire_delete.DeleteAclsResponse)
            return {wanted: _deleted(row) for wanted, row in zip(batch, answer.filter_results, strict=True)}

        return await spread(self._cluster, which, to_any(self._cluster), ask)


class Acls(Family[AsyncAcls]):
    """`Admin.acls`."""

    list = blocking(AsyncAcls.list)
    create = blocking(AsyncAcls.create)
    delete = blocking(AsyncAcls.delete)


def _filter(wanted: AclFilter, connection: AsyncConnection, request: type[Message]) -> dict[str, Any]:
    """The fields of a filter. Before Kafka 2.0 all rules are literal, and so are filters. Raises UnsupportedByBroker."""
    pattern = wanted.pattern
    if connection.version_for(request) == 0:
        if pattern is Pattern.PREFIXED:
            name = request.__name__.removesuffix("Request")
            raise UnsupportedByBroker(
                f"{connection.address} knows no rules for prefixes (before Kafka 2.0)", name
            )
        pattern = Pattern.LITERAL
    return {
        "resource_type_filter": wanted.resource,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": pattern,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _deleted(row: wire_delete.DeleteAclsFilterResult) -> Sequence[AclRule] | ResourceError:
    if row.error_code:
        return ResourceError(row.error_code, "delete", "rules", row.error_message)
    for rule_row in row.matching_acls:
        if rule_row.error_code:
            return ResourceError(
                rule_row.error_code, "delete the rule for", rule_row.resource_name, rule_row.error_message
            )
    return [
        AclRule(
            ResourceType(matched.resource_type),
            matched.resource_name,
            matched.principal,
            Operation(matched.operation),
            Permission(matched.permission_type),
            Pattern(matched.pattern_type),
            matched.host,
        )
        for matched in row.matching_acls
    ]


def _text(rule: AclRule) -> str:
    return f"{rule.principal} on {rule.resource.name.lower()} {rule.name}"


__all__ = [
    "CLUSTER_NAME",
    "AclFilter",
    "AclRule",
    "Acls",
    "AsyncAcls",
    "Operation",
    "Pattern",
    "Permission",
    "ResourceType",
]
