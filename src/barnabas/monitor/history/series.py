"""What of a look at a cluster becomes history: declared once, with unit and meaning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.monitor.history.store import Series
from barnabas.monitor.snapshot import Snapshot


class Kept(NamedTuple):
    """A metric of the history. labels: beside `cluster`, which all have."""

    name: str
    unit: str
    help: str
    labels: tuple[str, ...] = ()


BROKERS: Final = Kept("cluster_brokers", "brokers", "Brokers that are live.")
PARTITIONS: Final = Kept("cluster_partitions", "partitions", "Partitions of all topics.")
UNDER_REPLICATED: Final = Kept(
    "cluster_under_replicated", "partitions", "Partitions that lack a replica in sync."
)
OFFLINE: Final = Kept("cluster_offline", "partitions", "Partitions without a leader.")
GROUP_LAG: Final = Kept("group_lag", "records", "Records that a group has not read.", ("group",))
GROUP_SECONDS: Final = Kept(
    "group_lag_seconds", "seconds", "How long the next record of a group has been waiting.", ("group",)
)
GROUP_MEMBERS: Final = Kept("group_members", "members", "Members of a group.", ("group",))
TOPIC_RATE: Final = Kept(
    "topic_records_per_second", "records/s", "Records that are appended to a topic.", ("topic",)
)
TOPIC_BYTES: Final = Kept(
    "topic_bytes", "bytes", "Size of a topic's logs on all brokers together.", ("topic",)
)
DISK_USED: Final = Kept("disk_used_bytes", "bytes", "Size of all logs in a log dir.", ("broker", "dir"))
DISK_FREE: Final = Kept(
    "disk_free_bytes", "bytes", "What is free on the file system of a log dir.", ("broker", "dir")
)
KEPT: Final = (
    BROKERS,
    PARTITIONS,
    UNDER_REPLICATED,
    OFFLINE,
    GROUP_LAG,
    GROUP_SECONDS,
    GROUP_MEMBERS,
    TOPIC_RATE,
    TOPIC_BYTES,
    DISK_USED,
    DISK_FREE,
)
BY_NAME: Final = {kept.name: kept for kept in KEPT}


def values_of(cluster: str, seen: Snapshot, before: Snapshot | None) -> dict[Series, float]:
    """The values of a look. before: an earlier look, from which rates are counted; None leaves them out."""
    return {
        Series.of(kept.name, cluster=cluster, **labels): value
        for kept, labels, value in _values(seen, before)
    }


def _values(seen: Snapshot, before: Snapshot | None) -> Iterator[tuple[Kept, dict[str, str], float]]:
    yield BROKERS, {}, len(seen.brokers)
    if not seen.brokers:
        return  # the cluster did not answer: nothing else is known of it
    yield PARTITIONS, {}, len(seen.partitions)
    yield UNDER_REPLICATED, {}, len(seen.under_replicated)
    yield OFFLINE, {}, len(seen.offline)
    for group in seen.groups:
        labels = {"group": group.name}
        yield GROUP_LAG, labels, group.records
        yield GROUP_MEMBERS, labels, group.members
        seconds = group.waiting_s(seen.now_ms)
        if seconds is not None:
            yield GROUP_SECONDS, labels, seconds
    for topic, size_bytes in seen.sizes_bytes.items():
        yield TOPIC_BYTES, {"topic": topic}, size_bytes
    for disk in seen.disks:
        labels = {"broker": str(disk.broker), "dir": disk.path}
        yield DISK_USED, labels, disk.used_bytes
        if disk.free_bytes is not None:
            yield DISK_FREE, labels, disk.free_bytes
    yield from _rates(seen, before)


def _rates(seen: Snapshot, before: Snapshot | None) -> Iterator[tuple[Kept, dict[str, str], float]]:
    """Records per second of each topic between two looks; a topic that was created anew has none yet."""
    if before is None or seen.now_ms <= before.now_ms:
        return
    seconds = (seen.now_ms - before.now_ms) / 1000
    ends = before.topic_ends()
    for topic, end in seen.topic_ends().items():
        if topic in ends and end >= ends[topic]:
            yield TOPIC_RATE, {"topic": topic}, (end - ends[topic]) / seconds
