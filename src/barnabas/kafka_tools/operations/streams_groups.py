"""kafka-streams-groups: groups of the streams protocol (KIP-1071), which Barnabas does not serve: it has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.kafka_tools.common import checked, connect, java_error, parse, say
from barnabas.kafka_tools.groups import all_groups, type_name
from barnabas.kafka_tools.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK
from barnabas.wire.errors import ErrorCode

ACTIONS: Final = ("list", "describe", "delete", "delete-offsets", "reset-offsets")
TOOL: Final = Tool(
    "This tool helps to list, or describe streams groups.",
    (
        *COMMON,
        Opt("list", "List all streams groups."),
        Opt("describe", "Describe streams groups."),
        Opt("delete", "Delete streams groups."),
        Opt("delete-offsets", "Delete offsets of a streams group."),
        Opt("reset-offsets", "Reset offsets of a streams group."),
        Opt("group", "The group.", "String: streams group"),
        Opt("all-groups", "Apply to all streams groups."),
        Opt("state", "With --list: show states, or only these.", "String", optional=True),
        Opt("members", "With --describe."),
        Opt("offsets", "With --describe."),
        Opt("verbose", "With --describe."),
        Opt("input-topic", "The topic.", "String: topic"),
        Opt("all-input-topics", "All topics."),
        Opt("timeout", "In ms.", "Long: timeout (ms)"),
        Opt("execute", "Do it."),
        Opt("dry-run", "Only show it."),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Print the groups; the exit code."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, check, parsed)
    groups = [group for group in all_groups(connect(parsed)) if type_name(group) == "Streams"]
    if "list" in parsed:
        show(parsed, [(group.name, group.state) for group in groups])
        return EXIT_OK
    if "all-groups" in parsed and not groups:
        return EXIT_OK
    there = {group.name for group in groups}
    for name in parsed.all("group") or sorted(there):
        if name in there:
            text = "Streams groups are read and changed with Apache Kafka's own kafka-streams-groups."
        else:
            text = java_error(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} not found.")
        say(f"Error: Executing streams group command failed due to {text}")
    return EXIT_FAILED


def check(parsed: Parsed) -> None:
    """Raises Refused."""
    if sum(action in parsed for action in ACTIONS) != 1:
        raise Refused(
            f"Command must include exactly one action: {', '.join(f'--{name}' for name in ACTIONS)}."
        )
    if "list" not in parsed and not {"group", "all-groups"} & parsed.values.keys():
        raise Refused("Option takes one of these options: [all-groups], [group]")


def show(parsed: Parsed, groups: Sequence[tuple[str, str]]) -> None:
    """Names, or with --state a table."""
    if "state" not in parsed:
        for name, _ in groups:
            print(name)
        return
    wanted = {word.strip().lower() for word in parsed.text("state").split(",") if word.strip()}
    rows = [("GROUP", "STATE"), *(row for row in groups if not wanted or row[1].lower() in wanted)]
    width = max(15, *(len(name) for name, _ in rows))
    for name, state in rows:
        print(f"{name:<{width}} {state}")
