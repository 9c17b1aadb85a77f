"""A pipeline as plain data, whether it was written as a file (fronts/yaml) or in Python (fronts/python.py)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from barnabas.client.patterns import java_pattern
from barnabas.pipelines.plan import Plan, Relation, Scan, operator_of, plan_of

SOURCE: Final = "source"
"""The name of the only relation of a pipeline that has one source and no relations."""


@dataclass(frozen=True, slots=True)
class Target:
    """An output's target other than a topic. kind: its name in kinds/targets/. options: checked."""

    kind: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One step. label: its number and kind, `2 parse`, by which dead letters name it. where: file and line. output: the
    output that it belongs to; None for a step that is common to all outputs."""

    kind: str
    label: str
    options: Mapping[str, Any]
    where: str = ""
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Time windows. of: the field with the time; None: the relation's event time. every: a window's length. slide: how
    often one begins; None: each when the last one ends. gap: in place of every, the pause that ends a session. name,
    end: the fields for the window's start and end."""

    of: str | None
    every: str | None
    slide: str | None
    name: str
    gap: str | None = None
    end: str | None = None

    @property
    def names(self) -> list[str]:
        """The fields that it adds."""
        return [self.name, *([] if self.end is None else [self.end])]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Groups of rows and their results. compute: Spark SQL aggregates by field. late: how late a record may come and
    still count; None keeps every window open forever. emit: `changes` writes a group's result whenever it changes,
    `final` only once, when the group's window is over."""

    window: Window | None
    by: tuple[str, ...]
    compute: Mapping[str, str]
    late: str | None
    emit: str = "changes"


@dataclass(frozen=True, slots=True)
class Route:
    """Chooses each record's topic. by: Spark SQL. topics: topic by value of `by`; empty: the value is the topic's name.
    Records with another value, or null, go to the output's own topic."""

    by: str
    topics: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RegistryPlace:
    """A subject of a schema registry."""

    url: str
    subject: str


@dataclass(frozen=True, slots=True)
class Output:
    """Where results go. key, value, timestamp, headers: Spark SQL; value None is a JSON object of all fields. where:
    file and line by entry, for messages. relation: whose rows it writes."""

    name: str
    topic: str
    key: str | None = None
    value: str | None = None
    timestamp: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    aggregate: Aggregate | None = None
    partitions: int = -1
    config: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    trigger: str | None = None
    route: Route | None = None
    target: Target | None = None
    relation: str = SOURCE
    where: Mapping[str, str] = field(default_factory=dict, compare=False)
    schema: RegistryPlace | None = None
    """The subject of the schema with which all fields are encoded as the value."""

    @property
    def destination(self) -> str:
        """The topic or kind of target, for display."""
        return self.topic or (self.target.kind if self.target is not None else "")

    def may_share(self) -> bool:
        """Whether the output may share a query with others."""
        return self.target is None and self.aggregate is None and not self.steps

    def topics(self) -> tuple[str, ...]:
        """The topics that it may write to, as far as the pipeline names them."""
        routed = self.route.topics.values() if self.route is not None else ()
        return tuple(dict.fromkeys(name for name in [self.topic, *routed] if name))


@dataclass(frozen=True, slots=True)
class Source:
    """What is read; if from brokers, exactly one of topics and pattern is set. encoding: of values that a step reads as
    text; None is UTF-8. kind: see kinds/sources/. settings: of kinds that do not read topics. deletes: whether a record
    without a value stands for a delete of its key."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: str = "earliest"
    encoding: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    where: str = field(default="", compare=False)
    kind: str = "topic"
    settings: Mapping[str, Any] = field(default_factory=dict)
    deletes: bool = False

    def reads(self, topic: str) -> bool:
        """Whether a topic is one that it reads."""
        if self.pattern is None:
            return topic in self.topics
        return java_pattern(self.pattern).fullmatch(topic) is not None


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Partitions and config with which the dead-letter topic is created if it does not exist."""

    partitions: int = 1
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Query:
    """One streaming query. sends: the relations whose failed records it sends to the dead letters. only_dead: it sends
    only failed records. more: other outputs that share it, all to topics. alone: the pipeline has no other query."""

    name: str
    output: Output
    sends: frozenset[str] = frozenset()
    only_dead: bool = False
    more: tuple[Output, ...] = ()
    alone: bool = True

    @property
    def outputs(self) -> tuple[Output, ...]:
        """All outputs that the query writes."""
        return (self.output, *self.more)

    @property
    def relation(self) -> str:
        """The relation whose rows its outputs write."""
        return self.output.relation

    @property
    def adds_only(self) -> bool:
        """Whether rows never change once written: Spark's output mode is append then, otherwise update."""
        aggregate = self.output.aggregate
        return self.only_dead or aggregate is None or aggregate.emit == "final"

    @property
    def destination(self) -> str:
        """Topics or kinds of targets, for display."""
        return ", ".join(dict.fromkeys(output.destination for output in self.outputs))


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """A whole pipeline: its plan, its outputs and how it runs. where: the file, for messages. group_prefix: what the
    names of its consumer groups begin with; None: the pipeline's name. relations: of a pipeline with `sources`; then
    there are no `steps`, and `source` is the first one that is a topic, otherwise the first. secrets: values that no
    message shows."""

    name: str
    source: Source
    outputs: tuple[Output, ...]
    dead_letters: str
    steps: tuple[Step, ...] = ()
    bootstrap: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    trigger: str | None = None
    where: str = ""
    group_prefix: str | None = None
    dead_topic: DeadLetters = field(default_factory=DeadLetters)
    relations: tuple[Relation, ...] = ()
    secrets: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    @property
    def plan(self) -> Plan:
        """The relations from which the outputs are made."""
        if self.relations:
            return plan_of(self.relations)
        operators = tuple(operator_of(step) for step in self.steps)
        return Plan({SOURCE: Relation(SOURCE, Scan(self.source), operators, where={"": self.where})})

    @property
    def sources(self) -> tuple[Source, ...]:
        """All sources."""
        return self.plan.sources if self.relations else (self.source,)

    @property
    def topics_read(self) -> tuple[Source, ...]:
        """The sources that read topics."""
        return tuple(source for source in self.sources if source.topics or source.pattern is not None)

    def queries(
        self, apart: Collection[str] = (), senders: Mapping[str, str] | None = None
    ) -> tuple[Query, ...]:
        """The queries to run: one for the outputs that can share it (`sharing`), one for each other output, and queries
        that only send failed records that no output's query sends. apart: outputs that have their own query nevertheless.
        senders: by relation, the name of the query that has sent its failed records so far.

        A record that fails in a relation is sent to the dead letters once: by the query that has done so before, else by
        the first that the relation's rows reach. If that query is gone, with its output, the relation gets a query that
        only sends its failed records; other outputs may already have passed some of them.
        """
        plan, before = self.plan, senders or {}
        found: list[Query] = []
        together = self.sharing(apart)
        covered: frozenset[str] = frozenset()
        for output in self.outputs:
            if output in together[1:]:
                continue
            shared = output in together
            name = self.shared_name if shared else output.name
            carried = plan.carried(output.relation) - covered if output.aggregate is None else frozenset()
            sends = frozenset(relation for relation in carried if before.get(relation, name) == name)
            covered |= sends
            found.append(Query(name, output, sends, more=together[1:] if shared else ()))
            if output.aggregate is not None and output.steps:
                found.append(Query(f"{output.name}.dead-letters", output, only_dead=True))
        found += self._burials(plan, covered)
        return tuple(replace(query, alone=len(found) == 1) for query in found)

    def _burials(self, plan: Plan, covered: frozenset[str]) -> Iterator[Query]:
        """Queries that only send failed records that no other query sends, like those before a join or aggregate."""
        for name in reversed(tuple(plan.relations)):
            sends = plan.failing(name) - covered
            covered |= sends
            if any(plan[relation].can_fail for relation in sends) or (sends and not self.relations):
                own_name = f"{name}.dead-letters" if self.relations else "dead-letters"
                nothing = Output("dead-letters", self.dead_letters, relation=name)
                yield Query(own_name, nothing, sends, only_dead=True)

    def sharing(self, apart: Collection[str] = ()) -> tuple[Output, ...]:
        """The outputs that share one query, so that the source is read and parsed only once for them; empty if there
        are fewer than two. They write to topics, have no aggregate and no steps of their own, and have the same
        relation, trigger and options. apart: names of outputs that must not share."""
        able = [output for output in self.outputs if output.name not in apart and output.may_share()]
        for first in able:
            alike = (first.relation, first.trigger, first.options)
            same = [o for o in able if (o.relation, o.trigger, o.options) == alike]
            if len(same) > 1:
                return tuple(same)
            if not self.relations:
                break
        return ()

    @property
    def replays(self) -> str:
        """The topic with marks of replays, and with letters that are replayed into running aggregates."""
        return f"{self.dead_letters[:241]}-replays"

    @property
    def shared_name(self) -> str:
        """The name of the query that several outputs share."""
        return "topics" if all(output.name != "topics" for output in self.outputs) else "topics-together"

    def group(self, query: Query) -> str:
        """The consumer group that shows a query's progress."""
        prefix = self.group_prefix or self.name
        return prefix if query.alone else f"{prefix}.{query.name}"
