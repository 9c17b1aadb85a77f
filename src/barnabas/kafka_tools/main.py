"""Chooses the tool: by the name under which it was started, by `barnabas kafka TOOL`, or by its Java class.

kafka-topics --list ...           kafka-topics.sh --list ...
barnabas kafka topics --list ...
kafka-run-class kafka.tools.DumpLogSegments --files ...
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.terminal.ending import end_process
from barnabas.terminal.errors import EXIT_OK, EXIT_USAGE


class Tool(NamedTuple):
    """One tool. `module` has `main(arguments) -> int`; classes: the names that kafka-run-class knows it by."""

    name: str
    module: str
    help: str
    classes: tuple[str, ...] = ()


TOOLS: Final = (
    Tool("kafka-topics", "topics.topics", "Create, list, describe, alter, delete topics.", ("TopicCommand",)),
    Tool(
        "kafka-configs", "configs.configs", "Options of topics, brokers, groups; quotas.", ("ConfigCommand",)
    ),
    Tool(
        "kafka-console-producer",
        "records.console_producer",
        "Lines of standard input to a topic.",
        ("ConsoleProducer",),
    ),
    Tool(
        "kafka-console-consumer",
        "records.console_consumer",
        "Records of a topic to the screen.",
        ("ConsoleConsumer",),
    ),
    Tool(
        "kafka-consumer-groups",
        "groups.consumer_groups",
        "List, describe, reset, delete consumer groups.",
        ("ConsumerGroupCommand",),
    ),
    Tool("kafka-get-offsets", "topics.get_offsets", "Offsets of topics, by time.", ("GetOffsetShell",)),
    Tool(
        "kafka-delete-records",
        "topics.delete_records",
        "Delete records before an offset.",
        ("DeleteRecordsCommand",),
    ),
    Tool("kafka-log-dirs", "storage.log_dirs", "Sizes of partitions on disk.", ("LogDirsCommand",)),
    Tool("kafka-dump-log", "storage.dump_log", "Decode segment and index files.", ("DumpLogSegments",)),
    Tool(
        "kafka-broker-api-versions",
        "cluster.api_versions",
        "Versions that brokers serve.",
        ("BrokerApiVersionsCommand",),
    ),
    Tool("kafka-cluster", "cluster.cluster", "Cluster id and endpoints.", ("ClusterTool",)),
    Tool("kafka-jmx", "cluster.jmx", "Metrics of a broker by their MBeans.", ("JmxTool",)),
    Tool("kafka-groups", "groups.groups", "List groups of every type.", ("GroupsCommand",)),
    Tool(
        "kafka-share-groups",
        "groups.share_groups",
        "List, describe, reset, delete share groups.",
        ("ShareGroupCommand",),
    ),
    Tool(
        "kafka-console-share-consumer",
        "records.console_share_consumer",
        "Records of a topic to the screen, as a member of a share group.",
        ("ConsoleShareConsumer",),
    ),
    Tool("kafka-acls", "security.acls", "Who may do what.", ("AclCommand",)),
    Tool(
        "kafka-transactions",
        "cluster.transactions",
        "Transactions under way; end those that hang.",
        ("TransactionsCommand",),
    ),
    Tool(
        "kafka-leader-election",
        "cluster.leader_election",
        "Elect preferred or unclean leaders.",
        ("LeaderElectionCommand",),
    ),
    Tool(
        "kafka-reassign-partitions",
        "reassignment.reassign",
        "Move replicas between brokers and log dirs.",
        ("ReassignPartitionsCommand",),
    ),
    Tool("kafka-features", "cluster.features", "Feature levels of the cluster.", ("FeatureCommand",)),
    Tool("kafka-storage", "storage.storage", "Format log dirs; make a cluster id.", ("StorageTool",)),
    Tool(
        "kafka-client-metrics",
        "configs.client_metrics",
        "Which metrics clients send.",
        ("ClientMetricsCommand",),
    ),
    Tool(
        "kafka-metadata-quorum",
        "cluster.metadata_quorum",
        "The quorum of a KRaft cluster.",
        ("MetadataQuorumCommand",),
    ),
    Tool(
        "kafka-delegation-tokens",
        "security.delegation_tokens",
        "Create, renew, expire, list tokens.",
        ("DelegationTokenCommand",),
    ),
    Tool(
        "kafka-producer-perf-test", "measuring.producer_perf", "Measure producing.", ("ProducerPerformance",)
    ),
    Tool(
        "kafka-consumer-perf-test", "measuring.consumer_perf", "Measure consuming.", ("ConsumerPerformance",)
    ),
    Tool("kafka-e2e-latency", "measuring.e2e_latency", "Measure from send to receive.", ("EndToEndLatency",)),
    Tool(
        "kafka-verifiable-producer",
        "measuring.verifiable_producer",
        "Produce numbers, report acks.",
        ("VerifiableProducer",),
    ),
    Tool(
        "kafka-verifiable-consumer",
        "measuring.verifiable_consumer",
        "Consume, report what happens.",
        ("VerifiableConsumer",),
    ),
    Tool(
        "kafka-streams-application-reset",
        "groups.streams_reset",
        "Let a Kafka Streams application begin anew.",
        ("StreamsResetter",),
    ),
    Tool(
        "kafka-streams-groups",
        "groups.streams_groups",
        "List, describe, reset, delete streams groups.",
        ("StreamsGroupCommand",),
    ),
    Tool(
        "kafka-replica-verification",
        "cluster.replica_verification",
        "Compare the replicas of partitions.",
        ("ReplicaVerificationTool",),
    ),
    Tool(
        "kafka-mirror-maker",
        "records.mirror_maker",
        "Copy topics from one cluster to another.",
        ("MirrorMaker",),
    ),
    Tool("kafka-server-start", "servers.server_start", "Start a broker.", ("Kafka",)),
    Tool("kafka-server-stop", "servers.server_stop", "Stop the brokers of this machine."),
    Tool("kafka-run-class", "run_class", "Run a tool by its Java class."),
)
BY_NAME: Final = {
    **{tool.name: tool for tool in TOOLS},
    "kafka-replica-validation": Tool("kafka-replica-validation", "cluster.replica_verification", ""),
    "kafka-preferred-replica-election": Tool(
        "kafka-preferred-replica-election", "cluster.preferred_election", ""
    ),
}
"""The tools, and two names that books use and that Kafka no longer has."""

OF_CLASSES: Final = {
    **{name: tool.module for tool in TOOLS for name in tool.classes},
    "ExportZkOffsets": "groups.zk_offsets",
    "ImportZkOffsets": "groups.zk_offsets",
    "ConsumerOffsetChecker": "groups.offset_checker",
}
"""Modules by Java class, without its package."""


def overview() -> str:
    """What `barnabas kafka --help` prints."""
    width = max(len(tool.name) for tool in TOOLS)
    lines = "\n".join(f"  {tool.name.removeprefix('kafka-'):<{width}}{tool.help}" for tool in TOOLS)
    return (
        "Usage: barnabas kafka TOOL [OPTIONS]\n\n"
        "Kafka's own tools: each is also a command of its own, e.g. kafka-topics or kafka-topics.sh.\n\n"
        f"Tools:\n{lines}\n\n"
        "Example:\n  barnabas kafka topics --list --bootstrap-server localhost:9092\n"
    )


def run(name: str, arguments: Sequence[str]) -> int:
    """Run one tool; its exit code."""
    tool = BY_NAME[name]
    module = importlib.import_module(f"barnabas.kafka_tools.{tool.module}")
    from barnabas.kafka_tools.shared.common import guarded

    return guarded(tool.name, module.main, list(arguments))


def main(arguments: Sequence[str] | None = None) -> int:
    """`barnabas kafka TOOL ...` when called with arguments, else the script that was started."""
    if arguments is not None:
        name = arguments[0] if arguments else "--help"
        if name in ("-h", "--help"):
            print(overview(), end="")
            return EXIT_OK
        name = name.removesuffix(".sh")
        name = name if name.startswith("kafka-") else f"kafka-{name}"
        if name not in BY_NAME:
            print(
                f"barnabas kafka: no tool {arguments[0]!r}; `barnabas kafka --help` lists them",
                file=sys.stderr,
            )
            return EXIT_USAGE
        return run(name, arguments[1:])
    return run(Path(sys.argv[0]).name.removesuffix(".sh"), sys.argv[1:])


def script() -> None:
    """Entry point of every kafka-* script."""
    end_process(Path(sys.argv[0]).name.removesuffix(".sh"), main)
