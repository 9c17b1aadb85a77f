"""kafka-reassign-partitions: replicas move to other brokers, or to other log dirs of the same broker."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.admin import Admin, Reassignment, Topic, TopicPartition
from barnabas.client.errors import ClientError
from barnabas.kafka_tools.reassignment import plan as plans
from barnabas.kafka_tools.reassignment import throttle as throttles
from barnabas.kafka_tools.reassignment.dirs import move_to_dirs, say_dir_moves
from barnabas.kafka_tools.reassignment.plan import ANY_DIR, Plan, Target
from barnabas.kafka_tools.shared.common import (
    ToolError,
    checked,
    connect,
    java_error,
    java_text,
    live_brokers,
    parse,
)
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK
from barnabas.wire.errors import ErrorCode

TIMEOUT_S: Final = 30.0
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
        run(connect(parsed), Parsed({**parsed.values, "broker-list": brokers}))
    except (ToolError, ClientError) as error:
        print(f"Error: {java_text(error)}", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def check(parsed: Parsed) -> None:
    """Raises Refused."""
    actions = [action for action in ACTIONS if action in parsed]
    if len(actions) != 1:
        names = ", ".join(f"--{action}" for action in ACTIONS)
        raise Refused(f"Command must include exactly one action: {names}")
    TOOL.need(parsed, *NEEDS[actions[0]])


def replicas_of(topics: Mapping[str, Topic], key: TopicPartition) -> list[int] | None:
    """Where a partition is now; None if it does not exist."""
    if key.topic not in topics:
        return None
    parts = {part.number: part for part in topics[key.topic].partitions}
    return list(map(int, parts[key.partition].replicas)) if key.partition in parts else None


def require_topic(topics: Mapping[str, Topic], name: str) -> None:
    """Raises ToolError if there is no such topic."""
    if name not in topics:
        raise ToolError(java_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name} not found."))


def current_plan(topics: Mapping[str, Topic], keys: Sequence[TopicPartition]) -> Plan:
    """Where partitions are now. Raises ToolError for a partition that does not exist."""
    plan: Plan = {}
    for key in keys:
        require_topic(topics, key.topic)
        replicas = replicas_of(topics, key)
        if replicas is None:
            raise ToolError(f"Unable to find partition: {key}")
        plan[key] = Target(replicas)
    return plan


def generate(admin: Admin, parsed: Parsed) -> None:
    """Print where topics are, and where they could be on the brokers of --broker-list. Raises ToolError."""
    names = plans.read_topics(parsed.text("topics-to-move-json-file"))
    brokers = plans.broker_ids(parsed.text("broker-list"))
    topics = admin.topics.list()
    for name in names:
        require_topic(topics, name)
    keys = [TopicPartition(name, part.number) for name in names for part in topics[name].partitions]
    current = current_plan(topics, sorted(keys))
    racks = {int(broker.id): broker.rack for broker in admin.cluster.describe().brokers}
    aware = "disable-rack-aware" not in parsed
    live = {broker: racks[broker] if aware else None for broker in brokers if broker in racks}
    proposed = plans.propose(current, live, secrets.randbelow(1 << 16))
    print(f"Current partition replica assignment\n{plans.as_json(current)}\n")
    print(f"Proposed partition reassignment configuration\n{plans.as_json(proposed)}")


def ongoing(
    admin: Admin, keys: Sequence[TopicPartition] | None = None
) -> Mapping[TopicPartition, Reassignment]:
    """The reassignments that are under way, of these partitions or of all. Raises ResourceError."""
    return admin.replicas.reassignments(keys, timeout_s=TIMEOUT_S)


def execute(admin: Admin, parsed: Parsed) -> None:
    """Start a reassignment. Raises ToolError."""
    wanted = plans.read_plan(parsed.text("reassignment-json-file"))
    if "additional" not in parsed and ongoing(admin):
        raise ToolError(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
            "create a new partition assignment in addition to the existing one. The --additional option can also be "
            "used to change the throttle by resubmitting the current reassignment."
        )
    live = live_brokers(admin)
    for target in wanted.values():
        for broker in target.replicas:
            if broker not in live:
                raise ToolError(f"Unknown broker id {broker}")
    current = current_plan(admin.topics.list(), sorted(wanted))
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
    submit(
        admin,
        {key: wanted[key].replicas for key in sorted(wanted)},
        "Error reassigning partition(s):",
        "disallow-replication-factor-change" not in parsed,
    )
    names = ",".join(map(str, sorted(wanted)))
    print(f"Successfully started partition reassignment{'s' if len(wanted) > 1 else ''} for {names}")
    if any(folder != ANY_DIR for target in wanted.values() for folder in target.dirs):
        move_to_dirs(admin, wanted, parsed.number("timeout", 10_000) / 1000)


def submit(
    admin: Admin,
    moves: Mapping[TopicPartition, Sequence[int] | None],
    failing: str,
    factor_may_change: bool = True,
) -> None:
    """Start (or, for replicas None, cancel) reassignments. Raises ToolError, which begins with `failing`."""
    results = admin.replicas.reassign(moves, allow_replication_change=factor_may_change, timeout_s=TIMEOUT_S)
    if results.failed:
        lines = "\n".join(f"{key}: {java_text(results.failed[key])}" for key in sorted(results.failed))
        raise ToolError(f"{failing}\n{lines}")


def verify(admin: Admin, parsed: Parsed) -> None:
    """Say how far each partition is. Raises ToolError."""
    wanted = plans.read_plan(parsed.text("reassignment-json-file"))
    moving = ongoing(admin, sorted(wanted))
    topics = admin.topics.list()
    print("Status of partition reassignment:")
    for key in sorted(wanted):
        now = replicas_of(topics, key) or []
        if key in moving:
            gone = set(moving[key].removing)
            target = [int(broker) for broker in moving[key].replicas if broker not in gone]
            if target == wanted[key].replicas:
                print(f"Reassignment of partition {key} is still in progress.")
                continue
            now = target
        if now == wanted[key].replicas:
            print(f"Reassignment of partition {key} is completed.")
        else:
            print(
                f"There is no active reassignment of partition {key}, but replica set is "
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
        submit(admin, dict.fromkeys(sorted(moving)), "Error cancelling partition reassignment(s) for:")
        names = ",".join(map(str, sorted(moving)))
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
    for key in sorted(moving):
        state = moving[key]
        line = f"{key}: replicas: {','.join(map(str, state.replicas))}."
        if state.adding:
            line += f" adding: {','.join(map(str, state.adding))}."
        if state.removing:
            line += f" removing: {','.join(map(str, state.removing))}."
        print(line)
