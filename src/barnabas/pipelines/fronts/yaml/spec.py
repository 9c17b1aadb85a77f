"""Reads and checks pipeline files. An example:

    pipeline: access-log                 # its name, also in the names of consumer groups and checkpoints
    group: team.access-log               # what names of consumer groups begin with; default the pipeline's name
    source:
      topic: access-log                  # or topics: [a, b], or pattern: "logs-.*"
      start: earliest                    # earliest (default), latest
      options: {maxOffsetsPerTrigger: 100000}
    dead_letters: access-log-dead        # the topic for records that a step cannot process; default
                                         # <pipeline>-dead-letters
    steps:                               # common to all outputs; see kinds/steps/ for all kinds
      - parse: {pattern: combined-log}
      - convert: {status: int}
    outputs:
      - name: access-json
        topic: access-json               # created with partitions/config if it does not exist
      - name: status-per-hour
        aggregate:
          window: {of: time, every: 1 hour, as: hour}
          by: [status]
          compute: {requests: count(*)}
        topic: status-per-hour
        key: "concat_ws(' ', hour, status)"
        config: {cleanup.policy: compact}

Errors are raised as PipelineError: `file:line: what is wrong; what is allowed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from barnabas.pipelines.entries.document import Item, load, parse
from barnabas.pipelines.entries.hiding import hide, secret_values
from barnabas.pipelines.entries.shapes import Either, Group, Named, Several, Text
from barnabas.pipelines.fronts.parts.common import STEP_LIST, TRIGGER, read_duration, read_name, read_steps
from barnabas.pipelines.fronts.parts.outputs import (
    DEAD_LETTERS,
    OUTPUT,
    read_dead_letters,
    read_output,
    refuse_from,
)
from barnabas.pipelines.fronts.parts.relations import RELATIONS_SHAPE, SOURCES_SHAPE, read_relations
from barnabas.pipelines.kinds.sources.topics import TOPIC
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.graph import plan_of
from barnabas.pipelines.plan.outputs import DeadLetters
from barnabas.pipelines.plan.pipeline import PipelineSpec, checked
from barnabas.pipelines.plan.relations import SOURCE, Relation, Scan
from barnabas.pipelines.processing.code import code_folder, loaded

PIPELINE: Final = Group(
    {
        "pipeline": Text("the pipeline's name, also in the names of consumer groups and checkpoints"),
        "bootstrap": Text("brokers, like localhost:9092"),
        "source": TOPIC.shape,
        "sources": SOURCES_SHAPE,
        "relations": RELATIONS_SHAPE,
        "dead_letters": Either(
            (Text("a topic"), DEAD_LETTERS), "the topic for records that cannot be processed"
        ),
        "steps": STEP_LIST,
        "outputs": Several(OUTPUT, "where results go", least=1),
        "spark": Named(Text(), "settings of Spark", guarded=True),
        "trigger": TRIGGER,
        "group": Text("what names of consumer groups begin with; default the pipeline's name"),
    },
    required=("pipeline", "outputs"),
    one_of=("source", "sources"),
)


STREAMS: Final = Group(
    {
        "pipeline": Text("the pipeline's name, also in the names of consumer groups and checkpoints"),
        "streams": Text("an App in the folder of the server's code, like word_count:app"),
        "bootstrap": Text("brokers, like localhost:9092"),
        "spark": Named(Text(), "settings of Spark", guarded=True),
        "trigger": TRIGGER,
    },
    required=("pipeline", "streams"),
)
"""A topology in Python (barnabas.streams) in place of sources, steps and outputs."""


def load_spec(path: Path | str) -> PipelineSpec:
    """Reads and checks a pipeline file, whose `process` steps name code in the file's folder. Raises PipelineError."""
    with code_folder(Path(path).absolute().parent):
        return read_spec(load(Path(path)), str(path))


def parse_spec(text: str, name: str = "pipeline", code: Path | None = None) -> PipelineSpec:
    """Reads and checks YAML text. name: of the file, in messages. code: the folder with the code that `process` steps may
    name; None: they may name none. Raises PipelineError."""
    with code_folder(code):
        return read_spec(parse(text, name), name)


def read_spec(document: Item, where: str) -> PipelineSpec:
    """Reads and checks a document. where: its file, for messages. Raises PipelineError, without secrets."""
    secrets = secret_values(document, PIPELINE)
    try:
        return replace(_read_spec(document, where), secrets=secrets)
    except PipelineError as error:
        raise PipelineError(hide(str(error), secrets)) from None


def _read_app(document: Item, where: str) -> PipelineSpec:
    """The pipeline of a topology in Python. Raises PipelineError."""
    top = document.mapping(STREAMS.entries, STREAMS.required)
    name, named = read_name(top["pipeline"]), top["streams"].text()
    try:
        app = loaded(named)
        if not hasattr(app, "spec"):
            raise PipelineError(f"{named} is a {type(app).__name__}, not an App of barnabas.streams")
        spec: PipelineSpec = app.spec(name)
    except PipelineError as error:
        top["streams"].fail(str(error))
    return replace(
        spec,
        bootstrap=top["bootstrap"].text() if "bootstrap" in top else spec.bootstrap,
        spark={**spec.spark, **(top["spark"].text_map() if "spark" in top else {})},
        trigger=read_duration(top["trigger"]) if "trigger" in top else None,
        where=where,
    )


def _read_spec(document: Item, where: str) -> PipelineSpec:
    if isinstance(document.value, Mapping) and "streams" in document.value:
        return _read_app(document, where)
    top = document.mapping(PIPELINE.entries, PIPELINE.required)
    name = read_name(top["pipeline"])
    outputs = tuple(read_output(item) for item in top["outputs"].items())
    if not outputs:
        top["outputs"].fail("outputs is empty: a pipeline needs at least one")
    dead, dead_topic = f"{name}-dead-letters", DeadLetters(where=top["pipeline"].where)
    if "dead_letters" in top:
        dead, dead_topic = read_dead_letters(top["dead_letters"], dead)
    relations = _relations(document, top, where)
    if not relations[0].named:
        refuse_from(outputs)
    return checked(
        PipelineSpec(
            name=name,
            plan=plan_of(relations, outputs),
            dead_letters=dead,
            bootstrap=top["bootstrap"].text() if "bootstrap" in top else None,
            spark=top["spark"].text_map() if "spark" in top else {},
            trigger=read_duration(top["trigger"]) if "trigger" in top else None,
            where=where,
            group_prefix=read_name(top["group"]) if "group" in top else None,
            dead_topic=dead_topic,
        )
    )


def _relations(document: Item, top: Mapping[str, Item], where: str) -> tuple[Relation, ...]:
    """The relations of a pipeline: those of `sources` and `relations`, or the one of `source` and `steps`."""
    if "sources" not in top:
        if "source" not in top:
            document.fail("the pipeline needs an entry 'source', or 'sources' if there are several")
        if "relations" in top:
            top["relations"].fail("relations need sources: give the source a name there")
        source = TOPIC.check(top["source"], TOPIC.shape.open(top["source"]))
        operators = read_steps(top["steps"]) if "steps" in top else ()
        return (Relation(SOURCE, Scan(source), operators, where={"": where}, named=False),)
    for name in ("source", "steps"):
        if name in top:
            top[name].fail(f"{name} cannot be combined with sources: move it there")
    sources = top["sources"].mapping()
    if not sources:
        top["sources"].fail("sources is empty: a pipeline reads at least one")
    return read_relations(sources, top["relations"].mapping() if "relations" in top else {})
