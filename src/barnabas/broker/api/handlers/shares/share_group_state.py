"""The share coordinator's requests, sent by partition leaders and by group coordinators (KIP-932):

InitializeShareGroupState (key 83) version 0, ReadShareGroupState (84) version 0, WriteShareGroupState (85) and
ReadShareGroupStateSummary (87) versions 0 and 1, DeleteShareGroupState (86) version 0. One handler serves them all, since
they differ only in the event for each share partition. Changes are answered once they are committed.
"""

from __future__ import annotations

import asyncio

from barnabas.broker.api.access import refuse
from barnabas.broker.api.context import Context
from barnabas.broker.coordinators.shares.state_requests import events_of, response_of
from barnabas.cores.acl import Operation
from barnabas.cores.group.share.state import ShareKey, StateReply
from barnabas.runtime.pace import Pace
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.schema import Message


async def handle(context: Context, request: Message) -> Message:
    """A result for each share partition: FENCED_LEADER_EPOCH and FENCED_STATE_EPOCH tell a leader that another has
    replaced it.
    """
    states = context.services.shares.states
    replies: dict[ShareKey, StateReply] = {}
    asked: dict[ShareKey, asyncio.Future[StateReply]] = {}
    allowed = context.allows_cluster(Operation.CLUSTER_ACTION)
    pace = Pace(context.services.clock)
    for key, event in events_of(request):
        await pace.rest()
        if not allowed:
            refusal = refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            replies[key] = StateReply(refusal.code, refusal.message)
        elif isinstance(event, ApiError):
            replies[key] = StateReply(event.code, event.message)
        else:
            asked[key] = states.ask(event)
    for key, reply in asked.items():
        await pace.rest()
        replies[key] = await reply
    return response_of(request, replies)
