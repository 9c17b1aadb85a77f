"""A pipeline: its plan, how it runs, and which queries run it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from barnabas.pipelines.plan.changelogs import changelogs_read
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.graph import Plan
from barnabas.pipelines.plan.outputs import DeadLetters, Output
from barnabas.pipelines.plan.sources import Source


@dataclass(frozen=True, slots=True)
class Query:
    """One streaming query. sends: the relations whose failed records it sends to the dead letters. only_dead: it sends
    only failed records. more: other outputs that share it, all to topics. alone: the pipeline has no other query. plan: what
    it runs, if that is not the pipeline's own plan: of tables with a changelog it reads that."""

    name: str
    output: Output
    sends: frozenset[str] = frozenset()
    only_dead: bool = False
    more: tuple[Output, ...] = ()
    alone: bool = True
    plan: Plan | None = field(default=None, repr=False, compare=False)

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
        return self.only_dead or aggregate is None or aggregate.emit == "final" or aggregate.takes_back

    @property
    def keeps(self) -> bool:
        """Whether it writes the changelog of a table."""
        return self.output.keeps and not self.only_dead

    @property
    def destination(self) -> str:
        """Topics or kinds of targets, for display."""
        return ", ".join(dict.fromkeys(output.destination for output in self.outputs))


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """A whole pipeline: its plan and how it runs. where: the file, for messages. group_prefix: what the names of its
    consumer groups begin with; None: the pipeline's name. secrets: values that no message shows."""

    name: str
    plan: Plan
    dead_letters: str
    bootstrap: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    trigger: str | None = None
    where: str = field(default="", compare=False)
    group_prefix: str | None = None
    dead_topic: DeadLetters = field(default_factory=DeadLetters)
    secrets: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    def reaching(self, options: Mapping[str, str]) -> PipelineSpec:
        """The pipeline with these options of the client (`kafka.*`) where its sources have none of their own."""
        if not options:
            return self
        secrets = frozenset(value for name, value in options.items() if "password" in name or "jaas" in name)
        return replace(self, plan=self.plan.reaching(options), secrets=self.secrets | secrets)

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs of its plan."""
        return self.plan.outputs

    @property
    def sources(self) -> tuple[Source, ...]:
        """All sources."""
        return self.plan.sources

    @property
    def source(self) -> Source:
        """The source whose brokers the pipeline uses for writing: the first one that reads topics, otherwise the first."""
        return next((source for source in self.sources if source.of_topics), self.sources[0])

    @property
    def topics_read(self) -> tuple[Source, ...]:
        """The sources that read topics."""
        return tuple(source for source in self.sources if source.of_topics)

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
        queries: list[Query] = []
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
            queries.append(Query(name, output, sends, more=together[1:] if shared else ()))
            if output.aggregate is not None and output.operators:
                queries.append(Query(f"{output.name}.dead-letters", output, only_dead=True))
        queries += self._burials(covered)
        return tuple(replace(query, alone=len(queries) == 1, plan=self._plan_of(query)) for query in queries)

    def plan_of(self, query: Query) -> Plan:
        """What a query runs."""
        return query.plan or self.plan

    def _plan_of(self, query: Query) -> Plan | None:
        own = query.relation if query.only_dead or query.keeps else ""
        read = changelogs_read(self.plan, own)
        return replace(self.plan, relations={**self.plan.relations, **read}) if read else None

    def _burials(self, covered: frozenset[str]) -> Iterator[Query]:
        """Queries that only send failed records that no other query sends, like those before a join or aggregate."""
        plan = self.plan
        for name in reversed(tuple(plan.relations)):
            sends = plan.failing(name) - covered
            covered |= sends
            if any(plan[relation].can_fail for relation in sends) or (sends and plan.single):
                own_name = "dead-letters" if plan.single else f"{name}.dead-letters"
                nothing = Output("dead-letters", self.dead_letters, relation=name)
                yield Query(own_name, nothing, sends, only_dead=True)

    def sharing(self, apart: Collection[str] = ()) -> tuple[Output, ...]:
        """The outputs that share one query, so that the source is read and parsed only once for them; empty if there
        are fewer than two. They write to topics, have no aggregate and no steps of their own, and have the same
        relation, trigger and options. apart: names of outputs that must not share."""
        able = [
            output
            for output in self.outputs
            if output.name not in apart and output.may_share() and not self.plan.is_table(output.relation)
        ]
        for first in able:
            alike = (first.relation, first.trigger, first.options)
            same = [o for o in able if (o.relation, o.trigger, o.options) == alike]
            if len(same) > 1:
                return tuple(same)
            if self.plan.single:
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


def checked(spec: PipelineSpec) -> PipelineSpec:
    """The pipeline, if its outputs have different names and it reads no topic that it writes. Raises PipelineError."""
    if not spec.outputs:
        raise PipelineError(f"{spec.where}: outputs is empty: a pipeline needs at least one")
    seen: set[str] = set()
    for output in spec.outputs:
        if output.name in seen:
            raise PipelineError(f"{output.at()}: two outputs are called {output.name!r}")
        seen.add(output.name)
    for source in spec.topics_read:
        _refuse_loops(spec, source)
    return spec


def _refuse_loops(spec: PipelineSpec, source: Source) -> None:
    """Raises PipelineError if the pipeline reads a topic that it writes: it would never come to an end."""
    letters = spec.dead_topic.where or spec.where
    written = {spec.dead_letters: letters, spec.replays: letters}
    for output in spec.outputs:
        written.update(dict.fromkeys(output.topics(), output.at()))
    for topic, where in written.items():
        if source.reads(topic):
            how = (
                "it is in its source"
                if source.pattern is None
                else f"the pattern {source.pattern!r} of its source matches it"
            )
            raise PipelineError(
                f"{where}: the pipeline would read topic {topic}, which it writes itself, in an endless loop: {how}"
            )
