"""kafka-acls: who may do what."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from barnabas.admin import AclFilter, AclRule, Admin, Operation, Pattern, Permission, ResourceType
from barnabas.client.errors import ClientError
from barnabas.kafka_tools.shared.common import ToolError, checked, connect, java_text, names_servers, parse
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK

CONFIGS: Final = ("DESCRIBE_CONFIGS", "ALTER_CONFIGS", "ALL")
SUPPORTED: Final = {
    "TOPIC": ("READ", "WRITE", "CREATE", "DESCRIBE", "DELETE", "ALTER", *CONFIGS),
    "GROUP": ("READ", "DESCRIBE", "DELETE", *CONFIGS),
    "CLUSTER": ("CREATE", "CLUSTER_ACTION", "IDEMPOTENT_WRITE", "ALTER", "DESCRIBE", *CONFIGS),
    "TRANSACTIONAL_ID": ("DESCRIBE", "WRITE", "TWO_PHASE_COMMIT", "ALL"),
    "DELEGATION_TOKEN": ("DESCRIBE", "ALL"),
    "USER": ("CREATE_TOKENS", "DESCRIBE_TOKENS", "ALL"),
}
RESOURCE_OPTIONS: Final = {
    "topic": "TOPIC",
    "group": "GROUP",
    "transactional-id": "TRANSACTIONAL_ID",
    "delegation-token": "DELEGATION_TOKEN",
    "user-principal": "USER",
}
CLUSTER_NAME: Final = "kafka-cluster"
NO_RESOURCE: Final = (
    "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
    "--delegation-token <Delegation Token ID>"
)

TOOL: Final = Tool(
    "This tool helps to manage acls on kafka.",
    (
        *COMMON,
        Opt("add", "Indicates you are trying to add ACLs."),
        Opt("remove", "Indicates you are trying to remove ACLs."),
        Opt("list", "List ACLs for the specified resource."),
        Opt("topic", "A topic; '*' for all.", "String: topic"),
        Opt("group", "A consumer group; '*' for all.", "String: group"),
        Opt("transactional-id", "A transactional id; '*' for all.", "String: transactional-id"),
        Opt("delegation-token", "A delegation token; '*' for all.", "String: delegation-token"),
        Opt("user-principal", "A user principal as the resource.", "String: user-principal"),
        Opt("cluster", "The cluster."),
        Opt("resource-pattern-type", "literal (default) or prefixed; to list or remove also any and match.",
            "ANY|MATCH|LITERAL|PREFIXED"),
        Opt("allow-principal", "Who is allowed: User:name.", "String: allow-principal"),
        Opt("deny-principal", "Who is denied; denials take precedence.", "String: deny-principal"),
        Opt("allow-host", "Hosts of --allow-principal (default *).", "String: allow-host"),
        Opt("deny-host", "Hosts of --deny-principal (default *).", "String: deny-host"),
        Opt("operation", "Read, Write, Create, ... (default All).", "String"),
        Opt("principal", "With --list: only of this principal.", "String: principal", optional=True),
        Opt("producer", "What a producer needs: Write, Describe, Create on the topic."),
        Opt("consumer", "What a consumer needs: Read, Describe on the topic, Read on the group."),
        Opt("idempotent", "With --producer: idempotent writes."),
        Opt("force", "Assume Yes to all queries and do not prompt."),
        Opt("authorizer", "Of old tools.", "String: class", old=True),
        Opt("authorizer-properties", "Of old tools: zookeeper.connect=host:port.", "String", old=True),
        Opt("bootstrap-controller", "Of KRaft controllers.", "String: controller", old=True),
    ),
)  # fmt: skip


class Resource(NamedTuple):
    """The resource of a rule."""

    kind: str
    name: str
    pattern: str

    def __str__(self) -> str:
        return f"ResourcePattern(resourceType={self.kind}, name={self.name}, patternType={self.pattern})"


class Rule(NamedTuple):
    """Who may, or may not, do what from where."""

    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation}, "
            f"permissionType={self.permission})"
        )


Rules = dict[Resource, list[Rule]]
T = TypeVar("T")


def main(arguments: Sequence[str]) -> int:
    """Add, remove or list; the exit code."""
    parsed = parse(TOOL, arguments)
    for item in parsed.all("authorizer-properties"):
        if item.startswith("zookeeper.connect="):
            parsed.values.setdefault("zookeeper", [item.partition("=")[2]])
    if "bootstrap-controller" in parsed:
        parsed.values.setdefault("bootstrap-server", parsed.all("bootstrap-controller"))
    checked(TOOL, check, parsed)
    try:
        actions = {"add": add, "remove": remove, "list": show}
        next(action for name, action in actions.items() if name in parsed)(parsed)
    except (ToolError, ClientError) as error:
        print(f"Error while executing ACL command: {java_text(error)}", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def check(parsed: Parsed) -> None:
    """Raises Refused, with Kafka's words."""
    if sum(action in parsed for action in ("add", "remove", "list")) != 1:
        raise Refused("Command must include exactly one action: --list, --add, --remove. ")
    if not names_servers(parsed) and "zookeeper" not in parsed:
        raise Refused("One of --bootstrap-server or --bootstrap-controller must be specified")
    pattern = pattern_of(parsed)
    if pattern not in Pattern.__members__:
        raise Refused(f"Unknown resource-pattern-type: {pattern.lower()}")
    for role in ("producer", "consumer"):
        for other in ("operation", "deny-principal", "deny-host"):
            if role in parsed and other in parsed:
                raise Refused(f'Option "[{role}]" can\'t be used with option "[{other}]"')
    principals = {"allow-principal", "deny-principal"} & parsed.values.keys()
    if "add" in parsed and pattern in ("ANY", "MATCH"):
        raise Refused(f"A '--resource-pattern-type' value of '{pattern}' is not valid when adding acls.")
    if "list" not in parsed and not resources(parsed):
        raise Refused(NO_RESOURCE)
    if "producer" in parsed and "topic" not in parsed:
        raise Refused("With --producer you must specify a --topic")
    if "idempotent" in parsed and "producer" not in parsed:
        raise Refused("The --idempotent option is only available if --producer is set")
    without = "producer" not in parsed and {"cluster", "transactional-id"} & parsed.values.keys()
    if "consumer" in parsed and ("topic" not in parsed or "group" not in parsed or without):
        raise Refused(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option "
            "should be specified."
        )
    if "add" in parsed and not principals:
        raise Refused("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")


def pattern_of(parsed: Parsed) -> str:
    """--resource-pattern-type in capitals."""
    return parsed.text("resource-pattern-type", "LITERAL").upper()


def resources(parsed: Parsed) -> list[Resource]:
    """What the resource options name."""
    pattern = pattern_of(parsed)
    resources_named = [
        Resource(kind, name.strip(), pattern)
        for option, kind in RESOURCE_OPTIONS.items()
        for name in parsed.all(option)
    ]
    if "cluster" in parsed or ("idempotent" in parsed and "producer" in parsed):
        resources_named.append(Resource("CLUSTER", CLUSTER_NAME, "LITERAL"))
    return resources_named


def rules_of(parsed: Parsed, operations: Iterable[str]) -> list[Rule]:
    """The principals and hosts with each operation. Raises ToolError."""
    rules = []
    for word, permission in (("allow", "ALLOW"), ("deny", "DENY")):
        for principal in parsed.all(f"{word}-principal"):
            require_principal(principal)
            for host in parsed.all(f"{word}-host") or ["*"]:
                rules += [Rule(principal.strip(), host.strip(), name, permission) for name in operations]
    return rules


def require_principal(principal: str) -> None:
    """Raises ToolError for what is not User:name."""
    if ":" not in principal:
        raise ToolError(f"expected a string in format principalType:principalName but got {principal}")


def wanted_rules(parsed: Parsed) -> Rules:
    """The rules that the options ask for, by resource; none when no principal is given. Raises Refused, ToolError."""
    rules_by_resource: Rules = {}
    if not {"producer", "consumer"} & parsed.values.keys():
        operations = [
            name.strip().upper() if "_" in name else capitals(name.strip())
            for name in parsed.all("operation") or ["All"]
        ]
        for resource in resources(parsed):
            allowed = SUPPORTED[resource.kind]
            if not set(operations) <= set(allowed):
                usage = TOOL.usage().rstrip()
                raise Refused(
                    f"ResourceType {resource.kind} only supports operations [{', '.join(allowed)}]\n{usage}",
                    False,
                )
            rules_by_resource[resource] = rules_of(parsed, operations)
        return rules_by_resource
    for resource in resources(parsed):
        names: list[str] = []
        if "producer" in parsed:
            names += {"TOPIC": ["WRITE", "DESCRIBE", "CREATE"], "TRANSACTIONAL_ID": ["WRITE", "DESCRIBE"],
                      "CLUSTER": ["IDEMPOTENT_WRITE"]}.get(resource.kind, [])  # fmt: skip
        if "consumer" in parsed:
            names += {"TOPIC": ["READ", "DESCRIBE"], "GROUP": ["READ"]}.get(resource.kind, [])
        if names:
            rules_by_resource[resource] = rules_of(parsed, dict.fromkeys(names))
    return rules_by_resource


def capitals(name: str) -> str:
    """`AlterConfigs` as ALTER_CONFIGS."""
    return "".join(
        f"_{c}" if c.isupper() and i and name[i - 1].islower() else c for i, c in enumerate(name)
    ).upper()


def add(parsed: Parsed) -> None:
    """Create rules. Raises ToolError, ClientError."""
    wanted = wanted_rules(parsed)
    admin = connect(parsed)
    for resource, rules in wanted.items():
        print(f"Adding ACLs for resource `{resource}`: \n {lines(rules)}\n")
        admin.acls.create(
            AclRule(
                ResourceType[resource.kind],
                resource.name,
                rule.principal,
                Operation[rule.operation],
                Permission[rule.permission],
                Pattern[resource.pattern],
                rule.host,
            )
            for rule in rules
        ).require()


def remove(parsed: Parsed) -> None:
    """Delete rules, after asking. Raises ToolError, ClientError."""
    wanted = wanted_rules(parsed)
    admin = connect(parsed)
    for resource, rules in wanted.items():
        if rules:
            question = f"Are you sure you want to remove ACLs: \n {lines(rules)}\n from resource filter"
        else:
            question = "Are you sure you want to delete all ACLs for resource filter"
        if "force" not in parsed and not confirmed(f"{question} `{resource}`? (y/n)"):
            continue
        admin.acls.delete(filter_of(resource, rule) for rule in optional(rules)).require()


def optional(items: Sequence[T]) -> list[T | None]:
    """The items, or None for all when there are none."""
    return [*items] or [None]


def confirmed(question: str) -> bool:
    """Whether the user's answer is yes."""
    print(question, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def filter_of(resource: Resource | None, rule: Rule | None = None) -> AclFilter:
    """What takes this rule of this resource; None matches all."""
    return AclFilter(
        ResourceType[resource.kind] if resource else ResourceType.ANY,
        resource.name if resource else None,
        rule.principal if rule else None,
        Operation[rule.operation] if rule else Operation.ANY,
        Permission[rule.permission] if rule else Permission.ANY,
        Pattern[resource.pattern] if resource else Pattern.ANY,
        rule.host if rule else None,
    )


def show(parsed: Parsed) -> None:
    """List rules. Raises ToolError, ClientError."""
    principals = parsed.all("principal")
    for principal in principals:
        require_principal(principal)
    rules_by_resource = read(connect(parsed), resources(parsed))
    if not principals:
        print_rules(rules_by_resource)
    for principal in sorted(principals):
        print(f"ACLs for principal `{principal}`")
        mine = {
            key: [rule for rule in rules if rule.principal == principal]
            for key, rules in rules_by_resource.items()
        }
        print_rules({key: rules for key, rules in mine.items() if rules})


def read(admin: Admin, wanted: Sequence[Resource]) -> Rules:
    """The rules of these resources, or all. Raises ClientError."""
    rules_by_resource: Rules = {}
    for resource in optional(wanted):
        for row in admin.acls.list(filter_of(resource)):
            key = Resource(row.resource.name, row.name, row.pattern.name)
            rule = Rule(row.principal, row.host, row.operation.name, row.permission.name)
            rules_by_resource.setdefault(key, []).append(rule)
    return rules_by_resource


def print_rules(rules_by_resource: Rules) -> None:
    """The rules of each resource."""
    for resource, rules in rules_by_resource.items():
        print(f"Current ACLs for resource `{resource}`:\n{lines(rules)}\n")


def lines(rules: Sequence[Rule]) -> str:
    """One rule per line."""
    return "\n".join(f"\t{rule}" for rule in rules)
