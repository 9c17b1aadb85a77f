"""JoinGroup (key 11), versions 0 to 9: enter or re-enter a group of the classic protocol.

Since 1 a separate rebalance timeout; since 4 new members join twice (MEMBER_ID_REQUIRED); since 5 static members; since 7
the protocol type in the answer; since 8 a reason; since 9 an answer may tell the leader to skip the assignment.
"""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.cores.group.events import JoinGroup, JoinReply
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

REBALANCE_TIMEOUT_FROM = 1
MEMBER_ID_REQUIRED_FROM = 4
PROTOCOL_NAME_NULLABLE_FROM = 7
SKIP_ASSIGNMENT_FROM = 9


async def handle(context: Context, request: JoinGroupRequest) -> JoinGroupResponse:
    """The answer comes when the rebalance ends, which may take until the rebalance time-out. The leader's answer has
    all members with their subscriptions, that of others has none.
    """
    version = context.version
    rebalance_ms = (
        request.rebalance_timeout_ms if version >= REBALANCE_TIMEOUT_FROM else request.session_timeout_ms
    )
    reply: JoinReply = await context.services.groups.ask(
        lambda token, now_ms: JoinGroup(
            token=token,
            now_ms=now_ms,
            group_id=request.group_id,
            member_id=request.member_id,
            fresh_id=str(context.services.entropy.uuid()),
            client_id=context.client_id or "",
            client_host=context.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=request.protocol_type,
            protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
            group_instance_id=request.group_instance_id,
            reason=request.reason,
            requires_member_id=version >= MEMBER_ID_REQUIRED_FROM,
            can_skip_assignment=version >= SKIP_ASSIGNMENT_FROM,
        ),
        request.group_id,
    )
    name = reply.protocol_name
    return JoinGroupResponse(
        error_code=reply.error,
        generation_id=reply.generation_id,
        protocol_type=reply.protocol_type,
        protocol_name=name if name is not None or version >= PROTOCOL_NAME_NULLABLE_FROM else "",
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata,
            )
            for member in reply.members
        ],
    )
