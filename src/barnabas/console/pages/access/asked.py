""" "Who can read X?" and "what may Y do?", answered by the rules as the brokers themselves decide. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from barnabas.admin.families.acls import AclRule
from barnabas.cores.acl import (
    ANY_USER,
    SUPPORTED,
    WILDCARD,
    AclIndex,
    Operation,
    Permission,
    Resource,
    ResourceType,
    Rule,
)


def index_of(rules: Iterable[AclRule]) -> AclIndex:
    """The rules as brokers hold them."""
    by_resource: dict[Resource, set[Rule]] = defaultdict(set)
    for rule in rules:
        resource = Resource(rule.resource, rule.pattern, rule.name)
        by_resource[resource].add(Rule(rule.principal, rule.host, rule.operation, rule.permission))
    index = AclIndex()
    for resource, rules_here in by_resource.items():
        index.set(resource, frozenset(rules_here))
    return index


def answer_of(
    rules: Iterable[AclRule], kind: ResourceType, name: str, operation: Operation, principal: str
) -> dict[str, Any]:
    """With a name: who may do it, each with the rule that decides. With a principal: what it may do with each resource.

    Users that no rule names may do what `User:*` may.
    """
    rules_listed = list(rules)
    index = index_of(rules_listed)
    if name:
        principals = sorted({rule.principal for rule in rules_listed} | {ANY_USER})
        if principal:
            principals = [_full(principal)]
        who = [{"principal": one, **_verdict(index, one, operation, kind, name)} for one in principals]
        return {
            "question": "who", "resource": kind.name.lower(), "name": name, "operation": operation.name.lower(),
            "who": who, "nobody_is_named": not index.of(kind, name),
        }  # fmt: skip
    one = _full(principal)
    may = []
    for resource in sorted(
        {
            (rule.resource, rule.name, rule.pattern)
            for rule in rules_listed
            if rule.principal in (one, ANY_USER)
        }
    ):
        type_, named, pattern = resource
        allowed = [
            op.name.lower()
            for op in sorted(SUPPORTED.get(type_, frozenset()))
            if index.allows(one, WILDCARD, op, type_, named)
        ]
        may.append(
            {
                "resource": type_.name.lower(),
                "name": named,
                "pattern": pattern.name.lower(),
                "operations": allowed,
            }
        )
    return {"question": "what", "principal": one, "may": may}


def _full(principal: str) -> str:
    return principal if ":" in principal else f"User:{principal}"


def _verdict(
    index: AclIndex, principal: str, operation: Operation, kind: ResourceType, name: str
) -> dict[str, Any]:
    """hosts: addresses with rules of their own, where the answer may be another one."""
    decision = index.decide(principal, WILDCARD, operation, kind, name)
    hosts = sorted(
        {
            r.host
            for rules in index.of(kind, name)
            for r in rules
            if r.principal == principal and r.host != WILDCARD
        }
    )
    because = None
    if isinstance(decision, Rule):
        because = f"{decision.permission.name.lower()} {decision.operation.name.lower()} {decision.principal}"
    is_allowed = decision if isinstance(decision, bool) else decision.permission is Permission.ALLOW
    from_hosts = [host for host in hosts if index.allows(principal, host, operation, kind, name)]
    return {"is_allowed": is_allowed, "because": because, "allowed_from": [] if is_allowed else from_hosts}
