"""`barnabas acl`: who may do what. Rules are added, removed and listed in one line each."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from barnabas.cli.direct import direct
from barnabas.cores.acl import CLUSTER_NAME, Operation, Pattern, Permission, ResourceType
from barnabas.terminal.errors import EXIT_OK, CliError, UsageError
from barnabas.terminal.options import AsJson, Bootstrap, Properties
from barnabas.terminal.output import print_json, print_table
from barnabas.terminal.runner import example, new_app
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import create_acls, delete_acls, describe_acls

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
    given = [(ResourceType.TOPIC, topic), (ResourceType.GROUP, group), (ResourceType.TRANSACTIONAL_ID, txn),
             (ResourceType.CLUSTER, CLUSTER_NAME if cluster else None)]  # fmt: skip
    named = [(kind, name) for kind, name in given if name is not None]
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
    request = describe_acls.DescribeAclsRequest(
        resource_type_filter=kind, resource_name_filter=name, pattern_type_filter=pattern,
        principal_filter=None if user is None else principal_of(user), host_filter=None, operation=Operation.ANY,
        permission_type=Permission.ANY,
    )  # fmt: skip
    with direct(bootstrap, properties) as admin:
        answer = admin.any(request, describe_acls.DescribeAclsResponse)
    require(answer.error_code, answer.error_message)
    rows: list[dict[str, Any]] = [
        {
            "resource": ResourceType(found.resource_type).name.lower(),
            "name": found.resource_name + ("*" if found.pattern_type == Pattern.PREFIXED else ""),
            "principal": rule.principal, "host": rule.host,
            "permission": Permission(rule.permission_type).name.lower(),
            "operation": Operation(rule.operation).name.lower(),
        }
        for found in answer.resources
        for rule in found.acls
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
    request = create_acls.CreateAclsRequest(
        creations=[
            create_acls.AclCreation(
                resource_type=kind, resource_name=name, resource_pattern_type=pattern, principal=principal_of(user),
                host=host, operation=operation_of(text), permission_type=Permission.DENY if deny else Permission.ALLOW,
            )
            for text in operations
        ]
    )  # fmt: skip
    with direct(bootstrap, properties) as admin:
        answer = admin.controller(request, create_acls.CreateAclsResponse)
    for result in answer.results:
        require(result.error_code, result.error_message)
    if json:
        print_json({"added": len(answer.results)})
    return EXIT_OK


@app.command("remove", epilog=example("barnabas acl remove read --user alice --topic orders"))
def remove(
    operations: Operations, topic: Topic = None, group: Group = None, txn: Txn = None, cluster: Cluster = False,
    user: User = None, deny: Deny = False, bootstrap: Bootstrap = None, properties: Properties = None,
    json: AsJson = False,
) -> int:  # fmt: skip
    """Remove rules from a resource; without --user those of all users."""
    kind, pattern, name = resource_of(topic, group, txn, cluster)
    request = delete_acls.DeleteAclsRequest(
        filters=[
            delete_acls.DeleteAclsFilter(
                resource_type_filter=kind, resource_name_filter=name, pattern_type_filter=pattern,
                principal_filter=None if user is None else principal_of(user), host_filter=None,
                operation=operation_of(text), permission_type=Permission.DENY if deny else Permission.ALLOW,
            )
            for text in operations
        ]
    )  # fmt: skip
    with direct(bootstrap, properties) as admin:
        answer = admin.controller(request, delete_acls.DeleteAclsResponse)
    removed = 0
    for result in answer.filter_results:
        require(result.error_code, result.error_message)
        removed += len(result.matching_acls)
    if json:
        print_json({"removed": removed})
    else:
        print(f"{removed} removed")
    return EXIT_OK


def require(code: int, message: str | None) -> None:
    """Raises CliError when the broker reports an error."""
    if code:
        name = ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
        raise CliError(message or name)
