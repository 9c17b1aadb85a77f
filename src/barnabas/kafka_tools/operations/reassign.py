"""kafka-reassign-partitions: replicas move to other brokers, or to other log dirs of the same broker."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from typing import Any, Final

from barnabas.client.errors import ClientError, UnsupportedByBroker
from barnabas.kafka_tools.common import Admin, ToolError, checked, java_error, parse, unsupported_error
from barnabas.kafka_tools.operations import reassign_plan as plans
from barnabas.kafka_tools.operations import reassign_throttle as throttles
from barnabas.kafka_tools.operations.reassign_dirs import move_to_dirs, say_dir_moves
from barnabas.kafka_tools.operations.reassign_plan import ANY_DIR, Key, Plan, Target
from barnabas.kafka_tools.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import alter_partition_reassignments as alter
from barnabas.wire.messages import list_partition_reassignments as listing
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse

TIMEOUT_MS: Final = 30_000
ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list")
NEEDS: Final = {
    "generate": ("broker-list", "topics-to-move-json-file"),
    "execute": ("reassignment-json-file",),
    "verify": ("reassignment-json-file",),
    "cancel": ("reassignment-json-file",),
    "list": (),
}
TOOL: Final = Tool(
    "This tool helps to move topic partitions between replicas.",
    (
        *(option for option in COMMON if option.name != "broker-list"),
        Opt("bootstrap-controller", "Of KRaft controllers.", "String: controller", old=True),
        Opt("generate", "Print a reassignment of topics to brokers; do nothing."),
        Opt("execute", "Start the reassignment of --reassignment-json-file."),
        Opt("verify", "Say how far it is; when it is done, remove its throttles."),
        Opt("cancel", "End it."),
        Opt("list", "All reassignments under way."),
        Opt("reassignment-json-file", '{"partitions": [{"topic": "foo", "partition": 1, "replicas": [1,2,3], '
            '"log_dirs": ["dir1","dir2","dir3"]}], "version": 1}; log_dirs may be left out.', "String: path"),
        Opt("topics-to-move-json-file", '{"topics": [{"topic": "foo"}], "version": 1}', "String: path"),
        Opt("broker-list", "Brokers to which the topics go: 0,1,2", "String: brokerlist"),
        Opt("disable-rack-aware", "Do not look at racks."),
        Opt("throttle", "Bytes a second between brokers; --verify removes it.", "Long: throttle"),
        Opt("replica-alter-log-dirs-throttle", "Bytes a second between log dirs.", "Long: throttle"),
        Opt("timeout", "How long log dirs may take to begin, in ms.", "Long: timeout"),
        Opt("additional", "In addition to what is under way."),
        Opt("preserve-throttles", "Do not change throttles."),
        Opt("disallow-replication-factor-change", "Refuse to change the number of replicas."),
    ),
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Run one action; the exit code."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, check, parsed)
    if "bootstrap-controller" in parsed:
        parsed.values.setdefault("bootstrap-server", parsed.all("bootstrap-controller"))
    action = next(action for action in ACTIONS if action in parsed)
    run = {"generate": generate, "execute": execute, "verify": verify, "cancel": cancel, "list": show_list}[
        action
    ]
    brokers = parsed.values.pop("broker-list", [])
    try:
        run(Admin.connect(parsed), Parsed({**parsed.values, "broker-list": brokers}))
    except (ToolError, ClientError) as error:
        text = unsupported_error(error) if isinstance(error, UnsupportedByBroker) else error
        print(f"Error: {text}", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def check(parsed: Parsed) -> None:
    """Raises Refused."""
    given = [action for action in ACTIONS if action in parsed]
    if len(given) != 1:
        names = ", ".join(f"--{action}" for action in ACTIONS)
        raise Refused(f"Command must include exactly one action: {names}")
    TOOL.need(parsed, *NEEDS[given[0]])


def topics_of(admin: Admin) -> dict[str, Any]:
    """All topics with the replicas of their partitions, by name."""
    answer = admin.any(MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse)
    return {topic.name: topic for topic in answer.topics}


def current_plan(admin: Admin, keys: Sequence[Key]) -> Plan:
    """Where partitions are now. Raises ToolError for a partition that does not exist."""
    topics = topics_of(admin)
    found: Plan = {}
    for name, partition in keys:
        if name not in topics:
            text = java_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name} not found.")
            raise ToolError(text)
        parts = {part.partition_index: part for part in topics[name].partitions}
        if partition not in parts:
            raise ToolError(f"Unable to find partition: {name}-{partition}")
        found[name, partition] = Target(list(parts[partition].replica_nodes))
    return found


def generate(admin: Admin, parsed: Parsed) -> None:
    """Print where topics are, and where they could be on the brokers of --broker-list. Raises ToolError."""
    names = plans.read_topics(parsed.text("topics-to-move-json-file"))
    brokers = plans.broker_ids(parsed.text("broker-list"))
    topics = topics_of(admin)
    for name in names:
        if name not in topics:
            raise ToolError(java_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name} not found."))
    keys = [(name, part.partition_index) for name in names for part in topics[name].partitions]
    current = current_plan(admin, sorted(keys))
    racks = racks_of(admin)
    aware = "disable-rack-aware" not in parsed
    live = {broker: racks[broker] if aware else None for broker in brokers if broker in racks}
    proposed = plans.propose(current, live, secrets.randbelow(1 << 16))
    print(f"Current partition replica assignment\n{plans.as_json(current)}\n")
    print(f"Proposed partition reassignment configuration\n{plans.as_json(proposed)}")


def racks_of(admin: Admin) -> dict[int, str | None]:
    """The rack of each broker."""
    answer = admin.any(MetadataRequest(topics=[]), MetadataResponse)
    return {broker.node_id: broker.rack for broker in answer.brokers}


def ongoing(admin: Admin, keys: Sequence[Key] | None = None) -> dict[Key, Any]:
    """The reassignments that are under way, of these partitions or of all. Raises ToolError."""
    topics = None
    if keys is not None:
        topics = [
            listing.ListPartitionReassignmentsTopics(name=name, partition_indexes=parts)
            for name, parts in plans.by_topic(keys).items()
        ]
    request = listing.ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=topics)
    answer = admin.controller(request, listing.ListPartitionReassignmentsResponse)
    if answer.error_code:
        raise ToolError(java_error(answer.error_code, answer.error_message))
    return {(topic.name, part.partition_index): part for topic in answer.topics for part in topic.partitions}


def execute(admin: Admin, parsed: Parsed) -> None:
    """Start a reassignment. Raises ToolError."""
    wanted = plans.read_plan(parsed.text("reassignment-json-file"))
    if "additional" not in parsed and ongoing(admin):
        raise ToolError(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
            "create a new partition assignment in addition to the existing one. The --additional option can also be "
            "used to change the throttle by resubmitting the current reassignment."
        )
    live = admin.nodes()
    for target in wanted.values():
        for broker in target.replicas:
            if broker not in live:
                raise ToolError(f"Unknown broker id {broker}")
    current = current_plan(admin, sorted(wanted))
    print(f"Current partition replica assignment\n\n{plans.as_json(current)}\n")
    print("Save this to use as the --reassignment-json-file option during rollback")
    throttle, dir_throttle = (
        parsed.number("throttle", -1),
        parsed.number("replica-alter-log-dirs-throttle", -1),
    )
    if throttle >= 0 or dir_throttle >= 0:
        print(
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is "
            "removed."
        )
    if throttle >= 0:
        throttles.limit_replication(admin, current, wanted, throttle)
        print(f"The inter-broker throttle limit was set to {throttle} B/s")
    if dir_throttle >= 0:
        throttles.limit_dirs(admin, wanted, dir_throttle)
        print(f"The replica-alter-dir throttle limit was set to {dir_throttle} B/s")
    failed = submit(
        admin, {key: target.replicas for key, target in wanted.items()},
        "disallow-replication-factor-change" not in parsed,
    )  # fmt: skip
    if failed:
        lines = "\n".join(f"{topic}-{part}: {text}" for (topic, part), text in sorted(failed.items()))
        raise ToolError(f"Error reassigning partition(s):\n{lines}")
    names = ",".join(f"{topic}-{part}" for topic, part in sorted(wanted))
    print(f"Successfully started partition reassignment{'s' if len(wanted) > 1 else ''} for {names}")
    if any(folder != ANY_DIR for target in wanted.values() for folder in target.dirs):
        move_to_dirs(admin, wanted, parsed.number("timeout", 10_000) / 1000)


def submit(
    admin: Admin, wanted: dict[Key, list[int] | None] | Any, factor_may_change: bool = True
) -> dict[Key, str]:
    """Start (or, for replicas None, cancel) reassignments; the errors by partition. Raises ToolError."""
    topics = [
        alter.ReassignableTopic(
            name=name,
            partitions=[
                alter.ReassignablePartition(partition_index=part, replicas=wanted[name, part])
                for part in parts
            ],
        )
        for name, parts in plans.by_topic(sorted(wanted)).items()
    ]
    request = alter.AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS, topics=topics, allow_replication_factor_change=factor_may_change
    )
    answer = admin.controller(request, alter.AlterPartitionReassignmentsResponse)
    if answer.error_code:
        raise ToolError(java_error(answer.error_code, answer.error_message))
    return {
        (topic.name, part.partition_index): java_error(part.error_code, part.error_message)
        for topic in answer.responses
        for part in topic.partitions
        if part.error_code
    }


def verify(admin: Admin, parsed: Parsed) -> None:
    """Say how far each partition is. Raises ToolError."""
    wanted = plans.read_plan(parsed.text("reassignment-json-file"))
    moving = ongoing(admin, sorted(wanted))
    topics = topics_of(admin)
    print("Status of partition reassignment:")
    for key in sorted(wanted):
        name = f"{key[0]}-{key[1]}"
        parts = {part.partition_index: part for part in topics[key[0]].partitions} if key[0] in topics else {}
        now = list(parts[key[1]].replica_nodes) if key[1] in parts else []
        if key in moving:
            gone = set(moving[key].removing_replicas)
            target = [broker for broker in moving[key].replicas if broker not in gone]
            if target == wanted[key].replicas:
                print(f"Reassignment of partition {name} is still in progress.")
                continue
            now = target
        if now == wanted[key].replicas:
            print(f"Reassignment of partition {name} is completed.")
        else:
            print(
                f"There is no active reassignment of partition {name}, but replica set is "
                f"{','.join(map(str, now))} rather than {','.join(map(str, wanted[key].replicas))}."
            )
    print()
    dirs_moving = say_dir_moves(admin, wanted)
    if not moving and not dirs_moving and "preserve-throttles" not in parsed:
        throttles.clear(admin, {name for name, _ in wanted})


def cancel(admin: Admin, parsed: Parsed) -> None:
    """End the reassignments of the file. Raises ToolError."""
    wanted = plans.read_plan(parsed.text("reassignment-json-file"))
    moving = ongoing(admin, sorted(wanted))
    if not moving:
        print("None of the specified partition reassignments are active.")
    else:
        failed = submit(admin, dict.fromkeys(moving))
        if failed:
            lines = "\n".join(f"{topic}-{part}: {text}" for (topic, part), text in sorted(failed.items()))
            raise ToolError(f"Error cancelling partition reassignment(s) for:\n{lines}")
        names = ",".join(f"{topic}-{part}" for topic, part in sorted(moving))
        print(f"Successfully cancelled partition reassignment{'s' if len(moving) > 1 else ''} for: {names}")
    print("None of the specified partition moves are active.", end="")
    if "preserve-throttles" not in parsed:
        throttles.clear(admin, {name for name, _ in wanted})


def show_list(admin: Admin, _parsed: Parsed) -> None:
    """All reassignments under way. Raises ToolError."""
    moving = ongoing(admin)
    if not moving:
        print("No partition reassignments found.")
        return
    print("Current partition reassignments:")
    for (topic, partition), state in sorted(moving.items()):
        line = f"{topic}-{partition}: replicas: {','.join(map(str, state.replicas))}."
        if state.adding_replicas:
            line += f" adding: {','.join(map(str, state.adding_replicas))}."
        if state.removing_replicas:
            line += f" removing: {','.join(map(str, state.removing_replicas))}."
        print(line)
