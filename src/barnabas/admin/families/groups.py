"""Groups: list, describe, delete, remove members. Committed offsets are in `group_offsets`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.admin.errors import ResourceError
from barnabas.admin.families.group_offsets import AsyncGroupOffsets
from barnabas.admin.families.streams_groups import AsyncStreamsGroups, StreamsGroup
from barnabas.admin.looping import Family, blocking
from barnabas.admin.results import Results
from barnabas.admin.spread import coordinating_brokers, each_node, spread, to_coordinators
from barnabas.admin.values import Broker, MemberEpoch, NodeId, Operation, TopicPartition, rights_of
from barnabas.client.async_connection import AsyncConnection
from barnabas.client.errors import BrokerError, ClientError
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import consumer_group_describe as wire_consumer
from barnabas.wire.messages import describe_groups as wire_classic
from barnabas.wire.messages import leave_group as wire_leave
from barnabas.wire.messages import list_groups as wire_list
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.wire.primitives import WireError
from barnabas.wire.records_schemas.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

GROUPS_BATCH: Final = 100
STATES_VERSION: Final = 4
TYPES_VERSION: Final = 5
RIGHTS_VERSION: Final = 3
MANY_MEMBERS_VERSION: Final = 3
STREAMS_ASSIGNOR: Final = "sticky"
MEMBER_TYPES: Final = {0: "classic", 1: "consumer"}


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list. state, type: Kafka's words (`Stable`, `consumer`); empty where the broker is too old to say."""

    name: str
    protocol_type: str
    state: str
    type: str
    coordinator: NodeId


@dataclass(frozen=True, slots=True)
class Member:
    """One member. instance: its group.instance.id, None if it is not static. assigned: what it reads now; target: what the
    coordinator wants it to read. epoch, target, subscribed_regex and rack exist with the consumer protocol only. type: the
    protocol that the member speaks.
    """

    id: str
    client: str
    host: str
    assigned: tuple[TopicPartition, ...]
    instance: str | None = None
    subscribed: tuple[str, ...] = ()
    epoch: MemberEpoch | None = None
    target: tuple[TopicPartition, ...] | None = None
    subscribed_regex: str | None = None
    rack: str | None = None
    type: str = "classic"


@dataclass(frozen=True, slots=True)
class Group:
    """A classic, consumer or streams group. state: Kafka's word. assignor: the protocol that members agreed on, or the
    coordinator's assignor. epoch, target_epoch: None in a classic group. rights: what the caller may do; None if not asked
    for.
    """

    name: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[Member, ...]
    coordinator: Broker
    epoch: MemberEpoch | None = None
    target_epoch: MemberEpoch | None = None
    rights: frozenset[Operation] | None = None


class MemberKey(NamedTuple):
    """A member to remove: by its group.instance.id if it is static, otherwise by its id."""

    instance: str | None = None
    id: str = ""

    def __str__(self) -> str:
        return self.instance or self.id


NO_MODERN_GROUP: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
"""Answers for a classic group; the second one comes where the new protocol is switched off, as in Kafka 3.7 to 3.9."""


class AsyncGroups(AsyncGroupOffsets):
    """`AsyncAdmin.groups`."""

    async def list(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> Results[NodeId, Sequence[GroupListing]]:
        """The groups of each coordinator; those of a broker that does not answer are missing, and it is in `failed`.

        states, types: only such groups, where the broker can tell (states since Kafka 2.6, types since 4.0).
        """
        wanted_states, wanted_types = list(states), list(types)

        async def ask(connection: AsyncConnection) -> Sequence[GroupListing]:
            version = connection.version_for(wire_list.ListGroupsRequest)
            request = wire_list.ListGroupsRequest(
                states_filter=wanted_states if version >= STATES_VERSION else [],
                types_filter=wanted_types if version >= TYPES_VERSION else [],
            )
            answer = await connection.call(request, wire_list.ListGroupsResponse)
            if answer.error_code:
                raise ResourceError(answer.error_code, "list", f"the groups of {connection.address}")
            return [
                GroupListing(row.group_id, row.protocol_type, row.group_state, row.group_type, NodeId(-1))
                for row in answer.groups
            ]

        results = await each_node(self._cluster, None, ask)
        done = {
            node: [GroupListing(row.name, row.protocol_type, row.state, row.type, node) for row in listings]
            for node, listings in results.done.items()
        }
        return Results(done, results.failed)

    async def describe(self, names: Iterable[str], *, rights: bool = False) -> Results[str, Group]:
        """The state and members of classic, consumer and streams groups; GROUP_ID_NOT_FOUND for those that do not exist.

        Members of streams groups read the partitions of their active tasks; `streams_groups` tells more of them.
        """
        wanted = list(names)
        modern = await self._describe_modern(wanted, rights)
        others = [
            name
            for name, error in modern.failed.items()
            if not isinstance(error, BrokerError) or error.code in NO_MODERN_GROUP
        ]
        classic = await self._describe_classic(others, rights)
        done, failed = dict(modern.done), dict(modern.failed)
        for name in others:
            failed.pop(name, None)
        done.update(classic.done)
        failed.update(classic.failed)
        streams = await self._describe_streams(
            [name for name, error in failed.items() if _is_missing(error)], rights
        )
        for name, group in streams.items():
            del failed[name]
            done[name] = group
        # The order of the request.
        return Results(
            {name: done[name] for name in wanted if name in done},
            {name: failed[name] for name in wanted if name in failed},
        )

    async def delete(self, names: Iterable[str]) -> Results[str, None]:
        """Delete groups of any type without members, with their offsets."""

        async def ask(connection: AsyncConnection, batch: Sequence[str]) -> Mapping[str, ClientError | None]:
            request = DeleteGroupsRequest(groups_names=list(batch))
            answer = await connection.call(request, DeleteGroupsResponse)
            return {
                row.group_id: ResourceError(row.error_code, "delete", f"group {row.group_id}")
                if row.error_code
                else None
                for row in answer.results
            }

        route = to_coordinators(self._cluster, "delete")
        return await spread(self._cluster, names, route, ask, batch=GROUPS_BATCH)

    async def remove_members(
        self, group: str, members: Iterable[MemberKey] | None = None, *, reason: str | None = None
    ) -> Results[MemberKey, None]:
        """Take members out of a classic group, None: all. Dynamic members that still run join again."""
        if members is None:
            described = (await self.describe([group]))[group]
            members = [
                MemberKey(member.instance) if member.instance else MemberKey(None, member.id)
                for member in described.members
            ]
        wanted = list(members)

        async def ask(
            connection: AsyncConnection, _: Sequence[str]
        ) -> Mapping[str, Sequence[ResourceError | None]]:
            return {group: await _leave(connection, group, wanted, reason)}

        route = to_coordinators(self._cluster, "remove members of")
        errors = (await spread(self._cluster, [group], route, ask))[group] if wanted else ()
        done: dict[MemberKey, None] = {}
        failed: dict[MemberKey, ClientError] = {}
        for key, error in zip(wanted, errors, strict=True):
            if error is None:
                done[key] = None
            else:
                failed[key] = error
        return Results(done, failed)

    async def _describe_modern(self, names: Sequence[str], rights: bool) -> Results[str, Group]:
        async def ask(connection: AsyncConnection, batch: Sequence[str]) -> Mapping[str, Group | ClientError]:
            request = wire_consumer.ConsumerGroupDescribeRequest(
                group_ids=list(batch), include_authorized_operations=rights
            )
            answer = await connection.call(request, wire_consumer.ConsumerGroupDescribeResponse)
            coordinators = await coordinating_brokers(self._cluster, batch)
            return {
                row.group_id: _group_error(row.error_code, row.group_id, row.error_message)
                or _modern(row, coordinators[row.group_id])
                for row in answer.groups
            }

        route = to_coordinators(self._cluster, "describe")
        return await spread(self._cluster, names, route, ask, batch=GROUPS_BATCH)

    async def _describe_classic(self, names: Sequence[str], rights: bool) -> Results[str, Group]:
        async def ask(connection: AsyncConnection, batch: Sequence[str]) -> Mapping[str, Group | ClientError]:
            version = connection.version_for(wire_classic.DescribeGroupsRequest)
            request = wire_classic.DescribeGroupsRequest(
                groups=list(batch), include_authorized_operations=rights and version >= RIGHTS_VERSION
            )
            answer = await connection.call(request, wire_classic.DescribeGroupsResponse)
            coordinators = await coordinating_brokers(self._cluster, batch)
            return {
                row.group_id: _group_error(row.error_code, row.group_id, row.error_message)
                or _classic(row, coordinators[row.group_id])
                for row in answer.groups
            }

        route = to_coordinators(self._cluster, "describe")
        return await spread(self._cluster, names, route, ask, batch=GROUPS_BATCH)

    async def _describe_streams(self, names: Sequence[str], rights: bool) -> Mapping[str, Group]:
        """Those of the names that are streams groups."""
        if not names:
            return {}
        groups = await AsyncStreamsGroups(self._cluster).describe(names, rights=rights)
        return {name: _streams(group) for name, group in groups.done.items()}


class Groups(Family[AsyncGroups]):
    """`Admin.groups`."""

    list = blocking(AsyncGroups.list)
    describe = blocking(AsyncGroups.describe)
    delete = blocking(AsyncGroups.delete)
    remove_members = blocking(AsyncGroups.remove_members)
    offsets = blocking(AsyncGroups.offsets)
    alter_offsets = blocking(AsyncGroups.alter_offsets)
    delete_offsets = blocking(AsyncGroups.delete_offsets)


def _group_error(code: int, name: str, reason: str | None) -> ResourceError | None:
    return ResourceError(code, "describe", f"group {name}", reason) if code else None


def _is_missing(error: ClientError) -> bool:
    return isinstance(error, BrokerError) and error.code == ErrorCode.GROUP_ID_NOT_FOUND


def _streams(group: StreamsGroup) -> Group:
    members = tuple(
        Member(
            member.id,
            member.client,
            member.host,
            group.partitions_of(member.assigned.active),
            member.instance,
            tuple(sorted({topic for part in group.subtopologies for topic in part.topics})),
            member.epoch,
            group.partitions_of(member.target.active),
            None,
            member.rack,
            "classic" if member.is_classic else "streams",
        )
        for member in group.members
    )
    return Group(
        group.name,
        "streams",
        group.state,
        "streams",
        STREAMS_ASSIGNOR,
        members,
        group.coordinator,
        group.epoch,
        group.target_epoch,
        group.rights,
    )


def _modern(row: wire_consumer.DescribedGroup, coordinator: Broker) -> Group:
    members = tuple(
        Member(
            member.member_id,
            member.client_id,
            member.client_host,
            _partitions(member.assignment),
            member.instance_id,
            tuple(member.subscribed_topic_names),
            MemberEpoch(member.member_epoch),
            _partitions(member.target_assignment),
            member.subscribed_topic_regex or None,
            member.rack_id,
            MEMBER_TYPES.get(member.member_type, "consumer"),
        )
        for member in row.members
    )
    return Group(
        row.group_id,
        "consumer",
        row.group_state,
        "consumer",
        row.assignor_name,
        members,
        coordinator,
        MemberEpoch(row.group_epoch),
        MemberEpoch(row.assignment_epoch),
        rights_of(row.authorized_operations),
    )


def _partitions(assignment: wire_consumer.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, number)
        for topic in assignment.topic_partitions
        for number in sorted(topic.partitions)
    )


def _classic(row: wire_classic.DescribedGroup, coordinator: Broker) -> Group | ResourceError:
    if row.group_state == "Dead":
        # What coordinators before Kafka 3.8 say of a group that does not exist.
        return ResourceError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            "describe",
            f"group {row.group_id}",
            f"Group {row.group_id} not found.",
        )
    members = tuple(
        Member(
            member.member_id,
            member.client_id,
            member.client_host,
            read_assignment(bytes(member.member_assignment or b"")),
            member.group_instance_id,
            read_subscription(bytes(member.member_metadata or b"")),
        )
        for member in row.members
    )
    return Group(
        row.group_id,
        "classic",
        row.group_state,
        row.protocol_type,
        row.protocol_data,
        members,
        coordinator,
        rights=rights_of(row.authorized_operations),
    )


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """What a classic consumer reads; empty when the bytes are not a consumer's assignment."""
    try:
        assignment = ConsumerProtocolAssignment.decode_versioned(data)
    except WireError:
        return ()
    return tuple(
        TopicPartition(row.topic, number)
        for row in assignment.assigned_partitions
        for number in sorted(row.partitions)
    )


def read_subscription(data: bytes) -> tuple[str, ...]:
    """The topics that a classic consumer subscribed to; empty when the bytes are not a consumer's."""
    try:
        return tuple(ConsumerProtocolSubscription.decode_versioned(data).topics)
    except WireError:
        return ()


async def _leave(
    connection: AsyncConnection, group: str, members: Sequence[MemberKey], reason: str | None
) -> Sequence[ResourceError | None]:
    """What happened to each member. Before version 3, a request names one member, by its id."""

    def error(code: int, key: MemberKey) -> ResourceError | None:
        return ResourceError(code, "remove", f"member {key} of group {group}") if code else None

    if connection.version_for(wire_leave.LeaveGroupRequest) < MANY_MEMBERS_VERSION:
        outcomes = []
        for key in members:
            request = wire_leave.LeaveGroupRequest(group_id=group, member_id=key.id)
            answer = await connection.call(request, wire_leave.LeaveGroupResponse)
            outcomes.append(error(answer.error_code, key))
        return outcomes
    request = wire_leave.LeaveGroupRequest(
        group_id=group,
        members=[
            wire_leave.MemberIdentity(member_id=key.id, group_instance_id=key.instance, reason=reason)
            for key in members
        ],
    )
    answer = await connection.call(request, wire_leave.LeaveGroupResponse)
    if answer.error_code:
        raise ResourceError(answer.error_code, "remove members of", f"group {group}")
    return [error(row.error_code, key) for row, key in zip(answer.members, members, strict=True)]
