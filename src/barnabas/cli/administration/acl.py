"""`barnabas acl`: who may do what. Rules are added, removed and listed in one line each."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from barnabas.admin import AclFilter, AclRule
from barnabas.cores.acl import CLUSTER_NAME, Operation, Pattern, Permission, ResourceType
from barnabas.terminal.administering import administer
from barnabas.terminal.errors import EXIT_OK, UsageError
from barnabas.terminal.options import AsJson, Bootstrap, Properties
from barnabas.terminal.output import print_json, print_table
from barnabas.terminal.runner import example, new_app

app = new_app("Show and change who may do what.")

Topic = Annotated[
    str | None,
    typer.Option("-t", "--topic", metavar="TOPIC", help="A topic; TEXT* for all that begin so, * for all."),
]
Group = Annotated[
    str | None, typer.Option("-g", "--group", metavar="GROUP", help="A consumer group, as --topic.")
]
Txn = Annotated[str | None, typer.Option("--txn", metavar="ID", help="A transactional id, as --topic.")]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster as a whole.")]
User = Annotated[str | None, typer.Option("-u", "--user", metavar="NAME", help="The user; * for everybody.")]
Host = Annotated[str, typer.Option("--host", metavar="HOST", help="The client's address; * for any.")]
Operations = Annotated[
    list[str], typer.Argument(metavar="OPERATION...", help="read, write, describe, all ...")
]
Deny = Annotated[
    bool, typer.Option("--deny", help="Deny instead of allow; a denial wins over every permission.")
]


def resource_of(
    topic: str | None, group: str | None, txn: str | None, cluster: bool
) -> tuple[ResourceType, Pattern, str]:
    """The resource that the options name; exactly one. Raises UsageError."""
    resources = [(ResourceType.TOPIC, topic), (ResourceType.GROUP, group), (ResourceType.TRANSACTIONAL_ID, txn),
             (ResourceType.CLUSTER, CLUSTER_NAME if cluster else None)]  # fmt: skip
    named = [(kind, name) for kind, name in resources if name is not None]
    if len(named) != 1:
        raise UsageError("name one resource: --topic, --group, --txn or --cluster")
    kind, name = named[0]
    if len(name) > 1 and name.endswith("*"):
        return kind, Pattern.PREFIXED, name[:-1]
    return kind, Pattern.LITERAL, name


def operation_of(text: str) -> Operation:
    """Raises UsageError."""
    name = text.replace("-", "_").upper()
    if name not in Operation.__members__ or name == "ANY":
        names = ", ".join(operation.name.lower() for operation in Operation if operation is not Operation.ANY)
        raise UsageError(f"no operation {text!r}; there are {names}")
    return Operation[name]


def principal_of(user: str) -> str:
    """User:NAME of NAME."""
    return user if ":" in user else f"User:{user}"


@app.command("list", epilog=example("barnabas acl list --topic orders"))
def list_rules(
    topic: Topic = None, group: Group = None, txn: Txn = None, cluster: Cluster = False, user: User = None,
    bootstrap: Bootstrap = None, properties: Properties = None, json: AsJson = False,
) -> int:  # fmt: skip
    """List the rules of all resources, or of one resource."""
    kind, pattern, name = ResourceType.ANY, Pattern.ANY, None
    if topic or group or txn or cluster:
        kind, pattern, name = resource_of(topic, group, txn, cluster)
        if pattern is Pattern.LITERAL:
            pattern = Pattern.MATCH  # everything that applies to the name
    which = AclFilter(kind, name, None if user is None else principal_of(user), pattern=pattern)
    with administer(bootstrap, properties) as admin:
        rules = admin.acls.list(which)
    rows: list[dict[str, Any]] = [
        {
            "resource": rule.resource.name.lower(),
            "name": rule.name + ("*" if rule.pattern is Pattern.PREFIXED else ""),
            "principal": rule.principal, "host": rule.host,
            "permission": rule.permission.name.lower(),
            "operation": rule.operation.name.lower(),
        }
        for rule in rules
    ]  # fmt: skip
    if json:
        print_json(rows)
    else:
        titles = ("RESOURCE", "NAME", "PRINCIPAL", "HOST", "PERMISSION", "OPERATION")
        print_table(titles, [list(row.values()) for row in rows])
    return EXIT_OK


@app.command("add", epilog=example("barnabas acl add read describe --user alice --topic 'orders*'"))
def add(
    operations: Operations, topic: Topic = None, group: Group = None, txn: Txn = None, cluster: Cluster = False,
    user: User = None, host: Host = "*", deny: Deny = False, bootstrap: Bootstrap = None, properties: Properties = None,
    json: AsJson = False,
) -> int:  # fmt: skip
    """Allow (or deny) a user to do something."""
    kind, pattern, name = resource_of(topic, group, txn, cluster)
    if user is None:
        raise UsageError("name the user: --user NAME, or --user '*' for everybody")
    rules = [
        AclRule(
            kind, name, principal_of(user), operation_of(text), Permission.DENY if deny else Permission.ALLOW,
            pattern, host,
        )
        for text in operations
    ]  # fmt: skip
    with administer(bootstrap, properties) as admin:
        admin.acls.create(rules).require()
    if json:
        print_json({"added": len(rules)})
    return EXIT_OK


@app.command("remove", epilog=example("barnabas acl remove read --user alice --topic orders"))
def remove(
    operations: Operations, topic: Topic = None, group: Group = None, txn: Txn = None, cluster: Cluster = False,
    user: User = None, deny: Deny = False, bootstrap: Bootstrap = None, properties: Properties = None,
    json: AsJson = False,
) -> int:  # fmt: skip
    """Remove rules from a resource; without --user those of all users."""
    kind, pattern, name = resource_of(topic, group, txn, cluster)
    filters = [
        AclFilter(
            kind, name, None if user is None else principal_of(user), operation_of(text),
            Permission.DENY if deny else Permission.ALLOW, pattern,
        )
        for text in operations
    ]  # fmt: skip
    with administer(bootstrap, properties) as admin:
        removed = sum(len(rules) for rules in admin.acls.delete(filters).require().values())
    if json:
        print_json({"removed": removed})
    else:
        print(f"{removed} removed")
    return EXIT_OK
