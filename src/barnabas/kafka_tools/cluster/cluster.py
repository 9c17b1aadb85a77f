"""kafka-cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from barnabas.admin import Admin, ResourceError
from barnabas.client.errors import UnsupportedByBroker
from barnabas.kafka_tools.shared.common import ToolError, connect, java_text, parse, say
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Tool
from barnabas.kafka_tools.shared.subcommands import need, subcommand
from barnabas.terminal.errors import EXIT_OK

PROGRAM: Final = "kafka-cluster"
SERVER: Final = "[--config CONFIG] --bootstrap-server HOST:PORT"
CHOICES: Final = {
    "cluster-id": SERVER,
    "unregister": f"{SERVER} --id ID",
    "list-endpoints": f"{SERVER} [--include-fenced-brokers]",
}
TOOL: Final = Tool(
    f"The Kafka cluster tool.\nCommands: {', '.join(CHOICES)}",
    (
        *(option for option in COMMON if option.name != "bootstrap-server"),
        Opt("bootstrap-server", "The brokers: HOST1:PORT1,HOST2:PORT2.", "String: server", aliases=("b",)),
        Opt("bootstrap-controller", "Controllers instead.", "String: controller", aliases=("C",), old=True),
        Opt("config", "The old name of --command-config.", "String: file", aliases=("c",), old=True),
        Opt("id", "unregister: the broker's id.", "ID", aliases=("i",)),
        Opt("include-fenced-brokers", "list-endpoints: those that are fenced, too."),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Run one command; the exit code."""
    parsed = parse(TOOL, arguments)
    command = subcommand(PROGRAM, CHOICES, parsed)
    for new, old in (("bootstrap-server", "bootstrap-controller"), ("command-config", "config")):
        if old in parsed:
            parsed.values.setdefault(new, parsed.all(old))
    if command == "unregister":
        need(PROGRAM, parsed, "id")
    admin = connect(parsed)
    try:
        match command:
            case "cluster-id":
                show_id(admin)
            case "unregister":
                unregister(admin, parsed.number("id", -1))
            case _:
                list_endpoints(admin, "bootstrap-controller" in parsed, "include-fenced-brokers" in parsed)
    except ResourceError as error:
        raise ToolError(java_text(error)) from None
    return EXIT_OK


def show_id(admin: Admin) -> None:
    """Print the cluster's id."""
    cluster_id = admin.cluster.describe().id
    if cluster_id:
        print(f"Cluster ID: {cluster_id}")
    else:
        say("No cluster ID found. The Kafka version is probably too old.")


def unregister(admin: Admin, broker: int) -> None:
    """Forget a broker that is gone for good. Raises ResourceError."""
    try:
        admin.cluster.unregister(broker)
    except UnsupportedByBroker:
        say("The target cluster does not support the broker unregistration API.")
        return
    print(f"Broker {broker} is no longer registered.")


def list_endpoints(admin: Admin, controllers: bool, fenced: bool) -> None:
    """Where the brokers, or the controllers, listen. Raises ResourceError."""
    brokers = admin.cluster.describe(fenced=fenced, controllers=controllers).brokers
    heads = ["ID", "HOST", "PORT", "RACK", *([] if controllers else ["STATE"]), "ENDPOINT_TYPE"]
    width = max([4, *(len(broker.host) for broker in brokers)])
    fills = [10, width, 10, 10, *([] if controllers else [10]), 15]
    rows: list[list[Any]] = [heads]
    for broker in brokers:
        state = [] if controllers else ["fenced" if broker.is_fenced else "unfenced"]
        kind = "controller" if controllers else "broker"
        rows.append([broker.id, broker.host, broker.port, broker.rack or "null", *state, kind])
    for row in rows:
        print(" ".join(f"{text!s:<{fill}}" for text, fill in zip(row, fills, strict=True)))
