"""Access rules: what they are, where they are stored in the znode tree, which requests they allow. Kafka's semantics.

A matching denial overrides any permission. READ, WRITE, DELETE and ALTER imply DESCRIBE, and ALTER_CONFIGS implies
DESCRIBE_CONFIGS; denials imply nothing. A rule's resource is one name, all names that begin with a prefix, or `*`.
Source: Kafka's AclAuthorizer and StandardAuthorizer, ZkData.scala, AclEntry.scala.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas.cores.znode_ops import Create, Delete, Op, Set

CLUSTER_NAME: Final = "kafka-cluster"
WILDCARD: Final = "*"
ANY_USER: Final = "User:*"
LITERAL_ROOT: Final = "/kafka-acl"
EXTENDED_ROOT: Final = "/kafka-acl-extended"
PREFIXED_ROOT: Final = "/kafka-acl-extended/prefixed"
ROOTS: Final = frozenset(("kafka-acl", "kafka-acl-extended"))


class ResourceType(IntEnum):
    """The type of resource that a rule applies to; the numbers are the protocol's."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(IntEnum):
    """How a rule's name matches; ANY and MATCH are used only in filters."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What a rule allows or denies; ANY is used only in filters."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether a rule denies or allows; ANY is used only in filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


_O: Final = Operation
SUPPORTED: Final[Mapping[ResourceType, frozenset[Operation]]] = {
    ResourceType.TOPIC: frozenset(
        (
            _O.READ,
            _O.WRITE,
            _O.CREATE,
            _O.DELETE,
            _O.ALTER,
            _O.DESCRIBE,
            _O.DESCRIBE_CONFIGS,
            _O.ALTER_CONFIGS,
        )
    ),
    ResourceType.GROUP: frozenset((_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)),
    ResourceType.CLUSTER: frozenset(
        (
            _O.CREATE,
            _O.ALTER,
            _O.DESCRIBE,
            _O.CLUSTER_ACTION,
            _O.DESCRIBE_CONFIGS,
            _O.ALTER_CONFIGS,
            _O.IDEMPOTENT_WRITE,
        )
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset((_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT)),
    ResourceType.DELEGATION_TOKEN: frozenset((_O.DESCRIBE,)),
    ResourceType.USER: frozenset((_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS)),
}
"""The operations that each type of resource supports, besides ALL."""
IMPLIED_BY: Final[Mapping[Operation, frozenset[Operation]]] = {
    _O.DESCRIBE: frozenset((_O.READ, _O.WRITE, _O.DELETE, _O.ALTER)),
    _O.DESCRIBE_CONFIGS: frozenset((_O.ALTER_CONFIGS,)),
}


class Resource(NamedTuple):
    """What a set of rules applies to. pattern: LITERAL (the name `*` means all) or PREFIXED."""

    type: ResourceType
    pattern: Pattern
    name: str


class Rule(NamedTuple):
    """One rule of a resource. host: an address or `*`."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


def applies_to(resource: Resource, kind: ResourceType, name: str) -> bool:
    """Whether the rules of `resource` apply to a resource called `name`."""
    if resource.type != kind:
        return False
    if resource.pattern is Pattern.PREFIXED:
        return name.startswith(resource.name)
    return resource.name in (name, WILDCARD)


class Filter(NamedTuple):
    """Selects rules; None and ANY match everything. pattern MATCH: every resource that applies to the name."""

    type: ResourceType
    pattern: Pattern
    name: str | None
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def matches_resource(self, resource: Resource) -> bool:
        """Whether the filter selects rules of `resource`."""
        if self.type not in (ResourceType.ANY, resource.type):
            return False
        if self.pattern not in (Pattern.ANY, Pattern.MATCH, resource.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern != Pattern.MATCH:
            return self.name == resource.name
        if resource.pattern is Pattern.LITERAL:
            return resource.name in (self.name, WILDCARD)
        return self.name.startswith(resource.name)

    def matches_rule(self, rule: Rule) -> bool:
        """Whether the filter selects `rule`, whatever its resource."""
        return (
            self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (Operation.ANY, rule.operation)
            and self.permission in (Permission.ANY, rule.permission)
        )


DENY_ALL: Final = frozenset((Rule("User:*", "*", Operation.ALL, Permission.DENY),))
"""Used in place of rules that cannot be read."""
Rules = Mapping[Resource, frozenset[Rule]]


def matching(rules: Rules, wanted: Filter) -> Iterator[tuple[Resource, list[Rule]]]:
    """The resources and rules that a filter selects, in a stable order."""
    for resource in sorted(rules):
        if wanted.matches_resource(resource):
            selected = sorted(rule for rule in rules[resource] if wanted.matches_rule(rule))
            if selected:
                yield resource, selected


class AclIndex:
    """Rules, indexed for look-ups: one costs no more with 10,000 resources than with one."""

    def __init__(self) -> None:
        self._literal: dict[tuple[int, str], frozenset[Rule]] = {}
        self._prefixed: dict[tuple[int, str], frozenset[Rule]] = {}
        self._lengths: dict[int, Counter[int]] = {}
        """By type: the number of prefixes of each length."""

    def set(self, resource: Resource, rules: frozenset[Rule]) -> None:
        """Replace a resource's rules; an empty set removes it."""
        kind, pattern, name = resource
        table = self._literal if pattern is Pattern.LITERAL else self._prefixed
        was = table.pop((kind, name), None)
        if rules:
            table[kind, name] = rules
        if pattern is Pattern.PREFIXED:
            lengths = self._lengths.setdefault(kind, Counter())
            lengths[len(name)] += bool(rules) - bool(was)
            if not lengths[len(name)]:
                del lengths[len(name)]

    def of(self, kind: ResourceType, name: str) -> list[frozenset[Rule]]:
        """The sets of rules that apply to a resource."""
        keys = [(kind, name), (kind, WILDCARD)] if name != WILDCARD else [(kind, name)]
        applying = [self._literal[key] for key in keys if key in self._literal]
        for length in self._lengths.get(kind, ()):
            if length <= len(name):
                rules = self._prefixed.get((kind, name[:length]))
                if rules is not None:
                    applying.append(rules)
        return applying

    def allows(
        self,
        principal: str,
        host: str,
        operation: Operation,
        kind: ResourceType,
        name: str,
        *,
        if_none_found: bool = False,
    ) -> bool:
        """Whether the rules let a principal at an address do this. if_none_found: the result when no rule applies."""
        verdict = self.decide(principal, host, operation, kind, name, if_none_found=if_none_found)
        return verdict if isinstance(verdict, bool) else verdict.permission is Permission.ALLOW

    def decide(
        self,
        principal: str,
        host: str,
        operation: Operation,
        kind: ResourceType,
        name: str,
        *,
        if_none_found: bool = False,
    ) -> Rule | bool:
        """The rule that decides whether a principal may do this; without such a rule, whether it is allowed by default."""
        applying = self.of(kind, name)
        if not applying:
            return if_none_found
        implying = IMPLIED_BY.get(operation, frozenset())
        allowing: Rule | None = None
        for rules in applying:
            for rule in rules:
                if rule.principal not in (principal, ANY_USER) or rule.host not in (host, WILDCARD):
                    continue
                if rule.operation in (operation, Operation.ALL):
                    if rule.permission is Permission.DENY:
                        return rule
                    allowing = rule
                elif rule.permission is Permission.ALLOW and rule.operation in implying:
                    allowing = rule
        return allowing or False

    def allows_any(
        self,
        principal: str,
        host: str,
        operation: Operation,
        kind: ResourceType,
        *,
        if_none_found: bool = False,
    ) -> bool:
        """Whether the rules let a principal do this with some resource of this type, existing or not.

        if_none_found: the result for resources without rules, of which there are always some.
        """

        def says(permission: Permission, rules: Iterable[Rule]) -> bool:
            return self._has(rules, principal, host, operation, permission)

        if says(Permission.DENY, self._literal.get((kind, WILDCARD), ())):
            return False
        if if_none_found:
            return True
        for table in (self._literal, self._prefixed):
            for (found_kind, name), rules in table.items():
                if found_kind != kind or not says(Permission.ALLOW, rules):
                    continue
                if table is self._literal and name == WILDCARD:
                    return True
                # A permission that a denial covers completely does not count.
                denied = any(
                    says(Permission.DENY, self._prefixed.get((kind, name[:length]), ()))
                    for length in self._lengths.get(kind, ())
                    if length <= len(name)
                )
                if not denied and not (table is self._literal and says(Permission.DENY, rules)):
                    return True
        return False

    @staticmethod
    def _has(
        rules: Iterable[Rule], principal: str, host: str, operation: Operation, permission: Permission
    ) -> bool:
        return any(
            rule.permission is permission
            and rule.principal in (principal, ANY_USER)
            and rule.host in (host, WILDCARD)
            and rule.operation in (operation, Operation.ALL)
            for rule in rules
        )


# --- the znode tree -----------------------------------------------------------------------------------------

_ESCAPED: Final = {"%": "%25", "/": "%2F", ".": "%2E", "..": "%2E%2E"}


def camel(value: IntEnum) -> str:
    """A member's name as Kafka writes it: TransactionalId, DescribeConfigs."""
    return "".join(word.capitalize() for word in value.name.split("_"))


_TYPES: Final = {camel(kind): kind for kind in ResourceType if kind is not ResourceType.ANY}
_OPERATIONS: Final = {camel(op): op for op in Operation if op is not Operation.ANY}
_PERMISSIONS: Final = {camel(permission): permission for permission in (Permission.ALLOW, Permission.DENY)}


def type_root(kind: ResourceType, pattern: Pattern) -> str:
    """The parent of the nodes of all resources of a type."""
    return f"{LITERAL_ROOT if pattern is Pattern.LITERAL else PREFIXED_ROOT}/{camel(kind)}"


def resource_path(resource: Resource) -> str:
    """The node that holds a resource's rules. A slash, which Kafka cannot store, becomes %2F."""
    name = resource.name
    quoted = _ESCAPED.get(name) or "".join(
        _ESCAPED.get(char, char) if char in "%/" else char for char in name
    )
    return f"{type_root(resource.type, resource.pattern)}/{quoted}"


def resource_of(path: str) -> Resource | None:
    """The resource of a node made by `resource_path`; None for other nodes."""
    parts = path.split("/")[1:]
    if len(parts) == 3 and parts[0] == LITERAL_ROOT[1:]:
        pattern = Pattern.LITERAL
    elif len(parts) == 4 and path.startswith(PREFIXED_ROOT + "/"):
        pattern = Pattern.PREFIXED
    else:
        return None
    kind = _TYPES.get(parts[-2])
    if kind is None:
        return None
    name = parts[-1]
    for plain in ("/", ".", "%"):
        name = name.replace(_ESCAPED[plain], plain)
    return Resource(kind, pattern, name)


def encode_rules(rules: Iterable[Rule]) -> bytes:
    """Payload of a resource's node, version 1."""
    rows = [
        {
            "principal": rule.principal,
            "permissionType": camel(rule.permission),
            "operation": camel(rule.operation),
            "host": rule.host,
        }
        for rule in sorted(rules)
    ]
    return json.dumps({"version": 1, "acls": rows}, separators=(",", ":"), ensure_ascii=False).encode()


def decode_rules(path: str, data: bytes) -> frozenset[Rule]:
    """The rules in a payload. Raises ValueError, because unreadable rules must not be mistaken for no rules."""
    if not data:
        return frozenset()
    try:
        return frozenset(
            Rule(
                row["principal"],
                row["host"],
                _OPERATIONS[row["operation"]],
                _PERMISSIONS[row["permissionType"]],
            )
            for row in json.loads(data)["acls"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: no access rules: {error!r}") from None


def decide_acls(
    versions: Mapping[Resource, int], changed: Mapping[Resource, frozenset[Rule]]
) -> Iterator[Op]:
    """The changes of the tree that give resources these rules. versions: of the existing nodes.

    Brokers watch the rules themselves, so no notification nodes are written, as with configs.
    """
    for resource, rules in changed.items():
        path = resource_path(resource)
        if resource in versions:
            version = versions[resource]
            yield Set(path, encode_rules(rules), version) if rules else Delete(path, version)
        elif rules:
            yield Create(path, encode_rules(rules))


PARENTS: Final = (
    LITERAL_ROOT, EXTENDED_ROOT, PREFIXED_ROOT,
    *(type_root(kind, pattern) for pattern in (Pattern.LITERAL, Pattern.PREFIXED) for kind in SUPPORTED),
)  # fmt: skip
"""Nodes that exist in every tree, parents first."""
