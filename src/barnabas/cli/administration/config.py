"""`barnabas config`: options of topics, brokers, groups and client metrics."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from barnabas.admin import ConfigKind, ConfigResource, ConfigSource, back_to_default, set_to
from barnabas.config.dynamic import unknown_broker_names
from barnabas.terminal.administering import administer
from barnabas.terminal.errors import EXIT_OK, CliError, UsageError
from barnabas.terminal.options import AsJson, Bootstrap, Properties
from barnabas.terminal.output import note, print_json, print_table
from barnabas.terminal.properties import parse_pairs
from barnabas.terminal.runner import example, new_app
from barnabas.terminal.units import plain_value, topic_settings

app = new_app("Show and change options of topics, brokers and groups; write sample files.")

KINDS: Final = {
    "topic": ConfigKind.TOPIC,
    "broker": ConfigKind.BROKER,
    "group": ConfigKind.GROUP,
    "logger": ConfigKind.BROKER_LOGGER,
    "metrics": ConfigKind.CLIENT_METRICS,
}
EntityType = Annotated[
    str, typer.Argument(metavar="KIND", help="topic, broker, group, logger or metrics.", show_default=False)
]
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Its name or id; `default` for all brokers.", show_default=False),
]


def resource_of(kind: str, name: str) -> ConfigResource:
    """What KIND and NAME mean. Raises UsageError."""
    if kind not in KINDS:
        raise UsageError(f"KIND is {kind!r}, but must be one of: {', '.join(KINDS)}")
    if kind in ("broker", "logger") and not name.isdecimal() and (kind, name) != ("broker", "default"):
        raise UsageError(f"{name!r} is not the number of a broker")
    return ConfigResource(KINDS[kind], "" if kind == "broker" and name == "default" else name)


def is_own(resource: ConfigResource, source: ConfigSource) -> bool:
    """Whether an option from this source was set for the resource itself."""
    match resource.kind:
        case ConfigKind.TOPIC:
            return source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        case ConfigKind.BROKER if resource.name:
            return source is ConfigSource.DYNAMIC_BROKER_CONFIG
        case ConfigKind.BROKER:
            return source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        case _:
            return source.name.startswith("DYNAMIC")


@app.command(
    epilog=example("barnabas config describe topic orders", "barnabas config describe broker 0 --all")
)
def describe(
    kind: EntityType,
    name: Name,
    everything: Annotated[
        bool, typer.Option("-a", "--all", help="Also show options that are not set.")
    ] = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    json: AsJson = False,
) -> int:
    """Show options with where their values come from."""
    resource = resource_of(kind, name)
    with administer(bootstrap, properties) as admin:
        configs = admin.configs.describe([resource])[resource]
    rows: list[dict[str, Any]] = [
        {
            "name": config.name,
            "value": None if config.is_sensitive else config.value,
            "source": config.source.name.removesuffix("_CONFIG").lower(),
            "read_only": config.is_read_only,
        }
        for config in sorted(configs.values(), key=lambda config: config.name)
        if everything or is_own(resource, config.source)
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
    kind: EntityType,
    name: Name,
    pairs: Annotated[list[str], typer.Argument(metavar="NAME=VALUE", show_default=False)],
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    json: AsJson = False,
) -> int:
    """Set options."""
    settings = dict(parse_pairs(pairs, "option"))
    wanted = (
        topic_settings(settings)
        if kind == "topic"
        else {key: plain_value(key, text) for key, text in settings.items()}
    )
    for option in unknown_broker_names(wanted) if kind == "broker" else ():
        note(
            f"{option} is not an option of Barnabas: it is stored, shown without its value, and has no effect"
        )
    return change(bootstrap, properties, resource_of(kind, name), wanted, [], json)


@app.command(epilog=example("barnabas config unset topic orders retention.ms"))
def unset(
    kind: EntityType,
    name: Name,
    options: Annotated[list[str], typer.Argument(metavar="OPTION", show_default=False)],
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    json: AsJson = False,
) -> int:
    """Put options back to their defaults."""
    return change(bootstrap, properties, resource_of(kind, name), {}, options, json)


def change(
    bootstrap: str | None,
    properties: list[str] | None,
    resource: ConfigResource,
    add: dict[str, str],
    remove: list[str],
    json: bool,
) -> int:
    """Set and remove options and say so; the exit code. Raises CliError."""
    with administer(bootstrap, properties) as admin:
        if remove and resource.kind in (ConfigKind.TOPIC, ConfigKind.GROUP):
            known = admin.configs.describe([resource])[resource]
            unknown = [name for name in remove if name not in known]
            if unknown:
                raise CliError(f"Invalid config(s): {','.join(unknown)}")
        admin.configs.alter({resource: [*set_to(add), *back_to_default(remove)]}).require()
    kind = f"{resource.kind.name.lower().replace('_', '-')}"
    if json:
        print_json({"kind": f"{kind.removesuffix('s')}s", "name": resource.name, "set": add, "unset": remove})
    elif resource.name:
        print(f"Completed updating config for {kind.removesuffix('s')} {resource.name}.")
    else:
        print(f"Completed updating default config for {kind}s in the cluster.")
    return EXIT_OK
