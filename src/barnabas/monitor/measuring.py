"""What the monitor has seen last, for `GET /metrics`: an exporter of lag for any Kafka cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barnabas.monitor.lag.model import GroupLag
from barnabas.monitor.snapshot import Snapshot
from barnabas.observe import service_metrics as metrics
from barnabas.observe.metric import Sample


def samples(looks: Iterable[tuple[str, Snapshot | None, bool]], now_ms: int) -> Iterator[Sample]:
    """looks: the name of each cluster, its last look, and whether the last attempt succeeded."""
    for cluster, seen, is_well in looks:
        yield Sample(metrics.SEEN, is_well, (cluster,))
        if seen is None:
            continue
        for (topic, number), row in seen.partitions.items():
            if row.end is not None:
                yield Sample(metrics.LATEST, row.end, (cluster, topic, str(number)))
        for group in seen.groups:
            yield from _of_group(cluster, group, now_ms)


def _of_group(cluster: str, group: GroupLag, now_ms: int) -> Iterator[Sample]:
    whole = (cluster, group.name)
    yield Sample(metrics.GROUP_MEMBERS, group.members, (*whole, group.state))
    yield Sample(metrics.SUM_LAG, group.records, whole)
    yield Sample(metrics.MAX_LAG, max((row.records or 0 for row in group.partitions), default=0), whole)
    waiting_s = group.waiting_s(now_ms)
    if waiting_s is not None:
        yield Sample(metrics.MAX_LAG_S, waiting_s, whole)
    for row in group.partitions:
        topic, number = row.partition.topic, str(row.partition.partition)
        labels = (*whole, topic, number, row.client or "", row.host or "")
        if row.committed is not None:
            yield Sample(metrics.GROUP_OFFSET, row.committed, labels)
        if row.records is not None:
            yield Sample(metrics.GROUP_LAG, row.records, labels)
        waiting_s = row.waiting_s(now_ms)
        if waiting_s is not None:
            yield Sample(metrics.GROUP_LAG_S, waiting_s, labels)
