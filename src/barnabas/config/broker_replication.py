"""Broker options: replication between brokers, and the windows in which quotas are measured."""

from __future__ import annotations

from typing import Final

from barnabas.config.option import LONG_MAX, Mark, Mode, OptionTable

REPLICATION: Final = OptionTable("Replication and quotas")

WORKS: Final = Mark.WORKS

REPLICA_LAG_TIME_MAX_MS: Final = REPLICATION.long(
    "replica.lag.time.max.ms",
    30_000,
    "A follower behind for longer than this leaves the in-sync replicas.",
    mark=WORKS,
)
REPLICA_FETCH_MAX_BYTES: Final = REPLICATION.integer(
    "replica.fetch.max.bytes",
    1_048_576,
    "Bytes that a follower requests of each partition.",
    lo=0,
    mark=WORKS,
)
REPLICA_FETCH_RESPONSE_MAX_BYTES: Final = REPLICATION.integer(
    "replica.fetch.response.max.bytes",
    10_485_760,
    "Bytes that a follower requests in each fetch.",
    lo=0,
    mark=WORKS,
)
REPLICA_FETCH_MIN_BYTES: Final = REPLICATION.integer(
    "replica.fetch.min.bytes", 1, "Bytes that a follower's fetch waits for.", mark=WORKS
)
REPLICA_FETCH_WAIT_MAX_MS: Final = REPLICATION.integer(
    "replica.fetch.wait.max.ms", 500, "Longest wait of a follower's fetch.", mark=WORKS
)
REPLICA_FETCH_BACKOFF_MS: Final = REPLICATION.integer(
    "replica.fetch.backoff.ms", 1000, "Pause of a follower after a failed fetch.", lo=0, mark=WORKS
)
REPLICA_SOCKET_TIMEOUT_MS: Final = REPLICATION.integer(
    "replica.socket.timeout.ms", 30_000, "Time-out of a follower's requests.", mark=WORKS
)
REPLICA_SOCKET_RECEIVE_BUFFER_BYTES: Final = REPLICATION.integer(
    "replica.socket.receive.buffer.bytes", 65_536, "SO_RCVBUF of a follower's connection."
)
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS: Final = REPLICATION.long(
    "replica.high.watermark.checkpoint.interval.ms",
    5000,
    "How often high watermarks are written to disk.",
)
RACK_AWARE_SELECTOR: Final = (
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "RackAwareReplicaSelector",
)
LEADER_SELECTOR: Final = ("org.apache.kafka.common.replica.LeaderSelector", "LeaderSelector")


def replica_selector(value: str | None) -> str | None:
    """Checks replica.selector.class, since custom classes cannot run here; returns what is wrong, or None."""
    if value is None or value in (*RACK_AWARE_SELECTOR, *LEADER_SELECTOR):
        return None
    return f"must be {RACK_AWARE_SELECTOR[0]} or {LEADER_SELECTOR[0]}; other classes cannot run here"


REPLICA_SELECTOR_CLASS: Final = REPLICATION.string_or_null(
    "replica.selector.class",
    "Which replica a consumer reads from: Kafka's RackAwareReplicaSelector sends it to one in its own rack "
    "(`client.rack`, Fetch version 11 or newer), LeaderSelector (the default) to the leader.",
    check=replica_selector,
    mark=WORKS,
)
AUTO_LEADER_REBALANCE_ENABLE: Final = REPLICATION.boolean(
    "auto.leader.rebalance.enable",
    True,
    "Regularly move leadership back to preferred replicas.",
    mark=WORKS,
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS: Final = REPLICATION.long(
    "leader.imbalance.check.interval.seconds",
    300,
    "How often leadership is moved back to preferred replicas.",
    lo=1,
    mark=WORKS,
)
LEADER_REPLICATION_THROTTLED_RATE: Final = REPLICATION.long(
    "leader.replication.throttled.rate",
    LONG_MAX,
    "Bytes per second that a leader sends to throttled replicas.",
    lo=0,
    mode=Mode.PER_BROKER,
    mark=WORKS,
)
FOLLOWER_REPLICATION_THROTTLED_RATE: Final = REPLICATION.long(
    "follower.replication.throttled.rate",
    LONG_MAX,
    "Bytes per second that a follower fetches for throttled replicas.",
    lo=0,
    mode=Mode.PER_BROKER,
    mark=WORKS,
)
REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND: Final = REPLICATION.long(
    "replica.alter.log.dirs.io.max.bytes.per.second",
    LONG_MAX,
    "Bytes per second for moves between log folders.",
    lo=0,
    mode=Mode.PER_BROKER,
    mark=WORKS,
)
REPLICATION.boolean(
    "follower.fetch.last.tiered.offset.enable",
    False,
    "Let an empty follower begin at the last tiered offset.",
    mode=Mode.CLUSTER,
)
QUOTA_WINDOW_NUM: Final = REPLICATION.integer(
    "quota.window.num", 11, "Windows over which a client's rate is averaged.", lo=1, mark=WORKS
)
QUOTA_WINDOW_SIZE_SECONDS: Final = REPLICATION.integer(
    "quota.window.size.seconds", 1, "Length of one such window.", lo=1, mark=WORKS
)
CONTROLLER_QUOTA_WINDOW_NUM: Final = REPLICATION.integer(
    "controller.quota.window.num", 11, "Windows over which topic changes are counted.", lo=1, mark=WORKS
)
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS: Final = REPLICATION.integer(
    "controller.quota.window.size.seconds", 1, "Length of one such window.", lo=1, mark=WORKS
)
REPLICATION_QUOTA_WINDOW_NUM: Final = REPLICATION.integer(
    "replication.quota.window.num",
    11,
    "Windows over which the rate of copying is averaged.",
    lo=1,
    mark=WORKS,
)
REPLICATION_QUOTA_WINDOW_SIZE_SECONDS: Final = REPLICATION.integer(
    "replication.quota.window.size.seconds", 1, "Length of one such window.", lo=1, mark=WORKS
)
REPLICATION.integer(
    "alter.log.dirs.replication.quota.window.num",
    11,
    "Windows over which the rate of copying is averaged.",
    lo=1,
)
REPLICATION.integer(
    "alter.log.dirs.replication.quota.window.size.seconds", 1, "Length of one such window.", lo=1
)
REPLICATION.class_name(
    "client.quota.callback.class", None, "Java class that decides quotas; cannot run here.", mark=Mark.IGNORED
)
