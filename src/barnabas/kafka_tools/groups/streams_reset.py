"""kafka-streams-application-reset: resets a Kafka Streams application: its offsets go back, and its own topics are
deleted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Final

from barnabas.admin import EARLIEST, LATEST, Admin, MemberKey, TopicPartition
from barnabas.client.errors import ClientError
from barnabas.kafka_tools.groups.group_offsets import SPECIFICATIONS, Plan, at_time, commit, plan_reset
from barnabas.kafka_tools.groups.group_views import read_group
from barnabas.kafka_tools.shared.common import ToolError, checked, connect, parse, say, text_of
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK

DEFAULT_SERVER: Final = "localhost:9092"
INTERNAL: Final = re.compile(
    r"-(changelog|repartition)$|-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic$"
)
TOOL: Final = Tool(
    "This tool helps to quickly reset an application in order to reprocess its data from scratch.\n"
    "* It resets the offsets of input topics, to the earliest offset or a given position.\n"
    "* It deletes the internal topics that Kafka Streams has made (their names start with the application's id).\n"
    "* It does not delete output topics, nor the local state of the instances: call KafkaStreams#cleanUp().",
    (
        *COMMON,
        Opt("application-id", "The application.id.", "String: id"),
        Opt("bootstrap-servers", "The old name of --bootstrap-server.", "String: servers", old=True),
        Opt("config-file", "Property file for the client.", "String: file name"),
        Opt("input-topics", "Topics to reset, with commas.", "String: list"),
        Opt("intermediate-topics", "Topics to skip to the end of, with commas.", "String: list"),
        Opt("internal-topics", "Only these of the internal topics, with commas.", "String: list"),
        Opt("force", "Remove members that are still in the group."),
        Opt("dry-run", "Only show what would be done."),
        Opt("execute", "Of old tools.", old=True),
        *(Opt(name, text, takes) for name, takes, text in SPECIFICATIONS if name != "to-current"),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Reset; the exit code."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, check, parsed)
    for new, old in (("bootstrap-server", "bootstrap-servers"), ("command-config", "config-file")):
        if old in parsed:
            parsed.values.setdefault(new, parsed.all(old))
    parsed.values.setdefault("bootstrap-server", [DEFAULT_SERVER])
    admin, group, dry = connect(parsed), parsed.text("application-id"), "dry-run" in parsed
    try:
        require_stopped(admin, group, "force" in parsed)
        if dry:
            print(
                "----Dry run displays the actions which will be performed when running Streams Reset Tool----"
            )
        missing = reset(admin, parsed, group, dry)
        delete_internal(admin, parsed, group, dry)
    except (ToolError, ClientError) as error:
        print(f"ERROR: {text_of(error)}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        admin.close()
    return EXIT_FAILED if missing else EXIT_OK


def check(parsed: Parsed) -> None:
    """Raises Refused."""
    if "application-id" not in parsed:
        raise Refused("Missing required option(s) [application-id]")
    if sum(name in parsed for name, _, _ in SPECIFICATIONS) > 1:
        raise Refused("Only one way to say where the offsets go can be given", False)


def names(parsed: Parsed, option: str) -> list[str]:
    """A list with commas."""
    return [name.strip() for name in ",".join(parsed.all(option)).split(",") if name.strip()]


def require_stopped(admin: Admin, group: str, force: bool) -> None:
    """Check that no member is left; with --force members are removed. Raises ToolError."""
    try:
        members = read_group(admin, group).members
    except ToolError:
        return  # an application that never ran
    if not members:
        return
    if not force:
        ids = ", ".join(member.id for member in members)
        raise ToolError(
            f"Consumer group '{group}' is still active and has following members: {ids}. Make sure to stop all running "
            "application instances before running the reset tool. You can use option '--force' to remove active "
            "members from the group."
        )
    print("Force deleting all active members in the group: " + group)
    leaving = [MemberKey(member.instance, "" if member.instance else member.id) for member in members]
    admin.groups.remove_members(group, leaving).require()


def reset(admin: Admin, parsed: Parsed, group: str, dry: bool) -> bool:
    """Move the offsets; whether some topic was not there. Raises ToolError."""
    inputs, between = names(parsed, "input-topics"), names(parsed, "intermediate-topics")
    if not inputs and not between:
        say("No input or intermediate topics specified. Skipping seek.")
        return False
    there = admin.topics.list()
    missing = False
    plan: Plan = {}
    for topics, kind in ((inputs, "input"), (between, "intermediate")):
        if not topics:
            continue
        doing = "Reset-offsets for input" if kind == "input" else "Seek-to-end for intermediate"
        print(f"{doing} topics [{', '.join(topics)}]")
        unknown = [name for name in topics if name not in there]
        if unknown:
            missing = True
            say(f"Following {kind} topics are not found, skipping them")
            say("".join(f"Topic: {name}\n" for name in unknown), end="")
        keys = [
            TopicPartition(name, part.number)
            for name in topics
            if name in there
            for part in there[name].partitions
        ]
        if kind == "intermediate":
            plan |= at_time(admin, keys, LATEST)
        elif any(name in parsed for name, _, _ in SPECIFICATIONS):
            scope = Parsed({**parsed.values, "topic": [name for name in topics if name in there]})
            plan |= plan_reset(admin, scope, group, False)
        else:
            plan |= at_time(admin, keys, EARLIEST)
    for kind, topics in (("input", inputs), ("intermediate", between)):
        offsets = {key: offset for key, offset in plan.items() if key[0] in topics}
        if offsets:
            print(f"Following {kind} topics offsets will be reset to (for consumer group {group})")
        for (topic, partition), offset in sorted(offsets.items()):
            print(f"Topic: {topic} Partition: {partition} Offset: {offset}")
    if not dry:
        commit(admin, group, plan)
    if plan:
        print("Done.")
    return missing


def delete_internal(admin: Admin, parsed: Parsed, group: str, dry: bool) -> None:
    """Delete the topics that the application has made. Raises ToolError."""
    inferred = [
        name for name in admin.topics.list() if name.startswith(f"{group}-") and INTERNAL.search(name)
    ]
    wanted = names(parsed, "internal-topics")
    strange = sorted(set(wanted) - set(inferred))
    if strange:
        raise ToolError(
            f"Invalid topic specified with the --internal-topics option: {', '.join(strange)} is not an internal topic "
            f"of {group}"
        )
    chosen = wanted or inferred
    print(f"Deleting {'specified' if wanted else 'inferred'} internal topics [{', '.join(chosen)}]")
    if chosen and not dry:
        admin.topics.delete(chosen).require()
    print("Done.")
