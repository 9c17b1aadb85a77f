"""`barnabas quota`: limits of users, clients and addresses."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from barnabas.cli.direct import direct
from barnabas.kafka_tools import quotas
from barnabas.terminal.connection import parse_pairs
from barnabas.terminal.errors import EXIT_OK, UsageError
from barnabas.terminal.options import AsJson, Bootstrap, Properties
from barnabas.terminal.output import print_json, print_table
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


def entity_of(user: str | None, client: str | None, address: str | None) -> quotas.Entity:
    """The entity that the options name; `default` becomes None. Raises UsageError."""
    given = {"user": user, "client-id": client, "ip": address}
    entity: quotas.Entity = {
        kind: None if name == "default" else name for kind, name in given.items() if name is not None
    }
    if not entity or ("ip" in entity and len(entity) > 1):
        raise UsageError("name a user, client id or address: --user, --client, both, or --ip")
    return entity


@app.command("list", epilog=example("barnabas quota list"))
def list_quotas(bootstrap: Bootstrap = None, properties: Properties = None, json: AsJson = False) -> int:
    """List all quotas."""
    rows: list[dict[str, Any]] = []
    with direct(bootstrap, properties) as admin:
        for wanted in ({"user": None}, {"client-id": None}, {"user": None, "client-id": None}, {"ip": None}):
            for entity, values in quotas.read(admin, wanted):
                named = {kind: "default" if name is None else name for kind, name in entity.items()}
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
        typer.Argument(metavar="QUOTA=NUMBER", help=f"{', '.join(quotas.NAMES)}.", show_default=False),
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
    entity: quotas.Entity,
    add: dict[str, str],
    remove: list[str],
    json: bool,
) -> int:
    """Set and remove quotas and say so; the exit code. Raises CliError."""
    with direct(bootstrap, properties) as admin:
        quotas.write(admin, entity, add, remove)
    if json:
        named = {kind: "default" if name is None else name for kind, name in entity.items()}
        print_json({"entity": named, "set": add, "unset": remove})
    else:
        print(f"{'set' if add else 'removed'} quotas of {quotas.title(entity)}")
    return EXIT_OK
