"""The table of commands: plain data, read by the dispatcher and by the shell completion."""

from __future__ import annotations

import importlib
from typing import Any, Final, NamedTuple


class Command(NamedTuple):
    """One command. `module` has `main(arguments) -> int` when `plain`, else a typer `app`.

    also: further modules that register subcommands on the same `app`.
    """

    name: str
    module: str
    help: str
    plain: bool = False
    also: tuple[str, ...] = ()

    def load(self) -> Any:
        """The module with all its subcommands."""
        module = importlib.import_module(self.module)
        for name in self.also:
            importlib.import_module(name)
        return module


COMMANDS: Final = (
    Command("start", "barnabas.cli.start", "Start a broker.", plain=True),
    Command("stop", "barnabas.cli.stop", "Stop the brokers of this machine.", plain=True),
    Command("status", "barnabas.cli.status", "Show which brokers run here, and whether the cluster answers."),
    Command(
        "topic",
        "barnabas.cli.topic",
        "Create, list, describe, alter, delete and trim topics.",
        also=("barnabas.cli.topic_records",),
    ),
    Command("produce", "barnabas.cli.produce", "Send lines of standard input or of files to a topic."),
    Command("consume", "barnabas.cli.consume", "Write records of topics to standard output."),
    Command(
        "group",
        "barnabas.cli.group",
        "List, describe, delete consumer groups; move their offsets.",
        also=("barnabas.cli.group_reset",),
    ),
    Command(
        "cluster",
        "barnabas.cli.cluster",
        "Show a cluster; start and stop one on this machine.",
        also=("barnabas.cli.cluster_processes",),
    ),
    Command("zookeeper", "barnabas.cli.zookeeper", "Run ZooKeeper on this machine."),
    Command("clients", "barnabas.cli.clients", "Show connected clients and the versions they speak."),
    Command("config", "barnabas.cli.config", "Show and change options of topics, brokers and groups."),
    Command("quota", "barnabas.cli.quota", "Show and change the quotas of users, clients and addresses."),
    Command("acl", "barnabas.cli.acl", "Show and change who may do what."),
    Command(
        "security", "barnabas.cli.security", "Make certificates and users; see what a broker leaves open."
    ),
    Command("txn", "barnabas.cli.txn", "Show transactions, and end those that hang."),
    Command(
        "log", "barnabas.cli.log", "Partitions on the brokers' disks: sizes, moves, what segment files hold."
    ),
    Command("perf", "barnabas.cli.perf", "Measure producing, consuming, and from send to receive."),
    Command("verify", "barnabas.cli.verify", "Find losses, repeats, and damage on the brokers' disks."),
    Command("agent", "barnabas.cli.agent.command", "Ship the lines of growing files into a topic."),
    Command("profile", "barnabas.cli.profile", "Show the clusters that are known by name."),
    Command(
        "pipeline",
        "barnabas.cli.pipeline",
        "Run a pipeline on Spark; preview it; replay its dead letters.",
        also=("barnabas.cli.pipeline_records",),
    ),
    Command("pipelines", "barnabas.cli.pipelines", "Run many pipelines in one server."),
    Command("rest", "barnabas.cli.rest", "Serve topics over HTTP: the REST proxy."),
    Command("reporting", "barnabas.cli.reporting", "Take messages over HTTP: access points, web hooks."),
    Command("registry", "barnabas.cli.registry", "Serve a schema registry."),
    Command("schema", "barnabas.cli.schema", "Register, show, check and move schemas."),
    Command(
        "kafka", "barnabas.cli.kafka.main", "Kafka's own tools: kafka-topics and the others.", plain=True
    ),
    Command("debug", "barnabas.cli.debug", "Collect what is needed to find a fault."),
    Command("recover", "barnabas.cli.recover", "Restore the metadata of a broker after its file was lost."),
    Command("completion", "barnabas.cli.completion", "Print the script for shell completion.", plain=True),
)
BY_NAME: Final = {command.name: command for command in COMMANDS}
