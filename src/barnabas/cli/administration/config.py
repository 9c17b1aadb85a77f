"""`barnabas config`: options of topics, brokers, groups and client metrics."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from barnabas.cli.direct import direct
from barnabas.config.dynamic import unknown_broker_names
from barnabas.kafka_tools import configs
from barnabas.terminal.connection import parse_pairs
from barnabas.terminal.errors import EXIT_OK, UsageError
from barnabas.terminal.options import AsJson, Bootstrap, Properties
from barnabas.terminal.output import note, print_json, print_table
from barnabas.terminal.runner import example, new_app
from barnabas.terminal.units import plain_value, topic_settings
from barnabas.wire.messages.describe_configs import SOURCES

app = new_app("Show and change options of topics, brokers and groups; write sample files.")

KINDS: Final = {
    "topic": "topics",
    "broker": "brokers",
    "group": "groups",
    "logger": "broker-loggers",
    "metrics": "client-metrics",
}
Kind = Annotated[
    str, typer.Argument(metavar="KIND", help="topic, broker, group, logger or metrics.", show_default=False)
]
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Its name or id; `default` for all brokers.", show_default=False),
]


def entity_of(kind: str, name: str) -> configs.Entity:
    """What KIND and NAME mean. Raises UsageError."""
    if kind not in KINDS:
        raise UsageError(f"KIND is {kind!r}, but must be one of: {', '.join(KINDS)}")
    return configs.Entity(KINDS[kind], "" if kind == "broker" and name == "default" else name)


@app.command(
    epilog=example("barnabas config describe topic orders", "barnabas config describe broker 0 --all")
)
def describe(
    kind: Kind,
    name: Name,
    everything: Annotated[
        bool, typer.Option("-a", "--all", help="Also show options that are not set.")
    ] = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    json: AsJson = False,
) -> int:
    """Show options with where their values come from."""
    entity = entity_of(kind, name)
    with direct(bootstrap, properties) as admin:
        entries = configs.read_configs(admin, entity, entity.name or "")
    own = configs.own_sources(entity.kind, entity.name or "")
    rows: list[dict[str, Any]] = [
        {
            "name": entry.name,
            "value": None if entry.is_sensitive else entry.value,
            "source": SOURCES.get(entry.config_source, "UNKNOWN").removesuffix("_CONFIG").lower(),
            "read_only": entry.read_only,
        }
        for entry in entries
        if everything or entry.config_source in own
    ]
    if json:
        print_json(rows)
    else:
        print_table(("NAME", "VALUE", "SOURCE"), [(row["name"], row["value"], row["source"]) for row in rows])
    return EXIT_OK


@app.command(
    "set", epilog=example("barnabas config set topic orders retention.ms=3600000 cleanup.policy=compact")
)
def set_options(
    kind: Kind,
    name: Name,
    pairs: Annotated[list[str], typer.Argument(metavar="NAME=VALUE", show_default=False)],
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    json: AsJson = False,
) -> int:
    """Set options."""
    given = dict(parse_pairs(pairs, "option"))
    wanted = (
        topic_settings(given)
        if kind == "topic"
        else {key: plain_value(key, text) for key, text in given.items()}
    )
    for option in unknown_broker_names(wanted) if kind == "broker" else ():
        note(
            f"{option} is not an option of Barnabas: it is stored, shown without its value, and has no effect"
        )
    return change(bootstrap, properties, entity_of(kind, name), wanted, [], json)


@app.command(epilog=example("barnabas config unset topic orders retention.ms"))
def unset(
    kind: Kind,
    name: Name,
    options: Annotated[list[str], typer.Argument(metavar="OPTION", show_default=False)],
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    json: AsJson = False,
) -> int:
    """Put options back to their defaults."""
    return change(bootstrap, properties, entity_of(kind, name), {}, options, json)


def change(
    bootstrap: str | None,
    properties: list[str] | None,
    entity: configs.Entity,
    add: dict[str, str],
    remove: list[str],
    json: bool,
) -> int:
    """Set and remove options and say so; the exit code. Raises CliError."""
    with direct(bootstrap, properties) as admin:
        if json:
            configs.require_known(admin, entity, remove)
            configs.change(admin, entity, add, remove)
            print_json({"kind": entity.kind, "name": entity.name, "set": add, "unset": remove})
        else:
            configs.alter(admin, entity, add, remove)
    return EXIT_OK
