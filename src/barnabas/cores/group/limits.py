"""The options that apply to groups, as plain values; the broker fills them from its configuration."""

from __future__ import annotations

from dataclasses import dataclass

INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Field names follow Kafka's option names; defaults are Barnabas' own on a single node."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 0
    group_max_size: int = INT32_MAX
    new_member_join_timeout_ms: int = 300_000  # a constant in Kafka
    pending_members_wait_ms: int = 500
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * 60_000
    retry_after_failed_append_ms: int = 1_000
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = INT32_MAX
    consumer_assignors: tuple[str, ...] = (
        "uniform",
        "range",
    )  # the first one is used if members do not choose
    share_session_timeout_ms: int = 45_000
    share_heartbeat_interval_ms: int = 5_000
    share_max_size: int = 200
    share_initialize_retry_interval_ms: int = 30_000
    streams_session_timeout_ms: int = 45_000
    streams_heartbeat_interval_ms: int = 5_000
    streams_max_size: int = INT32_MAX
    streams_num_standby_replicas: int = 0
    streams_initial_rebalance_delay_ms: int = 3_000  # the wait of a new group's first member for others
    streams_assignment_interval_ms: int = 1_000  # minimum time between two assignments of a group
    waiting_heartbeat_interval_ms: int = 1_000  # for members that are about to receive partitions
    consumer_assignment_interval_ms: int = 0  # minimum time between two assignments of a group
    consumer_migration_policy: str = "bidirectional"  # or upgrade, downgrade, disabled
