"""Records of partitions: their offsets by place and time, and deleting them from the log's start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.admin.errors import ResourceError
from barnabas.admin.families.found_keys import FoundKey, find_key
from barnabas.admin.looping import Family, blocking
from barnabas.admin.results import Results
from barnabas.admin.spread import NEW_TOPICS, spread, to_leaders
from barnabas.admin.values import LeaderEpoch, Offset, TimestampMs, TopicPartition, values_by_topic
from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.async_connection import AsyncConnection
from barnabas.client.errors import ClientError, UnsupportedByBroker
from barnabas.wire.messages import delete_records as wire_delete
from barnabas.wire.messages import list_offsets as wire_offsets
from barnabas.wire.messages import offset_for_leader_epoch as wire_epochs

PARTITIONS_BATCH: Final = 2_000

LATEST: Final = TimestampMs(-1)
"""The end of the log: the offset that its next record will get (with read_committed: its last stable offset)."""
EARLIEST: Final = TimestampMs(-2)
"""The start of the log."""
MAX_TIMESTAMP: Final = TimestampMs(-3)
"""The record with the greatest timestamp. Since Kafka 3.0."""
EARLIEST_LOCAL: Final = TimestampMs(-4)
"""The start of the part of the log that is on the broker's own disk. Since Kafka 3.4."""
LATEST_TIERED: Final = TimestampMs(-5)
"""The end of the part of the log that is in remote storage. Since Kafka 3.9."""
EARLIEST_PENDING_UPLOAD: Final = TimestampMs(-6)
"""The start of what is not yet in remote storage. Since Kafka 4.2."""

_VERSION_OF_PLACE: Final = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

TO_THE_END: Final = Offset(-1)
"""As an offset to delete up to: everything that is committed to all replicas."""


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """The first record at or after a time, or a place. offset: None if there is no such record. timestamp_ms: that record's,
    None at a place that has none."""

    offset: Offset | None
    timestamp_ms: TimestampMs | None
    leader_epoch: LeaderEpoch | None


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a log starts, and the offset that its next record will get."""

    start: Offset
    end: Offset

    @property
    def count(self) -> int:
        """Offsets between the two: records, if nothing was compacted and no transaction ended there."""
        return self.end - self.start


class AsyncRecords:
    """`AsyncAdmin.records`."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self._cluster = cluster

    async def offsets(
        self, places: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> Results[TopicPartition, FoundOffset]:
        """The offset of a time in milliseconds, or of a place (EARLIEST, LATEST, ...), in each partition."""

        async def ask(
            connection: AsyncConnection, batch: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, FoundOffset | ClientError]:
            version = connection.version_for(wire_offsets.ListOffsetsRequest)
            _require_places(connection, version, {places[key] for key in batch})
            rows = [
                wire_offsets.ListOffsetsTopic(
                    name=name,
                    partitions=[
                        wire_offsets.ListOffsetsPartition(partition_index=number, timestamp=place)
                        for number, place in numbers.items()
                    ],
                )
                for name, numbers in values_by_topic({key: places[key] for key in batch}).items()
            ]
            request = wire_offsets.ListOffsetsRequest(
                replica_id=-1, isolation_level=int(read_committed), topics=rows, timeout_ms=30_000
            )
            answer = await connection.call(request, wire_offsets.ListOffsetsResponse)
            return {
                key: ResourceError(row.error_code, "read the offsets of", f"partition {key}")
                if row.error_code
                else _found_offset(row)
                for topic in answer.topics
                for row in topic.partitions
                for key in [TopicPartition(topic.name, row.partition_index)]
            }

        route = to_leaders(self._cluster, "read the offsets of")
        keys = (TopicPartition(*key) for key in places)
        return await spread(self._cluster, keys, route, ask, batch=PARTITIONS_BATCH, also_passing=NEW_TOPICS)

    async def bounds(
        self, partitions: Iterable[tuple[str, int]], *, read_committed: bool = False
    ) -> Results[TopicPartition, Bounds]:
        """Start and end of each partition's log."""
        keys = [TopicPartition(*key) for key in partitions]
        starts = await self.offsets(dict.fromkeys(keys, EARLIEST))
        ends = await self.offsets(dict.fromkeys(starts.done, LATEST), read_committed=read_committed)
        done = {
            key: Bounds(starts.done[key].offset or Offset(0), end.offset or Offset(0))
            for key, end in ends.done.items()
        }
        return Results(done, {**starts.failed, **ends.failed})

    async def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Results[TopicPartition, Offset]:
        """Where each partition's leader epoch ended in its log, or the newest epoch below it. Needs Kafka 0.11."""

        async def ask(
            connection: AsyncConnection, batch: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, Offset | ClientError]:
            rows = [
                wire_epochs.OffsetForLeaderTopic(
                    topic=name,
                    partitions=[
                        wire_epochs.OffsetForLeaderPartition(partition=number, leader_epoch=epoch)
                        for number, epoch in numbers.items()
                    ],
                )
                for name, numbers in values_by_topic({key: epochs[key] for key in batch}).items()
            ]
            answer = await connection.call(
                wire_epochs.OffsetForLeaderEpochRequest(replica_id=-1, topics=rows),
                wire_epochs.OffsetForLeaderEpochResponse,
            )
            return {
                key: ResourceError(row.error_code, "find the end of an epoch in", f"partition {key}")
                if row.error_code
                else Offset(row.end_offset)
                for topic in answer.topics
                for row in topic.partitions
                for key in [TopicPartition(topic.topic, row.partition)]
            }

        route = to_leaders(self._cluster, "find the end of an epoch in")
        return await spread(self._cluster, epochs, route, ask, batch=PARTITIONS_BATCH)

    async def delete(
        self, before: Mapping[TopicPartition, int], *, timeout_s: float = 30.0
    ) -> Results[TopicPartition, Offset]:
        """Delete the records before an offset (TO_THE_END: all); the value is where the log starts now."""

        async def ask(
            connection: AsyncConnection, batch: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, Offset | ClientError]:
            rows = [
                wire_delete.DeleteRecordsTopic(
                    name=name,
                    partitions=[
                        wire_delete.DeleteRecordsPartition(partition_index=number, offset=offset)
                        for number, offset in numbers.items()
                    ],
                )
                for name, numbers in values_by_topic({key: before[key] for key in batch}).items()
            ]
            request = wire_delete.DeleteRecordsRequest(topics=rows, timeout_ms=int(timeout_s * 1000))
            answer = await connection.call(request, wire_delete.DeleteRecordsResponse)
            return {
                key: ResourceError(row.error_code, "delete records of", f"partition {key}")
                if row.error_code
                else Offset(row.low_watermark)
                for topic in answer.topics
                for row in topic.partitions
                for key in [TopicPartition(topic.name, row.partition_index)]
            }

        route = to_leaders(self._cluster, "delete records of")
        keys = (TopicPartition(*key) for key in before)
        return await spread(self._cluster, keys, route, ask, batch=PARTITIONS_BATCH, also_passing=NEW_TOPICS)

    async def find_key(
        self, partitions: Iterable[tuple[str, int]], key: bytes
    ) -> Results[TopicPartition, FoundKey | None]:
        """Where in each partition records with this key may be; None for topics without `barnabas.key.index`.

        Brokers other than Barnabas fail with UnsupportedByBroker.
        """

        async def ask(
            connection: AsyncConnection, batch: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, FoundKey | ClientError | None]:
            return {place: await find_key(connection, place, key) for place in batch}

        route = to_leaders(self._cluster, "ask for a key in")
        return await spread(self._cluster, (TopicPartition(*p) for p in partitions), route, ask)


class Records(Family[AsyncRecords]):
    """`Admin.records`."""

    offsets = blocking(AsyncRecords.offsets)
    bounds = blocking(AsyncRecords.bounds)
    epoch_ends = blocking(AsyncRecords.epoch_ends)
    delete = blocking(AsyncRecords.delete)
    find_key = blocking(AsyncRecords.find_key)


def _require_places(connection: AsyncConnection, version: int, places: set[int]) -> None:
    """Raises UnsupportedByBroker for a place that the broker does not know."""
    for place, needed in _VERSION_OF_PLACE.items():
        if place in places and version < needed:
            raise UnsupportedByBroker(
                f"{connection.address} serves ListOffsets up to version {version}; place {place} needs {needed}",
                "ListOffsets",
            )


def _found_offset(row: wire_offsets.ListOffsetsPartitionResponse) -> FoundOffset:
    return FoundOffset(
        Offset(row.offset) if row.offset >= 0 else None,
        TimestampMs(row.timestamp) if row.timestamp >= 0 else None,
        LeaderEpoch(row.leader_epoch) if row.leader_epoch >= 0 else None,
    )
