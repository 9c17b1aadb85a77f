"""Server-side assignors of consumer groups: `uniform` (balanced, moves as little as possible) and `range`.

Both are pure functions of the members' topics, the partition counts and the previous assignment, and return the
same result for the same input in whatever order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import islice
from typing import Final
from uuid import UUID

TopicPartition = tuple[UUID, int]
Assignment = frozenset[TopicPartition]
NOTHING: Final[Assignment] = frozenset()


@dataclass(frozen=True, slots=True)
class AssignSpec:
    """partitions: partition count by topic; topics: the existing topics that each member subscribes to."""

    partitions: Mapping[UUID, int]
    topics: Mapping[str, frozenset[UUID]]
    current: Mapping[str, Assignment]
    order: Mapping[str, str]  # member id -> sort key for range: the instance id if there is one


Assignor = Callable[[AssignSpec], dict[str, Assignment]]


def assign_range(spec: AssignSpec) -> dict[str, Assignment]:
    """For each topic, consecutive partitions go to consecutive members; equal topics are divided alike."""
    shares: dict[str, set[TopicPartition]] = {member: set() for member in spec.topics}
    in_order = sorted(spec.topics, key=spec.order.__getitem__)
    for topic, count in spec.partitions.items():
        members = [member for member in in_order if topic in spec.topics[member]]
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
    """Loads differ by at most one if subscriptions allow it; as few partitions as possible move."""
    if len(set(spec.topics.values())) <= 1:
        return _uniform_same_topics(spec)
    return _uniform_mixed_topics(spec)


def _uniform_same_topics(spec: AssignSpec) -> dict[str, Assignment]:
    """Runs whenever a member joins or leaves, so it examines what members have and builds only what changes.

    Partitions are marked in a bytearray per topic: a set of them would hash every topic id again.
    """
    members = sorted(spec.topics)
    if not members:
        return {}
    topics = sorted(spec.topics[members[0]])
    taken = {topic.int: bytearray(spec.partitions.get(topic, 0)) for topic in topics}
    each, extra = divmod(sum(map(len, taken.values())), len(members))
    shares: dict[str, Assignment] = {}
    for member in members:
        current = spec.current.get(member, NOTHING)
        kept = _still_free(taken, current)
        room = each
        if len(kept) > each and extra > 0:
            room, extra = each + 1, extra - 1
        if len(kept) > room:
            kept = sorted(kept)[:room]
        for topic, partition in kept:
            taken[topic.int][partition] = 1
        shares[member] = current if len(kept) == len(current) else frozenset(kept)
    left = (
        (topic, partition)
        for topic in topics
        for partition, is_taken in enumerate(taken[topic.int])
        if not is_taken
    )
    for member, share in shares.items():
        if len(share) > each:
            continue
        more = each - len(share)
        if extra > 0:
            more, extra = more + 1, extra - 1
        if more:
            shares[member] = share.union(islice(left, more))
    return shares


def _still_free(taken: Mapping[int, bytearray], current: Assignment) -> list[TopicPartition]:
    """Those of a member's partitions that exist and nobody else has. Looks a topic up once for neighbours of it."""
    kept = []
    row: bytearray | None = None
    row_topic = None
    for topic_partition in current:
        topic, partition = topic_partition
        if topic is not row_topic:
            row_topic, row = topic, taken.get(topic.int)
        if row is not None and partition < len(row) and not row[partition]:
            kept.append(topic_partition)
    return kept


def _uniform_mixed_topics(spec: AssignSpec) -> dict[str, Assignment]:
    subscribers = {
        topic: sorted(m for m, topics in spec.topics.items() if topic in topics)
        for topic in sorted(spec.partitions)
    }
    shares: dict[str, dict[UUID, set[int]]] = {member: {} for member in sorted(spec.topics)}
    free = {
        topic: set(range(spec.partitions[topic])) if members else set()
        for topic, members in subscribers.items()
    }
    for member, share in shares.items():
        for topic, partition in spec.current.get(member, NOTHING):
            if topic in spec.topics[member] and partition in free.get(topic, ()):
                share.setdefault(topic, set()).add(partition)
                free[topic].discard(partition)
    loads = {member: sum(map(len, share.values())) for member, share in shares.items()}
    # Partitions with few possible members go first, so that members with more choice can still be balanced.
    for topic in sorted(free, key=lambda topic: (len(subscribers[topic]), topic)):
        least = [(loads[member], member) for member in subscribers[topic]]
        heapify(least)
        for partition in sorted(free[topic]):
            load, member = least[0]
            shares[member].setdefault(topic, set()).add(partition)
            loads[member] = load + 1
            heapreplace(least, (load + 1, member))
    _balance(subscribers, shares, loads)
    return {
        member: frozenset((topic, partition) for topic, row in share.items() for partition in row)
        for member, share in shares.items()
    }


def _balance(
    subscribers: Mapping[UUID, list[str]],
    shares: Mapping[str, dict[UUID, set[int]]],
    loads: dict[str, int],
) -> None:
    """Move partitions from the most to the least loaded subscriber of their topic until no move helps.

    Each move lowers the sum of the squared loads, so this terminates.
    """
    moved = True
    while moved:
        moved = False
        for topic, members in subscribers.items():
            most = max(
                (member for member in members if shares[member].get(topic)),
                key=loads.__getitem__,
                default=None,
            )
            if most is None:
                continue
            least = min(members, key=loads.__getitem__)
            if loads[most] - loads[least] >= 2:
                partition = max(shares[most][topic])
                shares[most][topic].discard(partition)
                shares[least].setdefault(topic, set()).add(partition)
                loads[most] -= 1
                loads[least] += 1
                moved = True


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
