"""Builds a pipeline in Python, with the same parts as in a pipeline file.

    from barnabas.pipelines import Pipeline

    access = (
        Pipeline("access-log")
        .source("access-log", start="earliest")
        .parse(pattern="combined-log")
        .convert(status="int")
        .keep("remote_addr", "status", "path")
        .to_topic("access-json", key="remote_addr")
    )
    access.run(once=True, bootstrap="localhost:9092")

Every step of a pipeline file is a method of the same name. Its options are keyword arguments; a single value or a list
of names may be passed as positional arguments. Steps come before the outputs. Every target is a method, too:
`.to_files(path=...)`, `.to_database(url=..., table=..., key=[...], name="rows")`. Mistakes are reported as for a file,
with the pipeline's name in place of the line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any, Final, Self

from barnabas.pipelines.entries.document import Item, from_python
from barnabas.pipelines.entries.hiding import hide, secret_values
from barnabas.pipelines.entries.shapes import Either, EntryShape, Named, Text
from barnabas.pipelines.fronts.parts.common import TRIGGER, read_duration, read_name, read_step
from barnabas.pipelines.fronts.parts.outputs import (
    DEAD_LETTERS,
    OUTPUT,
    read_dead_letters,
    read_output,
    refuse_from,
)
from barnabas.pipelines.fronts.parts.relations import RELATIONS_SHAPE, SOURCES_SHAPE, read_relations
from barnabas.pipelines.kinds.sources.topics import TOPIC
from barnabas.pipelines.kinds.steps import STEPS
from barnabas.pipelines.kinds.targets import TARGETS
from barnabas.pipelines.plan.errors import PipelineError, suggestion
from barnabas.pipelines.plan.graph import plan_of
from barnabas.pipelines.plan.operators import Operator
from barnabas.pipelines.plan.outputs import DeadLetters, Output
from barnabas.pipelines.plan.pipeline import PipelineSpec, checked
from barnabas.pipelines.plan.relations import SOURCE, Relation, Scan
from barnabas.pipelines.plan.sources import Source

SETTINGS: Final[Mapping[str, EntryShape]] = {
    "bootstrap": Text(),
    "spark": Named(Text(), guarded=True),
    "trigger": TRIGGER,
    "group": Text(),
    "dead_letters": Either((Text(), DEAD_LETTERS)),
}


class Builder:
    """A pipeline under construction. It is immutable: each method returns a changed copy."""

    def __init__(self, name: str, **settings: Any) -> None:
        """settings: dead_letters, bootstrap, spark, trigger, group, as in a pipeline file."""
        self._name = name
        self._secrets: frozenset[str] = frozenset()
        self._source: Source | None = None
        self._sources: Mapping[str, Item] = {}
        self._relations: Mapping[str, Item] = {}
        self._operators: tuple[Operator, ...] = ()
        self._outputs: tuple[Output, ...] = ()
        read_name(self._item(name, "pipeline"))
        self._settings = self._item(settings, "the pipeline").mapping(SETTINGS)
        for entry, item in self._settings.items():
            self._hide(item, SETTINGS[entry])
            SETTINGS[entry].check(item)

    @property
    def _where(self) -> str:
        """What messages name in place of file and line."""
        return f"Pipeline({self._name!r})"

    def _item(self, value: Any, what: str) -> Item:
        return from_python(value, self._where, what)

    def _hide(self, item: Item, shape: EntryShape) -> None:
        self._secrets = self._secrets | secret_values(item, shape)

    @contextmanager
    def _changed(self) -> Iterator[Self]:
        """A copy to be changed, whose errors show no secrets."""
        builder = copy(self)
        try:
            yield builder
        except PipelineError as error:
            raise PipelineError(hide(str(error), builder._secrets)) from None

    def source(self, *topics: str, **settings: Any) -> Self:
        """Sets the topics to read, or pattern="..."; other settings: start, options={...}, ..."""
        with self._changed() as builder:
            item = self._item({**({"topics": list(topics)} if topics else {}), **settings}, "source")
            builder._hide(item, TOPIC.shape)
            builder._source = TOPIC.check(item, TOPIC.shape.open(item))
        return builder

    def sources(self, **sources: Any) -> Self:
        """Adds sources by name, as in a file: `sources(orders={"topic": "orders", "steps": [...]})`."""
        with self._changed() as builder:
            item = self._item(sources, "sources")
            builder._hide(item, SOURCES_SHAPE)
            SOURCES_SHAPE.check(item)
            builder._sources = {**builder._sources, **item.mapping()}
        return builder

    def relations(self, **relations: Any) -> Self:
        """Adds relations by name: `relations(paid={"join": {...}})`. An output names its relation as `from_`."""
        with self._changed() as builder:
            item = self._item(relations, "relations")
            builder._hide(item, RELATIONS_SHAPE)
            RELATIONS_SHAPE.check(item)
            builder._relations = {**builder._relations, **item.mapping()}
        return builder

    def dead_letters(self, topic: str) -> Self:
        """Sets the topic for records that a step cannot process."""
        builder = copy(self)
        builder._settings = {**self._settings, "dead_letters": self._item(topic, "dead_letters")}
        return builder

    def step(self, kind: str, *values: Any, **options: Any) -> Self:
        """Adds a step, with either plain values or options. Raises PipelineError for both, and after an output."""
        if self._outputs:
            raise PipelineError(
                f"{self._where}: step {kind} comes after an output: put steps before the outputs"
            )
        if values and options:
            raise PipelineError(
                f"{self._where}: step {kind} has both plain values and keywords: use one or the other"
            )
        argument: Any = {_plain(k): v for k, v in options.items()}
        if values:
            argument = values[0] if len(values) == 1 else list(values)
        with self._changed() as builder:
            item = self._item(argument, kind)
            if kind in STEPS:
                builder._hide(item, STEPS[kind].shape)
            builder._operators = (*self._operators, read_step(kind, item, len(self._operators) + 1))
        return builder

    def process(self, code: Any, *, key: str | Sequence[str], **options: Any) -> Self:
        """Adds a step of user code: a class derived from `processing.Processor`, or a function, which gets each row and what
        is kept for its key. options: time, state, returns, as in a file."""
        return self.step("process", with_=code, key=key, **options)

    def __getattr__(self, name: str) -> Callable[..., Self]:
        if name in STEPS:
            return lambda *values, **options: self.step(name, *values, **options)
        if name.startswith("_"):
            raise AttributeError(name)
        if name.startswith("to_") and name[3:] in TARGETS:
            return lambda **settings: self._to_target(name[3:], settings)
        raise AttributeError(f"a pipeline has no step {name!r}; {suggestion(name, STEPS)}")

    def to_topic(self, topic: str, **settings: Any) -> Self:
        """Adds an output to a topic. settings: key, value, timestamp (Spark SQL), headers, partitions, steps, ..."""
        return self._to({"topic": topic, **{_plain(n): v for n, v in settings.items()}})

    def _to_target(self, kind: str, settings: Mapping[str, Any]) -> Self:
        """Adds an output to another kind of target. settings: its options, and other entries of an output."""
        settings = {_plain(n): v for n, v in settings.items()}
        beside = {n: v for n, v in settings.items() if n in ("name", "from", "steps", "aggregate", "trigger")}
        return self._to({kind: {n: v for n, v in settings.items() if n not in beside}, **beside})

    def _to(self, entries: Mapping[str, Any]) -> Self:
        with self._changed() as builder:
            item = self._item(entries, f"outputs[{len(self._outputs) + 1}]")
            builder._hide(item, OUTPUT)
            builder._outputs = (*self._outputs, read_output(item))
        return builder

    def spec(self) -> PipelineSpec:
        """The checked pipeline. Raises PipelineError."""
        with self._changed() as builder:
            return builder._spec()

    def _spec(self) -> PipelineSpec:
        settings = self._settings
        relations = self._all_relations()
        if not relations[0].named:
            refuse_from(self._outputs)
        dead, dead_topic = f"{self._name}-dead-letters", DeadLetters(where=self._where)
        if "dead_letters" in settings:
            dead, dead_topic = read_dead_letters(settings["dead_letters"], dead)
        spec = PipelineSpec(
            name=self._name,
            plan=plan_of(relations, self._outputs),
            dead_letters=dead,
            bootstrap=settings["bootstrap"].text() if "bootstrap" in settings else None,
            spark=settings["spark"].text_map() if "spark" in settings else {},
            trigger=read_duration(settings["trigger"]) if "trigger" in settings else None,
            where=self._where,
            group_prefix=read_name(settings["group"]) if "group" in settings else None,
            dead_topic=dead_topic,
        )
        return replace(checked(spec), secrets=self._secrets)

    def _all_relations(self) -> tuple[Relation, ...]:
        if not self._sources:
            if self._source is None:
                raise PipelineError(f"{self._where}: the pipeline needs source(...), or sources(...)")
            if self._relations:
                raise PipelineError(f"{self._where}: relations need sources: give the source a name there")
            where = {"": self._where}
            return (Relation(SOURCE, Scan(self._source), self._operators, where=where, named=False),)
        if self._source is not None or self._operators:
            what = "source" if self._source is not None else "steps"
            raise PipelineError(f"{self._where}: {what} cannot be combined with sources: move it there")
        return read_relations(self._sources, self._relations)


def _plain(name: str) -> str:
    """The option that a keyword stands for: `from_` is `from` and `with_` is `with`, which Python reserves."""
    return name.removesuffix("_")
