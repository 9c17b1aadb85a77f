"""kafka-consumer-groups: the command line. Requests and output are in group_views and group_offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.admin import Admin, ResourceError
from barnabas.kafka_tools.groups import group_offsets, group_views
from barnabas.kafka_tools.groups.groups import all_groups, type_name
from barnabas.kafka_tools.shared.common import ToolError, checked, connect, java_text, parse, say
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.terminal.errors import EXIT_OK

ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
)

TOOL: Final = Tool(
    "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, or reset "
    "consumer group offsets.",
    (
        *COMMON,
        Opt("list", "List all consumer groups."),
        Opt("describe", "Describe a group and its lag."),
        Opt("delete", "Delete groups with their offsets."),
        Opt(
            "reset-offsets", "Reset offsets of a group without members; --dry-run (the default) or --execute."
        ),
        Opt("delete-offsets", "Delete offsets of topics of a group."),
        Opt("group", "The group; may be repeated.", "String: consumer group"),
        Opt("all-groups", "All groups."),
        Opt("topic", "A topic, or topic:0,1,2; may be repeated.", "String: topic"),
        Opt("all-topics", "All topics that the group has offsets of."),
        Opt("members", "With --describe: the members."),
        Opt("offsets", "With --describe: the offsets (default)."),
        Opt(
            "state",
            "With --describe: the state. With --list: show states, or only these.",
            "String",
            optional=True,
        ),
        Opt("type", "With --list: show types, or only these.", "String", optional=True),
        Opt("verbose", "More columns."),
        Opt("timeout", "How long to wait for the group.", "Long: timeout (ms)"),
        Opt("dry-run", "Only show what would be set."),
        Opt("execute", "Set the offsets."),
        Opt("export", "Print the offsets as CSV."),
        *(Opt(name, help, takes) for name, takes, help in group_offsets.SPECIFICATIONS),
        Opt("validate-regex", "Check a regular expression.", "String: regex"),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Run the tool; as with Kafka, its exit code is 0 even when a group does not exist."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, check, parsed)
    action = next(action for action in ACTIONS if action in parsed)
    if action == "validate-regex":
        group_views.validate_regex(parsed.text("validate-regex"))
        return EXIT_OK
    admin = connect(parsed)
    try:
        match action:
            case "list":
                list_groups(admin, parsed)
            case "describe":
                describe(admin, parsed)
            case "delete" if "topic" in parsed:
                group_offsets.delete(admin, parsed)
            case "delete":
                delete(admin, parsed)
            case "reset-offsets":
                group_offsets.reset(admin, parsed, names(admin, parsed))
            case _:
                group_offsets.delete(admin, parsed)
    except (ToolError, ResourceError) as error:
        say(f"\nError: {java_text(error)}")
    return EXIT_OK


def check(parsed: Parsed) -> None:
    """Raises Refused."""
    if sum(action in parsed for action in ACTIONS) != 1:
        raise Refused(
            "Command must include exactly one action: " + ", ".join(f"--{action}" for action in ACTIONS)
        )
    for action in ("describe", "delete", "reset-offsets"):
        if action in parsed and not {"group", "all-groups"} & parsed.values.keys():
            raise Refused(f"Option [{action}] takes one of these options: [all-groups], [group]")
    if "delete" in parsed and "topic" in parsed and "zookeeper" not in parsed:
        raise Refused(
            "The consumer does not support topic-specific offset deletion from a consumer group; use --delete-offsets",
            False,
        )
    if "delete-offsets" in parsed and not {"group", "topic"} <= parsed.values.keys():
        raise Refused("Option [delete-offsets] takes the following options: [group], [topic]")
    if "describe" in parsed and sum(name in parsed for name in ("members", "offsets", "state")) > 1:
        raise Refused("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if "reset-offsets" in parsed:
        group_offsets.check(parsed)


def names(admin: Admin, parsed: Parsed) -> list[str]:
    """The groups to act on."""
    if "all-groups" in parsed:
        return sorted({group.name for group in all_groups(admin) if is_consumer(group.protocol_type)})
    return list(dict.fromkeys(parsed.all("group")))


def is_consumer(protocol_type: str) -> bool:
    """Whether a group is of consumers (or so old and empty that it does not say)."""
    return protocol_type in ("consumer", "")


def list_groups(admin: Admin, parsed: Parsed) -> None:
    """Names, with states and types if asked for. Raises Refused."""
    wanted_states = [word.strip() for word in parsed.text("state").split(",") if word.strip()]
    known = {state.lower(): state for state in STATES}
    if any(word.lower() not in known for word in wanted_states):
        raise Refused(
            f"Invalid state list '{parsed.text('state')}'. Valid states are: {', '.join(sorted(STATES))}",
            False,
        )
    wanted_types = [word.strip().capitalize() for word in parsed.text("type").split(",") if word.strip()]
    groups = [group for group in all_groups(admin) if is_consumer(group.protocol_type)]
    groups = [group for group in groups if type_name(group) in ("Classic", "Consumer")]
    if wanted_states:
        allowed = {known[word.lower()] for word in wanted_states}
        groups = [group for group in groups if group.state in allowed]
    if wanted_types:
        groups = [group for group in groups if type_name(group) in wanted_types]
    if "state" not in parsed and "type" not in parsed:
        for group in groups:
            print(group.name)
        return
    width = max([25, *(len(group.name) for group in groups)])
    columns = [("TYPE", type_name)] if "type" in parsed else []
    if "state" in parsed:
        columns.append(("STATE", lambda group: group.state))
    print(" ".join([f"{'GROUP':<{width}}", *(f"{head:<20}" for head, _ in columns)]))
    for group in groups:
        print(" ".join([f"{group.name:<{width}}", *(f"{show(group):<20}" for _, show in columns)]))


def describe(admin: Admin, parsed: Parsed) -> None:
    """Offsets, members or state of groups. Raises ToolError."""
    for name in names(admin, parsed):
        group = group_views.read_group(admin, name)
        if "members" in parsed:
            group_views.print_members(group, "verbose" in parsed)
        elif "state" in parsed:
            group_views.print_state(group)
        else:
            group_views.print_offsets(admin, group, "verbose" in parsed)


def delete(admin: Admin, parsed: Parsed) -> None:
    """Delete groups. Raises ToolError."""
    wanted = names(admin, parsed)
    failed = {name: java_text(error) for name, error in admin.groups.delete(wanted).failed.items()}
    done = ", ".join(f"'{name}'" for name in wanted if name not in failed)
    if failed:
        lines = [f"* Group '{name}' could not be deleted due to: {error}" for name, error in failed.items()]
        say("\n".join(["\nError: Deletion of some consumer groups failed:", *lines]))
        if done:
            print(f"\nThese consumer groups were deleted successfully: {done}")
    else:
        print(f"Deletion of requested consumer groups ({done}) was successful.")
