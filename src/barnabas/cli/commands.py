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
    Command("start", "barnabas.local.start", "Start a broker.", plain=True),
    Command("stop", "barnabas.cli.clusters.stop", "Stop the brokers of this machine.", plain=True),
    Command(
        "status",
        "barnabas.cli.clusters.status",
        "Show which brokers run here, and whether the cluster answers.",
    ),
    Command(
        "topic",
        "barnabas.cli.topics.topic",
        "Create, list, describe, alter, delete and trim topics.",
        also=("barnabas.cli.topics.topic_records", "barnabas.cli.topics.topic_bin"),
    ),
    Command(
        "produce", "barnabas.cli.records.produce", "Send lines of standard input or of files to a topic."
    ),
    Command("consume", "barnabas.cli.records.consume", "Write records of topics to standard output."),
    Command(
        "group",
        "barnabas.cli.groups.group",
        "List, describe, delete consumer groups; move their offsets.",
        also=("barnabas.cli.groups.group_reset", "barnabas.cli.groups.lag"),
    ),
    Command(
        "cluster",
        "barnabas.cli.clusters.cluster",
        "Show a cluster; start and stop one on this machine.",
        also=("barnabas.cli.clusters.cluster_processes",),
    ),
    Command(
        "mirror",
        "barnabas.cli.mirroring.mirror",
        "Copy topics of another cluster with their offsets; fail over to the copies.",
        also=(
            "barnabas.cli.mirroring.verify",
            "barnabas.cli.mirroring.returning",
            "barnabas.cli.mirroring.maker",
        ),
    ),
    Command("zookeeper", "barnabas.cli.clusters.zookeeper", "Run ZooKeeper on this machine."),
    Command(
        "clients",
        "barnabas.cli.administration.clients",
        "Show connected clients and the versions they speak.",
    ),
    Command(
        "metrics",
        "barnabas.cli.administration.metrics",
        "Show a broker's metrics by Kafka's names, and what a monitor has kept.",
        also=("barnabas.cli.monitoring.history",),
    ),
    Command(
        "config",
        "barnabas.cli.administration.config",
        "Show and change options of topics, brokers and groups; write sample files.",
        also=("barnabas.cli.administration.config_samples",),
    ),
    Command(
        "quota",
        "barnabas.cli.administration.quota",
        "Show and change the quotas of users, clients and addresses.",
    ),
    Command("acl", "barnabas.cli.administration.acl", "Show and change who may do what."),
    Command(
        "security",
        "barnabas.cli.administration.security",
        "Make certificates and users; see what a broker leaves open.",
    ),
    Command("txn", "barnabas.cli.administration.txn", "Show transactions, and end those that hang."),
    Command(
        "log",
        "barnabas.cli.logs.log",
        "Partitions on the brokers' disks: sizes, moves, what segment files hold.",
    ),
    Command("perf", "barnabas.cli.records.perf", "Measure producing, consuming, and from send to receive."),
    Command("verify", "barnabas.cli.verify", "Find losses, repeats, and damage on the brokers' disks."),
    Command("agent", "barnabas.cli.agent", "Ship the lines of growing files into a topic."),
    Command("logs", "barnabas.cli.log_search.logs", "Find lines in logs, in topics and in tables."),
    Command("profile", "barnabas.cli.administration.profile", "Show the clusters that are known by name."),
    Command(
        "pipeline",
        "barnabas.cli.pipelines.pipeline",
        "Run a pipeline on Spark; preview it; replay its dead letters.",
        also=("barnabas.cli.pipelines.pipeline_records",),
    ),
    Command("pipelines", "barnabas.cli.pipelines.pipelines", "Run many pipelines in one server."),
    Command("streams", "barnabas.cli.streams.streams", "Run and describe streams in Python."),
    Command("sql", "barnabas.cli.sql.sql", "SQL on streams: a shell, and its server."),
    Command(
        "connect",
        "barnabas.cli.connect.connect",
        "Run and change connectors: Kafka Connect's worker.",
        also=("barnabas.cli.connect.new",),
    ),
    Command("console", "barnabas.cli.http.console", "See and change clusters in a browser."),
    Command("mcp", "barnabas.cli.http.mcp", "Let an assistant see clusters, by the Model Context Protocol."),
    Command(
        "alerts", "barnabas.cli.monitoring.alerts", "Check rules of alerts; list alerts; test receivers."
    ),
    Command(
        "top", "barnabas.cli.monitoring.top", "Show hot topics, partitions and groups on the whole screen."
    ),
    Command(
        "monitor", "barnabas.cli.http.monitor", "Show how clusters and groups do, over HTTP, as Burrow does."
    ),
    Command("rest", "barnabas.cli.http.rest", "Serve topics over HTTP: the REST proxy."),
    Command("reporting", "barnabas.cli.http.reporting", "Take messages over HTTP: access points, web hooks."),
    Command("registry", "barnabas.cli.http.registry", "Serve a schema registry."),
    Command("schema", "barnabas.cli.http.schema", "Register, show, check and move schemas."),
    Command(
        "kafka", "barnabas.kafka_tools.main", "Kafka's own tools: kafka-topics and the others.", plain=True
    ),
    Command(
        "debug",
        "barnabas.cli.debugging.debug",
        "Collect what is needed to find a fault; show slow requests.",
        also=("barnabas.cli.debugging.slow",),
    ),
    Command(
        "import",
        "barnabas.cli.clusters.importing",
        "Make a data directory of those of Apache Kafka.",
    ),
    Command(
        "recover",
        "barnabas.cli.clusters.recover",
        "Restore the metadata of a broker after its file was lost.",
    ),
    Command("completion", "barnabas.cli.completion", "Print the script for shell completion.", plain=True),
)
BY_NAME: Final = {command.name: command for command in COMMANDS}
