"""kafka-streams-groups: the command line, and what changes groups. What it shows is in streams_views."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Final

from barnabas.admin import Admin, ResourceError, StreamsGroup, TopicPartition
from barnabas.client.errors import BrokerError
from barnabas.kafka_tools.groups import streams_views
from barnabas.kafka_tools.groups.group_offsets import SPECIFICATIONS, commit, plan_reset, scope
from barnabas.kafka_tools.groups.group_views import committed_offsets, print_table
from barnabas.kafka_tools.groups.groups import all_groups, type_name
from barnabas.kafka_tools.shared.common import (
    ToolError,
    checked,
    connect,
    java_error,
    java_text,
    parse,
    say,
)
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK
from barnabas.wire.errors import ErrorCode

ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
STATES: Final = ("Stable", "Empty", "Assigning", "Reconciling", "Dead", "NotReady")

TOOL: Final = Tool(
    "This tool helps to list, describe, reset and delete streams groups.",
    (
        *COMMON,
        Opt("list", "List all streams groups."),
        Opt("describe", "Describe a streams group and its lag."),
        Opt("delete", "Delete streams groups without members, with their offsets."),
        Opt(
            "reset-offsets", "Reset offsets of a streams group without members: with --dry-run or --execute."
        ),
        Opt("delete-offsets", "Delete offsets of input topics of a streams group."),
        Opt("group", "The streams group; may be repeated.", "String: streams group"),
        Opt("all-groups", "All streams groups."),
        Opt("input-topic", "An input topic, or topic:0,1,2; may be repeated.", "String: topic"),
        Opt("all-input-topics", "All input topics of the group."),
        Opt("members", "With --describe: the members."),
        Opt("offsets", "With --describe: the offsets (default)."),
        Opt("state", "With --describe: the state. With --list: show states, or only these.", "String", True),
        Opt("verbose", "More columns."),
        Opt("timeout", "How long to wait for the group.", "Long: timeout (ms)"),
        Opt("dry-run", "Only show what would be set."),
        Opt("execute", "Set the offsets."),
        Opt("export", "Print the offsets as CSV."),
        Opt(
            "delete-internal-topic",
            "With --reset-offsets --execute: also delete this internal topic; may be repeated.",
            "String: topic",
        ),
        Opt(
            "delete-all-internal-topics",
            "With --delete, or --reset-offsets --execute: also delete the group's internal topics.",
        ),
        *(Opt(name, text, takes) for name, takes, text in SPECIFICATIONS),
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
                for name in names(admin, parsed):
                    streams_views.describe(admin, read_streams_group(admin, name), parsed)
            case "delete":
                delete(admin, parsed)
            case "reset-offsets":
                reset(admin, parsed)
            case _:
                delete_offsets(admin, parsed)
    except (ToolError, ResourceError) as error:
        say(f"\nError: Executing streams group command failed due to {java_text(error)}")
        return EXIT_FAILED
    return EXIT_OK


def check(parsed: Parsed) -> None:
    """Raises Refused."""
    option_names = parsed.values.keys()
    if sum(action in parsed for action in ACTIONS) != 1:
        raise Refused(
            "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, or"
            " --delete-offsets."
        )
    for action in ("describe", "delete", "reset-offsets"):
        if action in parsed and not {"group", "all-groups"} & option_names:
            raise Refused(f"Option [{action}] takes one of these options: [all-groups], [group]")
    if "list" in parsed and "group" in parsed:
        raise Refused('Option "[group]" can\'t be used with option "[list]"')
    if "describe" in parsed and sum(name in parsed for name in ("members", "offsets", "state")) > 1:
        raise Refused("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if "delete" in parsed and "input-topic" in parsed:
        raise Refused(
            "Kafka Streams does not support topic-specific offset deletion from a streams group.", False
        )
    if "delete-offsets" in parsed and (
        "group" not in parsed or not {"input-topic", "all-input-topics"} & option_names
    ):
        raise Refused(
            "Option [delete-offsets] takes the [group] and one of these options: [all-input-topics], [input-topic]"
        )
    if "reset-offsets" in parsed:
        check_reset(parsed)


def check_reset(parsed: Parsed) -> None:
    """Raises Refused."""
    if ("execute" in parsed) == ("dry-run" in parsed):
        raise Refused("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    if sum(name in parsed for name, _, _ in SPECIFICATIONS) != 1:
        places = ", ".join(f"[{name}]" for name, _, _ in SPECIFICATIONS)
        raise Refused(f"Option '[reset-offsets]' requires one of the following scenarios: {places}")
    if "from-file" not in parsed and not {"input-topic", "all-input-topics"} & parsed.values.keys():
        raise Refused("One of the reset scopes should be defined: --all-input-topics, --input-topic.")
    if {"delete-internal-topic", "delete-all-internal-topics"} <= parsed.values.keys():
        raise Refused("Only one of [delete-all-internal-topics], [delete-internal-topic] can be given")


def names(admin: Admin, parsed: Parsed) -> list[str]:
    """The groups to act on."""
    if "all-groups" in parsed:
        return sorted(group.name for group in all_groups(admin) if type_name(group) == "Streams")
    return list(dict.fromkeys(parsed.all("group")))


def list_groups(admin: Admin, parsed: Parsed) -> None:
    """Names, with states if asked for. Raises Refused."""
    groups = [group for group in all_groups(admin) if type_name(group) == "Streams"]
    if "state" not in parsed:
        for group in groups:
            print(group.name)
        return
    known = {state.lower() for state in STATES}
    wanted = {word.strip().lower() for word in parsed.text("state").split(",") if word.strip()}
    if not wanted <= known:
        raise Refused(f"Invalid state list '{parsed.text('state')}'. Valid states are: {', '.join(STATES)}")
    width = max([15, *(len(group.name) for group in groups)])
    print(f"{'GROUP':<{width}} STATE")
    for group in groups:
        if not wanted or group.state.lower() in wanted:
            print(f"{group.name:<{width}} {group.state}")


def find_streams_group(admin: Admin, name: str) -> StreamsGroup | None:
    """None when there is no streams group of this name. Raises ResourceError."""
    results = admin.streams_groups.describe([name])
    return results.except_for(ErrorCode.GROUP_ID_NOT_FOUND).require().get(name)


def read_streams_group(admin: Admin, name: str) -> StreamsGroup:
    """Raises ToolError when there is no streams group of this name, ResourceError."""
    group = find_streams_group(admin, name)
    if group is None:
        raise ToolError(java_error(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} not found."))
    return group


# --- changing -------------------------------------------------------------------------------------------


def delete(admin: Admin, parsed: Parsed) -> None:
    """Delete groups without members and, if asked to, their internal topics. Raises ToolError."""
    failed: dict[str, str] = {}
    groups: dict[str, StreamsGroup] = {}
    for name in names(admin, parsed):
        group = find_streams_group(admin, name)
        if group is None:
            failed[name] = java_error(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group '{name}' does not exist or is not a streams group."
            )
        elif group.state != "Empty":
            failed[name] = java_error(ErrorCode.NON_EMPTY_GROUP, f"Streams group '{name}' is not EMPTY.")
        else:
            groups[name] = group
    results = admin.groups.delete(groups)
    failed |= {name: java_text(error) for name, error in results.failed.items()}
    quoted = "', '".join(results.done)
    if not failed:
        print(f"Deletion of requested streams groups ('{quoted}') was successful.")
    else:
        say("\nError: Deletion of some streams groups failed:")
        for name, text in failed.items():
            say(f"* Group '{name}' could not be deleted due to: {text}")
        if results.done:
            print(f"\nThese streams groups were deleted successfully: '{quoted}'.")
    if "delete-all-internal-topics" in parsed and results.done:
        internal = [topic for name in results.done for topic in groups[name].internal_topics]
        delete_topics(admin, internal)
        print(f"Deletion of associated internal topics of the streams groups ('{quoted}') was successful.")


def delete_topics(admin: Admin, topics: Sequence[str]) -> None:
    """Delete those that exist. Raises ToolError."""
    known = admin.topics.list()
    results = admin.topics.delete([topic for topic in topics if topic in known])
    if results.failed:
        say("\nError: Deletion of some associated internal topics failed:")
        for name, error in results.failed.items():
            say(f"* Topic '{name}' could not be deleted due to: {java_text(error)}")
        raise ToolError("internal topics are left")


def inputs(parsed: Parsed, group: StreamsGroup | None, committed: Sequence[TopicPartition]) -> Parsed:
    """The options with the topics in scope as kafka-consumer-groups has them. Raises ToolError.

    All input topics: the partitions that the group has committed offsets for, without those of its internal topics.
    """
    known = {topic for part in group.subtopologies for topic in part.topics} if group else set()
    known |= {key.topic for key in committed}
    if "all-input-topics" in parsed:
        internal = set(group.internal_topics) if group else set()
        keys = [f"{key.topic}:{key.partition}" for key in committed if key.topic not in internal]
        return Parsed({**parsed.values, "topic": keys})
    if "input-topic" not in parsed:
        return parsed
    if known and any(item.partition(":")[0] not in known for item in parsed.all("input-topic")):
        raise ToolError(f"One or more topics are not part of the group '{parsed.text('group')}'.")
    return Parsed({**parsed.values, "topic": parsed.all("input-topic")})


def reset(admin: Admin, parsed: Parsed) -> None:
    """Plan new offsets and, with --execute, commit them. Raises ToolError, Refused."""
    groups = names(admin, parsed)
    rows = []
    for name in groups:
        group = find_streams_group(admin, name)
        if group is not None and group.state not in ("Empty", "Dead"):
            say(
                f"\nError: Assignments can only be reset if the group '{name}' is inactive, but the current"
                f" state is {group.state}."
            )
            continue
        wanted = inputs(parsed, group, list(committed_offsets(admin, name)))
        plan = plan_reset(admin, wanted, name, len(groups) > 1)
        if "execute" in parsed:
            commit(admin, name, plan)
            if "delete-all-internal-topics" in parsed and group is not None:
                delete_topics(admin, group.internal_topics)
            elif "delete-internal-topic" in parsed:
                delete_topics(admin, own_topics(parsed, group))
        order = sorted(plan, key=lambda key: (key[0], -key[1]))
        rows += [[name, key[0], str(key[1]), str(plan[key])] for key in order]
    if "export" in parsed:
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(rows if len(groups) > 1 else [row[1:] for row in rows])
        print(out.getvalue())
    else:
        print_table(["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], [30, 30, 10, 15], rows)


def own_topics(parsed: Parsed, group: StreamsGroup | None) -> list[str]:
    """The internal topics to delete. Raises ToolError for one that is not the group's."""
    wanted = list(dict.fromkeys(parsed.all("delete-internal-topic")))
    own = set(group.internal_topics) if group is not None else set()
    strange = [topic for topic in wanted if topic not in own]
    if strange:
        raise ToolError(f"{strange[0]} is not an internal topic of the group '{parsed.text('group')}'.")
    return wanted


def delete_offsets(admin: Admin, parsed: Parsed) -> None:
    """Delete committed offsets of input topics of one group. Raises ToolError."""
    name = parsed.text("group")
    group = read_streams_group(admin, name)
    committed = committed_offsets(admin, name)
    if "all-input-topics" in parsed:
        keys = [key for key in committed if key.topic not in group.internal_topics]
    else:
        keys = scope(admin, Parsed({"topic": parsed.all("input-topic")}), {})
    try:
        results = admin.groups.delete_offsets(name, keys)
    except BrokerError as error:
        raise ToolError(f"OffsetDeleteRequest completed with error: {java_text(error)}") from None
    if results.failed:
        say("\nError: Encountered some partition-level error, see the follow-up details.")
    else:
        print(f"Request succeeded for deleting offsets from group {name}.")
    rows = []
    for key in sorted(keys):
        failure = results.failed.get(key)
        status = f"Error: {java_text(failure)}" if failure else "Successful"
        rows.append([key.topic, str(key.partition), f"{status:<15}"])
    print_table(["TOPIC", "PARTITION", f"{'STATUS':<15}"], [15, 10, 0], rows)
