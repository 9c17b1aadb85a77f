"""Share groups (KIP-932) as values: members that take from the same partitions.

Nothing has to be given up before another may have it, so a member simply has what the target says, at the
target's epoch. A partition is given out once the share coordinator keeps its state: `initializing` ones were
asked for there, `initialized` ones are ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, Self
from uuid import UUID

from barnabas.cores.group.assignors import NOTHING, Assignment, AssignSpec, TopicPartition
from barnabas.wire.errors import ApiError, ErrorCode


class ShareGroupState(StrEnum):
    EMPTY = "Empty"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ShareMember:
    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Assignment = NOTHING


class ShareTopic(NamedTuple):
    """Partitions of one topic whose state is (being) initialized."""

    name: str
    partitions: frozenset[int]
    since_ms: int


@dataclass(slots=True)
class ShareGroup:
    """A value while it is stored; only drafts are changed (see turn)."""

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
        """A draft."""
        return replace(
            self,
            members=dict(self.members),
            target=dict(self.target),
            initializing=dict(self.initializing),
            initialized=dict(self.initialized),
        )

    @property
    def group_type(self) -> str:
        """As ListGroups names it."""
        return "share"

    @property
    def protocol_type(self) -> str:
        """As ListGroups names it."""
        return "share"

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in the group."""
        return not self.members

    @property
    def state(self) -> ShareGroupState:
        """What ShareGroupDescribe shows."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def subscribes_to(self, topic: str) -> bool:
        """Whether any member wants a topic."""
        return any(topic in member.topics for member in self.members.values())

    def subscribed_topics(self) -> frozenset[str]:
        """Topics that any member wants."""
        return frozenset().union(*(member.topics for member in self.members.values()))

    def require_member(self, member_id: str) -> ShareMember:
        """Raises ApiError UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {member_id!r} in {self.group_id!r}")
        return member


def assign_simple(spec: AssignSpec, ready: Mapping[UUID, frozenset[int]]) -> dict[str, Assignment]:
    """Every partition to at least one member and every member to at least one partition, evenly.

    A partition is shared where there are more members than partitions. `ready` are the partitions that may
    be given out. Where a member is keeps as it is if that is still even: the order of member ids decides.
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
