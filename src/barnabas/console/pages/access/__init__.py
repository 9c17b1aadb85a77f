"""Who may what in the cluster: access rules and what follows from them, users, quotas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from barnabas.admin.families.acls import AclFilter, AclRule
from barnabas.admin.families.quotas import QuotaEntity
from barnabas.admin.families.users import Mechanism, NewCredential, OldCredential
from barnabas.client.errors import BrokerError, UnsupportedByBroker
from barnabas.console.asking import Ask, Done
from barnabas.console.pages.access.asked import answer_of
from barnabas.console.pages.access.tokens import expire_token, read_tokens, renew_token
from barnabas.console.said import Refused, Said, said
from barnabas.console.site import Action, Data, Page
from barnabas.cores.acl import CLUSTER_NAME, Operation, Pattern, Permission, ResourceType
from barnabas.wire.errors import ErrorCode

TYPES: Final = tuple(kind.name.lower() for kind in ResourceType if kind is not ResourceType.ANY)
OPERATIONS: Final = tuple(op.name.lower() for op in Operation if op is not Operation.ANY)
PATTERNS: Final = ("literal", "prefixed")
QUOTAS: Final = (
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate",
)  # fmt: skip
KINDS: Final = {"user": "user", "client": "client-id", "ip": "ip"}


def row_of(rule: AclRule) -> dict[str, str]:
    """A rule as pages and the API show it."""
    return {
        "resource": rule.resource.name.lower(),
        "pattern": rule.pattern.name.lower(),
        "name": rule.name,
        "principal": rule.principal,
        "host": rule.host,
        "operation": rule.operation.name.lower(),
        "permission": rule.permission.name.lower(),
    }


async def read_rules(ask: Ask) -> Data:
    """Access rules; with resource, name and operation: who may do it; with principal: what it may do"""
    rules: Sequence[AclRule] = ()
    problem: Said | None = None
    try:
        rules = await ask.admin.acls.list()
    except BrokerError as error:
        if error.code != ErrorCode.SECURITY_DISABLED:
            raise
        problem = said(
            "This cluster checks no access rules: everybody may do everything. "
            "Set authorizer.class.name on the brokers."
        )
    principal, name = ask.text("principal"), ask.text("name")
    shown = [
        rule
        for rule in rules
        if (not principal or rule.principal in (principal, "User:*", f"User:{principal}"))
        and (not ask.text("q") or ask.text("q").lower() in f"{rule.name} {rule.principal}".lower())
    ]
    asked = None
    if name or principal:
        resource = _choice(ask, "resource", TYPES, "topic")
        operation = _choice(ask, "operation", OPERATIONS, "read")
        asked = answer_of(
            rules, ResourceType[resource.upper()], name, Operation[operation.upper()], principal
        )
    return {
        "problem": problem,
        "rules": sorted((row_of(rule) for rule in shown), key=lambda row: tuple(row.values())),
        "asked": asked,
        "types": TYPES,
        "operations": OPERATIONS,
        "patterns": PATTERNS,
        "list": {"q": ask.text("q"), "sort": "", "descending": False},
        "tab": "rules",
        "commands": [ask.command("acl", "list")],
    }


def _choice(ask: Ask, name: str, choices: Sequence[str], default: str) -> str:
    choice = ask.text(name, default).lower()
    if choice not in choices:
        raise Refused(400, said("{name} must be one of {choices}", name=name, choices=", ".join(choices)))
    return choice


def _rule(ask: Ask) -> AclRule:
    kind = ResourceType[_choice(ask, "resource", TYPES, "topic").upper()]
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else ask.required("name")
    principal = ask.required("principal")
    return AclRule(
        kind,
        name,
        principal if ":" in principal else f"User:{principal}",
        Operation[_choice(ask, "operation", OPERATIONS, "read").upper()],
        Permission[_choice(ask, "permission", ("allow", "deny"), "allow").upper()],
        Pattern[_choice(ask, "pattern", PATTERNS, "literal").upper()],
        ask.text("host", "*"),
    )


def _acl_command(ask: Ask, verb: str, rule: AclRule) -> tuple[str, ...]:
    options = {
        ResourceType.TOPIC: "--topic", ResourceType.GROUP: "--group", ResourceType.TRANSACTIONAL_ID: "--txn",
    }  # fmt: skip
    where = options.get(rule.resource)
    if (where is None and rule.resource is not ResourceType.CLUSTER) or not rule.principal.startswith(
        "User:"
    ):
        return ()
    name = rule.name + ("*" if rule.pattern is Pattern.PREFIXED else "")
    words = [rule.operation.name.lower().replace("_", "-"), *([where, name] if where else ["--cluster"])]
    words += ["--user", rule.principal.removeprefix("User:")]
    words += ["--host", rule.host] if rule.host != "*" and verb == "add" else []
    words += ["--deny"] if rule.permission is Permission.DENY else []
    return (ask.command("acl", verb, *words),)


async def add_rule(ask: Ask) -> Done:
    """Add an access rule: resource, pattern, name, principal, operation, permission, host"""
    rule = _rule(ask)
    (await ask.admin.acls.create([rule])).require()
    return Done(said("The rule is added"), "/access", {"rule": row_of(rule)}, _acl_command(ask, "add", rule))


async def remove_rule(ask: Ask) -> Done:
    """Remove an access rule: the same fields"""
    rule = _rule(ask)
    which = AclFilter(
        rule.resource, rule.name, rule.principal, rule.operation, rule.permission, rule.pattern, rule.host
    )
    removed = (await ask.admin.acls.delete([which])).require()[which]
    if not removed:
        raise Refused(404, said("There is no such rule"))
    return Done(
        said("The rule is removed"), "/access", {"rule": row_of(rule)}, _acl_command(ask, "remove", rule)
    )


# --- users and quotas ------------------------------------------------------------------------------------


async def read_users(ask: Ask) -> Data:
    """Users whose passwords the cluster checks (SCRAM), and quotas of users, clients and addresses"""
    users: list[dict[str, Any]] = []
    quotas: list[dict[str, Any]] = []
    problems: list[Said] = []
    try:
        users_described = await ask.admin.users.describe()
        users = [
            {
                "name": name,
                "mechanisms": [f"{c.mechanism.name.replace('_', '-')}, {c.iterations}" for c in credentials],
            }
            for name, credentials in sorted(users_described.done.items())
        ]
    except (BrokerError, UnsupportedByBroker) as error:
        problems.append(said("Users cannot be listed: {reason}", reason=str(error)))
    try:
        limits = await ask.admin.quotas.describe()
        quotas = [
            {
                "entity": dict(entity.names),
                "limits": dict(sorted(values.items())),
            }
            for entity, values in sorted(limits.items(), key=lambda pair: str(pair[0]))
        ]
    except (BrokerError, UnsupportedByBroker) as error:
        problems.append(said("Quotas cannot be listed: {reason}", reason=str(error)))
    return {
        "users": users,
        "quotas": quotas,
        "problems": problems,
        "limits": QUOTAS,
        "mechanisms": [one.name.replace("_", "-") for one in Mechanism if one.value > 0],
        "tab": "users",
        "commands": [ask.command("quota", "list")],
    }


def _mechanism(ask: Ask) -> Mechanism:
    names = {one.name.replace("_", "-"): one for one in Mechanism if one.value > 0}
    name = ask.text("mechanism", "SCRAM-SHA-512").upper()
    if name not in names:
        raise Refused(
            400, said("{name} must be one of {choices}", name="mechanism", choices=", ".join(names))
        )
    return names[name]


async def set_user(ask: Ask) -> Done:
    """Set a user's password: user, password, mechanism; only a hash of it is sent to the cluster"""
    user, password = ask.required("user"), ask.raw("password") or ""
    if not password:
        raise Refused(400, said("{name} is missing", name="password"))
    new = NewCredential(user, password, _mechanism(ask))
    (await ask.admin.users.alter([new])).require()
    return Done(said("The password of {user} is set", user=user), "/access/users", {"user": user})


async def remove_user(ask: Ask) -> Done:
    """Delete a user's password: user, mechanism"""
    user = ask.required("user")
    (await ask.admin.users.alter((), [OldCredential(user, _mechanism(ask))])).require()
    return Done(said("The password of {user} is deleted", user=user), "/access/users", {"user": user})


async def set_quota(ask: Ask) -> Done:
    """Set a quota: user, client, ip (`default` for all others), limit, value; without a value it is removed"""
    names = {KINDS[field]: ask.text(field) for field in KINDS if ask.text(field)}
    if not names:
        raise Refused(400, said("Name a user, a client or an address"))
    limit = _choice(ask, "limit", QUOTAS, "")
    value: float | None = None
    if ask.text("value"):
        try:
            value = float(ask.text("value"))
        except ValueError:
            raise Refused(400, said("{value} is not a number", value=ask.text("value")[:40])) from None
    entity = QuotaEntity.of({kind: None if name == "default" else name for kind, name in names.items()})
    (await ask.admin.quotas.alter({entity: {limit: value}})).require()
    words = ["unset", limit] if value is None else ["set", f"{limit}={value:g}"]
    for kind, name in names.items():
        words += [{"user": "--user", "client-id": "--client", "ip": "--ip"}[kind], name]
    what = said("The quota is removed") if value is None else said("The quota is set")
    return Done(what, "/access/users", {"entity": names, limit: value}, (ask.command("quota", *words),))


PAGES: Final = (
    Page(
        "access", "/access", "access", read_rules,
        actions=(Action("/access/rules", add_rule), Action("/access/rules/remove", remove_rule)),
    ),
    Page(
        "access", "/access/users", "access", read_users, template="users.html",
        actions=(
            Action("/access/users/set", set_user), Action("/access/users/remove", remove_user),
            Action("/access/quotas", set_quota),
        ),
    ),
    Page(
        "access", "/access/tokens", "access", read_tokens, template="tokens.html",
        actions=(Action("/access/tokens/renew", renew_token), Action("/access/tokens/expire", expire_token)),
    ),
)  # fmt: skip
