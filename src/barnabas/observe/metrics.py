"""The metrics of a broker, declared once: what Kafka calls them, what Prometheus calls them, their unit and meaning.

Names in Prometheus are those that the JMX exporter's example configuration for Kafka makes of Kafka's names, so that
existing dashboards find them.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Metric(NamedTuple):
    """One metric. mbean, attribute: Kafka's names. name: Prometheus's, which ends with _total for a number that only grows.

    unit: of the value. labels: their names.
    """

    mbean: str
    attribute: str
    name: str
    unit: str
    help: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """A value of a metric now. labels: their values."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


PARTITION: Final = ("topic", "partition")


def _replicas(name: str, help: str, unit: str = "partitions") -> Metric:
    prometheus = f"kafka_server_replicamanager_{name.lower()}"
    return Metric(f"kafka.server:type=ReplicaManager,name={name}", "Value", prometheus, unit, help)


def _controller(name: str, help: str, unit: str) -> Metric:
    prometheus = f"kafka_controller_kafkacontroller_{name.lower()}"
    return Metric(f"kafka.controller:type=KafkaController,name={name}", "Value", prometheus, unit, help)


def _log(name: str, help: str, unit: str) -> Metric:
    mbean = f"kafka.log:type=Log,name={name},topic=TOPIC,partition=N"
    return Metric(mbean, "Value", f"kafka_log_log_{name.lower()}", unit, help, PARTITION)


PARTITION_COUNT: Final = _replicas("PartitionCount", "Partitions of which this broker has a replica.")
LEADER_COUNT: Final = _replicas("LeaderCount", "Partitions that this broker leads.")
UNDER_REPLICATED: Final = _replicas(
    "UnderReplicatedPartitions", "Partitions that this broker leads and that lack a replica in sync."
)
UNDER_MIN_ISR: Final = _replicas(
    "UnderMinIsrPartitionCount",
    "Partitions that this broker leads with fewer replicas in sync than min.insync.replicas.",
)
OFFLINE_REPLICAS: Final = _replicas(
    "OfflineReplicaCount", "Replicas of this broker whose log dir has failed."
)
ACTIVE_CONTROLLER: Final = _controller(
    "ActiveControllerCount", "1 on the broker that is the controller, 0 on the others.", "brokers"
)
OFFLINE_PARTITIONS: Final = _controller(
    "OfflinePartitionsCount",
    "Partitions without a leader; 0 where this broker is not the controller.",
    "partitions",
)
TOPIC_COUNT: Final = _controller("GlobalTopicCount", "Topics of the cluster.", "topics")
GLOBAL_PARTITION_COUNT: Final = _controller(
    "GlobalPartitionCount", "Partitions of the cluster.", "partitions"
)
LOG_SIZE: Final = _log("Size", "Size of a partition's log on this broker.", "bytes")
LOG_START: Final = _log("LogStartOffset", "Offset of the first record of a log.", "offset")
LOG_END: Final = _log("LogEndOffset", "Offset of the next record of a log.", "offset")
CONNECTIONS: Final = Metric(
    "kafka.server:type=socket-server-metrics,listener=NAME",
    "connection-count",
    "kafka_server_socket_server_metrics_connection_count",
    "connections",
    "Open connections of clients and brokers.",
    ("listener",),
)
MESSAGES_IN: Final = Metric(
    "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=TOPIC",
    "Count",
    "kafka_server_brokertopicmetrics_messagesin_total",
    "messages",
    "Messages appended by this broker as leader since its start, transaction markers included.",
    ("topic",),
)

METRICS: Final = (
    MESSAGES_IN,
    PARTITION_COUNT,
    LEADER_COUNT,
    UNDER_REPLICATED,
    UNDER_MIN_ISR,
    OFFLINE_REPLICAS,
    ACTIVE_CONTROLLER,
    OFFLINE_PARTITIONS,
    TOPIC_COUNT,
    GLOBAL_PARTITION_COUNT,
    LOG_SIZE,
    LOG_START,
    LOG_END,
    CONNECTIONS,
)


def table() -> str:
    """The metrics as a table in Markdown, for docs/monitoring.md."""
    rows = ["| Prometheus | labels | unit | Kafka's name | what |", "|---|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {labels} | {metric.unit} | `{metric.mbean}` | {metric.help} |")
    return "\n".join(rows)
