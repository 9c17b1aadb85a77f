"""Moves between the log dirs of a broker, as part of a reassignment."""

from __future__ import annotations

import time
from typing import Final

from barnabas.admin import Admin, Replica, TopicPartition
from barnabas.kafka_tools.reassignment.plan import ANY_DIR, Plan
from barnabas.kafka_tools.shared.common import ToolError, java_text, say
from barnabas.wire.errors import ErrorCode

RETRY_SECONDS: Final = 0.1

NOT_YET: Final = (ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""The broker will have the replica soon."""


Places = dict[TopicPartition, tuple[str | None, str | None]]


def wanted_dirs(plan: Plan) -> dict[Replica, str]:
    """The log dir of each replica for which the plan names one."""
    return {
        Replica(topic, partition, broker): folder
        for (topic, partition), target in plan.items()
        for broker, folder in zip(target.replicas, target.dirs, strict=True)
        if folder != ANY_DIR
    }


def move_to_dirs(admin: Admin, plan: Plan, timeout_s: float) -> None:
    """Ask each broker to move its replicas; those that are yet to be created are asked again. Raises ToolError."""
    waiting = wanted_dirs(plan)
    deadline = time.monotonic() + timeout_s
    while waiting:
        results = admin.log_dirs.move(waiting)
        for replica, error in results.except_for(*NOT_YET).failed.items():
            raise ToolError(f"Failed to alter dir for {replica_names([replica])}: {java_text(error)}")
        for replica in results.done:
            topic, partition, broker = replica
            print(f"Successfully started moving log directory to {waiting.pop(replica)} for replica "
                  f"{topic}-{partition} with broker {broker}")  # fmt: skip
        if waiting and time.monotonic() > deadline:
            raise ToolError(
                f"Timed out before log directory move could be started for: {replica_names(list(waiting))}"
            )
        if waiting:
            time.sleep(RETRY_SECONDS)


def replica_names(replicas: list[Replica]) -> str:
    """topic-partition-broker, with commas."""
    return ",".join("-".join(map(str, replica)) for replica in sorted(replicas))


def say_dir_moves(admin: Admin, plan: Plan) -> bool:
    """Print how far the moves of a plan are; whether any is still under way."""
    wanted = wanted_dirs(plan)
    moving = False
    places: dict[int, Places] = {}
    for (topic, partition, broker), folder in sorted(wanted.items()):
        if broker not in places:
            places[broker] = lies_in(admin, broker)
        now, future = places[broker].get(TopicPartition(topic, partition), (None, None))
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


def lies_in(admin: Admin, broker: int) -> Places:
    """The log dir of each partition on a broker, and the one that it moves to."""
    places: Places = {}
    (dirs,) = admin.log_dirs.describe([broker]).require().values()
    for log_dir in dirs:
        for replica in log_dir.replicas:
            now, future = places.get(replica.partition, (None, None))
            places[replica.partition] = (now, log_dir.path) if replica.is_future else (log_dir.path, future)
    return places
