"""DescribeGroups (key 15), versions 0 to 6. Since 6 an unknown group is an error, not a dead group."""

from __future__ import annotations

from functools import partial
from typing import Any

from barnabas.broker.api.context import Context
from barnabas.cores.acl import ResourceType
from barnabas.cores.group.events import DescribeGroup, DescribeReply
from barnabas.runtime.pace import Pace
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

UNKNOWN_IS_ERROR_FROM = 6


async def handle(context: Context, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """State and members of each group; assignments are returned as the members' own bytes."""
    pace, groups = Pace(context.services.clock), []
    for group_id in request.groups:
        reply: DescribeReply = await context.services.groups.ask(partial(_event, group_id), group_id)
        described = _described(reply, context.version)
        if request.include_authorized_operations and described.error_code == ErrorCode.NONE:
            described.authorized_operations = context.operations(ResourceType.GROUP, group_id)
        groups.append(described)
        await pace.rest()
    return DescribeGroupsResponse(groups=groups)


def _described(reply: DescribeReply, version: int) -> DescribedGroup:
    unknown = reply.error == ErrorCode.GROUP_ID_NOT_FOUND and version < UNKNOWN_IS_ERROR_FROM
    return DescribedGroup(
        error_code=ErrorCode.NONE if unknown else reply.error,
        error_message=None if unknown else reply.message,
        group_id=reply.group_id,
        group_state=reply.state,
        protocol_type=reply.protocol_type,
        protocol_data=reply.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in reply.members
        ],
    )


def _event(group_id: str, token: Any, now_ms: int) -> DescribeGroup:
    return DescribeGroup(token, now_ms, group_id)
