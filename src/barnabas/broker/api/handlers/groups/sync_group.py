"""SyncGroup (key 14), versions 0 to 5: the leader sends the assignment, every member receives its part."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.cores.group.events import SyncGroup, SyncReply
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_FROM = 5


async def handle(context: Context, request: SyncGroupRequest) -> SyncGroupResponse:
    """A member's answer comes once the leader has sent the assignment; REBALANCE_IN_PROGRESS if a rebalance begins
    before that.
    """
    if context.version >= PROTOCOL_FROM and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    reply: SyncReply = await context.services.groups.ask(
        lambda token, now_ms: SyncGroup(
            token=token,
            now_ms=now_ms,
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            assignments={assignment.member_id: assignment.assignment for assignment in request.assignments},
            group_instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
        ),
        request.group_id,
    )
    return SyncGroupResponse(
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )
