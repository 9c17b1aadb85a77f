"""Heartbeat (key 12), versions 0 to 4: keeps a member alive, and tells it about rebalances."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.cores.group.events import Heartbeat, HeartbeatReply
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


async def handle(context: Context, request: HeartbeatRequest) -> HeartbeatResponse:
    """An error code: REBALANCE_IN_PROGRESS tells the member to join again, UNKNOWN_MEMBER_ID that it was removed,
    ILLEGAL_GENERATION that a rebalance has ended without it.
    """
    reply: HeartbeatReply = await context.services.groups.ask(
        lambda token, now_ms: Heartbeat(
            token=token,
            now_ms=now_ms,
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
        ),
        request.group_id,
    )
    return HeartbeatResponse(error_code=reply.error)
