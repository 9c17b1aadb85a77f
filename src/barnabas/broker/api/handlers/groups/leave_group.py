"""LeaveGroup (key 13), versions 0 to 5. Since 3 several members at once, static members also by instance id."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.cores.group.events import LeaveGroup, LeaveReply, LeavingMember, LeftMember
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

MANY_FROM = 3


async def handle(context: Context, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Since version 3 a result for each member; in older versions one error code, since only one member can leave."""
    if context.version >= MANY_FROM:
        leaving = tuple(
            LeavingMember(member.member_id, member.group_instance_id, member.reason)
            for member in request.members
        )
    else:
        leaving = (LeavingMember(request.member_id),)
    reply: LeaveReply = await context.services.groups.ask(
        lambda token, now_ms: LeaveGroup(token, now_ms, request.group_id, leaving), request.group_id
    )
    if context.version >= MANY_FROM and reply.error is ErrorCode.UNKNOWN_MEMBER_ID and not reply.members:
        # The group does not exist: since version 3 every member gets its own error for that.
        gone = tuple(
            LeftMember(member.member_id, member.group_instance_id, reply.error) for member in leaving
        )
        reply = LeaveReply(ErrorCode.NONE, gone)
    if context.version < MANY_FROM:
        error = reply.error
        if not error and reply.members:
            error = reply.members[0].error
        return LeaveGroupResponse(error_code=error)
    return LeaveGroupResponse(
        error_code=reply.error,
        members=[
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=member.error or ErrorCode.NONE,
            )
            for member in reply.members
        ],
    )
