"""DeleteGroups (v0 to v2): deletes a group without members, with all its offsets.

A group with many offsets is deleted in pieces, so that no event takes long: after each piece, a timer that fires at once
continues, and the request is answered after the last piece, which removes the group itself. Meanwhile the group's offsets
are invisible, and requests to use the group are refused with a retriable error. A crash in between leaves the group with
the remaining offsets; no client has been told that it is gone.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import Any, Final

from barnabas.cores.group.events import (
    CommitOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DeleteReply,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
    TopicsMatched,
)
from barnabas.cores.group.lifecycle import remove_group
from barnabas.cores.group.offsets import forget
from barnabas.cores.group.proposal import Proposal
from barnabas.cores.group.share.events import AlterShareOffsets, DeleteShareOffsets, ShareHeartbeat
from barnabas.cores.group.streams.events import StreamsHeartbeat
from barnabas.cores.group.sweeps import PIECE
from barnabas.wire.errors import ApiError, ErrorCode

DELETE: Final = "delete"
"""The timer of a group, without a member in its key, that continues the group's deletion."""

USERS: Final = frozenset(
    (
        JoinGroup,
        SyncGroup,
        LeaveGroup,
        CommitOffsets,
        DeleteOffsets,
        ConsumerHeartbeat,
        TopicsMatched,
        ShareHeartbeat,
        AlterShareOffsets,
        DeleteShareOffsets,
        StreamsHeartbeat,
    )
)
"""Events that would add something to a group that is being deleted, or remove something from it."""


def require_not_deleting(proposal: Proposal, event: Any) -> None:
    """Raises ApiError COORDINATOR_LOAD_IN_PROGRESS, which clients retry, for a group that is being deleted."""
    if proposal.state.deleting and type(event) in USERS and event.group_id in proposal.state.deleting:
        raise ApiError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"{event.group_id!r} is being deleted: try again in a moment",
        )


def decide_delete(proposal: Proposal, event: DeleteGroup) -> None:
    """DeleteGroups: one group without members."""
    if not event.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group id must not be empty")
    group = proposal.require(event.group_id, ErrorCode.GROUP_ID_NOT_FOUND)
    if not group.is_empty:
        raise ApiError(
            ErrorCode.NON_EMPTY_GROUP, f"{event.group_id!r} has members: stop them, then delete the group"
        )
    begun = proposal.state.deleting.get(event.group_id)
    if begun is None:
        delete_piece(proposal, event.group_id, (event.token,))
    else:
        proposal.set_deleting(event.group_id, (*begun, event.token))


def delete_piece(proposal: Proposal, group_id: str, tokens: tuple[object, ...]) -> None:
    """Delete as many offsets as one event may; after the last one delete the group and answer the requests."""
    state = proposal.state
    partitions = tuple(islice(chain(state.offsets_of(group_id), state.pending_of(group_id)), PIECE + 1))
    for partition in dict.fromkeys(partitions[:PIECE]):
        forget(proposal, group_id, partition)
    if len(partitions) > PIECE:
        proposal.set_deleting(group_id, tokens)
        proposal.arm(group_id, "", DELETE, proposal.now_ms)
        return
    group = proposal.find(group_id)
    if group is not None:
        remove_group(proposal, group)
        proposal.note("group deleted", group=group_id)
    if group_id in state.deleting:
        proposal.set_deleting(group_id, None)
    for token in tokens:
        proposal.reply(token, DeleteReply(group_id))
