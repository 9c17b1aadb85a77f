"""StreamsGroupDescribe (key 89), version 0: state, topology and members of streams groups."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.groups.consumer_group_describe import HIDDEN
from barnabas.broker.api.handlers.topics.metadata import OPERATIONS_UNKNOWN
from barnabas.cores.acl import ResourceType
from barnabas.cores.group.streams.events import (
    DescribedStreamsMember,
    DescribeStreamsGroup,
    StreamsDescribeReply,
)
from barnabas.cores.group.streams.group import TaskOffset, Tasks
from barnabas.cores.group.streams.records import by_subtopology
from barnabas.cores.group.streams.topology import InternalTopic, Topology
from barnabas.runtime.pace import Pace
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages import streams_group_describe as wire


async def handle(
    context: Context, request: wire.StreamsGroupDescribeRequest
) -> wire.StreamsGroupDescribeResponse:
    """A row for each group; TOPIC_AUTHORIZATION_FAILED, and no members, if the topology names a topic that the client
    may not see.
    """
    groups = []
    pace = Pace(context.services.clock)
    for group_id in request.group_ids:
        await pace.rest()
        groups.append(await _group(context, group_id, request.include_authorized_operations))
    return wire.StreamsGroupDescribeResponse(groups=groups)


async def _group(context: Context, group_id: str, with_operations: bool) -> wire.DescribedGroup:
    try:
        reply: StreamsDescribeReply = await context.services.groups.ask(partial(_event, group_id), group_id)
    except ApiError as error:  # it concerns only this group, not the request
        reply = StreamsDescribeReply(group_id, error.code, error.message)
    topology = reply.topology
    if topology is not None and not all(map(context.sees_topic, topology.named_topics())):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return wire.DescribedGroup(group_id=group_id, error_code=code, error_message=HIDDEN)
    return wire.DescribedGroup(
        error_code=reply.error,
        error_message=reply.message,
        group_id=reply.group_id,
        group_state=reply.state,
        group_epoch=reply.group_epoch,
        assignment_epoch=reply.assignment_epoch,
        topology=None if topology is None else _topology(topology),
        members=[_member(row) for row in reply.members],
        authorized_operations=context.operations(ResourceType.GROUP, group_id)
        if with_operations and not reply.error
        else OPERATIONS_UNKNOWN,
    )


def _event(group_id: str, token: Any, now_ms: int) -> DescribeStreamsGroup:
    return DescribeStreamsGroup(token, now_ms, group_id)


def _topology(topology: Topology) -> wire.Topology:
    return wire.Topology(
        epoch=topology.epoch,
        subtopologies=[
            wire.Subtopology(
                subtopology_id=part.subtopology_id,
                source_topics=sorted(part.sources),
                repartition_sink_topics=sorted(part.repartition_sinks),
                state_changelog_topics=_topics(part.changelogs),
                repartition_source_topics=_topics(part.repartition_sources),
            )
            for part in topology.subtopologies
        ],
    )


def _topics(topics: Iterable[InternalTopic]) -> list[wire.TopicInfo]:
    return [
        wire.TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[wire.KeyValue(key=key, value=value) for key, value in topic.configs],
        )
        for topic in sorted(topics)
    ]


def _member(row: DescribedStreamsMember) -> wire.Member:
    member, endpoint = row.member, row.member.endpoint
    return wire.Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else wire.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[wire.KeyValue(key=key, value=value) for key, value in member.tags],
        task_offsets=_offsets(row.offsets),
        task_end_offsets=_offsets(row.end_offsets),
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(row.target),
    )


def _offsets(offsets: Iterable[TaskOffset]) -> list[wire.TaskOffset]:
    return [
        wire.TaskOffset(subtopology_id=part, partition=number, offset=offset)
        for part, number, offset in offsets
    ]


def _assignment(tasks: Tasks) -> wire.Assignment:
    active, standby, warmup = (
        [wire.TaskIds(subtopology_id=part, partitions=numbers) for part, numbers in by_subtopology(kind)]
        for kind in tasks
    )
    return wire.Assignment(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)
