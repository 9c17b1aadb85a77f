"""Topic configs: what CreateTopics, AlterConfigs and `barnabas topic alter` may set."""

from __future__ import annotations

import re
from typing import Final

from barnabas.config.option import INT_MAX, LONG_MAX, Mark, Mode, OptionTable

WORKS: Final = Mark.WORKS
IGNORED: Final = Mark.IGNORED

TOPIC: Final = OptionTable("Topic options")

_THROTTLED: Final = re.compile(r"\d+:\d+")


def throttled_replicas(value: tuple[str, ...]) -> str | None:
    """Checks a throttled replica list: empty, `*`, or partition:broker pairs; returns what is wrong, or None."""
    if value in ((), ("*",)) or all(_THROTTLED.fullmatch(item) for item in value):
        return None
    return "must be * or a list of partition:broker pairs, for example 0:101,1:102"


def gzip_level(value: int) -> str | None:
    """Checks a gzip level: -1 (gzip's default) or 1 to 9; returns what is wrong, or None."""
    return None if value == -1 or 1 <= value <= 9 else "must be -1 (the default level) or from 1 to 9"


COMPRESSIONS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

CLEANUP_POLICY: Final = TOPIC.strings(
    "cleanup.policy",
    ("delete",),
    "What happens to old segments: `delete` drops them by retention, `compact` keeps "
    "the last record of each key, both do both; empty keeps everything.",
    choices=("delete", "compact"),
    mark=WORKS,
)
COMPRESSION_TYPE: Final = TOPIC.string(
    "compression.type",
    "producer",
    "Codec in which batches are stored; `producer` keeps the producer's choice.",
    choices=COMPRESSIONS,
    mark=WORKS,
)
COMPRESSION_GZIP_LEVEL: Final = TOPIC.integer(
    "compression.gzip.level",
    -1,
    "Level used when the broker compresses with gzip.",
    check=gzip_level,
    mark=WORKS,
)
COMPRESSION_LZ4_LEVEL: Final = TOPIC.integer(
    "compression.lz4.level",
    9,
    "Level used when the broker compresses with lz4.",
    lo=1,
    hi=17,
    mark=WORKS,
)
COMPRESSION_ZSTD_LEVEL: Final = TOPIC.integer(
    "compression.zstd.level",
    3,
    "Level used when the broker compresses with zstd.",
    lo=-131072,
    hi=22,
    mark=WORKS,
)
DELETE_RETENTION_MS: Final = TOPIC.long(
    "delete.retention.ms",
    86_400_000,
    "How long a compacted topic keeps the tombstone of a deleted key.",
    lo=0,
    mark=WORKS,
)
FILE_DELETE_DELAY_MS: Final = TOPIC.long(
    "file.delete.delay.ms",
    60_000,
    "How long a deleted segment's files stay on disk, renamed to `.deleted`.",
    lo=0,
    mark=WORKS,
)
FLUSH_MESSAGES: Final = TOPIC.long(
    "flush.messages",
    LONG_MAX,
    "Flush the log to disk after this many records; 1 means on every append.",
    lo=1,
    mark=WORKS,
)
FLUSH_MS: Final = TOPIC.long(
    "flush.ms", LONG_MAX, "Flush the log to disk when records have waited this long.", lo=0, mark=WORKS
)
INDEX_INTERVAL_BYTES: Final = TOPIC.integer(
    "index.interval.bytes", 4096, "Bytes of log between two entries of the offset index.", lo=0, mark=WORKS
)
LOCAL_RETENTION_BYTES: Final = TOPIC.long(
    "local.retention.bytes",
    -2,
    "Bytes kept on local disk when older segments are tiered; -2 means retention.bytes.",
    lo=-2,
)
LOCAL_RETENTION_MS: Final = TOPIC.long(
    "local.retention.ms",
    -2,
    "Age kept on local disk when older segments are tiered; -2 means retention.ms.",
    lo=-2,
)
MAX_COMPACTION_LAG_MS: Final = TOPIC.long(
    "max.compaction.lag.ms",
    LONG_MAX,
    "Longest time that a record may stay uncompacted.",
    lo=1,
    mark=WORKS,
)
MAX_MESSAGE_BYTES: Final = TOPIC.integer(
    "max.message.bytes",
    1_048_588,
    "Largest record batch that is accepted, as sent over the network.",
    lo=0,
    mark=WORKS,
)
MESSAGE_DOWNCONVERSION_ENABLE: Final = TOPIC.boolean(
    "message.downconversion.enable",
    True,
    "Whether batches are converted for consumers older than 0.11; if not, their fetches are refused.",
    mark=WORKS,
)
MESSAGE_TIMESTAMP_AFTER_MAX_MS: Final = TOPIC.long(
    "message.timestamp.after.max.ms",
    3_600_000,
    "How far a record's timestamp may be ahead of the broker's clock.",
    lo=0,
    mark=WORKS,
)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS: Final = TOPIC.long(
    "message.timestamp.before.max.ms",
    LONG_MAX,
    "How far a record's timestamp may be behind the broker's clock.",
    lo=0,
    mark=WORKS,
)
MESSAGE_TIMESTAMP_TYPE: Final = TOPIC.string(
    "message.timestamp.type",
    "CreateTime",
    "Which timestamp records get: the producer's, or the time of the append.",
    choices=("CreateTime", "LogAppendTime"),
    mark=WORKS,
)
MIN_CLEANABLE_DIRTY_RATIO: Final = TOPIC.double(
    "min.cleanable.dirty.ratio",
    0.5,
    "Fraction of a compacted log that must be new before it is compacted again.",
    lo=0,
    hi=1,
    mark=WORKS,
)
MIN_COMPACTION_LAG_MS: Final = TOPIC.long(
    "min.compaction.lag.ms", 0, "Time for which a new record is not compacted.", lo=0, mark=WORKS
)
MIN_INSYNC_REPLICAS: Final = TOPIC.integer(
    "min.insync.replicas",
    1,
    "Number of in-sync replicas required to accept a produce request with acks=all.",
    lo=1,
    mark=WORKS,
)
PREALLOCATE: Final = TOPIC.boolean(
    "preallocate", False, "Reserve a segment's whole size on disk when it is created."
)
REMOTE_COPY_LAG_BYTES: Final = TOPIC.long(
    "remote.copy.lag.bytes", 0, "Bytes that are not copied to remote storage although they could be.", lo=-2
)
REMOTE_COPY_LAG_MS: Final = TOPIC.long(
    "remote.copy.lag.ms", 0, "How long a rolled segment waits before it is copied to remote storage.", lo=-2
)
REMOTE_LOG_COPY_DISABLE: Final = TOPIC.boolean(
    "remote.log.copy.disable",
    False,
    "Stop copying segments to remote storage; those already there stay readable.",
)
REMOTE_LOG_DELETE_ON_DISABLE: Final = TOPIC.boolean(
    "remote.log.delete.on.disable",
    False,
    "Delete the segments in remote storage when tiering is switched off.",
)
REMOTE_STORAGE_ENABLE: Final = TOPIC.boolean(
    "remote.storage.enable", False, "Keep older segments of the topic in remote storage."
)
RETENTION_BYTES: Final = TOPIC.long(
    "retention.bytes",
    -1,
    "Size of a partition above which its oldest segments are deleted; -1 means no limit.",
    mark=WORKS,
)
RETENTION_MS: Final = TOPIC.long(
    "retention.ms",
    604_800_000,
    "Age above which segments are deleted; -1 keeps them forever.",
    lo=-1,
    mark=WORKS,
)
SEGMENT_BYTES: Final = TOPIC.integer(
    "segment.bytes",
    1 << 30,
    "Roll the active segment before an append would exceed this many bytes (Kafka 4 requires "
    "at least 1 MiB; here small values work, as in Kafka 3).",
    lo=14,
    hi=INT_MAX,
    mark=WORKS,
)
SEGMENT_INDEX_BYTES: Final = TOPIC.integer(
    "segment.index.bytes",
    10 << 20,
    "Largest size of a segment's offset index; a full index rolls the segment.",
    lo=4,
    mark=WORKS,
)
SEGMENT_JITTER_MS: Final = TOPIC.long(
    "segment.jitter.ms",
    0,
    "Maximum random reduction of segment.ms, so that not all segments roll at once.",
    lo=0,
    mark=WORKS,
)
SEGMENT_MS: Final = TOPIC.long(
    "segment.ms",
    604_800_000,
    "Age of the active segment at which it rolls even if it is not full.",
    lo=1,
    mark=WORKS,
)
UNCLEAN_LEADER_ELECTION_ENABLE: Final = TOPIC.boolean(
    "unclean.leader.election.enable",
    False,
    "Allow a replica that is not in sync to become leader when no other is left, at the price of lost records.",
)
ERRORS_DEADLETTERQUEUE_GROUP_ENABLE: Final = TOPIC.boolean(
    "errors.deadletterqueue.group.enable",
    False,
    "Allow share groups to write records that they give up on to this topic.",
    mark=WORKS,
)
LEADER_REPLICATION_THROTTLED_REPLICAS: Final = TOPIC.strings(
    "leader.replication.throttled.replicas",
    (),
    "Replicas whose replication is slowed on the leader's side: `*` or partition:broker pairs.",
    check=throttled_replicas,
    mark=WORKS,
)
FOLLOWER_REPLICATION_THROTTLED_REPLICAS: Final = TOPIC.strings(
    "follower.replication.throttled.replicas",
    (),
    "Replicas whose replication is slowed on the follower's side: `*` or partition:broker pairs.",
    check=throttled_replicas,
    mark=WORKS,
)


# Confluent Server's options: whether the broker checks which schemas records name.
SUBJECT_STRATEGIES: Final = tuple(
    f"io.confluent.kafka.serializers.subject.{name}"
    for name in ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
)
CONFLUENT_KEY_SCHEMA_VALIDATION: Final = TOPIC.boolean(
    "confluent.key.schema.validation",
    False,
    "Refuse records whose key names no schema of its subject (see confluent.schema.registry.url).",
    mark=WORKS,
)
CONFLUENT_VALUE_SCHEMA_VALIDATION: Final = TOPIC.boolean(
    "confluent.value.schema.validation",
    False,
    "Refuse records whose value names no schema of its subject (see confluent.schema.registry.url).",
    mark=WORKS,
)
CONFLUENT_KEY_SUBJECT_NAME_STRATEGY: Final = TOPIC.string(
    "confluent.key.subject.name.strategy",
    SUBJECT_STRATEGIES[0],
    "How the subject of keys is named: after the topic, the schema's record, or both.",
    choices=SUBJECT_STRATEGIES,
    mark=WORKS,
)
CONFLUENT_VALUE_SUBJECT_NAME_STRATEGY: Final = TOPIC.string(
    "confluent.value.subject.name.strategy",
    SUBJECT_STRATEGIES[0],
    "How the subject of values is named: after the topic, the schema's record, or both.",
    choices=SUBJECT_STRATEGIES,
    mark=WORKS,
)

# Barnabas's own options.
BARNABAS_TOPIC_BIN_MS: Final = TOPIC.long(
    "barnabas.topic.bin.ms",
    0,
    "How long a deleted topic rests in the bin, from which `barnabas topic restore` brings it back with its records; 0 "
    "deletes at once.",
    lo=0,
    mark=WORKS,
)
BARNABAS_KEY_INDEX: Final = TOPIC.boolean(
    "barnabas.key.index",
    False,
    "Keep an index of the keys of records beside the log, so that searches for a key (in the console) read only the parts "
    "where it may be. It is built in the background and takes 1.5 bytes for each key of about a megabyte of the log.",
    mark=WORKS,
)
BARNABAS_LINK: Final = TOPIC.string(
    "barnabas.link",
    "",
    "The link that mirrors the topic from another cluster, and the topic's id there; such a topic is read-only. Set by "
    "`barnabas mirror link`, and by nobody else.",
    mark=WORKS,
)

# For topics the mode is always CLUSTER in the broker's sense: a change needs no restart.
TOPIC_MODE: Final = Mode.CLUSTER

# Topic configs of Kafka 3 and older that still occur in scripts. Kafka 4 refuses them; so does Barnabas, but with a
# reason.
RETIRED_TOPIC: Final = {
    "message.format.version": "batches are always kept in format 2",
    "message.timestamp.difference.max.ms": "use message.timestamp.before.max.ms and .after.max.ms",
}
