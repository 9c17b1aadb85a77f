"""A pipeline file, checked: what `pipeline.yaml` may say, as plain data.

    pipeline: access-log                 # its name: consumer groups and checkpoints carry it
    source:
      topic: access-log                  # or topics: [a, b], or pattern: "logs-.*"
      start: earliest                    # earliest (default), latest
      options: {maxOffsetsPerTrigger: 100000}
    dead_letters: access-log-dead        # where a record goes that a step cannot handle; default
                                         # <pipeline>-dead-letters
    steps:                               # done by every output; see steps/ for all of them
      - parse: {pattern: combined-log}
      - convert: {status: int}
    outputs:
      - name: access-json
        topic: access-json               # made with partitions/config when it is not there
      - name: status-per-hour
        aggregate:
          window: {of: time, every: 1 hour, as: hour}
          by: [status]
          compute: {requests: count(*)}
        topic: status-per-hour
        key: "concat_ws(' ', hour, status)"
        config: {cleanup.policy: compact}

Errors are PipelineError: `file:line: what is wrong; what is allowed`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from barnabas.pipelines.delivery import TARGETS
from barnabas.pipelines.document import DURATION, Item, entries, load, parse, suggestion
from barnabas.pipelines.model import (
    Aggregate,
    Output,
    PipelineSpec,
    Query,
    Route,
    Source,
    Step,
    Target,
    Window,
)
from barnabas.pipelines.options import SINK_NAMES, SOURCE_NAMES
from barnabas.pipelines.steps import STEPS

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

TOP: Final = ("pipeline", "bootstrap", "source", "dead_letters", "steps", "outputs", "spark", "trigger")
SOURCE: Final = ("topic", "topics", "pattern", "start", "options")
OUTPUT: Final = (
    "name",
    "topic",
    "route",
    "key",
    "value",
    "headers",
    "timestamp",
    "steps",
    "aggregate",
    "partitions",
    "config",
    "options",
    "trigger",
)
AGGREGATE: Final = ("window", "by", "compute", "late")
WINDOW: Final = ("of", "every", "slide", "as")
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def load_spec(path: Path | str) -> PipelineSpec:
    """Reads and checks a pipeline file. Raises PipelineError."""
    return read_spec(load(Path(path)), str(path))


def parse_spec(text: str, name: str = "pipeline") -> PipelineSpec:
    """Checks YAML text. Raises PipelineError."""
    return read_spec(parse(text, name), name)


def read_spec(document: Item, where: str) -> PipelineSpec:
    top = document.mapping(TOP, required=("pipeline", "source", "outputs"))
    name = _name(top["pipeline"])
    outputs = tuple(_output(item) for item in top["outputs"].items())
    if not outputs:
        top["outputs"].fail("outputs is empty: a pipeline needs at least one")
    seen: set[str] = set()
    for output, item in zip(outputs, top["outputs"].items(), strict=True):
        if output.name in seen:
            item.fail(f"two outputs are called {output.name!r}")
        seen.add(output.name)
    dead = _topic(top["dead_letters"]) if "dead_letters" in top else f"{name}-dead-letters"
    return PipelineSpec(
        name=name,
        source=_source(top["source"]),
        outputs=outputs,
        steps=_steps(top["steps"]) if "steps" in top else (),
        dead_letters=dead,
        bootstrap=top["bootstrap"].text() if "bootstrap" in top else None,
        spark=top["spark"].text_map() if "spark" in top else {},
        trigger=_duration(top["trigger"]) if "trigger" in top else None,
        where=where,
    )


def _name(item: Item) -> str:
    name = item.text()
    if not NAME.fullmatch(name):
        item.fail(f"{item.what} is {name!r}; a name is letters, digits, dots, dashes and underscores")
    return name


def _topic(item: Item) -> str:
    name = item.text()
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) or name in (".", ".."):
        item.fail(f"{item.what} is {name!r}, which is no legal topic name")
    return name


def _duration(item: Item) -> str:
    text = item.text()
    if not DURATION.fullmatch(text):
        item.fail(f"{item.what} is {text!r}, not a duration like '10 seconds' or '1 hour'")
    return text


def _source(item: Item) -> Source:
    found = item.mapping(SOURCE)
    given = [n for n in ("topic", "topics", "pattern") if n in found]
    if len(given) != 1:
        item.fail("source needs one of topic, topics and pattern")
    topics = tuple(_topic(t) for t in found[given[0]].items()) if given[0] != "pattern" else ()
    return Source(
        topics=topics,
        pattern=found["pattern"].text() if "pattern" in found else None,
        start=found["start"].choice(("earliest", "latest")) if "start" in found else "earliest",
        options=_spark_options(found["options"], SOURCE_NAMES) if "options" in found else {},
    )


def _spark_options(item: Item, known: Collection[str]) -> dict[str, str]:
    """Options of the data source: `kafka.*`, and names whose case does not matter."""
    for name, entry in item.mapping().items():
        if not name.lower().startswith("kafka.") and name.lower() not in known:
            entry.fail(f"{item.what} has no entry {name!r}; {suggestion(name.lower(), known)}, kafka.*")
    return item.text_map()


def _steps(item: Item) -> tuple[Step, ...]:
    steps = []
    for number, (kind, options) in enumerate(entries(item), 1):
        rule = STEPS.get(kind)
        if rule is None:
            options.fail(f"there is no step {kind!r}; {suggestion(kind, STEPS)}")
        steps.append(Step(kind, f"{number} {kind}", rule.check(options), options.where))
    return tuple(steps)


def _output(item: Item) -> Output:
    found = item.mapping((*OUTPUT, *TARGETS))
    given = [name for name in ("topic", *TARGETS) if name in found]
    if len(given) != 1:
        item.fail(f"{item.what} needs one of topic, {', '.join(sorted(TARGETS))}")
    topic, target = "", None
    if given[0] == "topic":
        topic = _topic(found["topic"])
    else:
        target = Target(given[0], TARGETS[given[0]].check(found[given[0]]))
        for name in ("key", "value", "headers", "timestamp", "route", "partitions", "config"):
            if name in found:
                found[name].fail(f"{name} goes with a topic, not with {given[0]}")
    return Output(
        name=_name(found["name"]) if "name" in found else given[0] if target is not None else topic,
        topic=topic,
        key=found["key"].text() if "key" in found else None,
        value=found["value"].text() if "value" in found else None,
        timestamp=found["timestamp"].text() if "timestamp" in found else None,
        headers=found["headers"].text_map() if "headers" in found else {},
        steps=_steps(found["steps"]) if "steps" in found else (),
        aggregate=_aggregate(found["aggregate"]) if "aggregate" in found else None,
        partitions=found["partitions"].number() if "partitions" in found else -1,
        config=found["config"].text_map() if "config" in found else {},
        options=_spark_options(found["options"], SINK_NAMES) if "options" in found else {},
        trigger=_duration(found["trigger"]) if "trigger" in found else None,
        route=_route(found["route"], "aggregate" in found) if "route" in found else None,
        target=target,
    )


def _route(item: Item, aggregate: bool) -> Route:
    if aggregate:
        item.fail("an aggregate is not routed: use two outputs")
    found = item.mapping(("by", "topics"), required=("by",))
    topics = (
        {name: _topic(entry) for name, entry in found["topics"].mapping().items()}
        if "topics" in found
        else {}
    )
    return Route(found["by"].text(), topics)


def _aggregate(item: Item) -> Aggregate:
    found = item.mapping(AGGREGATE, required=("compute",))
    window = None
    if "window" in found:
        entry = found["window"].mapping(WINDOW, required=("of", "every"))
        window = Window(
            of=entry["of"].text(),
            every=_duration(entry["every"]),
            slide=_duration(entry["slide"]) if "slide" in entry else None,
            name=entry["as"].text() if "as" in entry else "window",
        )
    late = _duration(found["late"]) if "late" in found else None
    if late is not None and window is None:
        item.fail("late needs a window: it says how long a window stays open")
    compute = found["compute"].text_map()
    if not compute:
        found["compute"].fail("compute is empty: name at least one aggregate, like requests: count(*)")
    return Aggregate(window, found["by"].texts() if "by" in found else (), compute, late)
