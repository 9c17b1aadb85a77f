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

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from barnabas.pipelines.entries.document import Item, load, parse
from barnabas.pipelines.entries.hiding import hide, secret_values
from barnabas.pipelines.entries.shapes import Either, Group, Named, Number, Several, Text
from barnabas.pipelines.fronts.yaml.parts import (
    AGGREGATE,
    REGISTRY,
    SQL,
    STEP_LIST,
    TRIGGER,
    read_aggregate,
    read_duration,
    read_name,
    read_registry,
    read_steps,
)
from barnabas.pipelines.fronts.yaml.relations import (
    RELATIONS_SHAPE,
    SOURCES_SHAPE,
    check_outputs,
    read_relations,
)
from barnabas.pipelines.kinds.sources import SOURCES
from barnabas.pipelines.kinds.sources.topics import TOPIC, checked_options, option_names, topic_name
from barnabas.pipelines.kinds.targets import TARGETS
from barnabas.pipelines.kinds.targets.files import FORMATS
from barnabas.pipelines.plan import Plan, Relation, Scan
from barnabas.pipelines.plan.errors import PipelineError, suggestion
from barnabas.pipelines.plan.model import (
    Aggregate,
    DeadLetters,
    Output,
    PipelineSpec,
    Query,
    Route,
    Source,
    Step,
    Target,
    Window,
)
from barnabas.pipelines.spark.topics.options import SINK_NAMES
from barnabas.pipelines.spark.topics.refusing import INTERNAL

__all__ = [
    "Aggregate",
    "Output",
    "PipelineSpec",
    "Query",
    "Route",
    "Source",
    "Step",
    "Target",
    "Window",
    "load_spec",
    "parse_spec",
    "read_spec",
]

CONFIG: Final = Named(Text(), "config of the topic, if it is created")
DEAD_LETTERS: Final = Group(
    {
        "topic": Text("default <pipeline>-dead-letters"),
        "partitions": Number("the topic's number of partitions, if it is created; default 1"),
        "config": CONFIG,
    }
)
ROUTE: Final = Group(
    {
        "by": SQL,
        "topics": Named(Text("a topic"), "values and their topics; default: the value is the topic's name"),
    },
    "sends records to other topics than the output's own",
    required=("by",),
)
VALUE: Final = Either(
    (
        Text("Spark SQL"),
        Group(
            {"registry": REGISTRY}, "all fields, encoded with a schema of a registry", required=("registry",)
        ),
    ),
    "Spark SQL; default a JSON object of all fields",
)
OUTPUT: Final = Group(
    {
        "name": Text("the name of the query and its checkpoint; default the topic or the kind of target"),
        "from": Text("the source or relation whose rows are written, if there are several"),
        "topic": Text("created if it does not exist"),
        "route": ROUTE,
        "key": SQL,
        "value": VALUE,
        "headers": Named(SQL, "headers and their values"),
        "timestamp": SQL,
        "steps": STEP_LIST,
        "aggregate": AGGREGATE,
        "partitions": Number("the topic's number of partitions, if it is created"),
        "config": CONFIG,
        "options": option_names(SINK_NAMES),
        "trigger": TRIGGER,
        **{name: kind.shape for name, kind in TARGETS.items()},
    },
    one_of=("topic", *TARGETS),
)
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


def load_spec(path: Path | str) -> PipelineSpec:
    """Reads and checks a pipeline file. Raises PipelineError."""
    return read_spec(load(Path(path)), str(path))


def parse_spec(text: str, name: str = "pipeline") -> PipelineSpec:
    """Reads and checks YAML text. name: of the file, in messages. Raises PipelineError."""
    return read_spec(parse(text, name), name)


def read_spec(document: Item, where: str) -> PipelineSpec:
    """Reads and checks a document. where: its file, for messages. Raises PipelineError, without secrets."""
    secrets = secret_values(document, PIPELINE)
    try:
        return replace(_read_spec(document, where), secrets=secrets)
    except PipelineError as error:
        raise PipelineError(hide(str(error), secrets)) from None


def _read_spec(document: Item, where: str) -> PipelineSpec:
    top = document.mapping(PIPELINE.entries, PIPELINE.required)
    name = read_name(top["pipeline"])
    outputs = tuple(_output(item) for item in top["outputs"].items())
    if not outputs:
        top["outputs"].fail("outputs is empty: a pipeline needs at least one")
    seen: set[str] = set()
    for output, item in zip(outputs, top["outputs"].items(), strict=True):
        if output.name in seen:
            item.fail(f"two outputs are called {output.name!r}")
        seen.add(output.name)
    dead, dead_topic = f"{name}-dead-letters", DeadLetters()
    if "dead_letters" in top:
        dead, dead_topic = _dead_letters(top["dead_letters"], dead)
    relations = _relations(document, top)
    outputs = tuple(_from(o, i, relations) for o, i in zip(outputs, top["outputs"].items(), strict=True))
    source = _first(relations) if relations else TOPIC.check(top["source"], TOPIC.shape.open(top["source"]))
    made = PipelineSpec(
        name=name,
        source=source,
        outputs=outputs,
        relations=relations,
        steps=read_steps(top["steps"]) if "steps" in top else (),
        dead_letters=dead,
        bootstrap=top["bootstrap"].text() if "bootstrap" in top else None,
        spark=top["spark"].text_map() if "spark" in top else {},
        trigger=read_duration(top["trigger"]) if "trigger" in top else None,
        where=where,
        group_prefix=read_name(top["group"]) if "group" in top else None,
        dead_topic=dead_topic,
    )
    check_outputs(made.plan, outputs, top["outputs"].items())
    for source in made.topics_read:
        _refuse_loops(top, source, outputs, dead)
    return made


def _relations(document: Item, top: Mapping[str, Item]) -> tuple[Relation, ...]:
    """The relations of a pipeline with `sources`; none if it has `source`."""
    if "sources" not in top:
        if "source" not in top:
            document.fail("the pipeline needs an entry 'source', or 'sources' if there are several")
        if "relations" in top:
            top["relations"].fail("relations need sources: give the source a name there")
        return ()
    for name in ("source", "steps"):
        if name in top:
            top[name].fail(f"{name} cannot be combined with sources: move it there")
    return read_relations(top["sources"], top.get("relations"))


def _first(relations: tuple[Relation, ...]) -> Source:
    """The source whose brokers the pipeline uses for writing: the first one that is a topic, otherwise the first."""
    sources = [relation.origin.source for relation in relations if isinstance(relation.origin, Scan)]
    return next((source for source in sources if SOURCES[source.kind].topics), sources[0])


def _from(output: Output, item: Item, relations: tuple[Relation, ...]) -> Output:
    """The output with the relation whose rows it writes."""
    names = [relation.name for relation in relations]
    given = item.mapping().get("from")
    if given is not None:
        if not relations:
            given.fail("from needs sources and relations: this pipeline has one source")
        if given.text() not in names:
            given.fail(f"there is no relation {given.text()!r}; {suggestion(given.text(), names)}")
        return replace(output, relation=given.text())
    if not relations:
        return output
    last = Plan({relation.name: relation for relation in relations}).leaves
    if len(last) != 1:
        item.fail(f"{item.what} needs from, the relation whose rows it writes: {', '.join(names)}")
    return replace(output, relation=last[0])


def _dead_letters(item: Item, default: str) -> tuple[str, DeadLetters]:
    """The dead-letter topic's name, and the settings to create it. item: a name, or a group."""
    if not isinstance(item.value, dict):
        return _written(item), DeadLetters()
    found = DEAD_LETTERS.open(item)
    made = DeadLetters(
        found["partitions"].number() if "partitions" in found else 1,
        found["config"].text_map() if "config" in found else {},
    )
    return (_written(found["topic"]) if "topic" in found else default), made


def _written(item: Item) -> str:
    """The name of a topic that the pipeline writes. Raises PipelineError."""
    name = topic_name(item)
    if name in INTERNAL:
        item.fail(f"{item.what} is {name!r}, which belongs to the brokers: nothing else may write to it")
    return name


def _refuse_loops(top: Mapping[str, Item], source: Source, outputs: tuple[Output, ...], dead: str) -> None:
    """Raises PipelineError if the pipeline reads a topic that it writes: it would never come to an end."""
    letters = top.get("dead_letters", top["pipeline"])
    written = {dead: letters, f"{dead[:241]}-replays": letters}
    for output, item in zip(outputs, top["outputs"].items(), strict=True):
        written.update(dict.fromkeys(output.topics(), item))
    for topic, item in written.items():
        matched = source.pattern is not None and re.fullmatch(source.pattern, topic)
        if topic in source.topics or matched:
            how = (
                f"the pattern {source.pattern!r} of its source matches it"
                if matched
                else "it is in its source"
            )
            item.fail(
                f"the pipeline would read topic {topic}, which it writes itself, in an endless loop: {how}"
            )


def _output(item: Item) -> Output:
    for name, entry in item.mapping().items():
        if name.lower() in FORMATS:
            entry.fail(
                f"{item.what} has no entry {name!r}; that is a format of files: write "
                f"files: {{path: ..., format: {name.lower()}}}"
            )
    found = item.mapping(OUTPUT.entries)
    given = [name for name in ("topic", *TARGETS) if name in found]
    if len(given) > 1:
        found[given[1]].fail(
            f"{item.what} has {' and '.join(given)}: an output has one destination, so make {len(given)} outputs"
        )
    if not given:
        item.fail(f"{item.what} needs one of topic, {', '.join(sorted(TARGETS))}")
    OUTPUT.check(item)
    topic, target = "", None
    if given[0] == "topic":
        topic = _written(found["topic"])
    else:
        target = Target(given[0], TARGETS[given[0]].check(found[given[0]]))
        for name in ("key", "value", "headers", "timestamp", "route", "partitions", "config"):
            if name in found:
                found[name].fail(f"{name} is for topics, not for {given[0]}")
    schema = None
    if "value" in found and isinstance(found["value"].value, dict):
        default = None if "route" in found else f"{topic}-value"
        schema = read_registry(found["value"].mapping()["registry"], default)
    name = read_name(found["name"]) if "name" in found else given[0] if target is not None else topic
    return Output(
        name=name,
        topic=topic,
        key=found["key"].text() if "key" in found else None,
        value=found["value"].text() if "value" in found and not schema else None,
        timestamp=found["timestamp"].text() if "timestamp" in found else None,
        headers=found["headers"].text_map() if "headers" in found else {},
        steps=read_steps(found["steps"], output=name) if "steps" in found else (),
        aggregate=read_aggregate(found["aggregate"]) if "aggregate" in found else None,
        partitions=found["partitions"].number() if "partitions" in found else -1,
        config=found["config"].text_map() if "config" in found else {},
        options=checked_options(found["options"], SINK_NAMES) if "options" in found else {},
        trigger=found["trigger"].text() if "trigger" in found else None,
        route=_route(found["route"], "aggregate" in found) if "route" in found else None,
        target=target,
        schema=schema,
        where={"": item.where, **{name: entry.where for name, entry in found.items()}},
    )


def _route(item: Item, aggregate: bool) -> Route:
    if aggregate:
        item.fail("an aggregate cannot be routed: use two outputs")
    found = ROUTE.open(item)
    topics = (
        {name: _written(entry) for name, entry in found["topics"].mapping().items()}
        if "topics" in found
        else {}
    )
    return Route(found["by"].text(), topics)
