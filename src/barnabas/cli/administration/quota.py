"""`barnabas quota`: limits of users, clients and addresses."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from barnabas.admin import QuotaEntity, QuotaFilter
from barnabas.admin.families.quotas import LIMITS
from barnabas.terminal.administering import administer
from barnabas.terminal.errors import EXIT_OK, CliError, UsageError
from barnabas.terminal.options import AsJson, Bootstrap, Properties
from barnabas.terminal.output import print_json, print_table
from barnabas.terminal.properties import parse_pairs
from barnabas.terminal.runner import example, new_app

app = new_app("Show and change the quotas of users, clients and addresses.")

User = Annotated[
    str | None, typer.Option("-u", "--user", metavar="NAME", help="`default`: every user without its own.")
]
Client = Annotated[
    str | None,
    typer.Option("-c", "--client", metavar="ID", help="`default`: every client id without its own."),
]
Address = Annotated[
    str | None, typer.Option("-i", "--ip", metavar="ADDRESS", help="`default`: every address.")
]


Entity = dict[str, str | None]
"""Kind (user, client-id, ip) to name; None is the kind's default."""
KINDS: Final = (("user",), ("client-id",), ("user", "client-id"), ("ip",))
"""The kinds of entities that have quotas."""
TITLES: Final = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}


def title(entity: Entity) -> str:
    """`user-principal 'alice', the default client-id`: as Kafka's tools name it."""
    order = [kind for kind in ("user", "client-id", "ip") if kind in entity]
    return ", ".join(
        f"the default {TITLES[kind]}" if entity[kind] is None else f"{TITLES[kind]} '{entity[kind]}'"
        for kind in order
    )


def entity_of(user: str | None, client: str | None, address: str | None) -> Entity:
    """The entity that the options name; `default` becomes None. Raises UsageError."""
    names = {"user": user, "client-id": client, "ip": address}
    entity: Entity = {
        kind: None if name == "default" else name for kind, name in names.items() if name is not None
    }
    if not entity or ("ip" in entity and len(entity) > 1):
        raise UsageError("name a user, client id or address: --user, --client, both, or --ip")
    return entity


@app.command("list", epilog=example("barnabas quota list"))
def list_quotas(bootstrap: Bootstrap = None, properties: Properties = None, json: AsJson = False) -> int:
    """List all quotas."""
    rows: list[dict[str, Any]] = []
    with administer(bootstrap, properties) as admin:
        for wanted in KINDS:
            quotas = admin.quotas.describe([QuotaFilter(kind) for kind in wanted], strict=True)
            for entity, values in quotas.items():
                named = {kind: "default" if name is None else name for kind, name in entity.names.items()}
                rows += [
                    {"user": named.get("user"), "client": named.get("client-id"), "ip": named.get("ip"),
                     "quota": name, "value": value}
                    for name, value in sorted(values.items())
                ]  # fmt: skip
    if json:
        print_json(rows)
    else:
        print_table(("USER", "CLIENT", "IP", "QUOTA", "VALUE"), [list(row.values()) for row in rows])
    return EXIT_OK


@app.command("set", epilog=example("barnabas quota set --client noisy producer_byte_rate=1048576"))
def set_quotas(
    pairs: Annotated[
        list[str],
        typer.Argument(metavar="QUOTA=NUMBER", help=f"{', '.join(LIMITS)}.", show_default=False),
    ],
    user: User = None,
    client: Client = None,
    address: Address = None,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    json: AsJson = False,
) -> int:
    """Set quotas of one user, client id, both, or address."""
    entity = entity_of(user, client, address)
    return change(bootstrap, properties, entity, dict(parse_pairs(pairs, "quota")), [], json)


@app.command(epilog=example("barnabas quota unset --client noisy producer_byte_rate"))
def unset(
    names: Annotated[list[str], typer.Argument(metavar="QUOTA", show_default=False)],
    user: User = None,
    client: Client = None,
    address: Address = None,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    json: AsJson = False,
) -> int:
    """Remove quotas."""
    return change(bootstrap, properties, entity_of(user, client, address), {}, names, json)


def change(
    bootstrap: str | None,
    properties: list[str] | None,
    entity: Entity,
    add: dict[str, str],
    remove: list[str],
    json: bool,
) -> int:
    """Set and remove quotas and say so; the exit code. Raises CliError."""
    changes: dict[str, float | None] = dict.fromkeys(remove)
    for name, text in add.items():
        if name not in LIMITS:
            raise CliError(f"Unknown quota {name}; there are {', '.join(LIMITS)}")
        try:
            changes[name] = float(text)
        except ValueError:
            raise CliError(f"Cannot parse quota configuration value for {name}: {text}") from None
    with administer(bootstrap, properties) as admin:
        admin.quotas.alter({QuotaEntity.of(entity): changes}).require()
    if json:
        named = {kind: "default" if name is None else name for kind, name in entity.items()}
        print_json({"entity": named, "set": add, "unset": remove})
    else:
        print(f"{'set' if add else 'removed'} quotas of {title(entity)}")
    return EXIT_OK
