"""DeleteGroups (key 42), versions 0 to 2: remove groups without members, with all their offsets."""

from __future__ import annotations

from functools import partial
from typing import Any

from barnabas.broker.api.context import Context
from barnabas.cores.group.events import DeleteGroup, DeleteReply
from barnabas.runtime.pace import Pace
from barnabas.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def handle(context: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """A result for each group: NON_EMPTY_GROUP if it has members, GROUP_ID_NOT_FOUND if it does not exist."""
    pace, results = Pace(context.services.clock), []
    for group_id in dict.fromkeys(request.groups_names):
        reply: DeleteReply = await context.services.groups.ask(partial(_event, group_id), group_id)
        results.append(DeletableGroupResult(group_id=group_id, error_code=reply.error))
        await pace.rest()
    return DeleteGroupsResponse(results=results)


def _event(group_id: str, token: Any, now_ms: int) -> DeleteGroup:
    return DeleteGroup(token, now_ms, group_id)
