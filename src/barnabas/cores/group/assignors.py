"""Server-side assignors of consumer groups: `uniform` (balanced, moves as little as possible) and `range`.

Both are pure functions of the members' topics, the partition counts and the assignment so far, and give the
same answer for the same input whatever order it came in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

TopicPartition = tuple[UUID, int]
Assignment = frozenset[TopicPartition]
NOTHING: Final[Assignment] = frozenset()


@dataclass(frozen=True, slots=True)
class AssignSpec:
    """partitions: count by topic; topics: what each member subscribes to, of those that exist."""

    partitions: Mapping[UUID, int]
    topics: Mapping[str, frozenset[UUID]]
    current: Mapping[str, Assignment]
    order: Mapping[str, str]  # member id -> what range sorts by: the instance id where there is one


Assignor = Callable[[AssignSpec], dict[str, Assignment]]


def assign_range(spec: AssignSpec) -> dict[str, Assignment]:
    """Per topic, neighbouring partitions to neighbouring members; equal topics are split alike."""
    shares: dict[str, set[TopicPartition]] = {member: set() for member in spec.topics}
    for topic, count in spec.partitions.items():
        members = sorted(
            (m for m, topics in spec.topics.items() if topic in topics), key=spec.order.__getitem__
        )
        if not members:
            continue
        each, extra = divmod(count, len(members))
        start = 0
        for index, member in enumerate(members):
            end = start + each + (index < extra)
            shares[member].update((topic, partition) for partition in range(start, end))
            start = end
    return {member: frozenset(share) for member, share in shares.items()}


def assign_uniform(spec: AssignSpec) -> dict[str, Assignment]:
    """Loads differ by at most one where subscriptions allow it; partitions stay where they can."""
    if len(set(spec.topics.values())) <= 1:
        return _uniform_same_topics(spec)
    return _uniform_mixed_topics(spec)


def _uniform_same_topics(spec: AssignSpec) -> dict[str, Assignment]:
    members = sorted(spec.topics)
    if not members:
        return {}
    topics = sorted(spec.topics[members[0]])
    every = [(topic, partition) for topic in topics for partition in range(spec.partitions.get(topic, 0))]
    free = dict.fromkeys(every)
    each, extra = divmod(len(every), len(members))
    shares: dict[str, list[TopicPartition]] = {}
    for member in members:
        kept = [partition for partition in sorted(spec.current.get(member, NOTHING)) if partition in free]
        room = each
        if len(kept) > each and extra > 0:
            room, extra = each + 1, extra - 1
        shares[member] = kept[:room]
        for partition in shares[member]:
            del free[partition]
    left = iter(list(free))
    for member in members:
        share = shares[member]
        if len(share) > each:
            continue
        share.extend(next(left) for _ in range(each - len(share)))
        if extra > 0:
            share.append(next(left))
            extra -= 1
    return {member: frozenset(share) for member, share in shares.items()}


def _uniform_mixed_topics(spec: AssignSpec) -> dict[str, Assignment]:
    subscribers = {
        topic: sorted(m for m, topics in spec.topics.items() if topic in topics)
        for topic in sorted(spec.partitions)
    }
    shares: dict[str, set[TopicPartition]] = {member: set() for member in sorted(spec.topics)}
    free = {
        (topic, partition)
        for topic, members in subscribers.items()
        if members
        for partition in range(spec.partitions[topic])
    }
    for member in shares:
        for topic_partition in sorted(spec.current.get(member, NOTHING)):
            if topic_partition in free and topic_partition[0] in spec.topics[member]:
                shares[member].add(topic_partition)
                free.discard(topic_partition)
    # Partitions that few can take go first, so that those who can take others still have room to choose.
    for topic_partition in sorted(free, key=lambda tp: (len(subscribers[tp[0]]), tp)):
        least = min(subscribers[topic_partition[0]], key=lambda member: len(shares[member]))
        shares[least].add(topic_partition)
    _balance(subscribers, shares)
    return {member: frozenset(share) for member, share in shares.items()}


def _balance(subscribers: Mapping[UUID, list[str]], shares: dict[str, set[TopicPartition]]) -> None:
    """Move partitions from the most to the least loaded subscriber of their topic until no move helps.

    Each move lowers the sum of the squared loads, so this ends.
    """
    moved = True
    while moved:
        moved = False
        for topic, members in subscribers.items():
            owning = [m for m in members if any(tp[0] == topic for tp in shares[m])]
            if not owning:
                continue
            most = max(owning, key=lambda member: len(shares[member]))
            least = min(members, key=lambda member: len(shares[member]))
            if len(shares[most]) - len(shares[least]) >= 2:
                topic_partition = max(tp for tp in shares[most] if tp[0] == topic)
                shares[most].discard(topic_partition)
                shares[least].add(topic_partition)
                moved = True


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
