"""Classic groups as values: members, states and the vote on a protocol.

Source: the behaviour of Kafka 4's coordinator for the classic protocol (KIP-62, 345, 394, 559, 814).

There are five states; a group that only stores offsets is also `EMPTY`. A generation is one agreement on the members of
the group: it increases each time a rebalance completes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Self

from barnabas.cores.group.membership import StaticMembers

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class ClassicState(StrEnum):
    """The values are the names that DescribeGroups and ListGroups send."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


CLASSIC_NEXT: Final[Mapping[ClassicState, frozenset[ClassicState]]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING_REBALANCE, ClassicState.DEAD}),
    # To EMPTY: all members left or failed before the join phase ended.
    ClassicState.PREPARING_REBALANCE: frozenset({ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY}),
    ClassicState.COMPLETING_REBALANCE: frozenset({ClassicState.STABLE, ClassicState.PREPARING_REBALANCE}),
    ClassicState.STABLE: frozenset({ClassicState.PREPARING_REBALANCE}),
    ClassicState.DEAD: frozenset(),
}

CAN_REBALANCE: Final = frozenset(
    {ClassicState.EMPTY, ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE}
)  # the states that may go to PREPARING_REBALANCE


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """`join_token` and `sync_token` are the member's waiting requests, None if there is none."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    join_token: object = None
    sync_token: object = None
    is_new: bool = False

    @property
    def is_static(self) -> bool:
        """Whether the member keeps its place during a temporary absence."""
        return self.group_instance_id is not None

    @property
    def satisfies_heartbeat(self) -> bool:
        """A member with a waiting request cannot send heartbeats, but a new member still has a time limit.

        Its client may have gone away while the join was waiting; without the limit, each retry would leave a dead member
        behind.
        """
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def metadata_for(self, protocol_name: str | None) -> bytes:
        """The member's metadata for one protocol; empty if it does not support the protocol."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: frozenset[str]) -> str | None:
        """The first candidate in the member's own order of preference."""
        return next((name for name, _ in self.protocols if name in candidates), None)


@dataclass(slots=True)
class ClassicGroup(StaticMembers[ClassicMember]):
    """A stored group is never modified; only drafts are (see proposal)."""

    group_id: str
    state: ClassicState = ClassicState.EMPTY
    previous_state: ClassicState = ClassicState.EMPTY
    state_since_ms: int = -1  # -1: loaded from a record without it
    protocol_type: str | None = None
    protocol_name: str | None = None
    generation_id: int = 0
    leader_id: str | None = None
    members: dict[str, ClassicMember] = field(default_factory=dict)  # in the order of joining
    static_ids: dict[str, str] = field(default_factory=dict)  # group instance id -> member id
    pending_ids: frozenset[str] = frozenset()  # have been given a member id, have not joined with it yet
    pending_sync_ids: frozenset[str] = frozenset()  # have been told the new generation, have not synced yet
    in_initial_delay: bool = False  # the first rebalance waits for more members (INITIAL is armed)
    new_member_added: bool = False  # during that delay
    initial_remaining_ms: int = 0  # how much longer that delay may be extended
    initial_delay_ms: int = 0
    subscribed_topics: frozenset[str] | None = None  # None: not known (no consumers, or unreadable metadata)

    def copy(self) -> Self:
        """A copy that may be changed."""
        return replace(self, members=dict(self.members), static_ids=dict(self.static_ids))

    # --- reading

    @property
    def group_type(self) -> str:
        """The type of group in ListGroups."""
        return "classic"

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return self.state is ClassicState.EMPTY

    @property
    def awaiting_join(self) -> int:
        """The number of members that have not joined the running rebalance yet."""
        return sum(member.join_token is not None for member in self.members.values())

    @property
    def all_members_joined(self) -> bool:
        """Whether every expected member has joined the running rebalance."""
        return not self.pending_ids and all(member.join_token is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The largest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether the members are consumers, so that their topics are known."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_leader(self, member_id: str) -> bool:
        """Whether a member leads the group."""
        return self.leader_id == member_id

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member subscribes to a topic; True also if the subscriptions cannot be read, to keep the offsets."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def supports(self, protocol_type: str, protocols: Iterable[tuple[str, bytes]]) -> bool:
        """Whether a member with these protocols can join: all members must share at least one."""
        names = {name for name, _ in protocols}
        if self.is_empty:
            return bool(protocol_type) and bool(names)
        return protocol_type == self.protocol_type and bool(names & self.candidates())

    def candidates(self) -> frozenset[str]:
        """Protocols that every member supports."""
        common: set[str] | None = None
        for member in self.members.values():
            names = {name for name, _ in member.protocols}
            common = names if common is None else common & names
        return frozenset(common or ())

    def select_protocol(self) -> str:
        """The candidate with most votes; among equals, the first that got a vote. The group must have members."""
        candidates = self.candidates()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            assert choice is not None, f"{member.member_id} joined {self.group_id} without a common protocol"
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    # --- changing a draft

    def move_to(self, state: ClassicState, now_ms: int) -> None:
        """Change the state; only as CLASSIC_NEXT allows."""
        assert state in CLASSIC_NEXT[self.state], f"{self.group_id}: {self.state} -> {state}"
        self.previous_state, self.state, self.state_since_ms = self.state, state, now_ms

    def add(self, member: ClassicMember, protocol_type: str | None) -> None:
        """Add a new member."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_ids[member.group_instance_id] = member.member_id
        self.pending_ids -= {member.member_id}

    def change(self, member_id: str, **changes: Any) -> ClassicMember:
        """Replace fields of a member."""
        member = replace(self.members[member_id], **changes)
        self.members[member_id] = member
        return member

    def remove(self, member_id: str) -> ClassicMember | None:
        """Remove a member or a pending id; if the leader leaves, the first remaining member becomes leader."""
        self.pending_ids -= {member_id}
        self.pending_sync_ids -= {member_id}
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        if (
            member.group_instance_id is not None
            and self.static_ids.get(member.group_instance_id) == member_id
        ):
            del self.static_ids[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace_static(self, group_instance_id: str, fresh_member_id: str) -> ClassicMember:
        """Give the static member a new id, at the same place in the order; returns the old member."""
        old_id = self.static_ids[group_instance_id]
        old = self.members[old_id]
        fresh = replace(old, member_id=fresh_member_id, join_token=None, sync_token=None)
        self.members = {
            (fresh_member_id if member_id == old_id else member_id): (
                fresh if member_id == old_id else member
            )
            for member_id, member in self.members.items()
        }
        self.static_ids[group_instance_id] = fresh_member_id
        self.pending_sync_ids -= {old_id}
        if self.leader_id == old_id:
            self.leader_id = fresh_member_id
        return old

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is a member that has joined; False if nobody has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_token is not None:
            return True
        for member in self.members.values():
            if member.join_token is not None:
                self.leader_id = member.member_id
                return True
        return False

    def read_subscribed_topics(self) -> None:
        """The union of the members' topics for the chosen protocol; None unless all of them can be read."""
        self.subscribed_topics = None
        if not self.uses_consumer_protocol or self.protocol_name is None:
            return
        if not self.members:
            self.subscribed_topics = frozenset()
            return
        topics: set[str] = set()
        for member in self.members.values():
            read = read_subscription_topics(member.metadata_for(self.protocol_name))
            if read is None:
                return
            topics |= read
        self.subscribed_topics = frozenset(topics)


def read_subscription_topics(metadata: bytes) -> set[str] | None:
    """The topics in a ConsumerProtocolSubscription; None if the bytes are not one.

    Layout: int16 version, int32 count, per topic int16 length and UTF-8; what follows depends on the version.
    """
    try:
        version, count = struct.unpack_from(">hi", metadata, 0)
        if version < 0 or count < 0 or count * 2 > len(metadata):
            return None
        position, topics = 6, set()
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, position)
            position += 2
            if length < 0 or position + length > len(metadata):
                return None
            topics.add(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
