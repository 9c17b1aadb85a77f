"""ListGroups (key 16), versions 0 to 5. Since 4 filtered by state, since 5 also by type."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.cores.acl import Operation, ResourceType
from barnabas.cores.group.events import ListGroups, ListReply
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def handle(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    """The groups that this broker coordinates; those that the client may not describe are left out without an error."""
    states, types = frozenset(request.states_filter), frozenset(request.types_filter)
    replies: list[ListReply] = await context.services.groups.ask_all(
        lambda token, now_ms: ListGroups(token, now_ms, states, types)
    )
    sees_all = context.allows_cluster(Operation.DESCRIBE, quietly=True)
    error = next((reply.error for reply in replies if reply.error), ErrorCode.NONE)
    return ListGroupsResponse(
        error_code=error,
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for reply in replies
            for group in reply.groups
            if sees_all
            or context.allows(Operation.DESCRIBE, ResourceType.GROUP, group.group_id, quietly=True)
        ],
    )
