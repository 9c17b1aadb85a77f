"""Moves between the log dirs of a broker, as part of a reassignment."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any, Final

from barnabas.kafka_tools.common import Admin, ToolError, java_error, say
from barnabas.kafka_tools.operations.reassign_plan import ANY_DIR, Plan, by_topic
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from barnabas.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

RETRY_SECONDS: Final = 0.1

Replica = tuple[str, int, int]
"""Topic, partition, broker."""


def wanted_dirs(plan: Plan) -> dict[Replica, str]:
    """The log dir of each replica for which the plan names one."""
    return {
        (topic, partition, broker): folder
        for (topic, partition), target in plan.items()
        for broker, folder in zip(target.replicas, target.dirs, strict=True)
        if folder != ANY_DIR
    }


def move_to_dirs(admin: Admin, plan: Plan, timeout_s: float) -> None:
    """Ask each broker to move its replicas; those that are yet to be created are asked again. Raises ToolError."""
    waiting = wanted_dirs(plan)
    deadline = time.monotonic() + timeout_s
    while waiting:
        codes = ask(admin, waiting)
        for replica, code in codes.items():
            if code not in (0, ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise ToolError(f"Failed to alter dir for {replica_names([replica])}: {java_error(code)}")
        for topic, partition, broker in [replica for replica, code in codes.items() if code == 0]:
            folder = waiting.pop((topic, partition, broker))
            print(f"Successfully started moving log directory to {folder} for replica {topic}-{partition} "
                  f"with broker {broker}")  # fmt: skip
        if waiting and time.monotonic() > deadline:
            raise ToolError(
                f"Timed out before log directory move could be started for: {replica_names(list(waiting))}"
            )
        if waiting:
            time.sleep(RETRY_SECONDS)


def replica_names(replicas: list[Replica]) -> str:
    """topic-partition-broker, with commas."""
    return ",".join("-".join(map(str, replica)) for replica in sorted(replicas))


def ask(admin: Admin, wanted: dict[Replica, str]) -> dict[Replica, int]:
    """One request to each broker; the error codes."""
    by_broker: dict[int, dict[str, list[tuple[str, int]]]] = defaultdict(lambda: defaultdict(list))
    for (topic, partition, broker), folder in wanted.items():
        by_broker[broker][folder].append((topic, partition))
    codes = {}
    for broker, folders in by_broker.items():
        dirs = [
            AlterReplicaLogDir(
                path=folder,
                topics=[
                    AlterReplicaLogDirTopic(name=name, partitions=parts)
                    for name, parts in by_topic(keys).items()
                ],
            )
            for folder, keys in folders.items()
        ]
        answer = admin.node(broker, AlterReplicaLogDirsRequest(dirs=dirs), AlterReplicaLogDirsResponse)
        for result in answer.results:
            for part in result.partitions:
                codes[result.topic_name, part.partition_index, broker] = part.error_code
    return codes


def say_dir_moves(admin: Admin, plan: Plan) -> bool:
    """Print how far the moves of a plan are; whether any is still under way."""
    wanted = wanted_dirs(plan)
    moving = False
    places: dict[int, dict[tuple[str, int], tuple[str | None, str | None]]] = {}
    for (topic, partition, broker), folder in sorted(wanted.items()):
        if broker not in places:
            places[broker] = lies_in(admin, broker)
        now, future = places[broker].get((topic, partition), (None, None))
        name = f"{topic}-{partition}-{broker}"
        if future == folder:
            moving = True
            print(f"Reassignment of replica {name} is still in progress.")
        elif future is not None:
            moving = True
            print(
                f"Partition {topic}-{partition} on broker {broker} is being moved to log dir {future} instead of {folder}."
            )
        elif now == folder:
            print(f"Reassignment of replica {name} completed successfully.")
        elif now is None:
            say(f"Partition {topic}-{partition} is not found in any live log dir on broker {broker}. There is likely "
                  f"an offline log directory on the broker.")  # fmt: skip
        else:
            print(
                f"Partition {topic}-{partition} on broker {broker} is not being moved from log dir {now} to {folder}."
            )
    return moving


def lies_in(admin: Admin, broker: int) -> dict[tuple[str, int], tuple[str | None, str | None]]:
    """The log dir of each partition on a broker, and the one that it moves to."""
    answer: Any = admin.node(broker, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    found: dict[tuple[str, int], tuple[str | None, str | None]] = {}
    for result in answer.results:
        for topic in result.topics:
            for part in topic.partitions:
                key = (topic.name, part.partition_index)
                now, future = found.get(key, (None, None))
                found[key] = (now, result.log_dir) if part.is_future_key else (result.log_dir, future)
    return found
