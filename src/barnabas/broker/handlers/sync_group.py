"""SyncGroup (key 14), versions 0 to 5: the leader gives the assignment, every member receives its part."""

from __future__ import annotations

from barnabas.broker.context import Context
from barnabas.cores.group.events import SyncGroup, SyncReply
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


async def handle(context: Context, request: SyncGroupRequest) -> SyncGroupResponse:
    reply: SyncReply = await context.broker.groups.ask(
        lambda token, now_ms: SyncGroup(
            token=token,
            now_ms=now_ms,
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            assignments={one.member_id: one.assignment for one in request.assignments},
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
