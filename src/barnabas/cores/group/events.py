"""The requests to a core of the group coordinator and its answers; independent of message versions.

An event has a `token`, the broker's opaque handle for the waiting request, and `now_ms`. Each event with a token is
answered exactly once, in the Decision of its own step or of a later one (a join waits for the other members). `refused`
makes an answer that contains only an error.
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
    """One member in the list that the leader receives."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


MEMBER_NAME_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class JoinReply:
    """`members` is filled only for the leader."""

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
    """`fresh_id` is a new UUID as text; a new member's id is derived from it."""

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
        """The id of a new member; short enough to be sent, however long the client's name is."""
        name = self.client_id if self.group_instance_id is None else self.group_instance_id
        return f"{name[:MEMBER_NAME_MAX]}-{self.fresh_id}"

    def refused(self, error: ErrorCode) -> JoinReply:
        """The answer that carries nothing but an error."""
        return JoinReply(error, self.member_id)


@dataclass(frozen=True, slots=True)
class SyncReply:
    """The answer to SyncGroup: the member's assignment."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """`assignments` by member id, filled by the leader; the protocol fields are None before SyncGroup v5."""

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
    """The answer to Heartbeat."""

    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Heartbeat of a classic member."""

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
    """One leaving member. `member_id` may be empty when an administrator removes a static member by instance id."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class LeftMember(NamedTuple):
    """The result for one leaving member."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaveReply:
    """Before LeaveGroup v3, the error of the only member is sent as the error of the answer."""

    error: ErrorCode = ErrorCode.NONE
    members: tuple[LeftMember, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """LeaveGroup: one or more members leave or are removed."""

    token: object
    now_ms: int
    group_id: str
    members: tuple[LeavingMember, ...]

    def refused(self, error: ErrorCode) -> LeaveReply:
        """The answer that carries nothing but an error."""
        return LeaveReply(error)


# --- looking at groups, deleting them ---------------------------------------------------------------------


class DescribedMember(NamedTuple):
    """One member in a DescribeGroups answer."""

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
    """One group in a ListGroups answer."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True)
class ListReply:
    """The answer to ListGroups."""

    error: ErrorCode = ErrorCode.NONE
    groups: tuple[ListedGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class ListGroups:
    """Empty filters match every group; names are compared without regard to case."""

    token: object
    now_ms: int
    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()

    def refused(self, error: ErrorCode) -> ListReply:
        """The answer that carries nothing but an error."""
        return ListReply(error)


@dataclass(frozen=True, slots=True)
class DeleteReply:
    """The answer for one group of DeleteGroups."""

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
    """`commit_timestamp_ms` is only sent by OffsetCommit v1; -1 means now."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str | None = ""
    commit_timestamp_ms: int = -1


class PartitionResult(NamedTuple):
    """The result for one partition."""

    topic: str
    partition: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class CommitReply:
    """If `error` is set, it applies to all partitions of the request."""

    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[PartitionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """OffsetCommit, or TxnOffsetCommit if `producer` is given.

    `generation_id` is the member epoch for groups of the consumer protocol. `knows_member_epoch` is set for OffsetCommit v9
    and newer (which may be answered with GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH).
    """

    token: object
    now_ms: int
    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None
    retention_ms: int = -1  # OffsetCommit v2 to v4; -1 is the broker's default
    producer: Producer | None = None
    knows_member_epoch: bool = True

    def refused(self, error: ErrorCode) -> CommitReply:
        """The answer that carries nothing but an error."""
        return CommitReply(error)


class FetchedOffset(NamedTuple):
    """The committed offset of one partition, or why it is not returned."""

    topic: str
    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class FetchReply:
    """The answer for one group of OffsetFetch."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    offsets: tuple[FetchedOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """One group of an OffsetFetch request; `partitions` None means all partitions that the group has committed."""

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
    """The answer to OffsetDelete."""

    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[PartitionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """OffsetDelete: forget committed offsets of some partitions."""

    token: object
    now_ms: int
    group_id: str
    partitions: tuple[tuple[str, int], ...]

    def refused(self, error: ErrorCode) -> DeleteOffsetsReply:
        """The answer that carries nothing but an error."""
        return DeleteOffsetsReply(error)


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """A transaction's marker has reached this partition of the offsets topic (WriteTxnMarkers).

    The broker itself appends the control batch, and steps this event in the same turn.
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
    """A piece of the work in one group after `topics` have been deleted (sweeps.topics_deleted).

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
    """A piece of the periodic expiry in one group (sweeps.expiry): drops the expired offsets among `partitions`.

    The last piece also removes the group if it is empty and has nothing left.
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
    """`assignment` None means that the assignment has not changed."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: frozenset[tuple[UUID, int]] | None = None


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat. None always means "unchanged"; in v0 the broker creates the id of a new member.

    An empty `regex` ends a subscription by expression. `owned` contains (topic id, partition). No topics are matched;
    afterwards `GroupCoordinatorCore.must_match` says whether TopicsMatched has to follow.
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


@dataclass(frozen=True, slots=True)
class TopicsMatched:
    """What the regular expressions of a consumer group match, found after a member's heartbeat was answered.

    among: the topics that existed; if others exist by now, matching has to be repeated. by_regex: the matching topics that
    the member may describe.
    """

    token: object
    now_ms: int
    group_id: str
    among: Mapping[str, object]
    by_regex: Mapping[str, frozenset[str]]

    def refused(self, error: ErrorCode) -> DoneReply:
        """The answer that carries nothing but an error."""
        return DoneReply(error)


class DescribedConsumer(NamedTuple):
    """One member in a ConsumerGroupDescribe answer."""

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
    """The answer for one group of ConsumerGroupDescribe."""

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
    """Identifies one timer of a group or of one of its members."""

    group_id: str
    member_id: str  # empty for timers of the whole group
    kind: str
