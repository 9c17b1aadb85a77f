"""Access rules of the source as rules of the target."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from barnabas.cores.acl import Operation, Pattern, Permission, Resource, ResourceType, Rule, Rules

if TYPE_CHECKING:
    from barnabas.admin.families.acls import AclRule


def copied(
    rules: Iterable[AclRule], present: Rules, topics: Collection[str]
) -> Mapping[Resource, frozenset[Rule]]:
    """The rules of the resources that change: those about `topics` are added, without permissions to write, since a copy is
    read-only; a permission for everything becomes one to read. Rules that are here already stay.
    """
    changed: dict[Resource, frozenset[Rule]] = {}
    for row in rules:
        is_prefix = row.pattern == Pattern.PREFIXED
        if not (row.name in topics or (is_prefix and any(topic.startswith(row.name) for topic in topics))):
            continue
        operation = row.operation
        if row.permission == Permission.ALLOW and operation == Operation.WRITE:
            continue
        if row.permission == Permission.ALLOW and operation == Operation.ALL:
            operation = Operation.READ
        resource = Resource(ResourceType.TOPIC, row.pattern, row.name)
        rule = Rule(row.principal, row.host, operation, row.permission)
        before = changed.get(resource, present.get(resource, frozenset()))
        if rule not in before:
            changed[resource] = before | {rule}
    return changed
