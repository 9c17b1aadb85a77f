"""The limits that group cores apply, from the broker's options and from those of single groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.config import broker_groups, broker_share, broker_streams
from barnabas.config.group_options import (
    GROUP,
    STREAMS_ACCEPTABLE_RECOVERY_LAG,
    STREAMS_TASK_OFFSET_INTERVAL_MS,
)
from barnabas.cores.group import GroupLimits

if TYPE_CHECKING:
    from barnabas.config.loader import BrokerConfig

OF_ONE_GROUP: Final[Mapping[str, str]] = {
    "consumer.session.timeout.ms": "consumer_session_timeout_ms",
    "consumer.heartbeat.interval.ms": "consumer_heartbeat_interval_ms",
    "consumer.assignment.interval.ms": "consumer_assignment_interval_ms",
    "share.session.timeout.ms": "share_session_timeout_ms",
    "share.heartbeat.interval.ms": "share_heartbeat_interval_ms",
    "streams.session.timeout.ms": "streams_session_timeout_ms",
    "streams.heartbeat.interval.ms": "streams_heartbeat_interval_ms",
    "streams.num.standby.replicas": "streams_num_standby_replicas",
    "streams.initial.rebalance.delay.ms": "streams_initial_rebalance_delay_ms",
    "streams.assignment.interval.ms": "streams_assignment_interval_ms",
}
"""Option of resource type GROUP -> the limit that it sets for the group."""


def limits_of_all(config: BrokerConfig) -> GroupLimits:
    """The limits of every group without options of its own."""
    get = config.get
    return GroupLimits(
        group_min_session_timeout_ms=get(broker_groups.GROUP_MIN_SESSION_TIMEOUT_MS),
        group_max_session_timeout_ms=get(broker_groups.GROUP_MAX_SESSION_TIMEOUT_MS),
        group_initial_rebalance_delay_ms=get(broker_groups.GROUP_INITIAL_REBALANCE_DELAY_MS),
        group_max_size=get(broker_groups.GROUP_MAX_SIZE),
        offset_metadata_max_bytes=get(broker_groups.OFFSET_METADATA_MAX_BYTES),
        offsets_retention_ms=get(broker_groups.OFFSETS_RETENTION_MINUTES) * 60_000,
        consumer_session_timeout_ms=get(broker_groups.GROUP_CONSUMER_SESSION_TIMEOUT_MS),
        consumer_heartbeat_interval_ms=get(broker_groups.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS),
        consumer_max_size=get(broker_groups.GROUP_CONSUMER_MAX_SIZE),
        consumer_assignors=get(broker_groups.GROUP_CONSUMER_ASSIGNORS),
        consumer_assignment_interval_ms=get(broker_groups.GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS),
        consumer_migration_policy=get(broker_groups.GROUP_CONSUMER_MIGRATION_POLICY).lower(),
        share_session_timeout_ms=get(broker_share.GROUP_SHARE_SESSION_TIMEOUT_MS),
        share_heartbeat_interval_ms=get(broker_share.GROUP_SHARE_HEARTBEAT_INTERVAL_MS),
        share_max_size=get(broker_share.GROUP_SHARE_MAX_SIZE),
        share_initialize_retry_interval_ms=get(broker_share.GROUP_SHARE_INITIALIZE_RETRY_INTERVAL_MS),
        streams_session_timeout_ms=get(broker_streams.GROUP_STREAMS_SESSION_TIMEOUT_MS),
        streams_heartbeat_interval_ms=get(broker_streams.GROUP_STREAMS_HEARTBEAT_INTERVAL_MS),
        streams_max_size=get(broker_streams.GROUP_STREAMS_MAX_SIZE),
        streams_num_standby_replicas=get(broker_streams.GROUP_STREAMS_NUM_STANDBY_REPLICAS),
        streams_initial_rebalance_delay_ms=get(broker_streams.GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS),
        streams_assignment_interval_ms=get(broker_streams.GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS),
    )


def limits_of_one(limits: GroupLimits, texts: Mapping[str, str]) -> GroupLimits | None:
    """`limits` overridden by a group's own options; None when none of these are limits."""
    own = {field: GROUP[name].parse(texts[name]) for name, field in OF_ONE_GROUP.items() if name in texts}
    return replace(limits, **own) if own else None


class StreamsOptions(NamedTuple):
    """Options that a streams group only passes on to its members."""

    task_offset_interval_ms: int
    acceptable_recovery_lag: int


def streams_options_of_all(config: BrokerConfig) -> StreamsOptions:
    """The options of every streams group without options of its own."""
    return StreamsOptions(
        config.get(broker_streams.GROUP_STREAMS_TASK_OFFSET_INTERVAL_MS),
        STREAMS_ACCEPTABLE_RECOVERY_LAG.default,
    )


def streams_options(options: StreamsOptions, texts: Mapping[str, str]) -> StreamsOptions:
    """`options` overridden by a group's own."""
    interval_ms, lag = (
        texts.get(STREAMS_TASK_OFFSET_INTERVAL_MS.name),
        texts.get(STREAMS_ACCEPTABLE_RECOVERY_LAG.name),
    )
    return StreamsOptions(
        options.task_offset_interval_ms if interval_ms is None else int(interval_ms),
        options.acceptable_recovery_lag if lag is None else int(lag),
    )
