"""Keys and values of Kafka Connect's three compacted topics. No I/O.

configs:  connector-N, task-N-0, commit-N, target-state-N, restart-connector-N, tasks-fencing-N, logger-cluster-L,
          session-key
offsets:  ["N",{partition}]  ->  {offset}
status:   status-connector-N, status-task-N-0, status-topic-T:connector-N

Source: Kafka's KafkaConfigBackingStore, KafkaStatusBackingStore, OffsetStorageWriter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

CONNECTOR: Final = "connector-"
TASK: Final = "task-"
COMMIT: Final = "commit-"
TARGET: Final = "target-state-"
RESTART: Final = "restart-connector-"
FENCING: Final = "tasks-fencing-"
LOGGER: Final = "logger-cluster-"
STATUS_CONNECTOR: Final = "status-connector-"
STATUS_TASK: Final = "status-task-"
STATUS_TOPIC: Final = "status-topic-"
TOPIC_OF: Final = ":connector-"


class Target(StrEnum):
    """What users want of a connector."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class State(StrEnum):
    """What a connector or task does."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    DESTROYED = "DESTROYED"


class TaskId(NamedTuple):
    """A task of a connector."""

    connector: str
    number: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.number}"


class Status(NamedTuple):
    """The status of a connector or task, as one worker has written it."""

    state: str
    worker_id: str
    generation: int = 0
    trace: str | None = None
    version: str | None = None


def dump(value: Any) -> bytes:
    """JSON as Kafka's converter writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def load(data: bytes | None) -> Any:
    """Raises ValueError. An envelope of a converter with schemas is opened."""
    if not data:
        return None
    value = json.loads(data)
    if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
        return value["payload"]
    return value


def canonical(value: Any) -> str:
    """The same text for the same JSON, whatever the order of its fields."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def task_key(task: TaskId) -> str:
    """The key of a task's configuration."""
    return f"{TASK}{task.connector}-{task.number}"


def task_of(text: str) -> TaskId | None:
    """The task of `N-0`."""
    name, dash, number = text.rpartition("-")
    return TaskId(name, int(number)) if dash and name and number.isdigit() else None


def target_value(target: Target) -> dict[str, str]:
    """Workers before 3.5 know STOPPED as PAUSED."""
    old = Target.PAUSED if target is Target.STOPPED else target
    return {"state": old.value, "state.v2": target.value}


def read_target(value: Mapping[str, Any]) -> Target:
    """Raises ValueError."""
    return Target(str(value.get("state.v2") or value.get("state")))


def status_value(status: Status) -> dict[str, Any]:
    """The value of a status record."""
    fields: dict[str, Any] = {
        "state": status.state,
        "trace": status.trace,
        "worker_id": status.worker_id,
        "generation": status.generation,
    }
    return fields if status.version is None else fields | {"version": status.version}


def read_status(value: Mapping[str, Any]) -> Status:
    """Raises ValueError."""
    try:
        return Status(
            str(value["state"]),
            str(value["worker_id"]),
            int(value.get("generation") or 0),
            value.get("trace"),
            value.get("version"),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a status: {error}") from None


def topic_key(topic: str, connector: str) -> str:
    """The key that says that a connector uses a topic."""
    return f"{STATUS_TOPIC}{topic}{TOPIC_OF}{connector}"


def topic_value(topic: str, task: TaskId, at_ms: int) -> dict[str, Any]:
    """Its value."""
    return {
        "topic": {"name": topic, "connector": task.connector, "task": task.number, "discoverTimestamp": at_ms}
    }


def offset_key(connector: str, partition: Mapping[str, Any]) -> bytes:
    """The key of an offset."""
    return dump([connector, partition])
