"""Committed offsets of groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.admin.errors import ResourceError
from barnabas.admin.results import Results
from barnabas.admin.spread import spread, to_coordinators
from barnabas.admin.values import LeaderEpoch, Offset, TopicPartition, by_topic, values_by_topic
from barnabas.client.async_cluster import PASSING, AsyncCluster
from barnabas.client.async_connection import AsyncConnection
from barnabas.client.errors import ClientError
from barnabas.wire.messages import offset_commit as wire_commit
from barnabas.wire.messages import offset_delete as wire_delete
from barnabas.wire.messages import offset_fetch as wire_fetch

MANY_GROUPS_VERSION: Final = 8
ALL_TOPICS_VERSION: Final = 2
STABLE_VERSION: Final = 7
EPOCH_VERSION: Final = 6
GROUPS_BATCH: Final = 50

Partitions = Iterable[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """Where a group continues in a partition. leader_epoch: of the last record that it read; None if not committed."""

    offset: Offset
    leader_epoch: LeaderEpoch | None = None
    metadata: str = ""


class AsyncGroupOffsets:
    """The part of `AsyncAdmin.groups` about offsets."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self._cluster = cluster

    async def offsets(
        self, groups: Iterable[str] | Mapping[str, Partitions | None], *, require_stable: bool = False
    ) -> Results[str, Mapping[TopicPartition, CommittedOffset]]:
        """The offsets that each group has committed; partitions without one are left out.

        groups: names, or for each name its partitions (None: all). require_stable: wait for transactions that are about to
        commit offsets.
        """
        wanted: dict[str, dict[str, list[int]] | None]
        if isinstance(groups, Mapping):
            wanted = {name: None if parts is None else by_topic(parts) for name, parts in groups.items()}
        else:
            wanted = dict.fromkeys(groups)

        async def ask(
            connection: AsyncConnection, batch: Sequence[str]
        ) -> Mapping[str, Mapping[TopicPartition, CommittedOffset] | ClientError]:
            version = connection.version_for(wire_fetch.OffsetFetchRequest)
            stable = require_stable and version >= STABLE_VERSION
            if version >= MANY_GROUPS_VERSION:
                rows = [_asked(name, wanted[name]) for name in batch]
                request = wire_fetch.OffsetFetchRequest(groups=rows, require_stable=stable)
                answer = await connection.call(request, wire_fetch.OffsetFetchResponse)
                return {row.group_id: _committed(row.group_id, row) for row in answer.groups}
            outcomes = {}
            for name in batch:
                request = _asked_alone(name, wanted[name], stable)
                answer = await connection.call(request, wire_fetch.OffsetFetchResponse)
                outcomes[name] = _committed(name, answer)
            return outcomes

        route = to_coordinators(self._cluster, "read the offsets of")
        return await spread(self._cluster, wanted, route, ask, batch=GROUPS_BATCH)

    async def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset]
    ) -> Results[TopicPartition, None]:
        """Set where a group without members continues. A group that has members fails with UNKNOWN_MEMBER_ID."""
        values = {TopicPartition(*key): _commit_of(value) for key, value in offsets.items()}

        async def ask(
            connection: AsyncConnection, _: Sequence[str]
        ) -> Mapping[str, Mapping[TopicPartition, int] | ClientError]:
            keeps_epochs = connection.version_for(wire_commit.OffsetCommitRequest) >= EPOCH_VERSION
            topics = [
                wire_commit.OffsetCommitRequestTopic(
                    name=name,
                    partitions=[_commit_row(number, value, keeps_epochs) for number, value in rows.items()],
                )
                for name, rows in values_by_topic(values).items()
            ]
            request = wire_commit.OffsetCommitRequest(group_id=group, topics=topics)
            answer = await connection.call(request, wire_commit.OffsetCommitResponse)
            codes = {
                TopicPartition(topic.name, row.partition_index): row.error_code
                for topic in answer.topics
                for row in topic.partitions
            }
            return {group: _raise_passing(codes, "set the offsets of", group)}

        return await self._for_partitions(group, values, ask, "set the offset of")

    async def delete_offsets(self, group: str, partitions: Partitions) -> Results[TopicPartition, None]:
        """Delete a group's offsets in these partitions; members must not read them."""
        keys = dict.fromkeys(TopicPartition(*key) for key in partitions)

        async def ask(
            connection: AsyncConnection, _: Sequence[str]
        ) -> Mapping[str, Mapping[TopicPartition, int] | ClientError]:
            topics = [
                wire_delete.OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[
                        wire_delete.OffsetDeleteRequestPartition(partition_index=number) for number in numbers
                    ],
                )
                for name, numbers in by_topic(keys).items()
            ]
            request = wire_delete.OffsetDeleteRequest(group_id=group, topics=topics)
            answer = await connection.call(request, wire_delete.OffsetDeleteResponse)
            if answer.error_code:
                return {group: ResourceError(answer.error_code, "delete offsets of", f"group {group}")}
            return {
                group: {
                    TopicPartition(topic.name, row.partition_index): row.error_code
                    for topic in answer.topics
                    for row in topic.partitions
                }
            }

        return await self._for_partitions(group, keys, ask, "delete the offset of")

    async def _for_partitions(
        self, group: str, keys: Iterable[TopicPartition], ask: Any, action: str
    ) -> Results[TopicPartition, None]:
        """Ask the group's coordinator; a result for each partition. Raises what concerns the group as a whole."""
        wanted = list(keys)
        if not wanted:
            return Results()
        route = to_coordinators(self._cluster, f"{action} partitions for")
        codes: Mapping[TopicPartition, int] = (await spread(self._cluster, [group], route, ask))[group]
        failed: dict[TopicPartition, ClientError] = {
            key: ResourceError(codes[key], action, f"group {group} in partition {key}")
            for key in wanted
            if codes.get(key)
        }
        return Results({key: None for key in wanted if key not in failed}, failed)


def _asked(name: str, topics: Mapping[str, list[int]] | None) -> wire_fetch.OffsetFetchRequestGroup:
    rows = (
        None
        if topics is None
        else [
            wire_fetch.OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
            for topic, numbers in topics.items()
        ]
    )
    return wire_fetch.OffsetFetchRequestGroup(group_id=name, topics=rows)


def _asked_alone(
    name: str, topics: Mapping[str, list[int]] | None, stable: bool
) -> wire_fetch.OffsetFetchRequest:
    rows = (
        None
        if topics is None
        else [
            wire_fetch.OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
            for topic, numbers in topics.items()
        ]
    )
    return wire_fetch.OffsetFetchRequest(group_id=name, topics=rows, require_stable=stable)


def _committed(name: str, answer: Any) -> Mapping[TopicPartition, CommittedOffset] | ResourceError:
    """The offsets in a group's part of an answer, in the order of the answer."""
    if answer.error_code:
        return ResourceError(answer.error_code, "read the offsets of", f"group {name}")
    offsets = {}
    for topic in answer.topics:
        for row in topic.partitions:
            key = TopicPartition(topic.name, row.partition_index)
            if row.error_code:
                return ResourceError(row.error_code, "read the offset of", f"group {name} in partition {key}")
            if row.committed_offset >= 0:
                epoch = row.committed_leader_epoch
                offsets[key] = CommittedOffset(
                    Offset(row.committed_offset),
                    LeaderEpoch(epoch) if epoch >= 0 else None,
                    row.metadata or "",
                )
    return offsets


def _commit_of(value: int | CommittedOffset) -> CommittedOffset:
    return value if isinstance(value, CommittedOffset) else CommittedOffset(Offset(value))


def _commit_row(
    number: int, value: CommittedOffset, keeps_epochs: bool
) -> wire_commit.OffsetCommitRequestPartition:
    epoch = value.leader_epoch if keeps_epochs and value.leader_epoch is not None else -1
    return wire_commit.OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=value.offset,
        committed_leader_epoch=epoch,
        committed_metadata=value.metadata,
    )


def _raise_passing(
    codes: Mapping[TopicPartition, int], action: str, group: str
) -> Mapping[TopicPartition, int] | ResourceError:
    """The codes, or an error that makes the whole request be repeated: a coordinator that moves fails every partition."""
    passing = next((code for code in codes.values() if code in PASSING), 0)
    return ResourceError(passing, action, f"group {group}") if passing else codes
