"""What is known about the lag of a group. Seconds are floats, times are milliseconds since 1970."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from barnabas.admin import TopicPartition
from barnabas.records.units import Offset

SHARE: Final = "share"
GROUPS_OF_CONSUMERS: Final = ("consumer", "streams", "")
"""Protocol types: Kafka Connect and the registry have groups too; an empty one may be so old that it does not say."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a group.

    committed: the offset at which the group goes on; None if it has none. end: the offset after the last record that a
    reader gets, which open transactions may hold back. records: offsets between the two, 0 if there is no record among
    them; None if either is unknown. in_transactions: offsets after `end` that open transactions hold back. never_read:
    offsets in a partition without a committed one. next_ms, newest_ms: timestamps of the next record to read, and of the
    newest.
    client, host: who reads it now.
    """

    partition: TopicPartition
    committed: Offset | None
    end: Offset | None
    records: int | None
    in_transactions: int = 0
    never_read: int | None = None
    next_ms: int | None = None
    newest_ms: int | None = None
    client: str | None = None
    host: str | None = None

    def waiting_s(self, now_ms: int) -> float | None:
        """How long the next record has been waiting, by the clock; 0 if there is none, None if that is unknown."""
        if self.records == 0:
            return 0.0
        return None if self.next_ms is None else max(now_ms - self.next_ms, 0) / 1000

    @property
    def behind_s(self) -> float | None:
        """Time between the next record to read and the newest of the log: what is to be read, in time."""
        if self.records == 0:
            return 0.0
        if self.next_ms is None or self.newest_ms is None:
            return None
        return max(self.newest_ms - self.next_ms, 0) / 1000


@dataclass(frozen=True, slots=True)
class GroupLag:
    """One group. type: consumer, classic or share; state: Kafka's word. members: how many. assignor: empty if none."""

    name: str
    type: str
    state: str
    members: int
    partitions: tuple[PartitionLag, ...]

    @property
    def is_share(self) -> bool:
        return self.type == SHARE

    @property
    def records(self) -> int:
        return sum(row.records or 0 for row in self.partitions)

    @property
    def never_read(self) -> int:
        return sum(row.never_read or 0 for row in self.partitions)

    def waiting_s(self, now_ms: int) -> float | None:
        """That of the slowest partition; None if none is known."""
        return _largest(row.waiting_s(now_ms) for row in self.partitions)

    @property
    def behind_s(self) -> float | None:
        """That of the slowest partition; None if none is known."""
        return _largest(row.behind_s for row in self.partitions)


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
