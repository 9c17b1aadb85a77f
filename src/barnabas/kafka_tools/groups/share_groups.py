"""kafka-share-groups."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from barnabas.admin import (
    EARLIEST,
    LATEST,
    Admin,
    GroupListing,
    ResourceError,
    ShareGroup,
    ShareOffset,
    TopicPartition,
)
from barnabas.kafka_tools.groups.group_offsets import Plan, at_time, in_log, parse_datetime, read_file, scope
from barnabas.kafka_tools.groups.group_views import assignment_text, print_table
from barnabas.kafka_tools.groups.groups import all_groups
from barnabas.kafka_tools.shared.common import (
    ToolError,
    checked,
    connect,
    java_error,
    java_text,
    parse,
    say,
    text_of,
)
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK
from barnabas.wire.errors import ErrorCode

ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
STATES: Final = ("Dead", "Empty", "Stable")
PLACES: Final = ("to-earliest", "to-latest", "to-current", "to-offset", "to-datetime", "from-file")

TOOL: Final = Tool(
    "This tool helps to list, describe, reset and delete share groups.",
    (
        *COMMON,
        Opt("list", "List all share groups."),
        Opt("describe", "Describe a share group: where it begins, its members or its state."),
        Opt("delete", "Delete share groups without members."),
        Opt("reset-offsets", "Move where a share group begins; --dry-run (the default) or --execute."),
        Opt("delete-offsets", "Let a share group forget topics."),
        Opt("group", "The share group; may be repeated.", "String: share group"),
        Opt("all-groups", "All share groups."),
        Opt("topic", "A topic, or topic:0,1,2; may be repeated.", "String: topic"),
        Opt("all-topics", "All topics that the group has read."),
        Opt("members", "With --describe: the members."),
        Opt("offsets", "With --describe: the offsets (default)."),
        Opt("state", "With --describe: the state. With --list: show states, or only these.", "String", True),
        Opt("verbose", "More columns."),
        Opt("timeout", "How long to wait for the group.", "Long: timeout (ms)"),
        Opt("dry-run", "Only show what would be set."),
        Opt("execute", "Set the offsets."),
        Opt("export", "Print the offsets as CSV."),
        Opt("to-earliest", "To the earliest offset."),
        Opt("to-latest", "To the latest offset."),
        Opt("to-current", "To where the group is."),
        Opt("to-offset", "To an offset.", "Long: offset"),
        Opt("to-datetime", "To a time, 'YYYY-MM-DDThh:mm:ss.sss'.", "String: datetime"),
        Opt("from-file", "To the offsets of a CSV file.", "String: path to CSV file"),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Run the tool; its exit code."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, check, parsed)
    action = next(action for action in ACTIONS if action in parsed)
    admin = connect(parsed)
    try:
        match action:
            case "list":
                list_groups(admin, parsed)
            case "describe":
                describe(admin, parsed)
            case "delete":
                delete(admin, parsed)
            case "reset-offsets":
                reset(admin, parsed)
            case _:
                delete_offsets(admin, parsed)
    except (ToolError, ResourceError) as error:
        say(f"\nError: Executing share group command failed due to {java_text(error)}")
        return EXIT_FAILED
    return EXIT_OK


def check(parsed: Parsed) -> None:
    """Raises Refused."""
    if sum(action in parsed for action in ACTIONS) != 1:
        raise Refused(
            "Command must include exactly one action: "
            + ", ".join(f"--{action}" for action in ACTIONS) + "."
        )  # fmt: skip
    if "describe" in parsed:
        if not {"group", "all-groups"} & parsed.values.keys():
            raise Refused("Option [describe] takes one of these options: [all-groups], [group]")
        if sum(name in parsed for name in ("members", "offsets", "state")) > 1:
            raise Refused(
                "Option [describe] takes at most one of these options: [members], [offsets], [state]"
            )
    if "delete" in parsed and not {"group", "all-groups"} & parsed.values.keys():
        raise Refused("Option [delete] takes one of these options: [all-groups], [group]")
    if "delete-offsets" in parsed and not {"group", "topic"} <= parsed.values.keys():
        raise Refused("Option [delete-offsets] takes the following options: [group], [topic]")
    if "reset-offsets" in parsed:
        if "group" not in parsed:
            raise Refused("Option [reset-offsets] takes the option: [group]")
        if "dry-run" in parsed and "execute" in parsed:
            raise Refused("Option [reset-offsets] only accepts one of [execute], [dry-run]")
        if sum(place in parsed for place in PLACES) != 1:
            raise Refused(
                f"Option [reset-offsets] requires one of: {', '.join(f'[{place}]' for place in PLACES)}"
            )
        if "from-file" not in parsed and not {"topic", "all-topics"} & parsed.values.keys():
            raise Refused("Option [reset-offsets] takes one of these options: [all-topics], [topic]")


def shared(admin: Admin) -> list[GroupListing]:
    """The share groups of the cluster."""
    return [group for group in all_groups(admin) if group.type.lower() == "share"]


def names(admin: Admin, parsed: Parsed) -> list[str]:
    """The groups to act on."""
    if "all-groups" in parsed:
        return sorted(group.name for group in shared(admin))
    return sorted(set(parsed.all("group")))


def list_groups(admin: Admin, parsed: Parsed) -> None:
    """Names, with states if asked for. Raises Refused."""
    groups = shared(admin)
    if "state" not in parsed:
        for group in groups:
            print(group.name)
        return
    known = {state.lower(): state for state in STATES}
    wanted = [word.strip().lower() for word in parsed.text("state").split(",") if word.strip()]
    if any(word not in known for word in wanted):
        raise Refused(
            f"Invalid state list '{parsed.text('state')}'. Valid states are: {', '.join(STATES)}", False
        )
    width = max([15, *(len(group.name) for group in groups)])
    print(f"{'GROUP':<{width}} STATE")
    for group in groups:
        if not wanted or group.state.lower() in wanted:
            print(f"{group.name:<{width}} {group.state}")


# --- describing -----------------------------------------------------------------------------------------


def describe(admin: Admin, parsed: Parsed) -> None:
    """Raises ToolError."""
    for group in [read_share_group(admin, name) for name in names(admin, parsed)]:
        if "members" in parsed:
            print_members(group, "verbose" in parsed)
        elif "state" in parsed:
            print_state(group, "verbose" in parsed)
        else:
            offsets = admin.share_groups.offsets([group.name])[group.name]
            print_offsets(group.name, offsets, "verbose" in parsed)


def find_share_group(admin: Admin, name: str) -> ShareGroup | None:
    """None when there is no share group of this name. Raises ResourceError."""
    results = admin.share_groups.describe([name])
    return results.except_for(ErrorCode.GROUP_ID_NOT_FOUND).require().get(name)


def read_share_group(admin: Admin, name: str) -> ShareGroup:
    """Raises ToolError when there is no share group of this name, ResourceError."""
    group = find_share_group(admin, name)
    if group is None:
        raise ToolError(java_error(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} not found."))
    return group


def say_empty(group: ShareGroup) -> None:
    """A line for a group without members, written to the same stream as by Kafka's tool."""
    if group.state == "Empty":
        print(f"\nShare group '{group.name}' has no active members.", file=sys.stderr)


def print_offsets(name: str, offsets: Mapping[TopicPartition, ShareOffset], verbose: bool) -> None:
    """Where the group begins in each partition."""
    if not offsets:
        say(f"\nShare group '{name}' has no offset information.")
        return
    heads, widths = ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"], [15, 15, 10, 13, 0]
    rows = [
        [name, key[0], str(key[1]), _text(offset.start), _text(offset.lag)]
        for key, offset in sorted(offsets.items())
    ]
    if verbose:
        heads.insert(3, "LEADER-EPOCH")
        widths.insert(3, 13)
        for row, (_, offset) in zip(rows, sorted(offsets.items()), strict=True):
            row.insert(3, str(offset.leader_epoch))
    print_table(heads, widths, rows)


def print_state(group: ShareGroup, verbose: bool) -> None:
    """Coordinator, state and number of members."""
    say_empty(group)
    where = group.coordinator
    heads, widths = ["GROUP", "COORDINATOR (ID)", "STATE"], [15, 25, 15]
    row = [group.name, f"{where.host}:{where.port}  ({where.id})", group.state]
    if verbose:
        heads += ["GROUP-EPOCH", "ASSIGNMENT-EPOCH"]
        widths += [12, 17]
        row += [str(group.epoch), str(group.target_epoch)]
    print_table([*heads, "#MEMBERS"], [*widths, 0], [[*row, str(len(group.members))]])


def print_members(group: ShareGroup, verbose: bool) -> None:
    """The members with their partitions."""
    say_empty(group)
    heads, widths = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"], [15, 15, 15, 15, 12]
    if verbose:
        heads.append("MEMBER-EPOCH")
        widths.append(13)
    rows = []
    for member in sorted(group.members, key=lambda member: member.id):
        row = [group.name, member.id, member.host, member.client, str(len(member.assigned))]
        rows.append([*row, *([str(member.epoch)] if verbose else []), assignment_text(member.assigned)])
    if rows:
        print_table([*heads, "ASSIGNMENT"], [*widths, 0], rows)


def _text(number: int | None) -> str:
    return "-" if number is None else str(number)


# --- changing -------------------------------------------------------------------------------------------


def delete(admin: Admin, parsed: Parsed) -> None:
    """Delete groups without members. Raises ToolError."""
    states = {group.name: group.state for group in shared(admin)}
    failed: dict[str, str] = {}
    empty = []
    for name in names(admin, parsed):
        if name not in states:
            failed[name] = java_error(ErrorCode.GROUP_ID_NOT_FOUND, f"Group '{name}' is not a share group.")
        elif states[name] != "Empty":
            failed[name] = java_error(ErrorCode.NON_EMPTY_GROUP, f"Share group '{name}' is not EMPTY.")
        else:
            empty.append(name)
    results = admin.groups.delete(empty)
    failed |= {name: java_text(error) for name, error in results.failed.items()}
    quoted = ", ".join(f"'{name}'" for name in results.done)
    if not failed:
        print(f"Deletion of requested share groups ({quoted}) was successful.")
        return
    say("\nError: Deletion of some share groups failed:")
    for name, error in failed.items():
        say(f"* Group '{name}' could not be deleted due to: {error}")
    if results.done:
        print(f"\nThese share groups were deleted successfully: {quoted}")


def reset(admin: Admin, parsed: Parsed) -> None:
    """Plan where a group begins and, with --execute, set it. Raises ToolError, Refused."""
    name = parsed.text("group")
    group = find_share_group(admin, name)
    if group is not None and group.state not in ("Empty", "Dead"):
        raise Refused(f"Share group '{name}' is not empty.", False)
    current = {} if group is None else admin.share_groups.offsets([name])[name]
    plan = plan_reset(admin, parsed, name, current)
    if "execute" in parsed:
        for key, error in admin.share_groups.alter_offsets(name, plan).failed.items():
            raise ToolError(f"{key}: {java_text(error)}")
    order = sorted(plan, key=lambda key: (key[0], -key[1]))
    if "export" in parsed:
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows((*key, plan[key]) for key in order)
        print(out.getvalue())
    else:
        rows = [[name, key[0], str(key[1]), str(plan[key])] for key in order]
        print_table(["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], [30, 30, 10, 15], rows)


def plan_reset(
    admin: Admin, parsed: Parsed, name: str, current: Mapping[TopicPartition, ShareOffset]
) -> Plan:
    """The new start of each partition in scope. Raises ToolError, Refused."""
    if "from-file" in parsed:
        return in_log(admin, read_file(Path(parsed.text("from-file")), name, False))
    known = {key: int(offset.start) for key, offset in current.items() if offset.start is not None}
    keys = list(current) if "all-topics" in parsed else scope(admin, parsed, known)
    if "to-earliest" in parsed:
        return at_time(admin, keys, EARLIEST)
    if "to-latest" in parsed:
        return at_time(admin, keys, LATEST)
    if "to-offset" in parsed:
        return in_log(admin, dict.fromkeys(keys, parsed.number("to-offset", 0)))
    if "to-datetime" in parsed:
        return at_time(admin, keys, parse_datetime(parsed.text("to-datetime")))
    missing = [key for key in keys if key not in known]
    return {**{key: known[key] for key in keys if key in known}, **at_time(admin, missing, LATEST)}


def delete_offsets(admin: Admin, parsed: Parsed) -> None:
    """Let a group forget topics. Raises ToolError."""
    results = admin.share_groups.delete_offsets(parsed.text("group"), sorted(set(parsed.all("topic"))))
    rows = [[topic, "Successful"] for topic in results.done]
    rows += [[topic, f"Error: {text_of(error)}"] for topic, error in results.failed.items()]
    rows.sort()
    print_table(["TOPIC", "STATUS"], [15, 0], rows)
