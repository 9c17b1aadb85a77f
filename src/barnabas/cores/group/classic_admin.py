"""DescribeGroups (v0 to v6), ListGroups (v0 to v5) and DeleteGroups (v0 to v2)."""

from __future__ import annotations

from barnabas.cores.group import records
from barnabas.cores.group.classic import ClassicState
from barnabas.cores.group.events import (
    DeleteGroup,
    DeleteReply,
    DescribedMember,
    DescribeGroup,
    DescribeReply,
    ListedGroup,
    ListGroups,
    ListReply,
)
from barnabas.cores.group.offsets import forget_all
from barnabas.cores.group.turn import Turn
from barnabas.wire.errors import ApiError, ErrorCode


def decide_describe(turn: Turn, event: DescribeGroup) -> None:
    group = turn.find(event.group_id)
    if group is None:
        reply = DescribeReply(
            event.group_id,
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {event.group_id} not found.",
            ClassicState.DEAD.value,
        )
        turn.reply(event.token, reply)
        return
    stable = group.state is ClassicState.STABLE
    members = tuple(
        DescribedMember(
            m.member_id,
            m.group_instance_id,
            m.client_id,
            m.client_host,
            m.metadata_for(group.protocol_name) if stable else b"",
            m.assignment if stable else b"",
        )
        for m in group.members.values()
    )
    turn.reply(
        event.token,
        DescribeReply(
            event.group_id,
            state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_name=(group.protocol_name or "") if stable else "",
            members=members,
        ),
    )


def decide_list(turn: Turn, event: ListGroups) -> None:
    states = {state.lower() for state in event.states}
    types = {group_type.lower() for group_type in event.types}
    rows = []
    for group in turn.state.groups.values():
        row = ListedGroup(group.group_id, group.protocol_type or "", group.state.value, group.group_type)
        if (not states or row.state.lower() in states) and (not types or row.group_type.lower() in types):
            rows.append(row)
    turn.reply(event.token, ListReply(ErrorCode.NONE, tuple(rows)))


def decide_delete(turn: Turn, event: DeleteGroup) -> None:
    if not event.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group id must not be empty")
    group = turn.classic(event.group_id, ErrorCode.GROUP_ID_NOT_FOUND)
    if not group.is_empty:
        raise ApiError(
            ErrorCode.NON_EMPTY_GROUP, f"{event.group_id!r} has members: stop them, then delete the group"
        )
    forget_all(turn, event.group_id)
    turn.record(records.group_tombstone(event.group_id))
    turn.remove(event.group_id)
    turn.reply(event.token, DeleteReply(event.group_id))
    turn.note("group deleted", group=event.group_id)
