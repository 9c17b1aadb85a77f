"""Share groups: describe, their start offsets. Listing and deleting are those of all groups (`groups`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from barnabas.admin.errors import ResourceError
from barnabas.admin.looping import Family, blocking
from barnabas.admin.results import Results
from barnabas.admin.spread import coordinating_brokers, spread, to_coordinators
from barnabas.admin.values import (
    Broker,
    LeaderEpoch,
    MemberEpoch,
    Offset,
    Operation,
    TopicPartition,
    by_topic,
    rights_of,
    values_by_topic,
)
from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.async_connection import AsyncConnection
from barnabas.client.errors import ClientError
from barnabas.wire.messages import alter_share_group_offsets as wire_alter
from barnabas.wire.messages import delete_share_group_offsets as wire_delete
from barnabas.wire.messages import describe_share_group_offsets as wire_offsets
from barnabas.wire.messages import share_group_describe as wire_describe

K = TypeVar("K")

GROUPS_BATCH: Final = 50


@dataclass(frozen=True, slots=True)
class ShareMember:
    """One member of a share group."""

    id: str
    client: str
    host: str
    epoch: MemberEpoch
    assigned: tuple[TopicPartition, ...]
    subscribed: tuple[str, ...] = ()
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ShareGroup:
    """A share group. state: Kafka's word. rights: what the caller may do; None if not asked for."""

    name: str
    state: str
    epoch: MemberEpoch
    target_epoch: MemberEpoch
    assignor: str
    members: tuple[ShareMember, ...]
    coordinator: Broker
    rights: frozenset[Operation] | None = None


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """Where a share group begins in a partition. start: None if it has not begun there. lag: records that are neither
    acknowledged nor archived; None where the broker does not say (before Kafka 4.2)."""

    start: Offset | None
    leader_epoch: LeaderEpoch
    lag: int | None


class AsyncShareGroups:
    """`AsyncAdmin.share_groups`. Since Kafka 4.1."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self._cluster = cluster

    async def describe(self, names: Iterable[str], *, rights: bool = False) -> Results[str, ShareGroup]:
        """The state and members of share groups. Fails with GROUP_ID_NOT_FOUND where there is none of the name."""

        async def ask(
            connection: AsyncConnection, batch: Sequence[str]
        ) -> Mapping[str, ShareGroup | ClientError]:
            request = wire_describe.ShareGroupDescribeRequest(
                group_ids=list(batch), include_authorized_operations=rights
            )
            answer = await connection.call(request, wire_describe.ShareGroupDescribeResponse)
            coordinators = await coordinating_brokers(self._cluster, batch)
            return {row.group_id: _described(row, coordinators[row.group_id]) for row in answer.groups}

        route = to_coordinators(self._cluster, "describe")
        return await spread(self._cluster, names, route, ask, batch=GROUPS_BATCH)

    async def offsets(
        self, groups: Iterable[str] | Mapping[str, Iterable[tuple[str, int]] | None]
    ) -> Results[str, Mapping[TopicPartition, ShareOffset]]:
        """Where each group begins; groups: names, or for each name its partitions (None: all of which it has a state)."""
        wanted: dict[str, dict[str, list[int]] | None]
        if isinstance(groups, Mapping):
            wanted = {name: None if parts is None else by_topic(parts) for name, parts in groups.items()}
        else:
            wanted = dict.fromkeys(groups)

        async def ask(
            connection: AsyncConnection, batch: Sequence[str]
        ) -> Mapping[str, Mapping[TopicPartition, ShareOffset] | ClientError]:
            rows = [_asked(name, wanted[name]) for name in batch]
            request = wire_offsets.DescribeShareGroupOffsetsRequest(groups=rows)
            answer = await connection.call(request, wire_offsets.DescribeShareGroupOffsetsResponse)
            return {row.group_id: _offsets(row) for row in answer.groups}

        route = to_coordinators(self._cluster, "read the offsets of")
        return await spread(self._cluster, wanted, route, ask, batch=GROUPS_BATCH)

    async def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> Results[TopicPartition, None]:
        """Set where a group without members begins. Raises what concerns the group as a whole."""

        async def ask(
            connection: AsyncConnection, _: Sequence[str]
        ) -> Mapping[str, Mapping[TopicPartition, ResourceError | None] | ClientError]:
            topics = [
                wire_alter.AlterShareGroupOffsetsRequestTopic(
                    topic_name=name,
                    partitions=[
                        wire_alter.AlterShareGroupOffsetsRequestPartition(
                            partition_index=number, start_offset=offset
                        )
                        for number, offset in rows.items()
                    ],
                )
                for name, rows in values_by_topic(offsets).items()
            ]
            request = wire_alter.AlterShareGroupOffsetsRequest(group_id=group, topics=topics)
            answer = await connection.call(request, wire_alter.AlterShareGroupOffsetsResponse)
            action = "set the start offset of"
            if answer.error_code:
                error = ResourceError(answer.error_code, action, f"group {group}", answer.error_message)
                return {group: error}
            return {
                group: {
                    key: ResourceError(
                        row.error_code, action, f"group {group} in partition {key}", row.error_message
                    )
                    if row.error_code
                    else None
                    for topic in answer.responses
                    for row in topic.partitions
                    for key in [TopicPartition(topic.topic_name, row.partition_index)]
                }
            }

        if not offsets:
            return Results()
        route = to_coordinators(self._cluster, "set the start offsets of")
        return _split((await spread(self._cluster, [group], route, ask))[group])

    async def delete_offsets(self, group: str, topics: Iterable[str]) -> Results[str, None]:
        """Make a group without members forget topics. Raises what concerns the group as a whole."""
        names = list(dict.fromkeys(topics))

        async def ask(
            connection: AsyncConnection, _: Sequence[str]
        ) -> Mapping[str, Mapping[str, ResourceError | None] | ClientError]:
            rows = [wire_delete.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
            request = wire_delete.DeleteShareGroupOffsetsRequest(group_id=group, topics=rows)
            answer = await connection.call(request, wire_delete.DeleteShareGroupOffsetsResponse)
            action = "delete the offsets of"
            if answer.error_code:
                error = ResourceError(answer.error_code, action, f"group {group}", answer.error_message)
                return {group: error}
            return {
                group: {
                    row.topic_name: ResourceError(
                        row.error_code, action, f"group {group} in topic {row.topic_name}", row.error_message
                    )
                    if row.error_code
                    else None
                    for row in answer.responses
                }
            }

        if not names:
            return Results()
        route = to_coordinators(self._cluster, "delete the offsets of")
        return _split((await spread(self._cluster, [group], route, ask))[group])


class ShareGroups(Family[AsyncShareGroups]):
    """`Admin.share_groups`."""

    describe = blocking(AsyncShareGroups.describe)
    offsets = blocking(AsyncShareGroups.offsets)
    alter_offsets = blocking(AsyncShareGroups.alter_offsets)
    delete_offsets = blocking(AsyncShareGroups.delete_offsets)


def _split(errors: Mapping[K, ResourceError | None]) -> Results[K, None]:
    return Results(
        {key: None for key, error in errors.items() if error is None},
        {key: error for key, error in errors.items() if error is not None},
    )


def _described(row: wire_describe.DescribedGroup, coordinator: Broker) -> ShareGroup | ResourceError:
    if row.error_code:
        return ResourceError(row.error_code, "describe", f"share group {row.group_id}", row.error_message)
    members = tuple(
        ShareMember(
            member.member_id,
            member.client_id,
            member.client_host,
            MemberEpoch(member.member_epoch),
            tuple(
                TopicPartition(topic.topic_name, number)
                for topic in member.assignment.topic_partitions
                for number in sorted(topic.partitions)
            ),
            tuple(member.subscribed_topic_names),
            member.rack_id,
        )
        for member in row.members
    )
    return ShareGroup(
        row.group_id,
        row.group_state,
        MemberEpoch(row.group_epoch),
        MemberEpoch(row.assignment_epoch),
        row.assignor_name,
        members,
        coordinator,
        rights_of(row.authorized_operations),
    )


def _asked(
    name: str, topics: Mapping[str, list[int]] | None
) -> wire_offsets.DescribeShareGroupOffsetsRequestGroup:
    rows = (
        None
        if topics is None
        else [
            wire_offsets.DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=numbers)
            for topic, numbers in topics.items()
        ]
    )
    return wire_offsets.DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=rows)


def _offsets(
    row: wire_offsets.DescribeShareGroupOffsetsResponseGroup,
) -> Mapping[TopicPartition, ShareOffset] | ResourceError:
    """Partitions with an error of their own (a topic that is gone) are left out."""
    if row.error_code:
        return ResourceError(
            row.error_code, "read the offsets of", f"group {row.group_id}", row.error_message
        )
    return {
        TopicPartition(topic.topic_name, part.partition_index): ShareOffset(
            Offset(part.start_offset) if part.start_offset >= 0 else None,
            LeaderEpoch(part.leader_epoch),
            part.lag if part.lag >= 0 else None,
        )
        for topic in row.topics
        for part in topic.partitions
        if not part.error_code
    }
