"""Broker options: share groups and their state, transactions and producer ids."""

from __future__ import annotations

from typing import Final

from barnabas.config.option import Mark, Mode, OptionTable

SHARE: Final = OptionTable("Share groups and transactions")

WORKS: Final = Mark.WORKS
IGNORED: Final = Mark.IGNORED
CLUSTER: Final = Mode.CLUSTER

GROUP_SHARE_SESSION_TIMEOUT_MS: Final = SHARE.integer(
    "group.share.session.timeout.ms",
    45_000,
    "Silence after which a share group's member is dropped.",
    lo=1,
    mark=WORKS,
)
GROUP_SHARE_MIN_SESSION_TIMEOUT_MS: Final = SHARE.integer(
    "group.share.min.session.timeout.ms",
    45_000,
    "Lowest value of a group's share.session.timeout.ms.",
    lo=1,
    mark=WORKS,
)
GROUP_SHARE_MAX_SESSION_TIMEOUT_MS: Final = SHARE.integer(
    "group.share.max.session.timeout.ms",
    60_000,
    "Highest value of a group's share.session.timeout.ms.",
    lo=1,
    mark=WORKS,
)
GROUP_SHARE_HEARTBEAT_INTERVAL_MS: Final = SHARE.integer(
    "group.share.heartbeat.interval.ms",
    5000,
    "Heartbeat interval given to share group members.",
    lo=1,
    mark=WORKS,
)
GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS: Final = SHARE.integer(
    "group.share.min.heartbeat.interval.ms",
    5000,
    "Lowest value of a group's share.heartbeat.interval.ms.",
    lo=1,
    mark=WORKS,
)
GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS: Final = SHARE.integer(
    "group.share.max.heartbeat.interval.ms",
    15_000,
    "Highest value of a group's share.heartbeat.interval.ms.",
    lo=1,
    mark=WORKS,
)
GROUP_SHARE_MAX_SIZE: Final = SHARE.integer(
    "group.share.max.size", 200, "Maximum number of members of a share group.", lo=1, hi=1000, mark=WORKS
)
GROUP_SHARE_MAX_SHARE_SESSIONS: Final = SHARE.integer(
    "group.share.max.share.sessions", 2000, "Share sessions per broker.", lo=1, mark=WORKS
)
GROUP_SHARE_DELIVERY_COUNT_LIMIT: Final = SHARE.integer(
    "group.share.delivery.count.limit",
    5,
    "Number of deliveries after which a record is given up on.",
    lo=2,
    hi=10,
    mark=WORKS,
)
GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT: Final = SHARE.integer(
    "group.share.min.delivery.count.limit",
    2,
    "Lowest value of a group's share.delivery.count.limit.",
    lo=2,
    hi=5,
    mark=WORKS,
)
GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT: Final = SHARE.integer(
    "group.share.max.delivery.count.limit",
    10,
    "Highest value of a group's share.delivery.count.limit.",
    lo=5,
    hi=25,
    mark=WORKS,
)
GROUP_SHARE_RECORD_LOCK_DURATION_MS: Final = SHARE.integer(
    "group.share.record.lock.duration.ms",
    30_000,
    "Time that a consumer has to acknowledge a record.",
    lo=1000,
    hi=3_600_000,
    mark=WORKS,
)
GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS: Final = SHARE.integer(
    "group.share.min.record.lock.duration.ms",
    15_000,
    "Lowest value of a group's share.record.lock.duration.ms.",
    lo=1000,
    hi=30_000,
    mark=WORKS,
)
GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS: Final = SHARE.integer(
    "group.share.max.record.lock.duration.ms",
    60_000,
    "Highest value of a group's share.record.lock.duration.ms.",
    lo=30_000,
    hi=3_600_000,
    mark=WORKS,
)
GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS: Final = SHARE.integer(
    "group.share.partition.max.record.locks",
    2000,
    "Records of one partition that may be in flight.",
    lo=100,
    hi=10_000,
    mark=WORKS,
)
GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS: Final = SHARE.integer(
    "group.share.min.partition.max.record.locks",
    100,
    "Lowest value of a group's share.partition.max.record.locks.",
    lo=100,
    hi=2000,
    mark=WORKS,
)
GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS: Final = SHARE.integer(
    "group.share.max.partition.max.record.locks",
    4000,
    "Highest value of a group's share.partition.max.record.locks.",
    lo=2000,
    hi=10_000,
    mark=WORKS,
)
GROUP_SHARE_ASSIGNORS: Final = SHARE.strings(
    "group.share.assignors", ("simple",), "Server-side assignor of share groups; one name."
)
GROUP_SHARE_ASSIGNMENT_INTERVAL_MS: Final = SHARE.integer(
    "group.share.assignment.interval.ms",
    1000,
    "Minimum time between two assignments of a share group.",
    lo=0,
    mode=CLUSTER,
)
SHARE.integer(
    "group.share.min.assignment.interval.ms",
    0,
    "Lowest value of a group's share.assignment.interval.ms.",
    lo=0,
)
SHARE.integer(
    "group.share.max.assignment.interval.ms",
    15_000,
    "Highest value of a group's share.assignment.interval.ms.",
    lo=0,
)
SHARE.boolean(
    "group.share.assignor.offload.enable", True, "Run assignors in a background thread.", mode=CLUSTER
)
GROUP_SHARE_INITIALIZE_RETRY_INTERVAL_MS: Final = SHARE.integer(
    "group.share.initialize.retry.interval.ms",
    30_000,
    "Pause before the initialization of a share partition's state is repeated.",
    lo=1,
    mark=WORKS,
)
DEADLETTERQUEUE_TOPIC_NAME_PREFIX: Final = SHARE.string(
    "errors.deadletterqueue.topic.name.prefix",
    "dlq.",
    "Prefix that the names of share groups' dead-letter topics must have.",
    mode=CLUSTER,
    mark=WORKS,
)
DEADLETTERQUEUE_AUTO_CREATE_TOPICS_ENABLE: Final = SHARE.boolean(
    "errors.deadletterqueue.auto.create.topics.enable",
    False,
    "Create the dead-letter topic of a share group if it does not exist.",
    mode=CLUSTER,
    mark=WORKS,
)
SHARE.string(
    "group.share.persister.class.name",
    "org.apache.kafka.server.share.persister.DefaultStatePersister",
    "Java class that stores the state of share groups; cannot run here.",
    internal=True,
    mark=IGNORED,
)
SHARE_STATE_TOPIC_NUM_PARTITIONS: Final = SHARE.integer(
    "share.coordinator.state.topic.num.partitions", 50, "Partitions of __share_group_state.", lo=1, mark=WORKS
)
SHARE_STATE_TOPIC_REPLICATION_FACTOR: Final = SHARE.short(
    "share.coordinator.state.topic.replication.factor",
    3,
    "Replicas of __share_group_state; with fewer brokers, as many as there are.",
    lo=1,
    mark=WORKS,
)
SHARE_STATE_TOPIC_MIN_ISR: Final = SHARE.short(
    "share.coordinator.state.topic.min.isr",
    2,
    "min.insync.replicas of __share_group_state when it is created; never more than its replicas.",
    lo=1,
    mark=WORKS,
)
SHARE_STATE_TOPIC_SEGMENT_BYTES: Final = SHARE.integer(
    "share.coordinator.state.topic.segment.bytes",
    104_857_600,
    "Segment size of __share_group_state.",
    lo=1,
    mark=WORKS,
)
SHARE_STATE_TOPIC_PRUNE_INTERVAL_MS: Final = SHARE.integer(
    "share.coordinator.state.topic.prune.interval.ms",
    300_000,
    "How often records of __share_group_state that are no longer needed are deleted.",
    lo=1,
    mark=WORKS,
)
SHARE_SNAPSHOT_UPDATE_RECORDS: Final = SHARE.integer(
    "share.coordinator.snapshot.update.records.per.snapshot",
    500,
    "Updates between two snapshots of a share partition.",
    lo=0,
    hi=500,
    mark=WORKS,
)
SHARE.integer(
    "share.coordinator.cold.partition.snapshot.interval.ms",
    300_000,
    "How often idle share partitions get a snapshot.",
    lo=1,
)
SHARE.integer("share.coordinator.threads", 1, "Kafka's share coordinator threads.", lo=1)
SHARE.integer(
    "share.coordinator.append.linger.ms",
    -1,
    "How long share records are collected for one write; -1 adapts the time.",
    lo=-1,
    mode=CLUSTER,
)
SHARE.integer(
    "share.coordinator.write.timeout.ms", 5000, "Longest wait until a share record is replicated.", lo=1
)
SHARE.integer(
    "share.coordinator.load.buffer.size", 5_242_880, "Bytes read at a time when share state is loaded.", lo=1
)
SHARE.integer(
    "share.coordinator.state.topic.compression.codec",
    0,
    "Codec of __share_group_state, by its number.",
    lo=0,
    hi=4,
)
SHARE.integer(
    "share.coordinator.cached.buffer.max.bytes",
    1_048_588,
    "Largest write buffer that is kept for reuse.",
    lo=524_288,
    mode=CLUSTER,
)

TRANSACTION_STATE_LOG_NUM_PARTITIONS: Final = SHARE.integer(
    "transaction.state.log.num.partitions",
    50,
    "Partitions of __transaction_state; must not change once it exists.",
    lo=1,
    mark=WORKS,
)
TRANSACTION_STATE_LOG_REPLICATION_FACTOR: Final = SHARE.short(
    "transaction.state.log.replication.factor",
    3,
    "Replicas of __transaction_state; with fewer brokers, as many as there are.",
    lo=1,
    mark=WORKS,
)
TRANSACTION_STATE_LOG_MIN_ISR: Final = SHARE.integer(
    "transaction.state.log.min.isr",
    2,
    "min.insync.replicas of __transaction_state when it is created; never more than its replicas.",
    lo=1,
    mark=WORKS,
)
TRANSACTION_STATE_LOG_SEGMENT_BYTES: Final = SHARE.integer(
    "transaction.state.log.segment.bytes",
    104_857_600,
    "Segment size of __transaction_state.",
    lo=1,
    mark=WORKS,
)
TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE: Final = SHARE.integer(
    "transaction.state.log.load.buffer.size",
    5_242_880,
    "Bytes read at a time when transactions are loaded.",
    lo=1,
    mark=WORKS,
)
TRANSACTIONAL_ID_EXPIRATION_MS: Final = SHARE.integer(
    "transactional.id.expiration.ms",
    604_800_000,
    "How long an unused transactional id is remembered.",
    lo=1,
    mark=WORKS,
)
TRANSACTION_MAX_TIMEOUT_MS: Final = SHARE.integer(
    "transaction.max.timeout.ms",
    900_000,
    "Longest transaction time-out that a producer may ask for.",
    lo=1,
    mark=WORKS,
)
TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS: Final = SHARE.integer(
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    10_000,
    "How soon a failed abort of a timed-out transaction is retried. A transaction is aborted as "
    "soon as its time is up, not at the next multiple of this interval.",
    lo=1,
    mark=WORKS,
)
TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS: Final = SHARE.integer(
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    3_600_000,
    "How often unused transactional ids are looked for.",
    lo=1,
    mark=WORKS,
)
PRODUCER_ID_EXPIRATION_MS: Final = SHARE.integer(
    "producer.id.expiration.ms",
    86_400_000,
    "How long an idle producer's sequence numbers are remembered.",
    lo=1,
    mode=CLUSTER,
    mark=WORKS,
)
PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS: Final = SHARE.integer(
    "producer.id.expiration.check.interval.ms",
    600_000,
    "How often idle producers are looked for.",
    lo=1,
    mark=WORKS,
    internal=True,
)
TRANSACTION_PARTITION_VERIFICATION_ENABLE: Final = SHARE.boolean(
    "transaction.partition.verification.enable",
    True,
    "Check that a partition was added to its transaction before records are accepted.",
    mode=CLUSTER,
    mark=WORKS,
)
SHARE.boolean(
    "transaction.two.phase.commit.enable",
    False,
    "Allow an external coordinator to decide about transactions.",
)
