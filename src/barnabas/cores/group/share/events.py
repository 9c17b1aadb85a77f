"""The requests to share groups, and the broker's tasks at the share coordinator that result from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from barnabas.cores.decision import DoneReply
from barnabas.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class ShareHeartbeatReply:
    """`assignment` None means that the assignment has not changed."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: frozenset[tuple[UUID, int]] | None = None


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """ShareGroupHeartbeat: epoch 0 joins, -1 leaves; `topics` None means unchanged."""

    token: object
    now_ms: int
    group_id: str
    member_id: str
    member_epoch: int
    client_id: str = ""
    client_host: str = ""
    rack_id: str | None = None
    topics: frozenset[str] | None = None

    def refused(self, error: ErrorCode) -> ShareHeartbeatReply:
        """The answer that carries nothing but an error."""
        return ShareHeartbeatReply(error)


class DescribedSharer(NamedTuple):
    """One member in a ShareGroupDescribe answer."""

    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    assignment: frozenset[tuple[UUID, int]]


@dataclass(frozen=True, slots=True)
class ShareDescribeReply:
    """The answer for one group of ShareGroupDescribe."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    members: tuple[DescribedSharer, ...] = ()
    initialized: tuple[
        tuple[UUID, str, frozenset[int]], ...
    ] = ()  # for DescribeShareGroupOffsets of all topics


@dataclass(frozen=True, slots=True)
class DescribeShareGroup:
    """One group of a ShareGroupDescribe request."""

    token: object
    now_ms: int
    group_id: str

    def refused(self, error: ErrorCode) -> ShareDescribeReply:
        """The answer that carries nothing but an error."""
        return ShareDescribeReply(self.group_id, error)


@dataclass(frozen=True, slots=True)
class ShareInitialized:
    """The share coordinator has created the states that an InitializeShareState requested."""

    token: object
    now_ms: int
    group_id: str
    topics: Mapping[UUID, frozenset[int]]

    def refused(self, error: ErrorCode) -> DoneReply:
        """The answer that carries nothing but an error."""
        return DoneReply(error)


@dataclass(frozen=True, slots=True)
class ShareStatesLost:
    """The share coordinator has lost all states, because its topic was deleted: the group requests them again."""

    token: object
    now_ms: int
    group_id: str

    def refused(self, error: ErrorCode) -> DoneReply:
        """The answer that carries nothing but an error."""
        return DoneReply(error)


@dataclass(frozen=True, slots=True)
class AlterShareReply:
    """`state_epoch` is the epoch with which to initialize the altered partitions."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0


@dataclass(frozen=True, slots=True)
class AlterShareOffsets:
    """AlterShareGroupOffsets, only for an empty group. The handler then initializes the states again."""

    token: object
    now_ms: int
    group_id: str
    topics: Mapping[UUID, frozenset[int]]

    def refused(self, error: ErrorCode) -> AlterShareReply:
        """The answer that carries nothing but an error."""
        return AlterShareReply(error)


@dataclass(frozen=True, slots=True)
class DeleteShareOffsets:
    """DeleteShareGroupOffsets, only for an empty group. The decision's effects delete the states."""

    token: object
    now_ms: int
    group_id: str
    topics: frozenset[UUID]

    def refused(self, error: ErrorCode) -> AlterShareReply:
        """The answer that carries nothing but an error."""
        return AlterShareReply(error)


class InitializeShareState(NamedTuple):
    """Effect: create states with start offset -1, then step ShareInitialized. Repeated later if that fails."""

    group_id: str
    topic_id: UUID
    partitions: frozenset[int]
    state_epoch: int


class DeleteShareState(NamedTuple):
    """Effect: the states of these partitions are no longer needed."""

    group_id: str
    topic_id: UUID
    partitions: frozenset[int]
