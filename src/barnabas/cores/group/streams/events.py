"""The requests to streams groups and their answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from barnabas.cores.group.streams.group import Endpoint, StreamsMember, TaskOffset, Tasks
from barnabas.cores.group.streams.topology import NewTopic, Status, Topology
from barnabas.wire.errors import ErrorCode


class EndpointPartitions(NamedTuple):
    """The partitions that an instance can be asked for: (topic, partition numbers)."""

    endpoint: Endpoint
    active: tuple[tuple[str, tuple[int, ...]], ...]
    standby: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class StreamsHeartbeatReply:
    """`tasks` and `endpoints` None mean unchanged. `missing` are internal topics, which the broker is to create."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    statuses: tuple[Status, ...] = ()
    tasks: Tasks | None = None
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None
    missing: tuple[NewTopic, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamsHeartbeat:
    """StreamsGroupHeartbeat: epoch 0 joins, -1 leaves, -2 leaves for a while. None always means "unchanged"."""

    token: object
    now_ms: int
    group_id: str
    member_id: str
    member_epoch: int
    endpoint_epoch: int = -1
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    owned: Tasks | None = None
    process_id: str | None = None
    endpoint: Endpoint | None = None
    tags: tuple[tuple[str, str], ...] | None = None
    offsets: tuple[TaskOffset, ...] | None = None
    end_offsets: tuple[TaskOffset, ...] | None = None
    shutdown: bool = False

    def refused(self, error: ErrorCode) -> StreamsHeartbeatReply:
        """The answer that carries nothing but an error."""
        return StreamsHeartbeatReply(error)


class DescribedStreamsMember(NamedTuple):
    """One member in a StreamsGroupDescribe answer."""

    member: StreamsMember
    target: Tasks
    offsets: tuple[TaskOffset, ...]
    end_offsets: tuple[TaskOffset, ...]


@dataclass(frozen=True, slots=True)
class StreamsDescribeReply:
    """The answer for one group of StreamsGroupDescribe."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    topology: Topology | None = None
    members: tuple[DescribedStreamsMember, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeStreamsGroup:
    """One group of a StreamsGroupDescribe request."""

    token: object
    now_ms: int
    group_id: str

    def refused(self, error: ErrorCode) -> StreamsDescribeReply:
        """The answer that carries nothing but an error."""
        return StreamsDescribeReply(self.group_id, error)
