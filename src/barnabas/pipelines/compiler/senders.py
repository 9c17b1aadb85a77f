"""Which query sends the failed records of a relation, kept from one start of a pipeline to the next.

Dead letters belong to a relation, and several outputs may read it. The query that sends its letters is noted in the
pipeline's checkpoints. If its output is taken out of the file, a query that only sends letters begins where it ended:
another output's query may be past records whose letters the removed one had not sent yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.pipelines.spark.topics.first import NOTE as FIRST

if TYPE_CHECKING:
    from barnabas.pipelines.plan.pipeline import PipelineSpec, Query
    from barnabas.pipelines.spark.folders import Folder

NOTE: Final = "barnabas-senders.json"
SOURCES_NOTE: Final = "barnabas-sources.json"
"""In a query's checkpoint: the names of its sources, if it has several."""

Offsets = dict[str, dict[str, Any]]


def noted_senders(folder: Folder) -> dict[str, str]:
    """The names of the queries that have sent failed records so far, by relation."""
    senders: dict[str, str] = folder.read_note(NOTE) if folder.exists(NOTE) else {}
    return senders


def note_senders(
    folder: Folder, spec: PipelineSpec, queries: Iterable[Query], before: Mapping[str, str]
) -> None:
    """Notes who sends which failed records from now on; a query that takes over from another one begins at its place."""
    now = {relation: query.name for query in queries for relation in query.sends}
    for query in queries:
        former = {before[r] for r in query.sends if before.get(r, query.name) != query.name}
        if former and not folder.exists(f"{query.name}/offsets"):
            _take_over(folder, spec, query, sorted(former))
    if now != before:
        folder.write_note(NOTE, now)


def _take_over(folder: Folder, spec: PipelineSpec, query: Query, former: Iterable[str]) -> None:
    """Stores the place at which queries have ended as the first offsets of another one."""
    for number, name in enumerate(spec.plan_of(query).read_by(query.relation)):
        places = [place for place in (_reached(folder, f, name) for f in former) if place is not None]
        if places:
            folder.write_note(f"{query.name}/{FIRST.format(number)}", _earliest(places))


def _reached(folder: Folder, query: str, source: str) -> Offsets | None:
    """The offsets of a source up to which a query has processed its records; None if they are not known, or if they are
    not offsets of topics."""
    note = f"{query}/{SOURCES_NOTE}"
    names = folder.read_note(note) if folder.exists(note) else [source]
    if source not in names:
        return None
    number = names.index(source)
    done = [int(name) for name in folder.names(f"{query}/commits") if name.isdigit()]
    if done:
        # A version, the settings, then a line for each source.
        lines = folder.read(f"{query}/offsets/{max(done)}").decode().splitlines()[2:]
        offsets = json.loads(lines[number]) if number < len(lines) else None
        ours = isinstance(offsets, dict) and all(
            isinstance(entry, dict) and "id" in entry for entry in offsets.values()
        )
        return offsets if ours else None
    first = f"{query}/{FIRST.format(number)}"
    return folder.read_note(first) if folder.exists(first) else None


def _earliest(places: Iterable[Offsets]) -> Offsets:
    """The smallest offset of each partition."""
    offsets: Offsets = {}
    for place in places:
        for topic, entry in place.items():
            known = offsets.setdefault(topic, dict(entry))
            for partition, offset in entry.items():
                if partition != "id":
                    known[partition] = min(offset, known.get(partition, offset))
    return offsets
