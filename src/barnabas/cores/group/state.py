"""Everything that one partition of the group coordinator holds in memory.

Groups are values: a change replaces a group and never edits a stored one. An event works on a draft (proposal.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from barnabas.cores.group.classic.group import ClassicGroup
from barnabas.cores.group.consumer.group import ConsumerGroup
from barnabas.cores.group.events import TimerKey
from barnabas.cores.group.limits import GroupLimits
from barnabas.cores.group.share.group import ShareGroup
from barnabas.cores.group.streams.group import StreamsGroup

Group = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup
Partition = tuple[str, int]  # (topic, partition)


class Committed(NamedTuple):
    """One committed offset. `sequence` orders the commits of a partition, including those held back by a transaction."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int  # -1: use the broker's retention
    sequence: int
    topic_id: bytes = b""


class TopicInfo(NamedTuple):
    """A topic's id and its number of partitions."""

    topic_id: UUID
    partitions: int


class Topics:
    """The topics of the cluster as known to this coordinator; every change has a new `version`."""

    __slots__ = ("_names", "by_name", "version")

    def __init__(self, version: int, by_name: Mapping[str, TopicInfo]) -> None:
        self.version = version
        self.by_name = by_name
        self._names: dict[UUID, str] | None = None

    @property
    def names(self) -> Mapping[UUID, str]:
        """Names by id. Computed on first use: there are dozens of cores, and most groups never need it."""
        if self._names is None:
            self._names = {info.topic_id: name for name, info in self.by_name.items()}
        return self._names

    def partitions(self, topic_id: UUID) -> int:
        """The number of partitions of a topic."""
        return self.by_name[self.names[topic_id]].partitions


@dataclass(slots=True)
class State:
    """See the module."""

    limits: GroupLimits
    topics: Topics = field(default_factory=lambda: Topics(0, {}))
    hides_topics: bool = (
        False  # expressions match only what a member may describe (ConsumerHeartbeat.visible)
    )
    group_limits: dict[str, GroupLimits] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    committed: dict[str, dict[Partition, Committed]] = field(default_factory=dict)
    # producer id -> group id -> partition -> offsets that become visible if the transaction commits
    pending: dict[int, dict[str, dict[Partition, Committed]]] = field(default_factory=dict)
    deadlines: dict[TimerKey, int] = field(default_factory=dict)
    sequence: int = 0
    # topic -> drop commits up to this sequence: the topic was deleted
    doomed: dict[str, int] = field(default_factory=dict)
    # group id -> requests waiting for its deletion, which takes many events (deletion.py)
    deleting: dict[str, tuple[object, ...]] = field(default_factory=dict)

    def limits_of(self, group_id: str) -> GroupLimits:
        """The limits of one group: an administrator may set some of them for a single group."""
        return self.group_limits.get(group_id, self.limits)

    def next_sequence(self) -> int:
        """The next number. Only the order matters."""
        self.sequence += 1
        return self.sequence

    def visible(self, group_id: str, partition: Partition) -> Committed | None:
        """A committed offset, unless it is being deleted with its topic or its group."""
        if group_id in self.deleting:
            return None
        committed = self.committed.get(group_id, {}).get(partition)
        if committed is None or committed.sequence > self.doomed.get(partition[0], -1):
            return committed
        return None

    def offsets_of(self, group_id: str) -> dict[Partition, Committed]:
        """All offsets that the group has committed outside of open transactions."""
        return self.committed.get(group_id, {})

    def pending_of(self, group_id: str) -> Iterator[Partition]:
        """The partitions for which open transactions hold offsets of the group."""
        for offsets in self.held_of(group_id):
            yield from offsets

    def held_of(self, group_id: str) -> list[dict[Partition, Committed]]:
        """The offsets of the group that open transactions hold, for each transaction."""
        return [by_group[group_id] for by_group in self.pending.values() if group_id in by_group]

    def partitions_of(self, group_id: str, *, pending: bool) -> list[Partition]:
        """The partitions for which the group has committed offsets, being deleted or not, and with `pending` those that
        only open transactions hold."""
        known = self.offsets_of(group_id)
        more = sorted(set(self.pending_of(group_id)).difference(known)) if pending and self.pending else ()
        return [*known, *more]
