"""What is wrong with a cluster, as far as its metadata and its disks tell, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.admin import Results
from barnabas.admin.families.log_dirs import LogDir
from barnabas.admin.families.replicas import Reassignment
from barnabas.admin.families.topics import Partition
from barnabas.admin.values import NodeId, TopicPartition
from barnabas.console.clusters import Layout
from barnabas.console.said import Said, said

FULL: Final = 0.85
"""The share of a disk from which on it counts as nearly full."""
NAMED_MAX: Final = 5


def reasons_of(
    layout: Layout,
    dirs: Results[NodeId, Sequence[LogDir]] | None,
    moving: Mapping[TopicPartition, Reassignment] | None,
) -> list[dict[str, Any]]:
    """One row per reason, the worst first: state (bad, warn), what, advice, link (below the cluster's address)."""
    reasons = [*_of_partitions(layout), *_of_brokers(layout), *_of_disks(dirs)]
    if moving:
        reasons.append(
            _reason(
                "warn",
                said("{count} partitions are being moved", count=len(moving)),
                said("Their traffic is higher until they have arrived."),
                "/brokers/reassignments",
            )
        )
    return sorted(reasons, key=lambda row: row["state"])


def _reason(state: str, what: Said, advice: Said, link: str = "") -> dict[str, Any]:
    return {"state": state, "what": what, "advice": advice, "link": link}


def _of_partitions(layout: Layout) -> list[dict[str, Any]]:
    offline: list[str] = []
    behind: list[str] = []
    elsewhere = 0
    for topic in layout.topics.values():
        for partition in topic.partitions:
            name = f"{topic.name}-{partition.number}"
            if partition.leader < 0:
                offline.append(name)
            elif partition.is_under_replicated:
                behind.append(name)
            elif partition.leader != partition.preferred_leader:
                elsewhere += 1
    reasons = []
    if offline:
        reasons.append(
            _reason(
                "bad",
                said("{count} partitions have no leader: {names}", count=len(offline), names=_few(offline)),
                said("Nobody can read or write them. Start the brokers that hold their replicas."),
                "/topics?state=offline",
            )
        )
    if behind:
        reasons.append(
            _reason(
                "warn",
                said(
                    "{count} partitions lack in-sync replicas: {names}", count=len(behind), names=_few(behind)
                ),
                said("Start the brokers that are missing, or wait until they have caught up."),
                "/topics?state=behind",
            )
        )
    if elsewhere:
        reasons.append(
            _reason(
                "warn",
                said("{count} partitions are led by another broker than the preferred one", count=elsewhere),
                said("Load may be uneven. Elect the preferred leaders."),
                "/brokers",
            )
        )
    return reasons


def _of_brokers(layout: Layout) -> list[dict[str, Any]]:
    live = {broker.id for broker in layout.view.brokers}
    wanted = {node for topic in layout.topics.values() for p in topic.partitions for node in _nodes(p)}
    missing = sorted(wanted - live)
    reasons = []
    if missing:
        reasons.append(
            _reason(
                "bad",
                said(
                    "Brokers that hold replicas do not run: {brokers}", brokers=", ".join(map(str, missing))
                ),
                said("Start them, or move their replicas to other brokers."),
                "/brokers",
            )
        )
    if layout.view.controller < 0:
        reasons.append(
            _reason(
                "bad",
                said("The cluster has no controller"),
                said("Topics cannot be changed and leaders cannot be elected. Look at the brokers' logs."),
                "/brokers",
            )
        )
    return reasons


def _of_disks(dirs: Results[NodeId, Sequence[LogDir]] | None) -> list[dict[str, Any]]:
    reasons = []
    for node, rows in (dirs.done if dirs is not None else {}).items():
        for row in rows:
            if row.error is not None:
                reasons.append(
                    _reason(
                        "bad",
                        said(
                            "Broker {broker} cannot use {path}: {reason}",
                            broker=node,
                            path=row.path,
                            reason=str(row.error),
                        ),
                        said("Repair the disk, and start the broker again."),
                        "/brokers",
                    )
                )
            elif (
                row.total_bytes
                and row.usable_bytes is not None
                and row.usable_bytes < (1 - FULL) * row.total_bytes
            ):
                share = round(100 - 100 * row.usable_bytes / row.total_bytes)
                reasons.append(
                    _reason(
                        "warn",
                        said(
                            "The disk of broker {broker} is {share} % full: {path}",
                            broker=node,
                            share=share,
                            path=row.path,
                        ),
                        said("Shorten the retention of large topics, or add room before it is full."),
                        "/topics?sort=size&order=desc",
                    )
                )
    for node, error in (dirs.failed if dirs is not None else {}).items():
        reasons.append(
            _reason(
                "bad",
                said(
                    "Broker {broker} does not tell about its disks: {reason}", broker=node, reason=str(error)
                ),
                said("Look whether it runs."),
                "/brokers",
            )
        )
    return reasons


def _nodes(partition: Partition) -> tuple[NodeId, ...]:
    return partition.replicas


def _few(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)[:NAMED_MAX]) + (" …" if len(names) > NAMED_MAX else "")
