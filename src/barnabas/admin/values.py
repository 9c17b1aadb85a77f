"""Types that the families of requests share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, NewType, TypeVar

from barnabas.cores.acl import Operation
from barnabas.records.units import CoordinatorEpoch, LeaderEpoch, Offset, ProducerEpoch
from barnabas.records.units import TimestampMs as TimestampMs

NodeId = NewType("NodeId", int)
"""A broker's node.id; -1 where there is none."""
ProducerId = NewType("ProducerId", int)
"""Identifies an idempotent or transactional producer."""
MemberEpoch = NewType("MemberEpoch", int)
"""Counts the changes of a group or of one of its members."""

NO_NODE: Final = NodeId(-1)
RIGHTS_UNKNOWN: Final = -(1 << 31)
"""What brokers answer to those who did not ask for their rights."""

T = TypeVar("T")


class TopicPartition(NamedTuple):
    """One partition; equal to the plain tuple."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker. rack: None if it names none. is_fenced: registered, but not live (KRaft only)."""

    id: NodeId
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


def by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Partition numbers by topic, in the order given."""
    indexes: dict[str, list[int]] = {}
    for topic, partition in partitions:
        indexes.setdefault(topic, []).append(partition)
    return indexes


def values_by_topic(values: Mapping[TopicPartition, T]) -> dict[str, dict[int, T]]:
    """Values by topic and partition number, in the order given."""
    grouped: dict[str, dict[int, T]] = {}
    for (topic, partition), value in values.items():
        grouped.setdefault(topic, {})[partition] = value
    return grouped


def rights_of(bits: int) -> frozenset[Operation] | None:
    """The operations that an answer's bits allow; None if it does not say."""
    if bits == RIGHTS_UNKNOWN:
        return None
    return frozenset(operation for operation in Operation if bits >> operation & 1)


__all__ = [
    "NO_NODE",
    "Broker",
    "CoordinatorEpoch",
    "LeaderEpoch",
    "MemberEpoch",
    "NodeId",
    "Offset",
    "Operation",
    "ProducerEpoch",
    "ProducerId",
    "TimestampMs",
    "TopicPartition",
    "by_topic",
    "rights_of",
    "values_by_topic",
]
