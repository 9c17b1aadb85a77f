"""What one look at a cluster has seen. Times are milliseconds since 1970."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.monitor.lag.model import GroupLag


class Disk(NamedTuple):
    """A log dir of a broker. used_bytes: of its logs. total_bytes, free_bytes: of its file system; None if not told."""

    broker: int
    path: str
    used_bytes: int
    total_bytes: int | None
    free_bytes: int | None
    is_offline: bool = False


class PartitionSeen(NamedTuple):
    """A partition. leader: -1 if it has none. end: the offset after its last record, None if it could not be asked."""

    leader: int
    replicas: int
    in_sync: int
    end: int | None


class ConnectionSeen(NamedTuple):
    """A connection. client: its id, empty if it has none. received_bytes, sent_bytes: by the broker since the connection was
    opened; None if they are not known."""

    broker: int
    address: str
    client: str
    principal: str
    received_bytes: int | None
    sent_bytes: int | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """brokers: host:port by node id. partitions: by topic and number. sizes_bytes: of each topic's logs on all brokers, by
    topic. disks and sizes_bytes are those of the last minute. connections: None if they were not asked for. failures: what
    could not be seen, as sentences.
    """

    now_ms: int
    brokers: Mapping[int, str]
    partitions: Mapping[tuple[str, int], PartitionSeen]
    groups: tuple[GroupLag, ...] = ()
    disks: tuple[Disk, ...] = ()
    sizes_bytes: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    connections: tuple[ConnectionSeen, ...] | None = None

    @property
    def offline(self) -> list[tuple[str, int]]:
        """Partitions without a leader."""
        return sorted(key for key, row in self.partitions.items() if row.leader < 0)

    @property
    def under_replicated(self) -> list[tuple[str, int]]:
        """Partitions that lack a replica in sync."""
        return sorted(key for key, row in self.partitions.items() if row.in_sync < row.replicas)

    def topic_ends(self) -> dict[str, int]:
        """The sum of the ends of each topic's partitions: it grows by one with every record."""
        ends: dict[str, int] = {}
        for (topic, _), row in self.partitions.items():
            if row.end is not None:
                ends[topic] = ends.get(topic, 0) + row.end
        return ends
