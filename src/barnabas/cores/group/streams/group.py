"""Streams groups (KIP-1071) as values: the server assigns tasks, members say what they own.

Epochs are those of consumer groups: the group's grows whenever members or topics change, the target assignment has the group
epoch that it was computed for, and a member's epoch says how far it has followed. A task is a subtopology and a number; it
is active in one place, and on standby (or warming up) in processes that keep copies of its state. No process ever has the
same task twice, since all its members (threads) share one folder of state.

Everything here is stored in the log (records.py), except for the fields at the end of `StreamsGroup`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Any, Final, NamedTuple, Self

from barnabas.cores.group.membership import StaticMembers
from barnabas.cores.group.streams.topology import Configured, Topology

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2

Task = tuple[str, int]  # (subtopology, partition)
TaskSet = frozenset[Task]


class Tasks(NamedTuple):
    """Tasks by what a member does with them."""

    active: TaskSet = frozenset()
    standby: TaskSet = frozenset()
    warmup: TaskSet = frozenset()

    def minus(self, other: Tasks) -> Tasks:
        """The tasks that are not in `other`, each kind for itself."""
        return Tasks(self.active - other.active, self.standby - other.standby, self.warmup - other.warmup)

    def both(self, other: Tasks) -> Tasks:
        """The tasks that are in `other` as well."""
        return Tasks(self.active & other.active, self.standby & other.standby, self.warmup & other.warmup)

    def plus(self, other: Tasks) -> Tasks:
        """All tasks of both."""
        return Tasks(self.active | other.active, self.standby | other.standby, self.warmup | other.warmup)


NO_TASKS: Final = Tasks()


class StreamsState(StrEnum):
    """The values are the names that StreamsGroupDescribe and ListGroups send."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(IntEnum):
    """The values are those of the records."""

    STABLE = 0
    UNREVOKED_TASKS = 1  # has to give up tasks first
    UNRELEASED_TASKS = 2  # waits for tasks that others have to give up
    UNKNOWN = 127  # stored by a newer version: the member has to join again


class Endpoint(NamedTuple):
    """Where an instance answers interactive queries."""

    host: str
    port: int


class TaskOffset(NamedTuple):
    """How far a task's state is restored: the sum of the offsets of its changelogs."""

    subtopology: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """One member, that is, one thread of an instance: what it says of itself, and how far it has followed the target."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = 0
    process_id: str = ""
    endpoint: Endpoint | None = None
    tags: tuple[tuple[str, str], ...] = ()
    # The contents of the current-assignment record:
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Tasks = NO_TASKS
    revoking: Tasks = NO_TASKS
    active_epochs: Mapping[Task, int] = field(default_factory=dict)
    """The member epoch at which each active task was assigned, also of those being revoked."""

    def at_epoch(self, epoch: int) -> int:
        """The previous epoch to store when the member moves to `epoch`."""
        return self.previous_epoch if epoch == self.epoch else self.epoch


@dataclass(slots=True)
class StreamsGroup(StaticMembers[StreamsMember]):
    """A stored group is never modified; only drafts are (see proposal)."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    validated_topology_epoch: int = -1
    last_configs: tuple[tuple[str, str], ...] = ()
    topology: Topology | None = None
    target_epoch: int = 0
    members: dict[str, StreamsMember] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)
    target: dict[str, Tasks] = field(default_factory=dict)
    owners: dict[Task, str] = field(default_factory=dict)  # active, or still to be revoked -> process
    copies: frozenset[tuple[Task, str]] = frozenset()  # standby and warm-up tasks of processes, the same
    subtopology_of: dict[str, str] = field(default_factory=dict)  # source topic -> subtopology
    # Not in the log:
    configured: Configured | None = None  # the topology compared with the topics of version `topics_seen`
    topics_seen: int = -1
    assigned_ms: int = 0  # when the target was computed, by this coordinator
    endpoint_epoch: int = -1  # grows when the tasks of a member with an endpoint change
    endpoints: tuple[int, int, Any] = (
        -1,
        -1,
        (),
    )  # endpoint_epoch, topics' version, and what follows from both
    shutdown_by: str | None = None  # the member that asked all others to stop
    reported: dict[str, tuple[tuple[TaskOffset, ...], tuple[TaskOffset, ...]]] = field(default_factory=dict)
    """What members have reported of their tasks' offsets and end offsets."""

    def copy(self) -> Self:
        """A copy that may be changed."""
        return replace(
            self,
            members=dict(self.members),
            static_ids=dict(self.static_ids),
            target=dict(self.target),
            owners=dict(self.owners),
            reported=dict(self.reported),
        )

    # --- reading

    @property
    def group_type(self) -> str:
        """The type of group in ListGroups."""
        return "streams"

    @property
    def protocol_type(self) -> str:
        """The protocol type in ListGroups."""
        return "streams"

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    @property
    def state(self) -> StreamsState:
        """The state that StreamsGroupDescribe shows."""
        if not self.members:
            return StreamsState.EMPTY
        if self.topology is None or self.validated_topology_epoch != self.topology.epoch:
            return StreamsState.NOT_READY
        if self.epoch > self.target_epoch:
            return StreamsState.ASSIGNING
        if all(self.is_reconciled(member) for member in self.members.values()):
            return StreamsState.STABLE
        return StreamsState.RECONCILING

    def is_reconciled(self, member: StreamsMember) -> bool:
        """Whether the member has exactly its target assignment, at the target's epoch."""
        return member.state is MemberState.STABLE and member.epoch == self.target_epoch

    def subscribes_to(self, topic: str) -> bool:
        """Whether the group has members whose tasks read a topic."""
        return bool(self.members) and topic in self.subtopology_of

    def assigned_at(self, member: StreamsMember, topic: str, partition: int) -> int | None:
        """The member epoch at which a member got the task that reads a partition; None if it does not have the task."""
        subtopology = self.subtopology_of.get(topic)
        return None if subtopology is None else member.active_epochs.get((subtopology, partition))

    # --- changing a draft, or while replaying: one method per kind of record

    def put_topology(self, topology: Topology | None) -> None:
        """Replace the topology; it is compared with the topics again."""
        self.topology = topology
        self.subtopology_of = {} if topology is None else topology.subtopology_of()
        self.configured = None

    def put_member(self, member: StreamsMember) -> None:
        """Add a member or replace it by a new value, and update who has which tasks."""
        old = self.members.get(member.member_id)
        if old is not None:
            self._release(old)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        owned = member.assigned.plus(member.revoking)
        for task in owned.active:
            self.owners[task] = member.process_id
        if owned.standby or owned.warmup:
            self.copies |= {(task, member.process_id) for task in owned.standby | owned.warmup}

    def remove_member(self, member_id: str) -> None:
        """Remove a member, and what it owned and reported."""
        old = self.members.pop(member_id, None)
        if old is not None:
            self._release(old)
        self.reported.pop(member_id, None)
        if not self.members:
            self.shutdown_by = None

    def _release(self, member: StreamsMember) -> None:
        if member.instance_id is not None and self.static_ids.get(member.instance_id) == member.member_id:
            del self.static_ids[member.instance_id]
        owned = member.assigned.plus(member.revoking)
        for task in owned.active:
            if self.owners.get(task) == member.process_id:
                del self.owners[task]
        if owned.standby or owned.warmup:
            self.copies -= {(task, member.process_id) for task in owned.standby | owned.warmup}
