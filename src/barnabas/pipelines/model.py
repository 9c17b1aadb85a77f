"""A pipeline as plain data, however it was written down: in a file (spec.py) or in Python (builder.py)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from barnabas.pipelines.plan import Plan, Relation, Scan, operator_of, plan_of

SOURCE: Final = "source"
"""The relation of a pipeline that has one source and no others."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target of an output that is no topic: its kind's name (see delivery/) and checked options."""

    kind: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One step. label: its place and kind, `2 parse`, as dead letters name it. where: file and line. output: whose own step
    it is; None for one that is done for all outputs."""

    kind: str
    label: str
    options: Mapping[str, Any]
    where: str = ""
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Time windows: column `of` (None: the relation's event time) in windows of `every` (beginning each `slide`), or in
    sessions that a pause of `gap` ends; `name` is the start's column, `end` the end's."""

    of: str | None
    every: str | None
    slide: str | None
    name: str
    gap: str | None = None
    end: str | None = None

    @property
    def names(self) -> list[str]:
        """Its columns."""
        return [self.name, *([] if self.end is None else [self.end])]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """compute: result columns to Spark SQL aggregates. late: how late a record may come and still count; None
    keeps every window open for ever. emit: `changes` gives a group's new result whenever it changes, `final` each
    window's once, when it is over."""

    window: Window | None
    by: tuple[str, ...]
    compute: Mapping[str, str]
    late: str | None
    emit: str = "changes"


@dataclass(frozen=True, slots=True)
class Route:
    """Where each record goes. by: Spark SQL; topics: its values and their topics (empty: the value is the topic's
    name). What is not among them goes to the output's own topic."""

    by: str
    topics: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RegistryPlace:
    """A subject of a schema registry."""

    url: str
    subject: str


@dataclass(frozen=True, slots=True)
class Output:
    """Where results go. key, value, timestamp, headers: Spark SQL; value None is a JSON object of all columns. where: file
    and line of its entries, for messages. relation: what it is the result of."""

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
    """What the value, a record of all fields, is written by."""

    @property
    def destination(self) -> str:
        """Where it goes, for people."""
        return self.topic or (self.target.kind if self.target is not None else "")

    def may_share(self) -> bool:
        """Whether other outputs may be served by the same query."""
        return self.target is None and self.aggregate is None and not self.steps

    def topics(self) -> tuple[str, ...]:
        """Every topic that is known to be written."""
        routed = self.route.topics.values() if self.route is not None else ()
        return tuple(dict.fromkeys(name for name in [self.topic, *routed] if name))


@dataclass(frozen=True, slots=True)
class Source:
    """What is read: of topics, exactly one of topics and pattern. encoding: of the values, where a step reads them as text;
    None is UTF-8. kind: see sources/. settings: what a kind that is no topic needs. deletes: whether a record without a
    value stands for a delete of its key."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: str = "earliest"
    encoding: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    where: str = field(default="", compare=False)
    kind: str = "topic"
    settings: Mapping[str, Any] = field(default_factory=dict)
    deletes: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """What the dead-letter topic is made with when it is not there."""

    partitions: int = 1
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Query:
    """One streaming query. sends: the relations whose failed records are its to send. only_dead: it sends nothing but
    bad records. more: outputs that it serves besides, all into topics. alone: there is no other query in the pipeline.
    """

    name: str
    output: Output
    sends: frozenset[str] = frozenset()
    only_dead: bool = False
    more: tuple[Output, ...] = ()
    alone: bool = True

    @property
    def outputs(self) -> tuple[Output, ...]:
        """All outputs that it serves."""
        return (self.output, *self.more)

    @property
    def relation(self) -> str:
        """What its outputs are results of."""
        return self.output.relation

    @property
    def adds_only(self) -> bool:
        """Whether a row that it gave never changes: Spark's output mode is append, else update."""
        aggregate = self.output.aggregate
        return self.only_dead or aggregate is None or aggregate.emit == "final"

    @property
    def destination(self) -> str:
        """Where its results go, for people."""
        return ", ".join(dict.fromkeys(output.destination for output in self.outputs))


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """A whole pipeline: its plan, its outputs and how it runs. where: the file, for messages. group_prefix: what its
    consumer groups' names begin with; default the pipeline's name. relations: of a pipeline with several sources; then
    `source` is the first of them and there are no `steps`. secrets: values that no message shows."""

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
        """What the outputs are results of."""
        if self.relations:
            return plan_of(self.relations)
        operators = tuple(operator_of(step) for step in self.steps)
        return Plan({SOURCE: Relation(SOURCE, Scan(self.source), operators, where={"": self.where})})

    @property
    def sources(self) -> tuple[Source, ...]:
        """Everything that is read."""
        return self.plan.sources if self.relations else (self.source,)

    @property
    def topics_read(self) -> tuple[Source, ...]:
        """What is read of brokers."""
        return tuple(source for source in self.sources if source.topics or source.pattern is not None)

    def queries(self, apart: Collection[str] = ()) -> tuple[Query, ...]:
        """What runs: a query for the outputs into topics, one for each other output, and for records that fail where no
        output can send them, one that does only that. apart: names of outputs that have a query of their own all the same.

        A record that fails in a relation is sent to the dead letters once: by the first output that it reaches.
        """
        plan = self.plan
        found: list[Query] = []
        together = self.sharing(apart)
        covered: frozenset[str] = frozenset()
        for output in self.outputs:
            if output in together[1:]:
                continue
            shared = output in together
            sends = plan.carried(output.relation) - covered if output.aggregate is None else frozenset()
            covered |= sends
            name = self.shared_name if shared else output.name
            found.append(Query(name, output, sends, more=together[1:] if shared else ()))
            if output.aggregate is not None and output.steps:
                found.append(Query(f"{output.name}.dead-letters", output, only_dead=True))
        found += self._burials(plan, covered)
        return tuple(replace(query, alone=len(found) == 1) for query in found)

    def _burials(self, plan: Plan, covered: frozenset[str]) -> Iterator[Query]:
        """Queries that do nothing but send what failed before a join or an aggregate."""
        for name in reversed(tuple(plan.relations)):
            sends = plan.failing(name) - covered
            covered |= sends
            if any(plan[relation].can_fail for relation in sends) or (sends and not self.relations):
                own_name = f"{name}.dead-letters" if self.relations else "dead-letters"
                nothing = Output("dead-letters", self.dead_letters, relation=name)
                yield Query(own_name, nothing, sends, only_dead=True)

    def sharing(self, apart: Collection[str] = ()) -> tuple[Output, ...]:
        """The outputs that one query serves, so that the source is read and taken apart once for all of them: those
        of one relation into topics without steps of their own, of one trigger and one set of options. None when there
        are fewer than two."""
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
        """The topic in which replays are noted, and from which running aggregates take letters."""
        return f"{self.dead_letters[:241]}-replays"

    @property
    def shared_name(self) -> str:
        """The name of the query that serves several outputs."""
        return "topics" if all(output.name != "topics" for output in self.outputs) else "topics-together"

    def group(self, query: Query) -> str:
        """The consumer group that shows a query's progress."""
        prefix = self.group_prefix or self.name
        return prefix if query.alone else f"{prefix}.{query.name}"
