"""StreamsGroupHeartbeat (key 88), version 0: the request by which threads of Kafka Streams take part in groups (KIP-1071).

The first one brings the topology. Topics that it needs for itself are created with the rights of the member.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from barnabas.broker.api.context import Context
from barnabas.cores import topic_names
from barnabas.cores.acl import Operation, ResourceType
from barnabas.cores.cluster_image import INTERNAL_TOPICS
from barnabas.cores.group.streams.events import EndpointPartitions, StreamsHeartbeat, StreamsHeartbeatReply
from barnabas.cores.group.streams.group import Endpoint, TaskOffset, Tasks, TaskSet
from barnabas.cores.group.streams.records import by_subtopology, topology_of
from barnabas.cores.group.streams.topology import (
    NewTopic,
    Status,
    StatusCode,
    Topology,
    require_small,
)
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages import streams_group_heartbeat as wire

NAMES_SHOWN: Final = 10


async def handle(
    context: Context, request: wire.StreamsGroupHeartbeatRequest
) -> wire.StreamsGroupHeartbeatResponse:
    """The member's epoch, the time until its next heartbeat in ms, its tasks if they have changed, and the statuses of
    the group; FENCED_MEMBER_EPOCH and UNKNOWN_MEMBER_ID tell a member to join again.
    """
    if not context.services.features.streams_groups:
        return _refused(
            ErrorCode.UNSUPPORTED_VERSION,
            "group.coordinator.rebalance.protocols does not name streams on this broker",
        )
    try:
        topology = None if request.topology is None else _topology(context, request.topology)
        owned = _owned(request)
    except ApiError as error:
        return _refused(error.code, error.message)
    reply: StreamsHeartbeatReply = await context.services.groups.ask(
        lambda token, now_ms: _event(context, request, topology, owned, token, now_ms), request.group_id
    )
    if reply.error:
        return _refused(reply.error, reply.message)
    statuses = reply.statuses
    if reply.missing:
        detail = _create_topics(context, request.group_id, reply.missing)
        statuses = tuple(_with_detail(status, detail) for status in statuses)
    return _response(context, request, reply, statuses)


def _refused(code: ErrorCode, message: str | None) -> wire.StreamsGroupHeartbeatResponse:
    return wire.StreamsGroupHeartbeatResponse(error_code=code, error_message=message)


# --- the request


def _topology(context: Context, declared: wire.Topology) -> Topology:
    """Raises ApiError for names that no topic may have, and for topics that the member may not see."""
    require_small(declared.subtopologies)
    topology = topology_of(declared.epoch, declared.subtopologies)
    names = sorted(topology.named_topics())
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        raise ApiError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Use of Kafka internal topics {_some(internal)} in a Kafka Streams topology is prohibited.",
        )
    invalid = [name for name in names if topic_names.refusal(name) is not None]
    if invalid:
        raise ApiError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY, f"Topic names {_some(invalid)} are not valid topic names."
        )
    if not all(context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        raise ApiError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The member may not describe all topics of the topology."
        )
    return topology


def _owned(request: wire.StreamsGroupHeartbeatRequest) -> Tasks | None:
    kinds = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if all(rows is None for rows in kinds):
        return None
    if any(rows is None for rows in kinds):
        raise ApiError(ErrorCode.INVALID_REQUEST, "If one task-type is non-null, all must be non-null.")
    active, standby, warmup = (_tasks(rows or ()) for rows in kinds)
    return Tasks(active, standby, warmup)


def _tasks(rows: Iterable[wire.TaskIds]) -> TaskSet:
    return frozenset((row.subtopology_id, number) for row in rows for number in row.partitions)


def _offsets(rows: Iterable[wire.TaskOffset] | None) -> tuple[TaskOffset, ...] | None:
    return (
        None
        if rows is None
        else tuple(TaskOffset(row.subtopology_id, row.partition, row.offset) for row in rows)
    )


def _event(
    context: Context,
    request: wire.StreamsGroupHeartbeatRequest,
    topology: Topology | None,
    owned: Tasks | None,
    token: object,
    now_ms: int,
) -> StreamsHeartbeat:
    endpoint, tags = request.user_endpoint, request.client_tags
    return StreamsHeartbeat(
        token=token,
        now_ms=now_ms,
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        endpoint_epoch=request.endpoint_information_epoch,
        client_id=context.client_id or "",
        client_host=context.client_host,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topology=topology,
        owned=owned,
        process_id=request.process_id,
        endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        tags=None if tags is None else tuple((tag.key, tag.value) for tag in tags),
        offsets=_offsets(request.task_offsets),
        end_offsets=_offsets(request.task_end_offsets),
        shutdown=request.shutdown_application,
    )


# --- internal topics


def _create_topics(context: Context, group_id: str, missing: tuple[NewTopic, ...]) -> str:
    """Have the topics created that the member may create; what hinders the others, as an addition to the status."""
    everything = context.allows_cluster(Operation.CREATE, quietly=True)
    allowed = [
        topic
        for topic in missing
        if everything or context.allows(Operation.CREATE, ResourceType.TOPIC, topic.name)
    ]
    if len(allowed) < len(missing):
        names = {topic.name for topic in missing} - {topic.name for topic in allowed}
        return f"; Unauthorized to CREATE on topics {_some(sorted(names))}."
    charge = partial(context.services.quotas.charge_mutation, context, strict=False)
    failures = context.services.groups.streams_topics.create_soon(group_id, allowed, charge)
    if not failures:
        return ""
    return "; Creation failed: " + _some(f"{name} ({reason})" for name, reason in failures.items())


def _with_detail(status: Status, detail: str) -> Status:
    if status.code is not StatusCode.MISSING_INTERNAL_TOPICS:
        return status
    return status._replace(detail=status.detail + detail)


def _some(names: Iterable[str]) -> str:
    shown = list(names)
    rest = len(shown) - NAMES_SHOWN
    return ", ".join(shown[:NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


# --- the response


def _response(
    context: Context,
    request: wire.StreamsGroupHeartbeatRequest,
    reply: StreamsHeartbeatReply,
    statuses: tuple[Status, ...],
) -> wire.StreamsGroupHeartbeatResponse:
    tasks, endpoints = reply.tasks, reply.endpoints
    options = context.services.groups.streams_options(request.group_id)
    return wire.StreamsGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        acceptable_recovery_lag=options.acceptable_recovery_lag,
        task_offset_interval_ms=options.task_offset_interval_ms,
        status=[wire.Status(status_code=status.code, status_detail=status.detail) for status in statuses],
        active_tasks=None if tasks is None else _rows(tasks.active),
        standby_tasks=None if tasks is None else _rows(tasks.standby),
        warmup_tasks=None if tasks is None else _rows(tasks.warmup),
        endpoint_information_epoch=reply.endpoint_epoch,
        partitions_by_user_endpoint=None if endpoints is None else [_endpoint(row) for row in endpoints],
    )


def _rows(tasks: TaskSet) -> list[wire.TaskIds]:
    return [wire.TaskIds(subtopology_id=part, partitions=numbers) for part, numbers in by_subtopology(tasks)]


def _endpoint(row: EndpointPartitions) -> wire.EndpointToPartitions:
    active, standby = (
        [wire.TopicPartition(topic=topic, partitions=list(numbers)) for topic, numbers in topics]
        for topics in (row.active, row.standby)
    )
    return wire.EndpointToPartitions(
        user_endpoint=wire.Endpoint(host=row.endpoint.host, port=row.endpoint.port),
        active_partitions=active,
        standby_partitions=standby,
    )
