"""Group configs (entity type `groups`, config resource type 32): settings of one group."""

from __future__ import annotations

import re
from typing import Final

from barnabas.config.option import Mark, OptionTable

GROUP: Final = OptionTable("Group options")

WORKS: Final = Mark.WORKS

_DURATION: Final = re.compile(r"P(?=\d|T\d)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?", re.IGNORECASE)


def offset_reset(value: str) -> str | None:
    """Checks share.auto.offset.reset: earliest, latest, or by_duration: with an ISO-8601 duration."""
    kind, _, duration = value.partition(":")
    if value in ("earliest", "latest") or (kind == "by_duration" and _DURATION.fullmatch(duration)):
        return None
    return "must be earliest, latest or by_duration:PnDTnHnMnS, for example by_duration:PT1H"


CONSUMER_SESSION_TIMEOUT_MS: Final = GROUP.integer(
    "consumer.session.timeout.ms",
    45_000,
    "Silence after which a consumer-protocol member is dropped.",
    lo=1,
    mark=WORKS,
)
CONSUMER_HEARTBEAT_INTERVAL_MS: Final = GROUP.integer(
    "consumer.heartbeat.interval.ms",
    5000,
    "Heartbeat interval given to consumer-protocol members.",
    lo=1,
    mark=WORKS,
)
CONSUMER_ASSIGNMENT_INTERVAL_MS: Final = GROUP.integer(
    "consumer.assignment.interval.ms",
    0,
    "Minimum time between two assignments of the group.",
    lo=0,
    mark=WORKS,
)
GROUP.boolean("consumer.assignor.offload.enable", True, "Run the assignor in a background thread.")
SHARE_SESSION_TIMEOUT_MS: Final = GROUP.integer(
    "share.session.timeout.ms",
    45_000,
    "Silence after which a share group's member is dropped.",
    lo=1,
    mark=WORKS,
)
SHARE_HEARTBEAT_INTERVAL_MS: Final = GROUP.integer(
    "share.heartbeat.interval.ms", 5000, "Heartbeat interval given to share group members.", lo=1, mark=WORKS
)
SHARE_ASSIGNMENT_INTERVAL_MS: Final = GROUP.integer(
    "share.assignment.interval.ms", 1000, "Minimum time between two assignments of the share group.", lo=0
)
GROUP.boolean("share.assignor.offload.enable", True, "Run the assignor in a background thread.")
SHARE_RECORD_LOCK_DURATION_MS: Final = GROUP.integer(
    "share.record.lock.duration.ms",
    30_000,
    "Time that a consumer has to acknowledge a record.",
    lo=1000,
    mark=WORKS,
)
SHARE_AUTO_OFFSET_RESET: Final = GROUP.string(
    "share.auto.offset.reset",
    "latest",
    "Where a share group begins in a partition for which it has no state.",
    check=offset_reset,
    mark=WORKS,
)
SHARE_ISOLATION_LEVEL: Final = GROUP.string(
    "share.isolation.level",
    "read_uncommitted",
    "Whether records of open and aborted transactions are delivered.",
    choices=("read_committed", "read_uncommitted"),
    mark=WORKS,
)
SHARE_DELIVERY_COUNT_LIMIT: Final = GROUP.integer(
    "share.delivery.count.limit",
    5,
    "Number of deliveries after which a record is given up on.",
    lo=2,
    mark=WORKS,
)
SHARE_PARTITION_MAX_RECORD_LOCKS: Final = GROUP.integer(
    "share.partition.max.record.locks",
    2000,
    "Records of one partition that may be in flight.",
    lo=100,
    mark=WORKS,
)
SHARE_RENEW_ACKNOWLEDGE_ENABLE: Final = GROUP.boolean(
    "share.renew.acknowledge.enable", True, "Allow consumers to renew their locks.", mark=WORKS
)
ERRORS_DEADLETTERQUEUE_TOPIC_NAME: Final = GROUP.string(
    "errors.deadletterqueue.topic.name",
    "",
    "Topic for records that the share group has given up on; empty means none.",
    mark=WORKS,
)
ERRORS_DEADLETTERQUEUE_COPY_RECORD_ENABLE: Final = GROUP.boolean(
    "errors.deadletterqueue.copy.record.enable",
    False,
    "Copy key and value to that topic, not only the reason.",
    mark=WORKS,
)
STREAMS_SESSION_TIMEOUT_MS: Final = GROUP.integer(
    "streams.session.timeout.ms",
    45_000,
    "Silence after which a streams group's member is dropped.",
    lo=1,
    mark=WORKS,
)
STREAMS_HEARTBEAT_INTERVAL_MS: Final = GROUP.integer(
    "streams.heartbeat.interval.ms",
    5000,
    "Heartbeat interval given to streams group members.",
    lo=1,
    mark=WORKS,
)
STREAMS_NUM_STANDBY_REPLICAS: Final = GROUP.integer(
    "streams.num.standby.replicas", 0, "Standby copies of each stateful task.", lo=0, mark=WORKS
)
STREAMS_INITIAL_REBALANCE_DELAY_MS: Final = GROUP.integer(
    "streams.initial.rebalance.delay.ms",
    3000,
    "How long the group's first member waits for others before tasks are assigned.",
    lo=0,
    mark=WORKS,
)
STREAMS_ASSIGNMENT_INTERVAL_MS: Final = GROUP.integer(
    "streams.assignment.interval.ms",
    1000,
    "Minimum time between two assignments of the streams group.",
    lo=0,
    mark=WORKS,
)
STREAMS_TASK_OFFSET_INTERVAL_MS: Final = GROUP.integer(
    "streams.task.offset.interval.ms",
    60_000,
    "How often members are asked to report how far the state of their tasks is restored.",
    lo=1,
    mark=WORKS,
)
STREAMS_ACCEPTABLE_RECOVERY_LAG: Final = GROUP.long(
    "streams.acceptable.recovery.lag",
    10_000,
    "The lag, in records, below which members consider a copy of a task's state caught up.",
    lo=0,
    mark=WORKS,
)
GROUP.integer(
    "streams.num.warmup.replicas",
    2,
    "Copies that warm up before a task moves. The assignor makes none, like that of Kafka 4.3.",
    lo=0,
)
GROUP.boolean("streams.assignor.offload.enable", True, "Run the assignor in a background thread.")

# Group config -> the broker option that is its default.
GROUP_SYNONYM: Final = {
    name: f"group.{name}"
    for name in GROUP.names()
    if name.startswith(("consumer.", "share.", "streams."))
    and name
    not in (
        "share.auto.offset.reset",
        "share.isolation.level",
        "share.renew.acknowledge.enable",
        "streams.num.warmup.replicas",
        "streams.acceptable.recovery.lag",
    )
}

# Group config -> broker options with its lowest and highest value (None: no such limit).
GROUP_LIMITS: Final[dict[str, tuple[str | None, str | None]]] = {
    "consumer.session.timeout.ms": (
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    "consumer.heartbeat.interval.ms": (
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    "consumer.assignment.interval.ms": (
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
    "share.session.timeout.ms": ("group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"),
    "share.heartbeat.interval.ms": (
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
    ),
    "share.assignment.interval.ms": (
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
    ),
    "share.record.lock.duration.ms": (
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    "share.delivery.count.limit": (
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    ),
    "share.partition.max.record.locks": (
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
    "streams.session.timeout.ms": (
        "group.streams.min.session.timeout.ms",
        "group.streams.max.session.timeout.ms",
    ),
    "streams.heartbeat.interval.ms": (
        "group.streams.min.heartbeat.interval.ms",
        "group.streams.max.heartbeat.interval.ms",
    ),
    "streams.assignment.interval.ms": (
        "group.streams.min.assignment.interval.ms",
        "group.streams.max.assignment.interval.ms",
    ),
    "streams.task.offset.interval.ms": ("group.streams.min.task.offset.interval.ms", None),
    "streams.num.standby.replicas": (None, "group.streams.max.standby.replicas"),
}
