"""Share groups (KIP-932) as values: their members read from the same partitions.

No member has to give up anything before another may have it, so a member simply has its target assignment, at the
target's epoch. A partition is assigned once the share coordinator stores its state: the state has been requested for
`initializing` partitions, and exists for `initialized` ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, Self
from uuid import UUID

from barnabas.cores.group.assignors import NOTHING, Assignment, AssignSpec, TopicPartition
from barnabas.cores.group.membership import Members


class ShareGroupState(StrEnum):
    """The values are the names that ShareGroupDescribe and ListGroups send."""

    EMPTY = "Empty"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ShareMember:
    """One member: what it says of itself, and its assignment."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Assignment = NOTHING


class ShareTopic(NamedTuple):
    """Partitions of one topic whose states exist or are being created."""

    name: str
    partitions: frozenset[int]
    since_ms: int


@dataclass(slots=True)
class ShareGroup(Members[ShareMember]):
    """A stored group is never modified; only drafts are (see proposal)."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)
    target: dict[str, Assignment] = field(default_factory=dict)
    initializing: dict[UUID, ShareTopic] = field(default_factory=dict)
    initialized: dict[UUID, ShareTopic] = field(default_factory=dict)
    topics_seen: int = -1

    def copy(self) -> Self:
        """A copy that may be changed."""
        return replace(
            self,
            members=dict(self.members),
            target=dict(self.target),
            initializing=dict(self.initializing),
            initialized=dict(self.initialized),
        )

    @property
    def group_type(self) -> str:
        """The type of group in ListGroups."""
        return "share"

    @property
    def protocol_type(self) -> str:
        """The protocol type in ListGroups."""
        return "share"

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    @property
    def state(self) -> ShareGroupState:
        """The state that ShareGroupDescribe shows."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def subscribes_to(self, topic: str) -> bool:
        """Whether any member subscribes to a topic."""
        return any(topic in member.topics for member in self.members.values())

    def subscribed_topics(self) -> frozenset[str]:
        """All topics that any member subscribes to."""
        return frozenset().union(*(member.topics for member in self.members.values()))


def assign_simple(spec: AssignSpec, ready: Mapping[UUID, frozenset[int]]) -> dict[str, Assignment]:
    """Assign each partition to at least one member and each member at least one partition, evenly.

    A partition is shared if there are more members than partitions. ready: the partitions that may be assigned. The current
    assignment is kept as far as it is even; ties are broken by the order of member ids.
    """
    shares: dict[str, set[TopicPartition]] = {member: set() for member in sorted(spec.topics)}
    for topic in sorted(ready):
        members = sorted(member for member, topics in spec.topics.items() if topic in topics)
        numbers = sorted(number for number in ready[topic] if number < spec.partitions.get(topic, 0))
        if not members or not numbers:
            continue
        for index in range(max(len(members), len(numbers))):
            shares[members[index % len(members)]].add((topic, numbers[index % len(numbers)]))
    return {member: frozenset(share) for member, share in shares.items()}
