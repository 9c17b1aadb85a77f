"""The topology of a Kafka Streams application, and what follows from it for the topics of the cluster.

A subtopology reads from source topics of the user and from repartition topics, which other subtopologies write to. It has as
many tasks as its largest source has partitions: task number 3 reads partition 3 of all of them. Its state is kept in
changelog topics with one partition per task. Repartition and changelog topics are internal: the coordinator decides how many
partitions they have, and the broker creates them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol

from barnabas.wire.errors import ApiError, ErrorCode

NAMES_SHOWN: Final = 10
TOPICS_MAX: Final = 5_000
"""Topics of one topology: far more than any application has, and few enough to be looked at within one turn."""
TASKS_MAX: Final = 10_000
"""Tasks of one topology, since all of them are assigned within one turn."""


class StatusCode(IntEnum):
    """What members are told about their group; the values are those of StreamsGroupHeartbeat."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Status(NamedTuple):
    """One status, with its explanation."""

    code: StatusCode
    detail: str


class InternalTopic(NamedTuple):
    """A repartition or changelog topic. 0 partitions: the coordinator decides; 0 replicas: the broker's default."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(NamedTuple):
    """Sources that must have equally many partitions, as indexes into the lists of the subtopology."""

    sources: tuple[int, ...] = ()
    regexes: tuple[int, ...] = ()
    repartition_sources: tuple[int, ...] = ()


class Subtopology(NamedTuple):
    """A connected part of the topology. The order of the lists matters: copartition groups refer to it."""

    subtopology_id: str
    sources: tuple[str, ...] = ()
    regexes: tuple[str, ...] = ()
    changelogs: tuple[InternalTopic, ...] = ()
    repartition_sinks: tuple[str, ...] = ()
    repartition_sources: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    @property
    def all_sources(self) -> tuple[str, ...]:
        """The names of all topics that its tasks read, without changelogs."""
        return (*self.sources, *(topic.name for topic in self.repartition_sources))

    @property
    def own_changelogs(self) -> tuple[InternalTopic, ...]:
        """The changelogs to be created; a source topic may serve as the changelog of its table."""
        sources = frozenset(self.all_sources)
        return tuple(topic for topic in self.changelogs if topic.name not in sources)


class Topology(NamedTuple):
    """`subtopologies` are sorted by their ids."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]

    def required_topics(self) -> frozenset[str]:
        """The topics that must exist before tasks can be assigned."""
        return frozenset(
            name
            for part in self.subtopologies
            for name in (*part.all_sources, *(topic.name for topic in part.changelogs))
        )

    def named_topics(self) -> frozenset[str]:
        """All topics that the topology names, also those that it writes to."""
        sinks = (name for part in self.subtopologies for name in part.repartition_sinks)
        return self.required_topics().union(sinks)

    def subtopology_of(self) -> dict[str, str]:
        """Source topic -> the id of the subtopology whose tasks read it."""
        return {topic: part.subtopology_id for part in self.subtopologies for topic in part.all_sources}


class HasPartitions(Protocol):
    """An existing topic."""

    @property
    def partitions(self) -> int:
        """Its number of partitions."""


class NewTopic(NamedTuple):
    """An internal topic that is missing; replication factor -1 is the broker's default."""

    name: str
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Configured:
    """A topology compared with the existing topics.

    tasks: subtopology -> number of its tasks; empty while something is wrong. missing: internal topics to be created.
    """

    tasks: Mapping[str, int]
    stateful: frozenset[str] = frozenset()
    missing: tuple[NewTopic, ...] = ()
    status: Status | None = None

    @property
    def is_ready(self) -> bool:
        """Whether all topics are as they must be, so that tasks can be assigned."""
        return self.status is None


class _Problem(Exception):
    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.status = Status(code, detail)


def require_small(subtopologies: Iterable[Any]) -> None:
    """Raises ApiError STREAMS_INVALID_TOPOLOGY for too many topics. subtopologies: as they are in a heartbeat."""
    count = 0
    for part in subtopologies:
        count += (
            1 + len(part.source_topics) + len(part.source_topic_regex) + len(part.repartition_sink_topics)
        )
        count += len(part.state_changelog_topics) + len(part.repartition_source_topics)
        for together in part.copartition_groups:
            count += 1 + len(together.source_topics) + len(together.source_topic_regex)
            count += len(together.repartition_source_topics)
        if count > 3 * TOPICS_MAX:
            raise _invalid(f"The topology has more than {TOPICS_MAX} topics.")


def check(topology: Topology) -> None:
    """Raises ApiError STREAMS_INVALID_TOPOLOGY for a topology that can never work, INVALID_REQUEST for expressions."""
    seen: set[str] = set()
    topics = 0
    for part in topology.subtopologies:
        name = part.subtopology_id
        topics += len(part.all_sources) + len(part.changelogs) + len(part.repartition_sinks)
        if topics > TOPICS_MAX:
            raise _invalid(f"The topology has more than {TOPICS_MAX} topics.")
        if part.regexes:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "Regular expressions for source topics are not supported yet."
            )
        if name in seen:
            raise _invalid(f"Subtopology {name!r} occurs twice.")
        seen.add(name)
        if not part.all_sources:
            raise _invalid(f"Subtopology {name!r} has no source topics.")
        for topic in part.changelogs:
            if topic.partitions != 0:
                raise _invalid(
                    f"Changelog topic {topic.name} must have an undefined partition count,"
                    f" but it is set to {topic.partitions}."
                )
        if any(topic.partitions < 0 for topic in part.repartition_sources):
            raise _invalid(f"A repartition topic of subtopology {name!r} has a negative partition count.")
        for group in part.copartition_groups:
            _check_indexes(part, group)


def _check_indexes(part: Subtopology, group: CopartitionGroup) -> None:
    for indexes, known in (
        (group.sources, part.sources),
        (group.repartition_sources, part.repartition_sources),
    ):
        if any(not 0 <= index < len(known) for index in indexes):
            raise _invalid(
                f"A copartition group of subtopology {part.subtopology_id!r} refers to a topic that is not"
                " in the subtopology's list."
            )


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def configure(topology: Topology, topics: Mapping[str, HasPartitions]) -> Configured:
    """How many tasks there are, and which internal topics have to be created; or why that cannot be said.

    topics: the existing ones by name.
    """
    try:
        counts = _decide_counts(topology, topics)
        missing = _missing(topology, topics, counts)
    except _Problem as problem:
        return Configured({}, status=problem.status)
    tasks = {
        part.subtopology_id: max(counts[name] for name in part.all_sources) for part in topology.subtopologies
    }
    total = sum(tasks.values())
    if total > TASKS_MAX:
        detail = f"The topology has {total:,} tasks; at most {TASKS_MAX:,} are allowed."
        return Configured({}, status=Status(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail))
    stateful = frozenset(part.subtopology_id for part in topology.subtopologies if part.changelogs)
    if missing:
        detail = f"Internal topics are missing: {_some(topic.name for topic in missing)}"
        return Configured({}, stateful, missing, Status(StatusCode.MISSING_INTERNAL_TOPICS, detail))
    return Configured(tasks, stateful)


def _decide_counts(topology: Topology, topics: Mapping[str, HasPartitions]) -> dict[str, int]:
    """The number of partitions of every source and changelog topic, existing or not."""
    absent = {name for part in topology.subtopologies for name in part.sources if name not in topics}
    if absent:
        raise _Problem(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {_some(absent)} are missing.")
    counts = {name: topics[name].partitions for part in topology.subtopologies for name in part.sources}
    fixed = {
        topic.name: topic.partitions
        for part in topology.subtopologies
        for topic in part.repartition_sources
        if topic.partitions
    }
    flexible = {
        topic.name
        for part in topology.subtopologies
        for topic in part.repartition_sources
        if topic.name not in fixed
    }
    counts |= fixed
    _spread(topology, counts, flexible)
    for part in topology.subtopologies:
        for group in part.copartition_groups:
            _copartition(part, group, counts, fixed, flexible)
    for part in topology.subtopologies:
        largest = max(counts[name] for name in part.all_sources)
        for topic in part.own_changelogs:
            counts[topic.name] = largest
    return counts


def _spread(topology: Topology, counts: dict[str, int], flexible: set[str]) -> None:
    """A repartition topic gets as many partitions as the largest source of the subtopologies that write to it."""
    readers: dict[str, list[Subtopology]] = {}
    for part in topology.subtopologies:
        for name in part.all_sources:
            readers.setdefault(name, []).append(part)
    changed = list(counts)
    while changed:  # counts only grow, up to the largest source, so this ends even if topics form a circle
        name = changed.pop()
        for part in readers.get(name, ()):
            for sink in part.repartition_sinks:
                if sink in flexible and counts.get(sink, 0) < counts[name]:
                    counts[sink] = counts[name]
                    changed.append(sink)
    unknown = flexible - counts.keys()
    if unknown:
        raise _Problem(
            StatusCode.MISSING_SOURCE_TOPICS,
            f"The number of partitions of the repartition topics {_some(unknown)} cannot be determined:"
            " no subtopology with known source topics writes to them.",
        )


def _copartition(
    part: Subtopology,
    group: CopartitionGroup,
    counts: dict[str, int],
    fixed: Mapping[str, int],
    flexible: set[str],
) -> None:
    """Give the topics of a group equally many partitions: as many as those have whose number cannot be changed."""
    repartition = [part.repartition_sources[index].name for index in group.repartition_sources]
    topics = [part.sources[index] for index in group.sources]
    pinned = {name: counts[name] for name in topics} or {
        name: fixed[name] for name in repartition if name in fixed
    }
    if len(set(pinned.values())) > 1:
        raise _Problem(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: {_counted(pinned)}",
        )
    count = next(iter(pinned.values())) if pinned else max((counts[name] for name in repartition), default=0)
    for name in repartition:
        if name in flexible:
            counts[name] = count
        elif fixed[name] != count:
            raise _Problem(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{fixed[name]}] of repartition topic [{name}] doesn't match number of"
                f" partitions [{count}] of the source topic.",
            )


def _missing(
    topology: Topology, topics: Mapping[str, HasPartitions], counts: Mapping[str, int]
) -> tuple[NewTopic, ...]:
    wanted = {
        topic.name: topic
        for part in topology.subtopologies
        for topic in (*part.repartition_sources, *part.own_changelogs)
    }
    missing = []
    for name in sorted(wanted):
        expected, existing = counts[name], topics.get(name)
        if existing is None:
            topic = wanted[name]
            missing.append(NewTopic(name, expected, topic.replication_factor or -1, topic.configs))
        elif existing.partitions != expected:
            raise _Problem(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {expected},"
                f" found {existing.partitions}",
            )
    return tuple(missing)


def _some(names: Iterable[str]) -> str:
    """Names in order, of many only the first ones."""
    ordered = sorted(names)
    rest = len(ordered) - NAMES_SHOWN
    return ", ".join(ordered[:NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _counted(counts: Mapping[str, int]) -> str:
    return _some(f"{name}: {count}" for name, count in counts.items())
