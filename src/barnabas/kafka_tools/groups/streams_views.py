"""What kafka-streams-groups --describe prints, as Kafka 4.3 does."""

from __future__ import annotations

from typing import Final

from barnabas.admin import EARLIEST, Admin, StreamsAssignment, StreamsGroup
from barnabas.kafka_tools.groups.group_views import committed_offsets, end_offsets
from barnabas.kafka_tools.shared.common import say
from barnabas.kafka_tools.shared.parser import Parsed

NONE: Final = "-"


def describe(admin: Admin, group: StreamsGroup, parsed: Parsed) -> None:
    """Offsets, members or state of a group."""
    if group.state == "Empty":
        say(f"\nStreams group '{group.name}' has no active members.")
    if "members" in parsed:
        print_members(group, "verbose" in parsed)
    elif "state" in parsed:
        print_state(group, "verbose" in parsed)
    else:
        print_offsets(admin, group, "verbose" in parsed)


def _print(heads: list[str], widths: list[int], rows: list[list[str]], grow: int) -> None:
    """A table whose first `grow` columns are as wide as their contents; others have the width given (0: not filled)."""
    wide = [
        max([width, *(len(row[i]) for row in rows)]) if i < grow and width else width
        for i, width in enumerate(widths)
    ]
    for line in [heads, *rows]:
        print(" ".join(text.ljust(width) for text, width in zip(line, wide, strict=True)))


def print_offsets(admin: Admin, group: StreamsGroup, verbose: bool) -> None:
    """Lag of each partition that the group's tasks read or that it has committed an offset for."""
    committed = committed_offsets(admin, group.name)
    owned = {key for member in group.members for key in group.partitions_of(member.assigned.active)}
    keys = sorted(owned | set(committed))
    ends = end_offsets(admin, keys)
    starts = admin.records.offsets({key: EARLIEST for key in keys if key in ends}).done
    rows = []
    for key in keys:
        if key not in ends:
            continue
        mine, end = committed.get(key), ends[key]
        lag = end - (mine.offset if mine is not None else int(starts[key].offset or 0))
        row = [group.name, key.topic, str(key.partition)]
        if verbose:
            epoch = NONE if mine is None or mine.leader_epoch is None else str(mine.leader_epoch)
            row += [NONE if mine is None else str(mine.offset), epoch, str(end)]
        rows.append([*row, str(max(lag, 0))])
    if not rows:
        return
    if verbose:
        heads = [
            "GROUP",
            "TOPIC",
            "PARTITION",
            "CURRENT-OFFSET",
            "LEADER-EPOCH",
            "LOG-END-OFFSET",
            "OFFSET-LAG",
        ]
        _print(heads, [15, 15, 10, 15, 15, 15, 15], rows, 2)
    else:
        _print(["GROUP", "TOPIC", "PARTITION", "OFFSET-LAG"], [15, 15, 10, 0], rows, 2)


def print_state(group: StreamsGroup, verbose: bool) -> None:
    """Coordinator, state and number of members."""
    where = group.coordinator
    heads, widths = ["GROUP", "COORDINATOR (ID)", "STATE"], [15, 25, 25]
    row = [group.name, f"{where.host}:{where.port} ({where.id})", group.state]
    if verbose:
        heads += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        widths += [15, 25]
        row += [str(group.epoch), str(group.target_epoch)]
    _print([*heads, "#MEMBERS"], [*widths, 0], [[*row, str(len(group.members))]], 2)


def print_members(group: StreamsGroup, verbose: bool) -> None:
    """The members with their tasks."""
    rows = []
    for member in group.members:
        tasks = _tasks(member.assigned, "")
        if verbose:
            rows.append(
                [
                    group.name,
                    str(group.target_epoch),
                    str(group.topology_epoch),
                    member.id,
                    "classic" if member.is_classic else "streams",
                    str(member.epoch),
                    member.process,
                    member.client,
                    tasks + _tasks(member.target, "TARGET-"),
                ]
            )
        else:
            rows.append([group.name, member.id, member.process, member.client, tasks])
    if not rows:
        return
    if not verbose:
        heads = ["GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"]
        _print(heads, [15, 15, 15, 15, 0], rows, 4)
        return
    heads = [
        "GROUP",
        "TARGET-ASSIGNMENT-EPOCH",
        "TOPOLOGY-EPOCH",
        "MEMBER",
        "MEMBER-PROTOCOL",
        "MEMBER-EPOCH",
        "PROCESS",
        "CLIENT-ID",
        "ASSIGNMENTS",
    ]
    _print(heads, [15, 25, 14, 15, 15, 15, 15, 15, 0], rows, 8)


def _tasks(assignment: StreamsAssignment, prefix: str) -> str:
    """`ACTIVE: 0:[0,1]; 1:[0]; STANDBY: 1:[1]; `; kinds without tasks are left out."""
    text = ""
    for kind, tasks in (
        ("ACTIVE", assignment.active),
        ("STANDBY", assignment.standby),
        ("WARMUP", assignment.warmup),
    ):
        if tasks:
            text += f"{prefix}{kind}: "
            text += "".join(
                f"{part}:[{','.join(map(str, numbers))}]; " for part, numbers in sorted(tasks.items())
            )
    return text
