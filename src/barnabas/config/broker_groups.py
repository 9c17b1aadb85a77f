"""Broker options: the group coordinator, offsets, classic, consumer and streams groups."""

from __future__ import annotations

from typing import Final

from barnabas.config.option import INT_MAX, Mark, Mode, OptionTable

GROUPS: Final = OptionTable("Groups and offsets")

WORKS: Final = Mark.WORKS
IGNORED: Final = Mark.IGNORED
CLUSTER: Final = Mode.CLUSTER

OFFSETS_TOPIC_NUM_PARTITIONS: Final = GROUPS.integer(
    "offsets.topic.num.partitions",
    50,
    "Partitions of __consumer_offsets; must not change once it exists.",
    lo=1,
    mark=WORKS,
)
OFFSETS_TOPIC_REPLICATION_FACTOR: Final = GROUPS.short(
    "offsets.topic.replication.factor",
    3,
    "Replicas of __consumer_offsets; with fewer brokers, as many as there are.",
    lo=1,
    mark=WORKS,
)
OFFSETS_TOPIC_SEGMENT_BYTES: Final = GROUPS.integer(
    "offsets.topic.segment.bytes", 104_857_600, "Segment size of __consumer_offsets.", lo=1, mark=WORKS
)
OFFSETS_TOPIC_COMPRESSION_CODEC: Final = GROUPS.integer(
    "offsets.topic.compression.codec",
    0,
    "Codec of __consumer_offsets, by its number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    lo=0,
    hi=4,
    mark=WORKS,
)
OFFSETS_LOAD_BUFFER_SIZE: Final = GROUPS.integer(
    "offsets.load.buffer.size", 5_242_880, "Bytes read at a time when groups are loaded.", lo=1, mark=WORKS
)
OFFSETS_COMMIT_TIMEOUT_MS: Final = GROUPS.integer(
    "offsets.commit.timeout.ms", 5000, "Longest wait until a group's record is replicated.", lo=1
)
OFFSETS_RETENTION_MINUTES: Final = GROUPS.integer(
    "offsets.retention.minutes", 10_080, "How long offsets of an empty group are kept.", lo=1, mark=WORKS
)
OFFSETS_RETENTION_CHECK_INTERVAL_MS: Final = GROUPS.long(
    "offsets.retention.check.interval.ms",
    600_000,
    "How often expired offsets are looked for.",
    lo=1,
    mark=WORKS,
)
OFFSET_METADATA_MAX_BYTES: Final = GROUPS.integer(
    "offset.metadata.max.bytes", 4096, "Longest text that may be committed with an offset.", mark=WORKS
)
GROUP_MIN_SESSION_TIMEOUT_MS: Final = GROUPS.integer(
    "group.min.session.timeout.ms",
    6000,
    "Shortest session time-out that a classic member may ask for.",
    mark=WORKS,
)
GROUP_MAX_SESSION_TIMEOUT_MS: Final = GROUPS.integer(
    "group.max.session.timeout.ms",
    1_800_000,
    "Longest session time-out that a classic member may ask for.",
    mark=WORKS,
)
GROUP_INITIAL_REBALANCE_DELAY_MS: Final = GROUPS.integer(
    "group.initial.rebalance.delay.ms",
    0,
    "How long to wait for more members before a new group's first assignment. Kafka "
    "waits 3000; Barnabas does not, so that a first consumer starts at once.",
    mark=WORKS,
)
GROUP_MAX_SIZE: Final = GROUPS.integer(
    "group.max.size", INT_MAX, "Maximum number of members of a classic group.", lo=1, mark=WORKS
)
GROUPS.integer(
    "group.coordinator.threads",
    4,
    "Kafka's coordinator threads; the broker's event loop does their work.",
    lo=1,
)
GROUPS.integer(
    "group.coordinator.background.threads",
    2,
    "Kafka's threads for regular expressions and assignments.",
    lo=1,
)
GROUP_COORDINATOR_APPEND_LINGER_MS: Final = GROUPS.integer(
    "group.coordinator.append.linger.ms",
    -1,
    "How long group records are collected for one write; -1 adapts the time.",
    lo=-1,
)
GROUPS.integer(
    "group.coordinator.cached.buffer.max.bytes",
    1_048_588,
    "Largest write buffer that is kept for reuse.",
    lo=524_288,
    mode=CLUSTER,
)
GROUP_COORDINATOR_REBALANCE_PROTOCOLS: Final = GROUPS.strings(
    "group.coordinator.rebalance.protocols",
    ("classic", "consumer", "streams"),
    "Group protocols that are offered.",
    choices=("classic", "consumer", "share", "streams", "unknown"),
)

GROUP_CONSUMER_SESSION_TIMEOUT_MS: Final = GROUPS.integer(
    "group.consumer.session.timeout.ms",
    45_000,
    "Silence after which a consumer-protocol member is dropped.",
    lo=1,
    mark=WORKS,
)
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS: Final = GROUPS.integer(
    "group.consumer.min.session.timeout.ms",
    45_000,
    "Lowest value of a group's consumer.session.timeout.ms.",
    lo=1,
    mark=WORKS,
)
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS: Final = GROUPS.integer(
    "group.consumer.max.session.timeout.ms",
    60_000,
    "Highest value of a group's consumer.session.timeout.ms.",
    lo=1,
    mark=WORKS,
)
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS: Final = GROUPS.integer(
    "group.consumer.heartbeat.interval.ms",
    5000,
    "Heartbeat interval given to consumer-protocol members.",
    lo=1,
    mark=WORKS,
)
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS: Final = GROUPS.integer(
    "group.consumer.min.heartbeat.interval.ms",
    5000,
    "Lowest value of a group's consumer.heartbeat.interval.ms.",
    lo=1,
    mark=WORKS,
)
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS: Final = GROUPS.integer(
    "group.consumer.max.heartbeat.interval.ms",
    15_000,
    "Highest value of a group's consumer.heartbeat.interval.ms.",
    lo=1,
    mark=WORKS,
)
GROUP_CONSUMER_MAX_SIZE: Final = GROUPS.integer(
    "group.consumer.max.size",
    INT_MAX,
    "Maximum number of members of a consumer-protocol group.",
    lo=1,
    mark=WORKS,
)
GROUP_CONSUMER_ASSIGNORS: Final = GROUPS.strings(
    "group.consumer.assignors",
    ("uniform", "range"),
    "Server-side assignors; the first is the default.",
    mark=WORKS,
)
GROUP_CONSUMER_MIGRATION_POLICY: Final = GROUPS.string(
    "group.consumer.migration.policy",
    "bidirectional",
    "In which directions a group with members may change its protocol.",
    choices=(
        "bidirectional",
        "upgrade",
        "downgrade",
        "disabled",
        "BIDIRECTIONAL",
        "UPGRADE",
        "DOWNGRADE",
        "DISABLED",
    ),
    mark=WORKS,
)
GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS: Final = GROUPS.integer(
    "group.consumer.regex.refresh.interval.ms",
    600_000,
    "How often topics are matched against subscribed regular expressions. Barnabas does so after the "
    "first heartbeat that follows the creation or deletion of any topic, and needs no interval.",
    lo=10_000,
)
GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS: Final = GROUPS.integer(
    "group.consumer.assignment.interval.ms",
    0,
    "Minimum time between two assignments of a group: fewer are computed when hundreds of members join at once. "
    "Kafka's 1000 makes a second member wait; Barnabas does not, unless asked to.",
    lo=0,
    mode=CLUSTER,
    mark=WORKS,
)
GROUPS.integer(
    "group.consumer.min.assignment.interval.ms",
    0,
    "Lowest value of a group's consumer.assignment.interval.ms.",
    lo=0,
    mark=WORKS,
)
GROUPS.integer(
    "group.consumer.max.assignment.interval.ms",
    15_000,
    "Highest value of a group's consumer.assignment.interval.ms.",
    lo=0,
    mark=WORKS,
)
GROUPS.boolean(
    "group.consumer.assignor.offload.enable", True, "Run assignors in a background thread.", mode=CLUSTER
)
