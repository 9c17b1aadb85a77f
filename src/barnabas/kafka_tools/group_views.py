"""What kafka-consumer-groups --describe reads and prints."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.errors import UnsupportedByBroker
from barnabas.kafka_tools.common import Admin, ToolError, check_code, java_error, say
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

LATEST: Final = -1
NONE: Final = "-"

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Member:
    """One member. `assigned`: partitions by topic; epoch and target None in a classic group."""

    id: str
    instance: str | None
    host: str
    client: str
    assigned: dict[str, list[int]]
    epoch: int | None = None
    target: dict[str, list[int]] | None = None


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group as its coordinator describes it."""

    name: str
    state: str
    strategy: str
    members: list[Member]


def read_group(admin: Admin, name: str) -> GroupView:
    """A group of either protocol. Raises ToolError when it is not there."""
    try:
        answer = admin.coordinator(
            name, ConsumerGroupDescribeRequest(group_ids=[name]), ConsumerGroupDescribeResponse
        )
        (group,) = answer.groups
        if group.error_code == 0:
            return modern_view(group)
    except UnsupportedByBroker:
        pass  # an older broker has only classic groups
    answer = admin.coordinator(name, DescribeGroupsRequest(groups=[name]), DescribeGroupsResponse)
    (group,) = answer.groups
    check_code(group.error_code, group.error_message, f"group {name}") if group.error_code not in (
        0,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ) else None
    if group.error_code or group.group_state == "Dead":
        raise ToolError(
            "Executing consumer group command failed due to "
            f"{java_error(ErrorCode.GROUP_ID_NOT_FOUND, f'Group {name} not found.')}"
        )
    return classic_view(group)


def classic_view(group: Any) -> GroupView:
    """A classic group; a member's assignment is the consumers' own format."""
    members = [
        Member(
            member.member_id,
            member.group_instance_id,
            member.client_host,
            member.client_id,
            parse_assignment(bytes(member.member_assignment or b"")),
        )
        for member in group.members
    ]
    return GroupView(group.group_id, group.group_state, group.protocol_data, members)


def modern_view(group: Any) -> GroupView:
    """A group of the consumer protocol."""

    def partitions(assignment: Any) -> dict[str, list[int]]:
        return {part.topic_name: sorted(part.partitions) for part in assignment.topic_partitions}

    members = [
        Member(
            member.member_id,
            member.instance_id,
            member.client_host,
            member.client_id,
            partitions(member.assignment),
            member.member_epoch,
            partitions(member.target_assignment),
        )
        for member in group.members
    ]
    return GroupView(group.group_id, group.group_state, group.assignor_name, members)


def parse_assignment(data: bytes) -> dict[str, list[int]]:
    """Partitions by topic of a classic consumer's assignment; empty when it is not one.

    int16 version, int32 n, n * (int16 length, topic, int32 m, m * int32), int32 user data.
    """
    found: dict[str, list[int]] = {}
    try:
        position = 2
        (topics,) = struct.unpack_from(">i", data, position)
        position += 4
        for _ in range(topics):
            (size,) = struct.unpack_from(">h", data, position)
            name = data[position + 2 : position + 2 + size].decode()
            position += 2 + size
            (count,) = struct.unpack_from(">i", data, position)
            found[name] = sorted(struct.unpack_from(f">{count}i", data, position + 4))
            position += 4 + 4 * count
    except (struct.error, UnicodeDecodeError):
        return {}
    return found


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed offset."""

    offset: int
    leader_epoch: int


def committed_offsets(admin: Admin, name: str) -> dict[Key, Committed]:
    """All committed offsets of a group. Raises ToolError."""

    def ask() -> Any:
        connection = admin.client.coordinator(name)
        if connection.version_for(OffsetFetchRequest) >= 8:
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None)])
        else:
            request = OffsetFetchRequest(group_id=name, topics=None)
        return connection.call(request, OffsetFetchResponse)

    answer = admin.client.cluster.retry(ask)
    found = answer.groups[0] if answer.groups else answer
    check_code(found.error_code, None, f"cannot read the offsets of {name}")
    return {
        (topic.name, part.partition_index): Committed(part.committed_offset, part.committed_leader_epoch)
        for topic in found.topics or []
        for part in topic.partitions
        if part.committed_offset >= 0
    }


def end_offsets(admin: Admin, keys: Iterable[Key]) -> dict[Key, int]:
    """Log end offsets; partitions whose topic is gone are left out."""
    there = admin.client.topics()
    known = [key for key in keys if key[0] in there and key[1] in there[key[0]].partitions]
    return {
        key: found.offset for key, found in admin.client.list_offsets(dict.fromkeys(known, LATEST)).items()
    }


def say_state(group: GroupView) -> None:
    """The line before the table of a group without members."""
    match group.state:
        case "Empty":
            say(f"\nConsumer group '{group.name}' has no active members.")
        case "PreparingRebalance" | "CompletingRebalance" | "Assigning" | "Reconciling":
            say(f"\nWarning: Consumer group '{group.name}' is rebalancing.")


def print_offsets(admin: Admin, group: GroupView, verbose: bool) -> None:
    """Offsets and lag of each partition."""
    committed = committed_offsets(admin, group.name)
    owners = {
        (topic, part): member
        for member in group.members
        for topic, parts in member.assigned.items()
        for part in parts
    }
    keys = sorted(set(committed) | set(owners), key=lambda key: (key[0], -key[1]))
    ends = end_offsets(admin, keys)
    say_state(group)
    rows = []
    for key in keys:
        owner, mine, end = owners.get(key), committed.get(key), ends.get(key)
        lag = NONE if mine is None or end is None else str(max(end - mine.offset, 0))
        epoch = str(mine.leader_epoch) if mine and mine.leader_epoch >= 0 else NONE
        rows.append(
            [
                group.name,
                key[0],
                str(key[1]),
                *([epoch] if verbose else []),
                NONE if mine is None else str(mine.offset),
                NONE if end is None else str(end),
                lag,
                owner.id if owner else NONE,
                owner.host if owner else NONE,
                owner.client if owner else NONE,
            ]
        )
    heads = [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    ]
    widths = [15, 15, 10, 15, 15, 15, 15, 15, 0]
    if verbose:
        heads.insert(3, "LEADER-EPOCH")
        widths.insert(3, 15)
    if rows:
        print_table(heads, widths, rows)


def print_members(group: GroupView, verbose: bool) -> None:
    """The members with the number of their partitions, or the partitions themselves."""
    say_state(group)
    heads = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    widths = [15] * 5
    has_instances = any(member.instance for member in group.members)
    if has_instances:
        heads.insert(2, "GROUP-INSTANCE-ID")
        widths.insert(2, 17)
    if verbose:
        heads += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        widths += [15, 20, 15, 20]
    rows = []
    for member in group.members:
        count = sum(map(len, member.assigned.values()))
        row = [group.name, member.id, member.host, member.client, str(count)]
        if has_instances:
            row.insert(2, member.instance or NONE)
        if verbose:
            target = NONE if member.target is None else assignment_text(member.target)
            epoch = NONE if member.epoch is None else str(member.epoch)
            row += [epoch, assignment_text(member.assigned), epoch, target]
        rows.append(row)
    print_table(heads, widths, rows, trailing=" ")


def assignment_text(assigned: dict[str, list[int]]) -> str:
    """`topic:0,1;other:2`."""
    return (
        ";".join(f"{topic}:{','.join(map(str, parts))}" for topic, parts in sorted(assigned.items())) or NONE
    )


def print_state(admin: Admin, group: GroupView, verbose: bool) -> None:
    """Coordinator, strategy and state."""

    def ask() -> Any:
        connection = admin.client.cluster.any()
        if connection.version_for(FindCoordinatorRequest) >= 4:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group.name])
        else:
            request = FindCoordinatorRequest(key=group.name, key_type=0)
        return connection.call(request, FindCoordinatorResponse)

    answer = admin.client.cluster.retry(ask)
    found = answer.coordinators[0] if answer.coordinators else answer
    check_code(found.error_code, found.error_message, f"group {group.name}")
    say_state(group)
    row = [group.name, f"{found.host}:{found.port}  ({found.node_id})", group.strategy or NONE, group.state]
    heads = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
    print_table(heads, [15, 25, 20, 20, 0], [[*row, str(len(group.members))]])


def print_table(heads: list[str], widths: list[int], rows: list[list[str]], trailing: str = "") -> None:
    """A table with Kafka's minimal widths (0: the last column is not filled), after an empty line."""
    wide = [max([width, *(len(row[i]) for row in rows)]) if width else 0 for i, width in enumerate(widths)]
    print()
    for line in [heads, *rows]:
        print(" ".join(text.ljust(width) for text, width in zip(line, wide, strict=True)) + trailing)


def validate_regex(text: str) -> None:
    """Whether an expression that groups of the new protocol subscribe to is valid: those are RE2's."""
    from barnabas.cores.group.consumer.topic_regex import InvalidRegex, compile_topic_regex

    try:
        compile_topic_regex(text)
    except InvalidRegex as error:
        say(f"\nError: The regular expression is invalid. Error: {error}")
    else:
        print("The regular expression is valid.")
