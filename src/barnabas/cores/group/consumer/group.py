"""Consumer groups (KIP-848) as values: the server assigns partitions, members only say what they want and own.

There are three epochs. The group's increases whenever members, subscriptions or topics change. The target assignment has the
group epoch that it was computed for. A member's epoch says how far it has followed: it first gives up the partitions
that the target takes away, and only then receives new ones, when other members have released them.

Everything here is stored in the log: a group is exactly what its records say (records.py), except for
`topics_seen`, `topics_matched` and `assigned_ms`, which only avoid work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple, Self

from barnabas.cores.group.assignors import NOTHING, Assignment, TopicPartition
from barnabas.cores.group.membership import StaticMembers

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2


class ConsumerState(StrEnum):
    """The values are the names that ConsumerGroupDescribe and ListGroups send."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(IntEnum):
    """The values are those of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # has to give up partitions first
    UNRELEASED_PARTITIONS = 2  # waits for partitions that others have to give up
    UNKNOWN = 127  # stored by a newer version: the member has to join again


class ClassicSide(NamedTuple):
    """Additional data of a member that uses the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member: what it says of itself, and how far it has followed the target assignment."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicSide | None = None
    # The contents of the current-assignment record:
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assignment = NOTHING
    revoking: Assignment = NOTHING

    def at_epoch(self, epoch: int) -> int:
        """The previous epoch to store when the member moves to `epoch`."""
        return self.previous_epoch if epoch == self.epoch else self.epoch


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched, at a version of the topic metadata."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@dataclass(slots=True)
class ConsumerGroup(StaticMembers[ConsumerMember]):
    """A stored group is never modified; only drafts are (see proposal)."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)
    target: dict[str, Assignment] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    regex_members: dict[str, int] = field(default_factory=dict)  # expression -> how many members use it
    owners: dict[TopicPartition, str] = field(default_factory=dict)  # assigned or still to be revoked
    topics_seen: int = -1  # version of the topic metadata that metadata_hash was checked against
    topics_matched: int = -1  # version of the topic metadata that all expressions were matched against
    assigned_ms: int = 0  # when the target was computed, by this coordinator

    def copy(self) -> Self:
        """A copy that may be changed."""
        return replace(
            self,
            members=dict(self.members),
            static_ids=dict(self.static_ids),
            target=dict(self.target),
            regexes=dict(self.regexes),
            regex_members=dict(self.regex_members),
            owners=dict(self.owners),
        )

    # --- reading

    @property
    def group_type(self) -> str:
        """The type of group in ListGroups."""
        return "consumer"

    @property
    def protocol_type(self) -> str:
        """The protocol type in ListGroups."""
        return "consumer"

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    @property
    def state(self) -> ConsumerState:
        """The state that ConsumerGroupDescribe shows."""
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerState.ASSIGNING
        if all(self.is_reconciled(member) for member in self.members.values()):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

    def is_reconciled(self, member: ConsumerMember) -> bool:
        """Whether the member has exactly its target assignment, at the target's epoch."""
        return member.state is MemberState.STABLE and member.epoch == self.target_epoch

    def subscribed_topics(self) -> frozenset[str]:
        """All topics that any member subscribes to, by name or expression."""
        return frozenset().union(*{self.topics_of(member) for member in self.members.values()})

    def subscribes_to(self, topic: str) -> bool:
        """Whether any member subscribes to a topic."""
        return any(topic in self.topics_of(member) for member in self.members.values())

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The topics that a member subscribes to, by name or expression."""
        resolved = self.regexes.get(member.regex) if member.regex else None
        return member.topics | resolved.topics if resolved else member.topics

    def preferred_assignor(self, known: Mapping[str, object], default: str) -> str:
        """The assignor that most members ask for, or `default`."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.assignor is not None and member.assignor in known:
                votes[member.assignor] = votes.get(member.assignor, 0) + 1
        return max(votes, key=votes.__getitem__) if votes else default

    # --- changing a draft, or while replaying: one method per kind of record

    def put_member(self, member: ConsumerMember) -> None:
        """Add a member or replace it by a new value, and update the owners of partitions and the users of expressions."""
        old = self.members.get(member.member_id)
        if old is not None:
            self._release(old)
            if old.instance_id is not None and self.static_ids.get(old.instance_id) == old.member_id:
                del self.static_ids[old.instance_id]
        self.members[member.member_id] = member
        if member.regex:
            self.regex_members[member.regex] = self.regex_members.get(member.regex, 0) + 1
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        for partition in member.assigned | member.revoking:
            self.owners[partition] = member.member_id

    def remove_member(self, member_id: str) -> None:
        """Remove a member, its ownership of partitions and its use of an expression."""
        old = self.members.pop(member_id, None)
        if old is not None:
            self._release(old)
            if old.instance_id is not None and self.static_ids.get(old.instance_id) == member_id:
                del self.static_ids[old.instance_id]

    def _release(self, member: ConsumerMember) -> None:
        if member.regex:
            self.regex_members[member.regex] -= 1
            if not self.regex_members[member.regex]:
                del self.regex_members[member.regex]
        for partition in member.assigned | member.revoking:
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]
