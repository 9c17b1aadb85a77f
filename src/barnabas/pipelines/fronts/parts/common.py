"""Entries that occur in several places of a pipeline: their shapes, and the functions that read them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, Literal

from barnabas.pipelines.entries.document import Item, entries
from barnabas.pipelines.entries.shapes import Choice, Defined, Duration, Group, Named, Several, Text
from barnabas.pipelines.kinds.steps import STEPS
from barnabas.pipelines.kinds.steps.base import StepList
from barnabas.pipelines.kinds.steps.fields import read_expression, read_expressions
from barnabas.pipelines.plan.errors import suggestion
from barnabas.pipelines.plan.operators import Operator, RegistryPlace
from barnabas.pipelines.plan.relations import Aggregate, Window

SQL: Final = Text("a Spark SQL expression over the fields")
TRIGGER: Final = Duration("how often a micro-batch begins, like '10 seconds'")
STEP_LIST: Final = Defined("steps", lambda: StepList(STEPS))
AGGREGATE: Final = Group(
    {
        "window": Group(
            {
                "of": Text("the field with the time; default the relation's event time"),
                "every": Duration("how long a window is"),
                "session": Duration("in place of every: the pause that ends a session"),
                "slide": Duration("how often a window begins; default: when the last one ends"),
                "as": Text("the field with the window's start; default window"),
                "end": Text("a field with the window's end"),
            },
            one_of=("every", "session"),
            needs={"slide": "every"},
        ),
        "by": Several(SQL, "values that identify a group"),
        "compute": Named(Text("a Spark SQL aggregate like count(*)"), "fields and their aggregates", least=1),
        "then": Named(SQL, "fields that are computed of the results, the groups and the window's bounds"),
        "late": Duration("how late a record may come and still count"),
        "emit": Choice(
            ("changes", "final"),
            "changes: a group's result whenever it changes; final: once, when its window is over. Default changes, but "
            "final for windows of relations of streams",
        ),
    },
    required=("compute",),
    needs={"late": "window"},
)
REGISTRY: Final = Group(
    {
        "url": Text("a schema registry, like http://localhost:8081", hides="passwords"),
        "subject": Text("the subject whose newest version is used; default <topic>-value"),
    },
    required=("url",),
)
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def read_name(item: Item) -> str:
    """A name of a pipeline, output, source or relation. Raises PipelineError."""
    name = item.text()
    if not NAME.fullmatch(name):
        item.fail(
            f"{item.what} is {name!r}; a name has up to 100 letters, digits, dots, dashes and underscores"
        )
    return name


def read_registry(item: Item, subject: str | None) -> RegistryPlace:
    """A subject of a schema registry. subject: the default; None if there is none. Raises PipelineError."""
    entry = REGISTRY.open(item)
    named = entry["subject"].text() if "subject" in entry else subject
    if not named:
        item.fail("registry needs subject, the subject whose newest version is used")
    return RegistryPlace(entry["url"].text(), named)


def read_duration(item: Item) -> str:
    """A duration in Spark's notation. Raises PipelineError."""
    TRIGGER.check(item)
    return item.text()


def read_steps(item: Item, relation: str = "", output: str | None = None) -> tuple[Operator, ...]:
    """The steps in order. relation: their relation, for labels in dead letters. output: their output, if any.

    Raises PipelineError.
    """
    return tuple(
        read_step(kind, options, number, relation, output)
        for number, (kind, options) in enumerate(entries(item), 1)
    )


def read_step(
    kind: str, options: Item, number: int, relation: str = "", output: str | None = None
) -> Operator:
    """A step as an operator. number: its place among the steps, from 1. Raises PipelineError."""
    rule = STEPS.get(kind)
    if rule is None:
        options.fail(f"there is no step {kind!r}; {suggestion(kind, STEPS)}")
    label = f"{relation}: {number} {kind}" if relation else f"{number} {kind}"
    return replace(rule.check(options), label=label, where=options.where, output=output)


def _emit(text: str) -> Literal["", "changes", "final"]:
    return "final" if text == "final" else "changes" if text else ""


def read_aggregate(item: Item) -> Aggregate:
    """An aggregate. Raises PipelineError."""
    entry_parts = AGGREGATE.open(item)
    window = None
    if "window" in entry_parts:
        entry = entry_parts["window"].mapping()
        window = Window(
            of=read_expression(entry["of"]) if "of" in entry else None,
            every=entry["every"].text() if "every" in entry else None,
            slide=entry["slide"].text() if "slide" in entry else None,
            name=entry["as"].text() if "as" in entry else "window",
            gap=entry["session"].text() if "session" in entry else None,
            end=entry["end"].text() if "end" in entry else None,
        )
        if window.name == window.end:
            entry["end"].fail(f"end is {window.end!r}, but that is the field for the start")
        if window.gap is not None and "by" not in entry_parts:
            entry_parts["window"].fail("sessions need by: Spark keeps sessions for each group")
    late = entry_parts["late"].text() if "late" in entry_parts else None
    compute = read_expressions(entry_parts["compute"])
    if not compute:
        entry_parts["compute"].fail("compute is empty: name at least one aggregate, like requests: count(*)")
    return Aggregate(
        window=window,
        by=tuple(read_expression(by) for by in entry_parts["by"].items()) if "by" in entry_parts else (),
        compute=compute,
        then=read_expressions(entry_parts["then"]) if "then" in entry_parts else {},
        late=late,
        emit=_emit(entry_parts["emit"].text() if "emit" in entry_parts else ""),
        label="aggregate",
        where=item.where,
    )
