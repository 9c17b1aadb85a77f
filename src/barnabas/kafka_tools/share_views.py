"""Share groups as their coordinator describes them, and the change of their offsets. For both command lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas.kafka_tools.common import Admin, ToolError, error_text, java_error
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from barnabas.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from barnabas.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from barnabas.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

Key = tuple[str, int]
GONE: Final = (ErrorCode.GROUP_ID_NOT_FOUND,)


class ShareMember(NamedTuple):
    """One member. `assigned`: partitions by topic."""

    id: str
    host: str
    client: str
    epoch: int
    assigned: dict[str, list[int]]


class ShareView(NamedTuple):
    name: str
    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: list[ShareMember]


class ShareOffset(NamedTuple):
    """A group's start offset in a partition; None if it has not begun there, or the broker does not report it."""

    start: int | None
    leader_epoch: int
    lag: int | None


def find_share_group(admin: Admin, name: str) -> ShareView | None:
    """None when there is no share group of this name. Raises ToolError."""
    request = ShareGroupDescribeRequest(group_ids=[name])
    (group,) = admin.coordinator(name, request, ShareGroupDescribeResponse).groups
    if group.error_code in GONE:
        return None
    _check(group)
    members = [
        ShareMember(
            member.member_id,
            member.client_host,
            member.client_id,
            member.member_epoch,
            {part.topic_name: sorted(part.partitions) for part in member.assignment.topic_partitions},
        )
        for member in group.members
    ]
    return ShareView(
        name, group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name, members
    )


def read_share_group(admin: Admin, name: str) -> ShareView:
    """Raises ToolError, also when there is no share group of this name."""
    group = find_share_group(admin, name)
    if group is None:
        raise ToolError(java_error(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} not found."))
    return group


def share_offsets(admin: Admin, name: str) -> dict[Key, ShareOffset]:
    """All partitions of which a group has a state. Raises ToolError."""
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)
    answer: Any = admin.coordinator(
        name, DescribeShareGroupOffsetsRequest(groups=[asked]), DescribeShareGroupOffsetsResponse
    )
    (group,) = answer.groups
    _check(group)
    return {
        (topic.topic_name, part.partition_index): ShareOffset(
            part.start_offset if part.start_offset >= 0 else None,
            part.leader_epoch,
            part.lag if part.lag >= 0 else None,
        )
        for topic in group.topics
        for part in topic.partitions
        if part.error_code == ErrorCode.NONE
    }


def alter_share_offsets(admin: Admin, name: str, plan: Mapping[Key, int]) -> None:
    """Set where a group without members begins. Raises ToolError."""
    by_topic: defaultdict[str, list[AlterShareGroupOffsetsRequestPartition]] = defaultdict(list)
    for (topic, partition), offset in plan.items():
        row = AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
        by_topic[topic].append(row)
    request = AlterShareGroupOffsetsRequest(
        group_id=name,
        topics=[
            AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=rows)
            for topic, rows in by_topic.items()
        ],
    )
    answer: Any = admin.coordinator(name, request, AlterShareGroupOffsetsResponse)
    _check(answer)
    for topic_result in answer.responses:
        for part in topic_result.partitions:
            _check(part, f"{topic_result.topic_name}-{part.partition_index}: ")


def delete_share_offsets(admin: Admin, name: str, topics: Sequence[str]) -> dict[str, str | None]:
    """Delete topics from a group without members; for each topic what went wrong. Raises ToolError."""
    request = DeleteShareGroupOffsetsRequest(
        group_id=name, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics]
    )
    answer: Any = admin.coordinator(name, request, DeleteShareGroupOffsetsResponse)
    _check(answer)
    return {
        row.topic_name: error_text(row.error_code, row.error_message) if row.error_code else None
        for row in answer.responses
    }


def _check(answer: Any, before: str = "") -> None:
    if answer.error_code:
        raise ToolError(before + java_error(answer.error_code, answer.error_message))
