"""Broker options: topics, segments, retention, compaction. Most are the defaults of a topic config."""

from __future__ import annotations

from typing import Final

from barnabas.config.option import INT_MAX, LONG_MAX, Mark, Mode, OptionTable
from barnabas.config.topic_options import COMPRESSIONS, gzip_level

LOG: Final = OptionTable("Topics and log")

WORKS: Final = Mark.WORKS
IGNORED: Final = Mark.IGNORED
CLUSTER: Final = Mode.CLUSTER

AUTO_CREATE_TOPICS_ENABLE: Final = LOG.boolean(
    "auto.create.topics.enable",
    True,
    "Create a topic when a client asks for one that does not exist.",
    mark=WORKS,
)
DELETE_TOPIC_ENABLE: Final = LOG.boolean(
    "delete.topic.enable", True, "Whether topics may be deleted.", mark=WORKS
)
BARNABAS_TOPIC_BIN_MS: Final = LOG.long(
    "barnabas.topic.bin.ms",
    0,
    "How long a deleted topic rests in the bin, from which `barnabas topic restore` brings it back with its records; 0 "
    "deletes at once.",
    lo=0,
    mode=CLUSTER,
    topic="barnabas.topic.bin.ms",
    mark=WORKS,
)
BARNABAS_TOPIC_BIN_FREE_BYTES_MIN: Final = LOG.long(
    "barnabas.topic.bin.free.bytes.min",
    1 << 30,
    "With less free space than this in a log dir, the topics that have rested longest in the bin are removed for good.",
    lo=0,
    mode=CLUSTER,
    mark=WORKS,
)
NUM_PARTITIONS: Final = LOG.integer(
    "num.partitions",
    1,
    "Partitions of a topic that is created without a number of partitions.",
    lo=1,
    mark=WORKS,
)
DEFAULT_REPLICATION_FACTOR: Final = LOG.integer(
    "default.replication.factor",
    1,
    "Replicas of a topic that is created without a number of replicas.",
    lo=1,
    mark=WORKS,
)
MIN_INSYNC_REPLICAS: Final = LOG.integer(
    "min.insync.replicas",
    1,
    "Number of in-sync replicas required to accept a produce request with acks=all.",
    lo=1,
    mode=CLUSTER,
    topic="min.insync.replicas",
    mark=WORKS,
)
UNCLEAN_LEADER_ELECTION_ENABLE: Final = LOG.boolean(
    "unclean.leader.election.enable",
    False,
    "Allow a replica that is not in sync to become leader when no other is left, at the price of lost records.",
    mode=CLUSTER,
    topic="unclean.leader.election.enable",
    mark=WORKS,
)
LOG.long(
    "unclean.leader.election.interval.ms",
    300_000,
    "How often unclean elections are tried for partitions without a leader.",
    lo=1,
    internal=True,
)
LOG_RETENTION_MS: Final = LOG.long_or_null(
    "log.retention.ms",
    "Age above which segments are deleted; -1 keeps them forever. Takes precedence over .minutes and .hours.",
    mode=CLUSTER,
    topic="retention.ms",
    mark=WORKS,
)
LOG_RETENTION_MINUTES: Final = LOG.integer_or_null(
    "log.retention.minutes",
    "Age above which segments are deleted, in minutes. Takes precedence over .hours.",
    mark=WORKS,
)
LOG_RETENTION_HOURS: Final = LOG.integer(
    "log.retention.hours", 168, "Age above which segments are deleted, in hours.", mark=WORKS
)
LOG_RETENTION_BYTES: Final = LOG.long(
    "log.retention.bytes",
    -1,
    "Size of a partition above which its oldest segments are deleted; -1 means no limit.",
    mode=CLUSTER,
    topic="retention.bytes",
    mark=WORKS,
)
LOG_RETENTION_CHECK_INTERVAL_MS: Final = LOG.long(
    "log.retention.check.interval.ms", 300_000, "How often retention is applied.", lo=1, mark=WORKS
)
LOG_SEGMENT_BYTES: Final = LOG.integer(
    "log.segment.bytes",
    1 << 30,
    "Roll the active segment before an append would exceed this many bytes (Kafka 4 requires "
    "at least 1 MiB; here small values work, as in Kafka 3).",
    lo=14,
    hi=INT_MAX,
    mode=CLUSTER,
    topic="segment.bytes",
    mark=WORKS,
)
LOG_ROLL_MS: Final = LOG.long_or_null(
    "log.roll.ms",
    "Age of the active segment at which it rolls. Takes precedence over .hours.",
    lo=1,
    mode=CLUSTER,
    topic="segment.ms",
    mark=WORKS,
)
LOG_ROLL_HOURS: Final = LOG.integer(
    "log.roll.hours", 168, "Age of the active segment at which it rolls, in hours.", lo=1, mark=WORKS
)
LOG_ROLL_JITTER_MS: Final = LOG.long_or_null(
    "log.roll.jitter.ms",
    "Maximum random reduction of log.roll.ms. Takes precedence over .hours.",
    lo=0,
    mode=CLUSTER,
    topic="segment.jitter.ms",
    mark=WORKS,
)
LOG_ROLL_JITTER_HOURS: Final = LOG.integer(
    "log.roll.jitter.hours", 0, "Maximum random reduction of log.roll.hours.", lo=0, mark=WORKS
)
LOG_SEGMENT_DELETE_DELAY_MS: Final = LOG.long(
    "log.segment.delete.delay.ms",
    60_000,
    "How long a deleted segment's files stay on disk, renamed to `.deleted`.",
    lo=0,
    mode=CLUSTER,
    topic="file.delete.delay.ms",
    mark=WORKS,
)
LOG_CLEANUP_POLICY: Final = LOG.strings(
    "log.cleanup.policy",
    ("delete",),
    "What happens to old segments: delete, compact, both, or (empty) nothing.",
    choices=("delete", "compact"),
    mode=CLUSTER,
    topic="cleanup.policy",
    mark=WORKS,
)
LOG_FLUSH_INTERVAL_MESSAGES: Final = LOG.long(
    "log.flush.interval.messages",
    LONG_MAX,
    "Flush the log to disk after this many records.",
    lo=1,
    mode=CLUSTER,
    topic="flush.messages",
    mark=WORKS,
)
LOG_FLUSH_INTERVAL_MS: Final = LOG.long_or_null(
    "log.flush.interval.ms",
    "Flush the log to disk when records have waited this long; without it, log.flush.scheduler.interval.ms.",
    mode=CLUSTER,
    topic="flush.ms",
    mark=WORKS,
)
LOG_FLUSH_SCHEDULER_INTERVAL_MS: Final = LOG.long(
    "log.flush.scheduler.interval.ms",
    LONG_MAX,
    "How often logs are checked for flushes that are due.",
    mark=WORKS,
)
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS: Final = LOG.integer(
    "log.flush.offset.checkpoint.interval.ms",
    60_000,
    "How often recovery points are written to disk.",
    lo=0,
    mark=WORKS,
)
LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS: Final = LOG.integer(
    "log.flush.start.offset.checkpoint.interval.ms",
    60_000,
    "How often log start offsets are written to disk.",
    lo=0,
    mark=WORKS,
)
LOG_INDEX_INTERVAL_BYTES: Final = LOG.integer(
    "log.index.interval.bytes",
    4096,
    "Bytes of log between two entries of the offset index.",
    lo=0,
    mode=CLUSTER,
    topic="index.interval.bytes",
    mark=WORKS,
)
LOG_INDEX_SIZE_MAX_BYTES: Final = LOG.integer(
    "log.index.size.max.bytes",
    10 << 20,
    "Largest size of a segment's offset index; a full index rolls the segment.",
    lo=4,
    mode=CLUSTER,
    topic="segment.index.bytes",
    mark=WORKS,
)
LOG_PREALLOCATE: Final = LOG.boolean(
    "log.preallocate",
    False,
    "Reserve a segment's whole size on disk when it is created.",
    mode=CLUSTER,
    topic="preallocate",
)
LOG_MESSAGE_TIMESTAMP_TYPE: Final = LOG.string(
    "log.message.timestamp.type",
    "CreateTime",
    "Which timestamp records get: the producer's, or the time of the append.",
    choices=("CreateTime", "LogAppendTime"),
    mode=CLUSTER,
    topic="message.timestamp.type",
    mark=WORKS,
)
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS: Final = LOG.long(
    "log.message.timestamp.before.max.ms",
    LONG_MAX,
    "How far a record's timestamp may be behind the broker's clock.",
    lo=0,
    mode=CLUSTER,
    topic="message.timestamp.before.max.ms",
    mark=WORKS,
)
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS: Final = LOG.long(
    "log.message.timestamp.after.max.ms",
    3_600_000,
    "How far a record's timestamp may be ahead of the broker's clock.",
    lo=0,
    mode=CLUSTER,
    topic="message.timestamp.after.max.ms",
    mark=WORKS,
)
LOG_MESSAGE_DOWNCONVERSION_ENABLE: Final = LOG.boolean(
    "log.message.downconversion.enable",
    True,
    "Whether batches are converted for consumers older than 0.11; if not, their fetches are refused.",
    mode=CLUSTER,
    topic="message.downconversion.enable",
    mark=WORKS,
)
COMPRESSION_TYPE: Final = LOG.string(
    "compression.type",
    "producer",
    "Codec in which batches are stored; `producer` keeps the producer's choice.",
    choices=COMPRESSIONS,
    mode=CLUSTER,
    topic="compression.type",
    mark=WORKS,
)
COMPRESSION_GZIP_LEVEL: Final = LOG.integer(
    "compression.gzip.level",
    -1,
    "Level used when the broker compresses with gzip.",
    check=gzip_level,
    mode=CLUSTER,
    topic="compression.gzip.level",
    mark=WORKS,
)
COMPRESSION_LZ4_LEVEL: Final = LOG.integer(
    "compression.lz4.level",
    9,
    "Level used when the broker compresses with lz4.",
    lo=1,
    hi=17,
    mode=CLUSTER,
    topic="compression.lz4.level",
    mark=WORKS,
)
COMPRESSION_ZSTD_LEVEL: Final = LOG.integer(
    "compression.zstd.level",
    3,
    "Level used when the broker compresses with zstd.",
    lo=-131072,
    hi=22,
    mode=CLUSTER,
    topic="compression.zstd.level",
    mark=WORKS,
)
LOG_CLEANER_ENABLE: Final = LOG.boolean(
    "log.cleaner.enable", True, "Whether compacted topics are compacted at all.", mark=WORKS
)
LOG_CLEANER_THREADS: Final = LOG.integer(
    "log.cleaner.threads", 1, "Threads that compact.", lo=0, mode=CLUSTER, mark=WORKS
)
LOG_CLEANER_BACKOFF_MS: Final = LOG.long(
    "log.cleaner.backoff.ms",
    15_000,
    "Pause of the cleaner when there is nothing to clean.",
    lo=0,
    mode=CLUSTER,
    mark=WORKS,
)
LOG_CLEANER_DEDUPE_BUFFER_SIZE: Final = LOG.long(
    "log.cleaner.dedupe.buffer.size",
    134_217_728,
    "Memory for the key tables of all cleaner threads.",
    mode=CLUSTER,
    mark=WORKS,
)
LOG.integer(
    "log.cleaner.io.buffer.size",
    524_288,
    "Memory for reading and writing of all cleaner threads.",
    lo=0,
    mode=CLUSTER,
)
LOG.double(
    "log.cleaner.io.buffer.load.factor", 0.9, "How full the key table may get.", mode=CLUSTER, mark=WORKS
)
LOG.double(
    "log.cleaner.io.max.bytes.per.second",
    1.7976931348623157e308,
    "Maximum bytes per second that cleaning may read and write.",
    mode=CLUSTER,
    mark=WORKS,
)
LOG_CLEANER_MIN_CLEANABLE_RATIO: Final = LOG.double(
    "log.cleaner.min.cleanable.ratio",
    0.5,
    "Fraction of a compacted log that must be new before it is compacted again.",
    lo=0,
    hi=1,
    mode=CLUSTER,
    topic="min.cleanable.dirty.ratio",
    mark=WORKS,
)
LOG_CLEANER_DELETE_RETENTION_MS: Final = LOG.long(
    "log.cleaner.delete.retention.ms",
    86_400_000,
    "How long a compacted topic keeps the tombstone of a deleted key.",
    lo=0,
    mode=CLUSTER,
    topic="delete.retention.ms",
    mark=WORKS,
)
LOG_CLEANER_MIN_COMPACTION_LAG_MS: Final = LOG.long(
    "log.cleaner.min.compaction.lag.ms",
    0,
    "Time for which a new record is not compacted.",
    lo=0,
    mode=CLUSTER,
    topic="min.compaction.lag.ms",
    mark=WORKS,
)
LOG_CLEANER_MAX_COMPACTION_LAG_MS: Final = LOG.long(
    "log.cleaner.max.compaction.lag.ms",
    LONG_MAX,
    "Longest time that a record may stay uncompacted.",
    lo=1,
    mode=CLUSTER,
    topic="max.compaction.lag.ms",
    mark=WORKS,
)
LOG.class_name(
    "create.topic.policy.class.name",
    None,
    "Java class that may refuse new topics; cannot run here.",
    mark=IGNORED,
)
LOG.class_name(
    "alter.config.policy.class.name",
    None,
    "Java class that may refuse config changes; cannot run here.",
    mark=IGNORED,
)
LOG.long(
    "log.dir.failure.timeout.ms",
    30_000,
    "Time to report a failed log folder before the broker stops; here it is noticed at once.",
    lo=1,
    mark=IGNORED,
)
LOG.long(
    "log.initial.task.delay.ms",
    30_000,
    "Delay after the start before the housekeeping of logs begins.",
    lo=0,
    internal=True,
)
