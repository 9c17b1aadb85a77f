"""Assignments of replicas: the JSON files of kafka-reassign-partitions, and a proposal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from barnabas.admin import TopicPartition
from barnabas.admin.values import by_topic
from barnabas.cores.placement import NotEnoughBrokers, assign
from barnabas.kafka_tools.shared.common import ToolError

ANY_DIR: Final = "any"


@dataclass(slots=True)
class Target:
    """One partition's brokers, the preferred leader first, and a log dir on each."""

    replicas: list[int]
    dirs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dirs = self.dirs or [ANY_DIR] * len(self.replicas)


Plan = dict[TopicPartition, Target]


def read_plan(path: str) -> Plan:
    """--reassignment-json-file. Raises ToolError, OSError."""
    plan: Plan = {}
    try:
        for row in read_json(path)["partitions"]:
            key = TopicPartition(str(row["topic"]), int(row["partition"]))
            target = Target(
                [int(broker) for broker in row["replicas"]], [str(d) for d in row.get("log_dirs", [])]
            )
            if key in plan:
                raise ToolError(
                    f"Partition reassignment contains duplicate topic partitions: {key[0]}-{key[1]}"
                )
            if len(target.dirs) != len(target.replicas):
                raise ToolError(
                    f"Size of replicas list {target.replicas} is different from size of log dirs list {target.dirs} "
                    f"for partition {key[0]}-{key[1]}"
                )
            if len(set(target.replicas)) != len(target.replicas):
                raise ToolError(
                    f"Partition replica lists may not contain duplicate entries: {key[0]}-{key[1]}"
                )
            plan[key] = target
    except (KeyError, TypeError, ValueError) as error:
        raise ToolError(
            f'{path} is not {{"partitions": [{{"topic": "foo", "partition": 0, "replicas": [1, 2]}}]}}: {error}'
        ) from None
    if not plan:
        raise ToolError("Partition reassignment list cannot be empty")
    return plan


def read_topics(path: str) -> list[str]:
    """--topics-to-move-json-file. Raises ToolError, OSError."""
    try:
        names = [str(row["topic"]) for row in read_json(path)["topics"]]
    except (KeyError, TypeError) as error:
        raise ToolError(f'{path} is not {{"topics": [{{"topic": "foo"}}], "version": 1}}: {error}') from None
    if len(set(names)) != len(names):
        raise ToolError("List of topics to reassign contains duplicate entries")
    return sorted(names)


def read_json(path: str) -> Any:
    """A JSON file. Raises ToolError, OSError."""
    try:
        return json.loads(Path(path).read_text("utf-8"))
    except ValueError as error:
        raise ToolError(f"{path} is not JSON: {error}") from None


def broker_ids(text: str) -> list[int]:
    """`0,1,2`. Raises ToolError."""
    try:
        ids = [int(item) for item in text.split(",")]
    except ValueError:
        raise ToolError(f"--broker-list {text!r} is not 0,1,2") from None
    if len(set(ids)) != len(ids):
        raise ToolError(f"Broker list contains duplicate entries: {text}")
    return ids


def propose(current: Plan, brokers: Mapping[int, str | None], seed: int) -> Plan:
    """Topics spread over brokers (by id, with their racks), each with as many replicas as now. Raises ToolError."""
    proposed: Plan = {}
    for name, parts in by_topic(current).items():
        factor = len(current[TopicPartition(name, parts[0])].replicas)
        try:
            placed = assign(brokers, range(len(parts)), factor, seed)
        except NotEnoughBrokers:
            raise ToolError(
                "org.apache.kafka.common.errors.InvalidReplicationFactorException: Replication factor: "
                f"{factor} larger than available brokers: {len(brokers)}."
            ) from None
        for at, part in enumerate(parts):
            proposed[TopicPartition(name, part)] = Target(list(placed[at]))
    return proposed


def as_json(plan: Plan) -> str:
    """A plan as the tool reads it."""
    rows = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "replicas": plan[key].replicas,
            "log_dirs": plan[key].dirs,
        }
        for key in sorted(plan)
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))
