"""kafka-groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.admin import Admin, GroupListing
from barnabas.kafka_tools.shared.common import checked, connect, parse
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Tool
from barnabas.terminal.errors import EXIT_OK

TOOL: Final = Tool(
    "This tool helps to list groups of all types.",
    (
        *COMMON,
        Opt("list", "List the groups."),
        Opt("group-type", "Only groups of this type.", "String: type"),
        Opt("protocol", "Only groups with this protocol.", "String: protocol"),
        Opt("consumer", "Only consumer groups."),
        Opt("share", "Only share groups."),
        Opt("streams", "Only streams groups."),
    ),
)
TYPES: Final = {"classic": "Classic", "consumer": "Consumer", "share": "Share", "streams": "Streams"}


def all_groups(admin: Admin) -> list[GroupListing]:
    """The groups of every coordinator. Raises ClientError: what cannot be asked must not look empty."""
    return [group for listings in admin.groups.list().require().values() for group in listings]


def type_name(group: GroupListing) -> str:
    """A group's type as Kafka's tools write it."""
    return TYPES.get((group.type or "classic").lower(), "Unknown")


def main(arguments: Sequence[str]) -> int:
    """Print a table of the groups; the exit code."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, lambda parsed: TOOL.need(parsed, "list"), parsed)
    groups = all_groups(connect(parsed))
    for name in ("share", "streams"):
        if name in parsed:
            groups = [group for group in groups if type_name(group) == TYPES[name]]
    if "consumer" in parsed:
        groups = [
            g for g in groups if type_name(g) == "Consumer" or (type_name(g) == "Classic" and g.protocol_type in
                                                                ("consumer", ""))
        ]  # fmt: skip
    if "group-type" in parsed:
        groups = [group for group in groups if type_name(group).lower() == parsed.text("group-type").lower()]
    if "protocol" in parsed:
        groups = [group for group in groups if group.protocol_type == parsed.text("protocol")]
    width = max([20, *(len(group.name) for group in groups)])
    print(f"{'GROUP':<{width}} {'TYPE':<20} {'PROTOCOL':<20}")
    for group in groups:
        print(f"{group.name:<{width}} {type_name(group):<20} {group.protocol_type:<20} ")
    return EXIT_OK
