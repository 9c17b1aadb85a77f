"""kafka-groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from barnabas.kafka_tools.common import Admin, check_code, checked, parse
from barnabas.kafka_tools.parser import COMMON, Opt, Tool
from barnabas.terminal.errors import EXIT_OK
from barnabas.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

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


def all_groups(admin: Admin, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[Any]:
    """The groups of every coordinator. Raises ToolError."""
    found = []
    for node in admin.nodes():
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        answer = admin.node(node, request, ListGroupsResponse)
        check_code(answer.error_code, None, f"cannot list the groups of broker {node}")
        found += answer.groups
    return found


def type_name(group: Any) -> str:
    """A group's type as Kafka's tools write it."""
    return TYPES.get(str(group.group_type or "classic").lower(), "Unknown")


def main(arguments: Sequence[str]) -> int:
    """Print a table of the groups; the exit code."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, lambda parsed: TOOL.need(parsed, "list"), parsed)
    groups = all_groups(Admin.connect(parsed))
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
    width = max([20, *(len(group.group_id) for group in groups)])
    print(f"{'GROUP':<{width}} {'TYPE':<20} {'PROTOCOL':<20}")
    for group in groups:
        print(f"{group.group_id:<{width}} {type_name(group):<20} {group.protocol_type:<20} ")
    return EXIT_OK
