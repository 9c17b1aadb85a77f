"""`barnabas log move`: moves partitions to another log dir of the brokers that have them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from barnabas.kafka_tools.common import Admin
from barnabas.kafka_tools.log_dirs import broker_row
from barnabas.terminal.errors import CliError, UsageError
from barnabas.terminal.output import count_of
from barnabas.terminal.progress import Progress
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)

POLL_SECONDS: Final = 0.2
Row = dict[str, Any]


def partitions_of(items: Sequence[str]) -> dict[str, set[int] | None]:
    """`TOPIC` and `TOPIC:0,1` as topic -> partitions, None for all. Raises UsageError."""
    wanted: dict[str, set[int] | None] = {}
    for item in items:
        name, colon, numbers = item.partition(":")
        chosen = [number for number in numbers.split(",") if number]
        if not name or (colon and not chosen) or not all(number.isdecimal() for number in chosen):
            raise UsageError(f"{item!r} is not TOPIC or TOPIC:0,1")
        known = wanted.get(name, set())
        wanted[name] = known | set(map(int, chosen)) if chosen and known is not None else None
    return wanted


def placed(admin: Admin, broker: int, wanted: dict[str, set[int] | None]) -> list[Row]:
    """Where a broker has partitions; all of them when none are `wanted`. Raises CliError."""
    rows = []
    for folder in broker_row(admin, broker, set(wanted))["logDirs"]:
        if folder["error"]:
            raise CliError(f"broker {broker}: {folder['logDir']}: {folder['error']}")
        for part in folder["partitions"]:
            topic, _, index = part["partition"].rpartition("-")
            chosen = wanted.get(topic)
            if chosen is None or int(index) in chosen:
                rows.append(
                    {
                        "broker": broker,
                        "dir": folder["logDir"],
                        "partition": part["partition"],
                        "bytes": part["size"],
                        "lag": part["offsetLag"],
                        "moving": part["isFuture"],
                    }
                )
    return rows


def begin(admin: Admin, item: str, target: str, broker: int | None) -> list[Row]:
    """Ask the brokers that have partitions of TOPIC or TOPIC:0,1 to move them; one row each. Raises CliError."""
    wanted = partitions_of([item])
    brokers = sorted(admin.nodes())
    if broker is not None and broker not in brokers:
        raise CliError(f"no broker {broker}; there is {', '.join(map(str, brokers))}")
    results = []
    for node in brokers if broker is None else [broker]:
        rows = placed(admin, node, wanted)
        if rows:
            results += _begin_on(admin, node, rows, target)
    if not results:
        raise CliError(f"{item}: no broker has it; `barnabas topic list` shows what is there")
    return results


def _begin_on(admin: Admin, broker: int, rows: list[Row], target: str) -> list[Row]:
    current = {row["partition"]: row["dir"] for row in rows if not row["moving"]}
    under_way = {row["partition"] for row in rows if row["moving"]}
    by_topic: dict[str, list[int]] = {}
    for name in current:
        topic, _, index = name.rpartition("-")
        by_topic.setdefault(topic, []).append(int(index))
    topics = [AlterReplicaLogDirTopic(name=name, partitions=found) for name, found in by_topic.items()]
    answer = admin.node(
        broker,
        AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=target, topics=topics)]),
        AlterReplicaLogDirsResponse,
    )
    results = []
    for topic in answer.results:
        for part in topic.partitions:
            name = f"{topic.topic_name}-{part.partition_index}"
            row = {"broker": broker, "partition": name, "dir": target, "result": "moving"}
            if part.error_code:
                row |= {"result": "failed", "error": _reason(ErrorCode(part.error_code), broker, target)}
            elif current[name] == target:
                row["result"] = "called off" if name in under_way else "there"
            results.append(row)
    return results


def _reason(error: ErrorCode, broker: int, target: str) -> str:
    if error is ErrorCode.LOG_DIR_NOT_FOUND:
        return f"broker {broker} has no log dir {target}; `barnabas log dirs` shows those in use"
    if error is ErrorCode.KAFKA_STORAGE_ERROR:
        return f"{target} is offline or has too little room; the log of broker {broker} says which"
    return error.name


def follow(admin: Admin, results: list[Row]) -> None:
    """Wait until each move has ended, and note how in its row."""
    waiting = {(row["broker"], row["partition"]): row for row in results if row["result"] == "moving"}
    with Progress("moving", "record") as progress:
        _await_moves(admin, waiting, progress)


def _await_moves(admin: Admin, waiting: dict[tuple[int, str], Row], progress: Progress) -> None:
    lags: dict[tuple[int, str], int] = dict.fromkeys(waiting, 0)
    while waiting:
        for broker in sorted({broker for broker, _ in waiting}):
            names = {name.rpartition("-")[0] for node, name in waiting if node == broker}
            rows = placed(admin, broker, dict.fromkeys(names))
            under_way = {row["partition"] for row in rows if row["moving"]}
            current = {row["partition"]: row["dir"] for row in rows if not row["moving"]}
            lags |= {(broker, row["partition"]): row["lag"] for row in rows if row["moving"]}
            for key, row in list(waiting.items()):
                if key[0] != broker or key[1] in under_way:
                    continue
                if current.get(key[1]) == row["dir"]:
                    row["result"] = "moved"
                else:
                    row |= {
                        "result": "failed",
                        "error": f"the move ended early; see the log of broker {broker}",
                    }
                del waiting[key]
                lags[key] = 0
        left = sum(lags.values())
        progress.total = max(progress.total or 0, left)
        progress.update(progress.total - left, more=f"{count_of(len(waiting), 'partition')} under way")
        if waiting:
            time.sleep(POLL_SECONDS)
