"""The metrics of a broker, declared once: what Kafka calls them, what Prometheus calls them, their unit and meaning.

Names and labels in Prometheus are those that the JMX exporter's example configuration for Kafka makes of Kafka's names, so
that existing dashboards find them. As there, the sum of all topics is the series with an empty label `topic`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.observe.metric import Metric

PARTITION: Final = ("topic", "partition")


def _replicas(name: str, help: str, unit: str = "partitions") -> Metric:
    prometheus = f"kafka_server_replicamanager_{name.lower()}"
    return Metric(f"kafka.server:type=ReplicaManager,name={name}", "Value", prometheus, unit, help)


def _replica_changes(name: str, help: str) -> Metric:
    prometheus = f"kafka_server_replicamanager_{name.removesuffix('PerSec').lower()}_total"
    return Metric(f"kafka.server:type=ReplicaManager,name={name}", "Count", prometheus, "changes", help)


def _controller(name: str, help: str, unit: str) -> Metric:
    prometheus = f"kafka_controller_kafkacontroller_{name.lower()}"
    return Metric(f"kafka.controller:type=KafkaController,name={name}", "Value", prometheus, unit, help)


def _session(name: str, help: str) -> Metric:
    prometheus = f"kafka_server_sessionexpirelistener_zookeeper{name.lower()}_total"
    mbean = f"kafka.server:type=SessionExpireListener,name=ZooKeeper{name}PerSec"
    return Metric(mbean, "Count", prometheus, "events", help)


def _log(name: str, help: str, unit: str) -> Metric:
    mbean = f"kafka.log:type=Log,name={name},topic={{topic}},partition={{partition}}"
    return Metric(mbean, "Value", f"kafka_log_log_{name.lower()}", unit, help, PARTITION)


def _topic(name: str, unit: str, help: str) -> Metric:
    prometheus = f"kafka_server_brokertopicmetrics_{name.lower()}_total"
    mbean = f"kafka.server:type=BrokerTopicMetrics,name={name}PerSec,topic={{topic}}"
    return Metric(mbean, "Count", prometheus, unit, help, ("topic",))


def _broker(name: str, unit: str, help: str) -> Metric:
    prometheus = f"kafka_server_brokertopicmetrics_{name.lower()}_total"
    return Metric(f"kafka.server:type=BrokerTopicMetrics,name={name}PerSec", "Count", prometheus, unit, help)


def _request(name: str, unit: str, help: str) -> Metric:
    mbean = f"kafka.network:type=RequestMetrics,name={name},request={{request}}"
    prometheus = f"kafka_network_requestmetrics_{name.lower()}"
    return Metric(mbean, "Count", prometheus, unit, help, ("request",), has_parts=True)


def _socket(attribute: str, unit: str, help: str) -> Metric:
    prometheus = f"kafka_server_socket_server_metrics_{attribute.replace('-', '_')}"
    mbean = "kafka.server:type=socket-server-metrics,listener={listener}"
    return Metric(mbean, attribute, prometheus, unit, help, ("listener",))


def _cleaner(name: str, unit: str, help: str, kind: str = "LogCleaner") -> Metric:
    prometheus = f"kafka_log_{kind.lower()}_{name.lower().replace('-', '_')}"
    return Metric(f"kafka.log:type={kind},name={name}", "Value", prometheus, unit, help)


def _groups(name: str, help: str) -> Metric:
    prometheus = f"kafka_coordinator_group_groupmetadatamanager_{name.lower()}"
    return Metric(
        f"kafka.coordinator.group:type=GroupMetadataManager,name={name}", "Value", prometheus, "groups", help
    )


MESSAGES_IN: Final = _topic(
    "MessagesIn",
    "messages",
    "Messages appended by this broker as leader since its start, transaction markers included.",
)
BYTES_IN: Final = _topic("BytesIn", "bytes", "Batches that producers have written.")
BYTES_OUT: Final = _topic("BytesOut", "bytes", "Batches that consumers have fetched.")
PRODUCE_REQUESTS: Final = _topic(
    "TotalProduceRequests", "requests", "Writes of producers, counted for each partition of a request."
)
FETCH_REQUESTS: Final = _topic(
    "TotalFetchRequests", "requests", "Reads of consumers, counted for each partition of an answer."
)
FAILED_PRODUCES: Final = _topic(
    "FailedProduceRequests", "requests", "Writes of producers that were refused or failed."
)
FAILED_FETCHES: Final = _topic("FailedFetchRequests", "requests", "Reads that were refused or failed.")
REPLICATED_IN: Final = _broker("ReplicationBytesIn", "bytes", "Batches copied from leaders.")
REPLICATED_OUT: Final = _broker("ReplicationBytesOut", "bytes", "Batches that followers have fetched.")
CONVERTED_PRODUCES: Final = _broker(
    "ProduceMessageConversions", "messages", "Messages of old producers that were converted."
)
CONVERTED_FETCHES: Final = _broker(
    "FetchMessageConversions", "messages", "Messages that were converted for old consumers."
)

REQUESTS: Final = Metric(
    "kafka.network:type=RequestMetrics,name=RequestsPerSec,request={request},version={version}",
    "Count",
    "kafka_network_requestmetrics_requests_total",
    "requests",
    "Requests by API and version.",
    ("request", "version"),
)
ERRORS: Final = Metric(
    "kafka.network:type=RequestMetrics,name=ErrorsPerSec,request={request},error={error}",
    "Count",
    "kafka_network_requestmetrics_errors_total",
    "answers",
    "Answers that refuse a whole request, by error.",
    ("request", "error"),
)
REQUEST_BYTES: Final = _request("RequestBytes", "bytes", "Size of requests.")
TIMES: Final = {
    name: _request(name, "ms", help)
    for name, help in (
        ("TotalTimeMs", "Time from a request's arrival until its answer is written to the socket."),
        ("RequestQueueTimeMs", "Part of it: waiting to be handled, behind others of the same connection."),
        ("LocalTimeMs", "Part of it: work of this broker."),
        ("RemoteTimeMs", "Part of it: waiting for followers, for records, or for other members of a group."),
        ("ThrottleTimeMs", "Pause that a quota imposes on the connection after the answer."),
        ("ResponseQueueTimeMs", "Part of it: the answer waits for the end of the turn of the event loop."),
        ("ResponseSendTimeMs", "Part of it: the answer is written to the socket."),
    )
}

PARTITION_COUNT: Final = _replicas("PartitionCount", "Partitions of which this broker has a replica.")
LEADER_COUNT: Final = _replicas("LeaderCount", "Partitions that this broker leads.")
UNDER_REPLICATED: Final = _replicas(
    "UnderReplicatedPartitions", "Partitions that this broker leads and that lack a replica in sync."
)
UNDER_MIN_ISR: Final = _replicas(
    "UnderMinIsrPartitionCount",
    "Partitions that this broker leads with fewer replicas in sync than min.insync.replicas.",
)
AT_MIN_ISR: Final = _replicas(
    "AtMinIsrPartitionCount",
    "Partitions that this broker leads with as many replicas in sync as min.insync.replicas.",
)
OFFLINE_REPLICAS: Final = _replicas(
    "OfflineReplicaCount", "Replicas of this broker whose log dir has failed."
)
ISR_SHRINKS: Final = _replica_changes("IsrShrinksPerSec", "Followers that this leader found behind.")
ISR_EXPANDS: Final = _replica_changes("IsrExpandsPerSec", "Followers that this leader found in sync again.")
ACTIVE_CONTROLLER: Final = _controller(
    "ActiveControllerCount", "1 on the broker that is the controller, 0 on the others.", "brokers"
)
OFFLINE_PARTITIONS: Final = _controller(
    "OfflinePartitionsCount",
    "Partitions without a leader; 0 where this broker is not the controller.",
    "partitions",
)
PREFERRED_IMBALANCE: Final = _controller(
    "PreferredReplicaImbalanceCount",
    "Partitions that their preferred replica does not lead; 0 where this broker is not the controller.",
    "partitions",
)
ELECTIONS: Final = Metric(
    "kafka.controller:type=ControllerStats,name=LeaderElectionRateAndTimeMs",
    "Count",
    "kafka_controller_controllerstats_leaderelectionrateandtimems",
    "ms",
    "Time that the elections after a broker came or went have taken, on the controller.",
    has_parts=True,
)
UNCLEAN_ELECTIONS: Final = Metric(
    "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
    "Count",
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "elections",
    "Elections of a leader that was not in sync, so that records were lost, by this controller.",
)
TREE_CONNECTS: Final = _session("SyncConnects", "Connections to ZooKeeper that were established.")
TREE_DISCONNECTS: Final = _session("Disconnects", "Connections to ZooKeeper that were lost.")
TREE_EXPIRES: Final = _session("Expires", "Sessions with ZooKeeper that have ended.")
ACTIVE_BROKERS: Final = _controller("ActiveBrokerCount", "Brokers that are registered.", "brokers")
TOPIC_COUNT: Final = _controller("GlobalTopicCount", "Topics of the cluster.", "topics")
GLOBAL_PARTITION_COUNT: Final = _controller(
    "GlobalPartitionCount", "Partitions of the cluster.", "partitions"
)
LOG_SIZE: Final = _log("Size", "Size of a partition's log on this broker.", "bytes")
LOG_START: Final = _log("LogStartOffset", "Offset of the first record of a log.", "offset")
LOG_END: Final = _log("LogEndOffset", "Offset of the next record of a log.", "offset")
LOG_SEGMENTS: Final = _log("NumLogSegments", "Segments of a partition's log.", "segments")
FLUSHES: Final = Metric(
    "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
    "Count",
    "kafka_log_logflushstats_logflushrateandtimems",
    "ms",
    "Time that flushing a log to disk takes.",
    has_parts=True,
)
OFFLINE_DIRS: Final = Metric(
    "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
    "Value",
    "kafka_log_logmanager_offlinelogdirectorycount",
    "folders",
    "Log dirs that have failed.",
)
UNCLEANABLE: Final = _cleaner(
    "uncleanable-partitions-count",
    "partitions",
    "Logs that compaction has given up, because they are damaged.",
    "LogCleanerManager",
)
CLEANER_RECOPY: Final = _cleaner(
    "cleaner-recopy-percent", "percent", "How much of what it read the last compaction had to write again."
)
COMPACTIONS: Final = Metric(
    "kafka.log:type=LogCleaner,name=CompactionsPerSec",
    "Count",
    "kafka_log_logcleaner_compactions_total",
    "compactions",
    "Logs that were compacted.",
)
PURGATORY: Final = Metric(
    "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation={delayedOperation}",
    "Value",
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "requests",
    "Requests that wait: produce requests for followers, fetches for records.",
    ("delayedOperation",),
)
FETCH_SESSIONS: Final = Metric(
    "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions",
    "Value",
    "kafka_server_fetchsessioncache_numincrementalfetchsessions",
    "sessions",
    "Fetch sessions of consumers and followers.",
)
FETCH_SESSION_PARTITIONS: Final = Metric(
    "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchPartitionsCached",
    "Value",
    "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
    "partitions",
    "Partitions in fetch sessions.",
)
CONNECTIONS: Final = _socket("connection-count", "connections", "Open connections of clients and brokers.")
CONNECTIONS_CREATED: Final = _socket(
    "connection-creation-total", "connections", "Connections accepted since the start."
)
LOGINS: Final = _socket("successful-authentication-total", "logins", "Successful logins.")
FAILED_LOGINS: Final = _socket(
    "failed-authentication-total", "logins", "Failed logins and refused TLS handshakes."
)
CLIENTS: Final = Metric(
    "kafka.server:type=socket-server-metrics,clientSoftwareName={client_software_name},"
    "clientSoftwareVersion={client_software_version},listener={listener}",
    "connections",
    "kafka_server_socket_server_metrics_connections",
    "connections",
    "Open connections by the client's software.",
    ("client_software_name", "client_software_version", "listener"),
)
IDLE: Final = Metric(
    "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
    "Value",
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "share",
    "Share of the time in which the event loop used no processor, since the last time somebody asked.",
)
HANDLERS_IDLE: Final = Metric(
    "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
    "OneMinuteRate",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "share",
    "The same: one event loop reads, handles and answers requests.",
)
TURNS: Final = Metric(
    "barnabas.broker:type=EventLoop,name=TurnTimeMs",
    "Count",
    "barnabas_event_loop_turn_ms",
    "ms",
    "Length of turns of the event loop, of which ten a second are measured.",
    has_parts=True,
)
REQUEST_MEMORY: Final = Metric(
    "kafka.network:type=SocketServer,name=MemoryPoolUsed",
    "Value",
    "kafka_network_socketserver_memorypoolused",
    "bytes",
    "Memory of large requests that are being received or handled (queued.max.request.bytes).",
)
GROUPS: Final = _groups("NumGroups", "Groups that this broker coordinates, of all kinds.")
GROUPS_STABLE: Final = _groups("NumGroupsStable", "Groups in which every member has its partitions.")
GROUPS_PREPARING: Final = _groups("NumGroupsPreparingRebalance", "Groups whose members join anew.")
GROUPS_COMPLETING: Final = _groups("NumGroupsCompletingRebalance", "Groups that wait for their assignment.")
GROUPS_EMPTY: Final = _groups("NumGroupsEmpty", "Groups without members.")
GROUPS_DEAD: Final = _groups("NumGroupsDead", "Groups that are being deleted.")
GROUP_COUNT: Final = Metric(
    "kafka.server:type=group-coordinator-metrics,protocol={protocol},state={state}",
    "group-count",
    "kafka_server_group_coordinator_metrics_group_count",
    "groups",
    "Groups that this broker coordinates, by kind and state.",
    ("protocol", "state"),
)
TRANSACTION_COUNT: Final = Metric(
    "kafka.server:type=transaction-coordinator-metrics,state={state}",
    "transaction-count",
    "kafka_server_transaction_coordinator_metrics_transaction_count",
    "transactional ids",
    "Transactional ids that this broker coordinates, by state.",
    ("state",),
)
QUOTA_RATE: Final = Metric(
    "kafka.server:type={resource},user={user},client-id={clientId}",
    "byte-rate",
    "kafka_server_quota_byte_rate",
    "bytes/s",
    "Use of a quota by those whom it limits: percent of a processor for requests, number a second for connections.",
    ("resource", "user", "clientId"),
)


def _link(attribute: str, unit: str, help: str, *, grows: bool = False) -> Metric:
    """Of the copies of a topic that this broker leads."""
    name = "barnabas_link_" + attribute.replace("-", "_") + ("_total" if grows else "")
    return Metric(
        "barnabas.server:type=Link,link={link},topic={topic}", attribute, name, unit, help, ("link", "topic")
    )


LINK_LAG: Final = _link(
    "lag", "offsets", "How far the copies of a topic are behind its source, all partitions together."
)
LINK_LAG_MS: Final = _link(
    "lag-ms", "ms", "Age of the newest copied record while the source has newer ones, the worst partition."
)
LINK_MISSED: Final = _link(
    "missed", "offsets", "Offsets that retention removed in the source before they were copied.", grows=True
)
LINK_DROPPED: Final = _link(
    "dropped", "offsets", "Copied offsets that were removed again, because the source lost them.", grows=True
)
LINK_WAITING: Final = _link(
    "waiting", "partitions", "Copies that get nothing: the source is out of reach, or is another topic now."
)

BROKER_STATE: Final = Metric(
    "kafka.server:type=KafkaServer,name=BrokerState",
    "Value",
    "kafka_server_kafkaserver_brokerstate",
    "state",
    "3: the broker runs.",
)
START_TIME: Final = Metric(
    "kafka.server:type=app-info",
    "start-time-ms",
    "kafka_server_app_info_starttimems",
    "ms since the epoch",
    "When the broker started.",
)

METRICS: Final = (
    MESSAGES_IN, BYTES_IN, BYTES_OUT, PRODUCE_REQUESTS, FETCH_REQUESTS, FAILED_PRODUCES, FAILED_FETCHES,
    REPLICATED_IN, REPLICATED_OUT, CONVERTED_PRODUCES, CONVERTED_FETCHES,
    REQUESTS, ERRORS, REQUEST_BYTES, *TIMES.values(),
    PARTITION_COUNT, LEADER_COUNT, UNDER_REPLICATED, UNDER_MIN_ISR, AT_MIN_ISR, OFFLINE_REPLICAS, ISR_SHRINKS, ISR_EXPANDS,
    ACTIVE_CONTROLLER, OFFLINE_PARTITIONS, PREFERRED_IMBALANCE, ELECTIONS, UNCLEAN_ELECTIONS,
    TREE_CONNECTS, TREE_DISCONNECTS, TREE_EXPIRES, ACTIVE_BROKERS, TOPIC_COUNT, GLOBAL_PARTITION_COUNT,
    LOG_SIZE, LOG_START, LOG_END, LOG_SEGMENTS, FLUSHES, OFFLINE_DIRS, UNCLEANABLE, CLEANER_RECOPY, COMPACTIONS,
    PURGATORY, FETCH_SESSIONS, FETCH_SESSION_PARTITIONS,
    CONNECTIONS, CONNECTIONS_CREATED, LOGINS, FAILED_LOGINS, CLIENTS,
    IDLE, HANDLERS_IDLE, TURNS, REQUEST_MEMORY,
    GROUPS, GROUPS_STABLE, GROUPS_PREPARING, GROUPS_COMPLETING, GROUPS_EMPTY, GROUPS_DEAD, GROUP_COUNT, TRANSACTION_COUNT,
    QUOTA_RATE, BROKER_STATE, START_TIME,
    LINK_LAG, LINK_LAG_MS, LINK_MISSED, LINK_DROPPED, LINK_WAITING,
)  # fmt: skip


def table(metrics: Iterable[Metric] = METRICS) -> str:
    """Metrics as a table in Markdown, for docs/monitoring.md."""
    rows = ["| Prometheus | labels | unit | Kafka's name | what |", "|---|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        name = f"{metric.mbean}:{metric.attribute}"
        rows.append(f"| `{metric.name}` | {labels} | {metric.unit} | `{name}` | {metric.help} |")
    return "\n".join(rows)
