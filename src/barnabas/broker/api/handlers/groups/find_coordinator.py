"""FindCoordinator (key 10), versions 0 to 6: the broker that coordinates a group, transactional id or share partition.

The first request for a kind of coordinator creates its internal topic. Since 4 a request may name many keys.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.api.access import refuse
from barnabas.broker.api.context import Context
from barnabas.broker.api.endpoints import Endpoint
from barnabas.broker.cluster.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from barnabas.cores.acl import Operation, ResourceType
from barnabas.records.partitioner import partition_for_name
from barnabas.runtime.pace import Pace
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

MANY_FROM: Final = 4
TRANSACTION: Final = 1
SHARE: Final = 2
TOPICS: Final = {0: OFFSETS_TOPIC, TRANSACTION: TRANSACTION_TOPIC, SHARE: SHARE_STATE_TOPIC}
KINDS: Final = {0: "group", 1: "transaction", 2: "share"}


async def handle(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """The leader of the partition that stores the key; COORDINATOR_NOT_AVAILABLE while it has none, and clients ask
    again.
    """
    if context.version >= MANY_FROM:
        pace, coordinators = Pace(context.services.clock), []
        for key in request.coordinator_keys:
            coordinators.append(await _find(context, request.key_type, key))
            await pace.rest()
        return FindCoordinatorResponse(coordinators=coordinators)
    coordinator = await _find(context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


async def _prepare_share(context: Context, key: str) -> None:
    """Prepare the share coordinator. key: group:topic id:partition. Raises ApiError."""
    group_id, _, rest = key.partition(":")
    topic_id, _, index = rest.partition(":")
    if not (group_id and topic_id and index.isdecimal()):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{key!r} is not a share partition: group:topic id:partition"
        )
    await context.services.shares.states.prepare()


def _leader(context: Context, topic: str, key: str) -> Endpoint:
    """The leader of the partition that stores `key`. Raises ApiError COORDINATOR_NOT_AVAILABLE."""
    services = context.services
    known = services.image.topics.get(topic)
    if known is not None and known.partitions:
        index = partition_for_name(key, len(known.partitions))
        endpoint = services.endpoints.of(known.partitions[index].leader, context.connection)
        if endpoint is not None:
            return endpoint
    raise ApiError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the partition of {topic} that keeps {key!r} has no leader"
    )


async def _find(context: Context, kind: int, key: str) -> Coordinator:
    try:
        if kind not in KINDS:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"key type {kind} is none of {KINDS}")
        if kind == SHARE:
            if not context.allows_cluster(Operation.CLUSTER_ACTION):
                raise refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            await _prepare_share(context, key)
        elif kind == TRANSACTION:
            if not context.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
                raise refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            await context.services.transactions.prepare()
        else:
            if not context.allows(Operation.DESCRIBE, ResourceType.GROUP, key):
                raise refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            await context.services.groups.prepare()
        node = _leader(context, TOPICS[kind], key)
    except ApiError as error:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message
        )
    return Coordinator(
        key=key,
        node_id=node.node_id,
        host=node.host,
        port=node.port,
        error_code=ErrorCode.NONE,
        error_message="",
    )
