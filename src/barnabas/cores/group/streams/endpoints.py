"""Which instance of the application can be asked for which partitions: the basis of its interactive queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.cores.group.streams.events import EndpointPartitions
from barnabas.cores.group.streams.group import StreamsGroup, Task
from barnabas.cores.group.streams.records import by_subtopology
from barnabas.cores.group.streams.topology import HasPartitions


def endpoint_partitions(
    group: StreamsGroup, version: int, topics: Mapping[str, HasPartitions]
) -> tuple[EndpointPartitions, ...]:
    """For every member with an endpoint, the source partitions of its tasks.

    group: a draft, which keeps the result, so that hundreds of members do not compute it hundreds of times.
    version: that of the topics.
    """
    if group.endpoints[:2] != (group.endpoint_epoch, version):
        group.endpoints = (group.endpoint_epoch, version, _all_of(group, topics))
    partitions: tuple[EndpointPartitions, ...] = group.endpoints[2]
    return partitions


def _all_of(group: StreamsGroup, topics: Mapping[str, HasPartitions]) -> tuple[EndpointPartitions, ...]:
    sources = (
        {part.subtopology_id: part.all_sources for part in group.topology.subtopologies}
        if group.topology
        else {}
    )
    return tuple(
        EndpointPartitions(
            member.endpoint,
            _partitions(member.assigned.active, sources, topics),
            _partitions(member.assigned.standby, sources, topics),
        )
        for member in group.members.values()
        if member.endpoint is not None
    )


def _partitions(
    tasks: Iterable[Task], sources: Mapping[str, tuple[str, ...]], topics: Mapping[str, HasPartitions]
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    rows = []
    for part, numbers in by_subtopology(tasks):
        for topic in sources.get(part, ()):
            existing = topics.get(topic)
            if existing is not None:
                rows.append((topic, tuple(number for number in numbers if number < existing.partitions)))
    return tuple(rows)
