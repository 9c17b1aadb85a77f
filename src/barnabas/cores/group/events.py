"""What a shard of groups is asked, and what it answers; independent of message versions.

An event carries `token`, the broker's opaque handle of the waiting request, and `now_ms`. Each event with a
token is answered exactly once, in the Decision of its own step or in that of a later one (a join waits for
the other members). `refused` makes the answer of an event's kind that carries nothing but an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.cores.decision import DoneReply, Producer
from barnabas.wire.errors import ErrorCode

NO_GENERATION = -1
NO_OFFSET = -1
NO_EPOCH = -1


# --- membership, classic protocol -------------------------------------------------------------------------


class JoinedMember(NamedTuple):
    """One row of the list that the leader receives."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


MEMBER_NAME_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class JoinReply:
    """`members` is filled for the leader only."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """`fresh_id` is a new UUID as text; a new member's id is made of it."""

    token: object
    now_ms: int
    group_id: str
    member_id: str
    fresh_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    group_instance_id: str | None = None
    reason: str | None = None
    requires_member_id: bool = True  # JoinGroup v4 and newer
    can_skip_assignment: bool = True  # JoinGroup v9 and newer

    @property
    def new_member_id(self) -> str:
        """The id of a member that joins with this event; short enough to be sent however long the client's name is."""
        name = self.client_id if self.group_instance_id is None else self.group_instance_id
        return f"{name[:MEMBER_NAME_MAX]}-{self.fresh_id}"

    def refused(self, error: ErrorCode) -> JoinReply:
        """The answer that carries nothing but an error."""
        return JoinReply(error, self.member_id)


@dataclass(frozen=True, slots=True)
class SyncReply:
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """`assignments` by member id, filled by the leader; protocol fields are None before SyncGroup v5."""

    token: object
    now_ms: int
    group_id: str
    generation_id: int
    member_id: str
    assignments: Mapping[str, bytes]
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None

    def refused(self, error: ErrorCode) -> SyncReply:
        """The answer that carries nothing but an error."""
        return SyncReply(error)


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Heartbeat:
    token: object
    now_ms: int
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None

    def refused(self, error: ErrorCode) -> HeartbeatReply:
        """The answer that carries nothing but an error."""
        return HeartbeatReply(error)


class LeavingMember(NamedTuple):
    """`member_id` may be empty where an administrator removes a static member by its instance id."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class LeftMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaveReply:
    """Before LeaveGroup v3 the error of the only member is the answer's error."""

    error: ErrorCode = ErrorCode.NONE
    members: tuple[LeftMember, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    token: object
    now_ms: int
    group_id: str
    members: tuple[LeavingMember, ...]

    def refused(self, error: ErrorCode) -> LeaveReply:
        """The answer that carries nothing but an error."""
        return LeaveReply(error)


# --- looking at groups, deleting them ---------------------------------------------------------------------


class DescribedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribeReply:
    """An unknown group has error GROUP_ID_NOT_FOUND and state Dead.

    DescribeGroups before v6 sends such a group with error 0.
    """

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeGroup:
    """One group of a DescribeGroups request."""

    token: object
    now_ms: int
    group_id: str

    def refused(self, error: ErrorCode) -> DescribeReply:
        """The answer that carries nothing but an error."""
        return DescribeReply(self.group_id, error)


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True)
class ListReply:
    error: ErrorCode = ErrorCode.NONE
    groups: tuple[ListedGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class ListGroups:
    """Empty filters let every group through; names are compared without regard to case."""

    token: object
    now_ms: int
    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()

    def refused(self, error: ErrorCode) -> ListReply:
        """The answer that carries nothing but an error."""
        return ListReply(error)


@dataclass(frozen=True, slots=True)
class DeleteReply:
    group_id: str
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """One group of a DeleteGroups request."""

    token: object
    now_ms: int
    group_id: str

    def refused(self, error: ErrorCode) -> DeleteReply:
        """The answer that carries nothing but an error."""
        return DeleteReply(self.group_id, error)


# --- offsets ------------------------------------------------------------------------------------------------


class OffsetToCommit(NamedTuple):
    """`commit_timestamp_ms` is sent by OffsetCommit v1 only; -1 means now."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str | None = ""
    commit_timestamp_ms: int = -1


class PartitionResult(NamedTuple):
    topic: str
    partition: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class CommitReply:
    """When `error` is set, no partition was looked at: it is the error of each of them."""

    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[PartitionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """OffsetCommit, or TxnOffsetCommit where `producer` is given.

    `generation_id` is the member epoch for groups of the consumer protocol. `knows_member_epoch` marks
    OffsetCommit v9 and newer (they get GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH).
    """

    token: object
    now_ms: int
    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None
    retention_ms: int = -1  # OffsetCommit v2 to v4; -1 is the broker's own
    producer: Producer | None = None
    knows_member_epoch: bool = True

    def refused(self, error: ErrorCode) -> CommitReply:
        """The answer that carries nothing but an error."""
        return CommitReply(error)


class FetchedOffset(NamedTuple):
    topic: str
    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class FetchReply:
    group_id: str
    error: ErrorCode = ErrorCode.NONE
    offsets: tuple[FetchedOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """One group of an OffsetFetch request; `partitions` None means all that the group committed."""

    token: object
    now_ms: int
    group_id: str
    partitions: tuple[tuple[str, int], ...] | None
    member_id: str | None = None  # OffsetFetch v9 and newer
    member_epoch: int = NO_EPOCH
    require_stable: bool = False

    def refused(self, error: ErrorCode) -> FetchReply:
        """The answer that carries nothing but an error."""
        return FetchReply(self.group_id, error)


@dataclass(frozen=True, slots=True)
class DeleteOffsetsReply:
    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[PartitionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    token: object
    now_ms: int
    group_id: str
    partitions: tuple[tuple[str, int], ...]

    def refused(self, error: ErrorCode) -> DeleteOffsetsReply:
        """The answer that carries nothing but an error."""
        return DeleteOffsetsReply(error)


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """The transaction's marker reached this partition of the offsets topic (WriteTxnMarkers).

    The broker appends the control batch itself and steps this event in the same turn.
    """

    token: object
    now_ms: int
    producer: Producer
    committed: bool

    def refused(self, error: ErrorCode) -> DoneReply:
        """The answer that carries nothing but an error."""
        return DoneReply(error)


@dataclass(frozen=True, slots=True)
class ForgetOffsets:
    """A piece of what the deletion of `topics` leads to in one group (sweeps.topics_deleted).

    Drops the offsets of `partitions` that are not newer than `newest_sequence`; a share group forgets the topics.
    """

    token: object
    now_ms: int
    group_id: str
    partitions: tuple[tuple[str, int], ...]
    topics: frozenset[str]
    newest_sequence: int

    def refused(self, error: ErrorCode) -> DoneReply:
        """The answer that carries nothing but an error."""
        return DoneReply(error)


@dataclass(frozen=True, slots=True)
class ExpireOffsets:
    """A piece of the regular expiry in one group (sweeps.expiry): drops those of `partitions` whose time has run out.

    With the last piece, a group that is empty and has nothing left is removed.
    """

    token: object
    now_ms: int
    group_id: str
    partitions: tuple[tuple[str, int], ...]
    is_last: bool

    def refused(self, error: ErrorCode) -> DoneReply:
        """The answer that carries nothing but an error."""
        return DoneReply(error)


# --- consumer groups (KIP-848) ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatReply:
    """`assignment` None means that the assignment is what it was."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: frozenset[tuple[UUID, int]] | None = None


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat. None means "as before" throughout; in v0 the broker makes up the first member id.

    An empty `regex` ends a subscription by expression. `owned` holds (topic id, partition).
    """

    token: object
    now_ms: int
    group_id: str
    member_id: str
    member_epoch: int
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: frozenset[tuple[UUID, int]] | None = None

    def refused(self, error: ErrorCode) -> ConsumerHeartbeatReply:
        """The answer that carries nothing but an error."""
        return ConsumerHeartbeatReply(error)


class DescribedConsumer(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    assignment: frozenset[tuple[UUID, int]]
    target: frozenset[tuple[UUID, int]]
    is_classic: bool


@dataclass(frozen=True, slots=True)
class ConsumerDescribeReply:
    group_id: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumer, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeConsumerGroup:
    """One group of a ConsumerGroupDescribe request."""

    token: object
    now_ms: int
    group_id: str

    def refused(self, error: ErrorCode) -> ConsumerDescribeReply:
        """The answer that carries nothing but an error."""
        return ConsumerDescribeReply(self.group_id, error)


# --- timers -------------------------------------------------------------------------------------------------


class TimerKey(NamedTuple):
    group_id: str
    member_id: str  # empty for timers of the whole group
    kind: str
