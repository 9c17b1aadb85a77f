"""Compares the plan of a query with the one that its checkpoint was made with, before anything starts.

State whose meaning has changed is never mixed with new state: such a query is refused. All other changes are logged, and
count from the next micro-batch on. A checkpoint of an earlier version has no fingerprint: it is accepted, and gets one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.fingerprint import Fingerprint, fingerprint

if TYPE_CHECKING:
    from barnabas.pipelines.plan.pipeline import PipelineSpec, Query
    from barnabas.pipelines.spark.folders import Folder

log = logging.getLogger(__name__)
NOTE: Final = "barnabas-plan.json"
"""In a query's checkpoint: its fingerprint."""


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one query when a changed pipeline continues its checkpoint. changed: the operators that were added,
    removed or changed, by id. kept: those whose state goes on. lost: why the state cannot go on, as the end of a sentence;
    None if it can. is_new: it has no checkpoint, and begins at the pipeline's start."""

    query: str
    changed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    lost: str | None = None
    is_new: bool = False


def changes(folder: Folder, spec: PipelineSpec, queries: Iterable[Query]) -> list[Change]:
    """What a pipeline changes in the queries whose checkpoints are in the folder; queries that stay as they are have none.
    Nothing is noted."""
    changes_of_queries = []
    for query in queries:
        now, before = fingerprint(spec.plan_of(query), query), _noted(folder, query)
        if before is None or not folder.exists(f"{query.name}/offsets"):
            changes_of_queries.append(Change(query.name, is_new=True))
        elif before != now:
            lost = before.other_state(now)
            kept = () if lost else tuple(now.state)
            changes_of_queries.append(Change(query.name, tuple(before.other_parts(now)), kept, lost))
    return changes_of_queries


def check_changes(folder: Folder, spec: PipelineSpec, queries: Iterable[Query]) -> None:
    """Notes the fingerprint of each query in its checkpoint. Raises PipelineError, before any is noted, if a query cannot
    be continued from its checkpoint. folder: of the pipeline's checkpoints."""
    fresh: dict[str, Fingerprint] = {}
    for query in queries:
        now = fingerprint(spec.plan_of(query), query)
        before = _noted(folder, query)
        if before == now:
            continue
        fresh[query.name] = now
        if before is None or not folder.exists(f"{query.name}/offsets"):
            continue
        if reason := before.other_state(now):
            raise PipelineError(
                f"{spec.where or spec.name}: query {query.name} cannot be continued from its checkpoint: {reason}; change "
                "it back, or start again with another output name or --checkpoints"
            )
        changed = ", ".join(before.other_parts(now)) or "its relations or outputs"
        log.info(
            "pipeline has changed", extra={"pipeline": spec.name, "query": query.name, "changed": changed}
        )
    for name, now in fresh.items():
        folder.write_note(f"{name}/{NOTE}", now.to_json())


def _noted(folder: Folder, query: Query) -> Fingerprint | None:
    """The fingerprint in a query's checkpoint; None if it has none."""
    note = f"{query.name}/{NOTE}"
    return Fingerprint.from_json(folder.read_note(note)) if folder.exists(note) else None
