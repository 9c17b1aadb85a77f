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

from collections.abc import Callable, Mapping
from typing import Any, Self

from barnabas.pipelines.entries.document import from_python
from barnabas.pipelines.fronts.yaml.spec import PipelineSpec, read_spec
from barnabas.pipelines.kinds.steps import STEPS
from barnabas.pipelines.kinds.targets import TARGETS
from barnabas.pipelines.plan.errors import PipelineError, suggestion


class Builder:
    """A pipeline under construction. It is immutable: each method returns a changed copy."""

    def __init__(self, name: str, **settings: Any) -> None:
        """settings: top-level entries of a pipeline file, like dead_letters, bootstrap, spark, trigger."""
        self._name = name
        self._parts: dict[str, Any] = {"pipeline": name, **settings}
        self._steps: tuple[Mapping[str, Any], ...] = ()
        self._outputs: tuple[Mapping[str, Any], ...] = ()

    def _copy(self) -> Self:
        made = type(self)(self._name)
        made._parts, made._steps, made._outputs = dict(self._parts), self._steps, self._outputs
        return made

    def source(self, *topics: str, **settings: Any) -> Self:
        """Sets the topics to read, or pattern="..."; other settings: start, options={...}, ..."""
        made = self._copy()
        made._parts["source"] = {**({"topics": list(topics)} if topics else {}), **settings}
        return made

    def sources(self, **sources: Any) -> Self:
        """Adds sources by name, as in a file: `sources(orders={"topic": "orders", "steps": [...]})`."""
        made = self._copy()
        made._parts["sources"] = {**made._parts.get("sources", {}), **sources}
        return made

    def relations(self, **relations: Any) -> Self:
        """Adds relations by name: `relations(paid={"join": {...}})`. An output names its relation as `from_`."""
        made = self._copy()
        made._parts["relations"] = {**made._parts.get("relations", {}), **relations}
        return made

    def dead_letters(self, topic: str) -> Self:
        """Sets the topic for records that a step cannot process."""
        made = self._copy()
        made._parts["dead_letters"] = topic
        return made

    def step(self, kind: str, *values: Any, **options: Any) -> Self:
        """Adds a step, with either plain values or options. Raises PipelineError for both, and after an output."""
        if self._outputs:
            raise PipelineError(
                f"Pipeline({self._name!r}): step {kind} comes after an output: put steps before the outputs"
            )
        if values and options:
            raise PipelineError(
                f"Pipeline({self._name!r}): step {kind} has both plain values and keywords: use one or the other"
            )
        given: Any = {_plain(k): v for k, v in options.items()}
        if values:
            given = values[0] if len(values) == 1 else list(values)
        made = self._copy()
        made._steps = (*self._steps, {kind: given})
        return made

    def __getattr__(self, name: str) -> Callable[..., Self]:
        if name in STEPS:
            return lambda *values, **options: self.step(name, *values, **options)
        if name.startswith("_"):
            raise AttributeError(name)
        if name.startswith("to_") and name[3:] in TARGETS:
            return lambda **settings: self._to(name[3:], settings)
        raise AttributeError(f"a pipeline has no step {name!r}; {suggestion(name, STEPS)}")

    def to_topic(self, topic: str, **settings: Any) -> Self:
        """Adds an output to a topic. settings: key, value, timestamp (Spark SQL), headers, partitions, steps, ..."""
        made = self._copy()
        made._outputs = (*self._outputs, {"topic": topic, **{_plain(n): v for n, v in settings.items()}})
        return made

    def _to(self, kind: str, settings: Mapping[str, Any]) -> Self:
        """Adds an output to another kind of target. settings: its options, and other entries of an output."""
        settings = {_plain(n): v for n, v in settings.items()}
        beside = {n: v for n, v in settings.items() if n in ("name", "from", "steps", "aggregate", "trigger")}
        own = {n: v for n, v in settings.items() if n not in beside}
        made = self._copy()
        made._outputs = (*self._outputs, {kind: own, **beside})
        return made

    def spec(self) -> PipelineSpec:
        """The checked pipeline. Raises PipelineError."""
        where = f"Pipeline({self._name!r})"
        parts = dict(self._parts)
        if self._steps:
            parts["steps"] = list(self._steps)
        return read_spec(from_python({**parts, "outputs": list(self._outputs)}, where), where)


def _plain(name: str) -> str:
    """The option that a keyword stands for: `from_` is `from` and `with_` is `with`, which Python reserves."""
    return name.removesuffix("_")
