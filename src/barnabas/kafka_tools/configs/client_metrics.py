"""kafka-client-metrics: which metrics clients are asked to send (KIP-714)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from barnabas.admin import Admin
from barnabas.kafka_tools.configs import configs
from barnabas.kafka_tools.shared.common import checked, connect, parse
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.terminal.errors import EXIT_OK
from barnabas.wire.uuids import uuid_text

KIND: Final = "client-metrics"
ACTIONS: Final = ("alter", "delete", "describe", "list")
OPTIONS: Final = {"metrics": "metrics", "interval": "interval.ms", "match": "match"}
TOOL: Final = Tool(
    "This tool helps to manipulate and describe client metrics configurations.",
    (
        *COMMON,
        Opt("alter", "Alter the configuration of the resource."),
        Opt("delete", "Delete the configuration of the resource."),
        Opt("describe", "Print configurations."),
        Opt("list", "Print the names of the resources."),
        Opt("name", "The name of the resource.", "String: name"),
        Opt("generate-name", "Make a name."),
        Opt("metrics", "Prefixes of metric names: m1,m2; empty to reset.", "String: m1,m2"),
        Opt("interval", "How often clients send, in ms; empty to reset.", "String: push interval"),
        Opt(
            "match",
            "Which clients: client_id, client_instance_id, client_software_name, client_software_version, "
            "client_source_address, client_source_port.",
            "String: k1=v1,k2=v2",
        ),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Run one action; the exit code."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, check, parsed)
    admin = connect(parsed)
    name = parsed.get("name")
    if "list" in parsed:
        for subscription in configs.listed(admin, KIND):
            print(subscription)
    elif "describe" in parsed:
        describe(admin, name)
    elif "delete" in parsed:
        delete(admin, parsed.text("name"))
    else:
        alter(admin, parsed, name or uuid_text(uuid.uuid4()))
    return EXIT_OK


def check(parsed: Parsed) -> None:
    """Raises Refused."""
    if sum(action in parsed for action in ACTIONS) != 1:
        raise Refused("Command must include exactly one action: --alter, --delete, --describe or --list")
    if "alter" in parsed and ("name" in parsed) == ("generate-name" in parsed):
        raise Refused("One of --name or --generate-name must be specified with --alter.", False)
    if "delete" in parsed and "name" not in parsed:
        raise Refused("A client metrics resource name must be specified with --delete.", False)


def alter(admin: Admin, parsed: Parsed, name: str) -> None:
    """Set options, and reset those that were given empty. Raises ToolError."""
    options = {option: parsed.text(word) for word, option in OPTIONS.items() if word in parsed}
    resets = [option for option, value in options.items() if not value]
    configs.change(
        admin, configs.Entity(KIND, name), {o: value for o, value in options.items() if value}, resets
    )
    print(f"Altered client metrics config for {name}.")


def delete(admin: Admin, name: str) -> None:
    """Remove every option, and so the resource. Raises ToolError."""
    entity = configs.Entity(KIND, name)
    configs.change(admin, entity, {}, [entry.name for entry in configs.read_configs(admin, entity)])
    print(f"Deleted client metrics config for {name}.")


def describe(admin: Admin, name: str | None) -> None:
    """The options of one resource or of all. Raises ToolError."""
    known = configs.listed(admin, KIND)
    if name is not None and name not in known:
        print(f"The client metric resource {name} doesn't exist and doesn't have dynamic config.")
        return
    for row in known if name is None else [name]:
        print(f"Client metrics configs for {row} are:")
        for entry in configs.read_configs(admin, configs.Entity(KIND, row)):
            print(f"  {entry.name}={configs.null(entry.value)}")
