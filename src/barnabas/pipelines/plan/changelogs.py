"""Tables with a changelog: a compacted topic with their rows.

One query keeps such a table and writes its rows to the topic; all others read them there. Beside each row stands what the
aggregate keeps for it, so that the table is rebuilt from the topic if the checkpoint of its query is lost
(compiler/changelogs.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.outputs import Output
from barnabas.pipelines.plan.relations import Join, Relation, Scan
from barnabas.pipelines.plan.sources import Source

if TYPE_CHECKING:
    from typing import Protocol

    class Plan(Protocol):
        """What is asked of a plan (graph.py)."""

        @property
        def relations(self) -> Mapping[str, Relation]: ...
        @property
        def sources(self) -> tuple[Source, ...]: ...
        def is_table(self, name: str) -> bool: ...
        def aggregates_table(self, relation: Relation) -> bool: ...
        def needed(self, name: str) -> tuple[Relation, ...]: ...


CONFIG: Final = {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"}
"""A rebuilt table may have to be read once more as it was before its newest rows: they replace none for an hour."""


def changelog_outputs(plan: Plan) -> Iterator[Output]:
    """The outputs that write changelogs. Raises PipelineError for a relation that cannot have one."""
    for relation in plan.relations.values():
        if relation.changelog:
            _check(plan, relation)
            where = {**relation.where, "": relation.at("changelog"), "from": relation.at("changelog")}
            name = f"{relation.name}.changelog"
            yield Output(
                name, relation.changelog, config=CONFIG, relation=relation.name, where=where, keeps=True
            )


def changelogs_read(plan: Plan, own: str = "") -> dict[str, Relation]:
    """The tables with a changelog as relations that are read from there, except `own`."""
    topics = [source for source in plan.sources if source.of_topics]
    login = {n: v for n, v in topics[0].options.items() if n.startswith("kafka.")} if topics else {}
    others = {}
    for name, relation in plan.relations.items():
        if not relation.changelog or name == own:
            continue
        source = Source(
            (relation.changelog,),
            options={**login, "kafka.isolation.level": "read_committed"},
            where=relation.at("changelog"),
            kind="table",
            settings={"changelog": name},
        )
        others[name] = replace(
            relation, origin=Scan(source, table=True), operators=(), event_time=None, aggregate=None
        )
    return others


def is_restored(plan: Plan, relation: Relation) -> bool:
    """Whether the state of a table is in its changelog. If not, the table is computed again from other tables, which have
    all their rows."""
    return not plan.aggregates_table(relation)


def _check(plan: Plan, relation: Relation) -> None:
    def fail(message: str) -> None:
        raise PipelineError(f"{relation.at('changelog')}: {relation.name}: {message}")

    if relation.aggregate is None or not plan.is_table(relation.name):
        fail(
            "a changelog is for an aggregate that is a table (without a window, or with emit: changes); other tables are "
            "rebuilt from the topics that they are made of"
        )
    for above in plan.needed(relation.name):
        origin = above.origin
        if isinstance(origin, Scan) and not origin.source.of_topics:
            fail(f"{above.name} has no offsets that a changelog could remember")
        own = above.name == relation.name
        if not own and above.aggregate is not None and not above.changelog:
            fail(
                f"{above.name}, which it is made of, is an aggregate that cannot be rebuilt: give it a changelog, too"
            )
        pairs = isinstance(origin, Join) and not plan.is_table(origin.right)
        kept = next((operator for operator in above.operators if operator.stateful), None)
        if pairs or kept is not None:
            what = f"step {kept.label}" if kept is not None else "a join of streams"
            fail(
                f"{above.name} keeps state for {what}, which no changelog has: write it to a topic, and read that"
            )
