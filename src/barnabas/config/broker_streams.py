"""Broker options of streams groups (KIP-1071)."""

from __future__ import annotations

from typing import Final

from barnabas.config.option import Mark, Mode, OptionTable

STREAMS: Final = OptionTable("Streams groups")

WORKS: Final = Mark.WORKS
CLUSTER: Final = Mode.CLUSTER
INT_MAX: Final = (1 << 31) - 1

GROUP_STREAMS_SESSION_TIMEOUT_MS: Final = STREAMS.integer(
    "group.streams.session.timeout.ms",
    45_000,
    "Silence after which a streams group's member is dropped.",
    lo=1,
    mark=WORKS,
)
GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS: Final = STREAMS.integer(
    "group.streams.min.session.timeout.ms",
    45_000,
    "Lowest value of a group's streams.session.timeout.ms.",
    lo=1,
    mark=WORKS,
)
GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS: Final = STREAMS.integer(
    "group.streams.max.session.timeout.ms",
    60_000,
    "Highest value of a group's streams.session.timeout.ms.",
    lo=1,
    mark=WORKS,
)
GROUP_STREAMS_HEARTBEAT_INTERVAL_MS: Final = STREAMS.integer(
    "group.streams.heartbeat.interval.ms",
    5000,
    "Heartbeat interval given to streams group members.",
    lo=1,
    mark=WORKS,
)
GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS: Final = STREAMS.integer(
    "group.streams.min.heartbeat.interval.ms",
    5000,
    "Lowest value of a group's streams.heartbeat.interval.ms.",
    lo=1,
    mark=WORKS,
)
GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS: Final = STREAMS.integer(
    "group.streams.max.heartbeat.interval.ms",
    15_000,
    "Highest value of a group's streams.heartbeat.interval.ms.",
    lo=1,
    mark=WORKS,
)
GROUP_STREAMS_MAX_SIZE: Final = STREAMS.integer(
    "group.streams.max.size",
    INT_MAX,
    "Maximum number of members, that is, threads, of a streams group.",
    lo=1,
    mark=WORKS,
)
GROUP_STREAMS_NUM_STANDBY_REPLICAS: Final = STREAMS.integer(
    "group.streams.num.standby.replicas",
    0,
    "How many standby copies of each stateful task a streams group keeps.",
    lo=0,
    mark=WORKS,
)
GROUP_STREAMS_MAX_STANDBY_REPLICAS: Final = STREAMS.integer(
    "group.streams.max.standby.replicas",
    2,
    "Highest value of a group's streams.num.standby.replicas.",
    lo=0,
    mark=WORKS,
)
GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS: Final = STREAMS.integer(
    "group.streams.initial.rebalance.delay.ms",
    3000,
    "How long the first member of a streams group waits for others before tasks are assigned: its threads and "
    "instances then get their tasks at once, instead of taking them from each other.",
    lo=0,
    mark=WORKS,
)
GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS: Final = STREAMS.integer(
    "group.streams.assignment.interval.ms",
    1000,
    "Minimum time between two assignments of a streams group.",
    lo=0,
    mode=CLUSTER,
    mark=WORKS,
)
GROUP_STREAMS_MIN_ASSIGNMENT_INTERVAL_MS: Final = STREAMS.integer(
    "group.streams.min.assignment.interval.ms",
    0,
    "Lowest value of a group's streams.assignment.interval.ms.",
    lo=0,
    mark=WORKS,
)
GROUP_STREAMS_MAX_ASSIGNMENT_INTERVAL_MS: Final = STREAMS.integer(
    "group.streams.max.assignment.interval.ms",
    15_000,
    "Highest value of a group's streams.assignment.interval.ms.",
    lo=0,
    mark=WORKS,
)
GROUP_STREAMS_TASK_OFFSET_INTERVAL_MS: Final = STREAMS.integer(
    "group.streams.task.offset.interval.ms",
    60_000,
    "How often members are asked to report how far the state of their tasks is restored.",
    lo=1,
    mark=WORKS,
)
GROUP_STREAMS_MIN_TASK_OFFSET_INTERVAL_MS: Final = STREAMS.integer(
    "group.streams.min.task.offset.interval.ms",
    15_000,
    "Lowest value of a group's streams.task.offset.interval.ms.",
    lo=1,
    mark=WORKS,
)
STREAMS.boolean(
    "group.streams.assignor.offload.enable", True, "Run the assignor in a background thread.", mode=CLUSTER
)
