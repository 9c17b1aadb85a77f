"""`barnabas log move`: moves partitions to another log dir of the brokers that have them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from barnabas.admin import Admin, Replica
from barnabas.client.errors import ClientError
from barnabas.terminal.administering import explain_error
from barnabas.terminal.errors import CliError, UsageError
from barnabas.terminal.output import count_of
from barnabas.terminal.progress import Progress
from barnabas.wire.errors import ErrorCode

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


def placed(admin: Admin, wanted: dict[str, set[int] | None], nodes: Iterable[int] | None = None) -> list[Row]:
    """Where brokers (None: all) have partitions; all of them when none are `wanted`. Raises CliError."""
    rows = []
    for broker, dirs in admin.log_dirs.describe(nodes).require().items():
        for folder in dirs:
            if folder.error is not None:
                raise CliError(f"broker {broker}: {folder.path}: {explain_error(folder.error)}")
            for replica in folder.replicas:
                topic, index = replica.partition
                chosen = wanted.get(topic)
                if (wanted and topic not in wanted) or (chosen is not None and index not in chosen):
                    continue
                rows.append(
                    {
                        "broker": broker,
                        "dir": folder.path,
                        "partition": str(replica.partition),
                        "bytes": replica.size_bytes,
                        "lag": replica.lag,
                        "moving": replica.is_future,
                    }
                )
    return rows


def begin(admin: Admin, item: str, target: str, broker: int | None) -> list[Row]:
    """Ask the brokers that have partitions of TOPIC or TOPIC:0,1 to move them; one row each. Raises CliError."""
    wanted = partitions_of([item])
    brokers = [broker_info.id for broker_info in admin.cluster.describe().brokers]
    if broker is not None and broker not in brokers:
        raise CliError(f"no broker {broker}; there is {', '.join(map(str, brokers))}")
    results = []
    for node in brokers if broker is None else [broker]:
        rows = placed(admin, wanted, [node])
        if rows:
            results += _begin_on(admin, node, rows, target)
    if not results:
        raise CliError(f"{item}: no broker has it; `barnabas topic list` shows what is there")
    return results


def _begin_on(admin: Admin, broker: int, rows: list[Row], target: str) -> list[Row]:
    current = {row["partition"]: row["dir"] for row in rows if not row["moving"]}
    under_way = {row["partition"] for row in rows if row["moving"]}
    wanted = {}
    for name in current:
        topic, _, index = name.rpartition("-")
        wanted[Replica(topic, int(index), broker)] = target
    outcomes = admin.log_dirs.move(wanted)
    results = []
    for replica in wanted:
        name = f"{replica.topic}-{replica.partition}"
        row = {"broker": broker, "partition": name, "dir": target, "result": "moving"}
        if replica in outcomes.failed:
            row |= {"result": "failed", "error": _reason(outcomes.failed[replica], broker, target)}
        elif current[name] == target:
            row["result"] = "called off" if name in under_way else "there"
        results.append(row)
    return results


def _reason(error: ClientError, broker: int, target: str) -> str:
    code = getattr(error, "code", 0)
    if code == ErrorCode.LOG_DIR_NOT_FOUND:
        return f"broker {broker} has no log dir {target}; `barnabas log dirs` shows those in use"
    if code == ErrorCode.KAFKA_STORAGE_ERROR:
        return f"{target} is offline or has too little room; the log of broker {broker} says which"
    return explain_error(error)


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
            rows = placed(admin, dict.fromkeys(names), [broker])
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
