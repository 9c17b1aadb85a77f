"""Broker options: metrics, client telemetry, tiered storage."""

from __future__ import annotations

from typing import Final

from barnabas.config.option import LONG_MAX, Mark, Mode, OptionTable

METRICS: Final = OptionTable("Metrics and tiered storage")

IGNORED: Final = Mark.IGNORED
CLUSTER: Final = Mode.CLUSTER

METRICS.strings(
    "metric.reporters",
    ("org.apache.kafka.common.metrics.JmxReporter",),
    "Java metric reporters, which need a JVM.",
    mode=CLUSTER,
    mark=IGNORED,
)
METRICS.integer("metrics.num.samples", 2, "Samples of a Java metric.", lo=1, mark=IGNORED)
METRICS.long("metrics.sample.window.ms", 30_000, "Length of one such sample.", lo=1, mark=IGNORED)
METRICS.string(
    "metrics.recording.level",
    "INFO",
    "Level of detail of Java metrics.",
    choices=("INFO", "DEBUG", "TRACE"),
    mark=IGNORED,
)
METRICS.strings("kafka.metrics.reporters", (), "Java metric reporters.", mark=IGNORED)
METRICS.integer(
    "kafka.metrics.polling.interval.secs", 10, "How often these reporters are polled.", lo=1, mark=IGNORED
)
TELEMETRY_MAX_BYTES: Final = METRICS.integer(
    "telemetry.max.bytes",
    1_048_576,
    "Largest client telemetry message that is accepted.",
    lo=1,
    mark=Mark.WORKS,
)

REMOTE_LOG_STORAGE_SYSTEM_ENABLE: Final = METRICS.boolean(
    "remote.log.storage.system.enable", False, "Switch tiered storage on."
)
METRICS.long(
    "log.local.retention.ms",
    -2,
    "Age kept on local disk when older segments are tiered; -2 means log.retention.ms.",
    lo=-2,
    mode=CLUSTER,
    topic="local.retention.ms",
)
METRICS.long(
    "log.local.retention.bytes",
    -2,
    "Bytes kept on local disk when older segments are tiered; -2 means log.retention.bytes.",
    lo=-2,
    mode=CLUSTER,
    topic="local.retention.bytes",
)
METRICS.long(
    "log.remote.copy.lag.ms",
    0,
    "How long a rolled segment waits before it is copied to remote storage.",
    lo=-2,
    mode=CLUSTER,
    topic="remote.copy.lag.ms",
)
METRICS.long(
    "log.remote.copy.lag.bytes",
    0,
    "Bytes that are not copied to remote storage although they could be.",
    lo=-2,
    mode=CLUSTER,
    topic="remote.copy.lag.bytes",
)
METRICS.string(
    "remote.log.storage.manager.impl.prefix", "rsm.config.", "Prefix of the storage manager's own options."
)
METRICS.string(
    "remote.log.metadata.manager.impl.prefix", "rlmm.config.", "Prefix of the metadata manager's own options."
)
METRICS.string_or_null(
    "remote.log.storage.manager.class.name", "Java class of the remote storage.", mark=IGNORED
)
METRICS.string_or_null(
    "remote.log.storage.manager.class.path", "Class path of the remote storage.", mark=IGNORED
)
METRICS.string(
    "remote.log.metadata.manager.class.name",
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
    "Java class that stores the metadata of remote storage.",
    mark=IGNORED,
)
METRICS.string_or_null("remote.log.metadata.manager.class.path", "Class path of that class.", mark=IGNORED)
METRICS.string_or_null(
    "remote.log.metadata.manager.listener.name", "Listener that the metadata manager uses."
)
METRICS.integer(
    "remote.log.metadata.custom.metadata.max.bytes",
    128,
    "Largest custom metadata of a remote storage for a segment.",
    lo=0,
)
METRICS.long(
    "remote.log.index.file.cache.total.size.bytes",
    1 << 30,
    "Disk space for indexes fetched from remote storage.",
    lo=1,
    mode=CLUSTER,
)
for _name, _default in (
    ("remote.log.manager.copier.thread.pool.size", 10),
    ("remote.log.manager.expiration.thread.pool.size", 10),
    ("remote.log.manager.follower.thread.pool.size", 2),
    ("remote.log.reader.threads", 10),
):
    METRICS.integer(_name, _default, "Threads of tiered storage.", lo=1, mode=CLUSTER)
METRICS.integer(
    "remote.log.manager.thread.pool.size", 2, "Threads of tiered storage, as older files name them.", lo=1
)
METRICS.integer("remote.log.reader.max.pending.tasks", 100, "Remote reads that may wait.", lo=1)
METRICS.long(
    "remote.log.manager.task.interval.ms",
    30_000,
    "How often segments to copy or delete are looked for.",
    lo=1,
)
METRICS.long("remote.log.manager.task.retry.backoff.ms", 500, "First wait after a failed copy.", lo=1)
METRICS.long(
    "remote.log.manager.task.retry.backoff.max.ms", 30_000, "Longest wait after failed copies.", lo=1
)
METRICS.double("remote.log.manager.task.retry.jitter", 0.2, "Random part of that wait.", lo=0, hi=0.5)
METRICS.long(
    "remote.log.manager.copy.max.bytes.per.second",
    LONG_MAX,
    "Maximum bytes per second copied to remote storage.",
    lo=1,
    mode=CLUSTER,
)
METRICS.long(
    "remote.log.manager.fetch.max.bytes.per.second",
    LONG_MAX,
    "Maximum bytes per second read from remote storage.",
    lo=1,
    mode=CLUSTER,
)
for _what in ("copy", "fetch"):
    METRICS.integer(
        f"remote.log.manager.{_what}.quota.window.num", 11, "Windows over which that rate is averaged.", lo=1
    )
    METRICS.integer(
        f"remote.log.manager.{_what}.quota.window.size.seconds", 1, "Length of one such window.", lo=1
    )
METRICS.integer(
    "remote.fetch.max.wait.ms", 500, "Longest wait for remote storage in a fetch.", lo=1, mode=CLUSTER
)
METRICS.long(
    "remote.list.offsets.request.timeout.ms",
    30_000,
    "Longest wait for remote storage in ListOffsets.",
    lo=1,
    mode=CLUSTER,
)
