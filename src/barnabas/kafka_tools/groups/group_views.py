"""What kafka-consumer-groups --describe reads and prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.admin import LATEST, Admin, CommittedOffset, Group, TopicPartition
from barnabas.admin.values import by_topic
from barnabas.client.errors import BrokerError
from barnabas.kafka_tools.shared.common import ToolError, java_error, say, text_of
from barnabas.wire.errors import ErrorCode

NONE: Final = "-"


def read_group(admin: Admin, name: str) -> Group:
    """A group of either protocol. Raises ToolError when it is not there."""
    try:
        group = admin.groups.describe([name])[name]
        if group.type == "streams":
            refusal = java_error(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} is not a consumer group.")
            raise ToolError(f"Executing consumer group command failed due to {refusal}")
        return group
    except BrokerError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            missing = java_error(error.code, f"Group {name} not found.")
            raise ToolError(f"Executing consumer group command failed due to {missing}") from None
        raise ToolError(f"group {name}: {text_of(error)}") from None


def committed_offsets(admin: Admin, name: str) -> Mapping[TopicPartition, CommittedOffset]:
    """All committed offsets of a group. Raises ToolError."""
    try:
        return admin.groups.offsets([name])[name]
    except BrokerError as error:
        raise ToolError(f"cannot read the offsets of {name}: {text_of(error)}") from None


def end_offsets(admin: Admin, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Log end offsets; partitions that are gone, or have no leader, are left out."""
    there = {
        TopicPartition(name, part.number)
        for name, topic in admin.topics.list().items()
        for part in topic.partitions
    }
    ends = admin.records.offsets({key: LATEST for key in keys if key in there}).done
    return {key: int(end.offset) for key, end in ends.items() if end.offset is not None}


def say_state(group: Group) -> None:
    """The line before the table of a group without members."""
    match group.state:
        case "Empty":
            say(f"\nConsumer group '{group.name}' has no active members.")
        case "PreparingRebalance" | "CompletingRebalance" | "Assigning" | "Reconciling":
            say(f"\nWarning: Consumer group '{group.name}' is rebalancing.")


def print_offsets(admin: Admin, group: Group, verbose: bool) -> None:
    """Offsets and lag of each partition."""
    committed = committed_offsets(admin, group.name)
    owners = {key: member for member in group.members for key in member.assigned}
    keys = sorted(set(committed) | set(owners), key=lambda key: (key[0], -key[1]))
    ends = end_offsets(admin, keys)
    say_state(group)
    rows = []
    for key in keys:
        owner, mine, end = owners.get(key), committed.get(key), ends.get(key)
        lag = NONE if mine is None or end is None else str(max(end - mine.offset, 0))
        epoch = str(mine.leader_epoch) if mine and mine.leader_epoch is not None else NONE
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


def print_members(group: Group, verbose: bool) -> None:
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
        row = [group.name, member.id, member.host, member.client, str(len(member.assigned))]
        if has_instances:
            row.insert(2, member.instance or NONE)
        if verbose:
            target = NONE if member.target is None else assignment_text(member.target)
            epoch = NONE if member.epoch is None else str(member.epoch)
            row += [epoch, assignment_text(member.assigned), epoch, target]
        rows.append(row)
    print_table(heads, widths, rows, trailing=" ")


def assignment_text(assigned: Iterable[tuple[str, int]]) -> str:
    """`topic:0,1;other:2`."""
    topics = sorted(by_topic(assigned).items())
    return ";".join(f"{topic}:{','.join(map(str, parts))}" for topic, parts in topics) or NONE


def print_state(group: Group) -> None:
    """Coordinator, strategy and state."""
    say_state(group)
    where = group.coordinator
    row = [group.name, f"{where.host}:{where.port}  ({where.id})", group.assignor or NONE, group.state]
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
