"""Entries that several places of a pipeline file have: their shapes, and what is made of them."""

from __future__ import annotations

import re
from typing import Final

from barnabas.pipelines.document import Item, entries, suggestion
from barnabas.pipelines.model import Aggregate, RegistryPlace, Step, Window
from barnabas.pipelines.shapes import Choice, Defined, Duration, Group, Named, Several, Text
from barnabas.pipelines.steps import STEPS
from barnabas.pipelines.steps.base import StepList

SQL: Final = Text("a Spark SQL expression over the fields")
TRIGGER: Final = Duration("how often a micro-batch begins, like '10 seconds'")
STEP_LIST: Final = Defined("steps", lambda: StepList(STEPS))
AGGREGATE: Final = Group(
    {
        "window": Group(
            {
                "of": Text("the field with the time; default the event time of what is read"),
                "every": Duration("how long a window is"),
                "session": Duration("in place of every: how long a pause ends a session; with emit: final"),
                "slide": Duration("how often one begins; default one after the other"),
                "as": Text("the field with the window's start; default window"),
                "end": Text("a field with the window's end"),
            },
            one_of=("every", "session"),
            needs={"slide": "every"},
        ),
        "by": Several(SQL, "what is grouped by"),
        "compute": Named(Text("a Spark SQL aggregate like count(*)"), "fields and their aggregates", least=1),
        "late": Duration("how late a record may come and still count"),
        "emit": Choice(
            ("changes", "final"),
            "changes (default): a group's result whenever it changes; final: once, when its window is over",
        ),
    },
    required=("compute",),
    needs={"late": "window"},
)
REGISTRY: Final = Group(
    {
        "url": Text("of a schema registry, like http://localhost:8081", hides="passwords"),
        "subject": Text("whose newest version says the fields; default <topic>-value"),
    },
    required=("url",),
)
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def read_name(item: Item) -> str:
    name = item.text()
    if not NAME.fullmatch(name):
        item.fail(f"{item.what} is {name!r}; a name is letters, digits, dots, dashes and underscores")
    return name


def read_registry(item: Item, subject: str | None) -> RegistryPlace:
    """subject: the default; None where there is none."""
    found = REGISTRY.open(item)
    named = found["subject"].text() if "subject" in found else subject
    if not named:
        item.fail("registry needs subject: whose newest version says the fields")
    return RegistryPlace(found["url"].text(), named)


def read_duration(item: Item) -> str:
    TRIGGER.check(item)
    return item.text()


def read_steps(item: Item, relation: str = "", output: str | None = None) -> tuple[Step, ...]:
    """Steps in order. relation: whose they are, for the labels in dead letters. output: whose own they are."""
    steps = []
    prefix = f"{relation}: " if relation else ""
    for number, (kind, options) in enumerate(entries(item), 1):
        rule = STEPS.get(kind)
        if rule is None:
            options.fail(f"there is no step {kind!r}; {suggestion(kind, STEPS)}")
        steps.append(Step(kind, f"{prefix}{number} {kind}", rule.check(options), options.where, output))
    return tuple(steps)


def read_aggregate(item: Item) -> Aggregate:
    found = AGGREGATE.open(item)
    window = None
    if "window" in found:
        entry = found["window"].mapping()
        window = Window(
            of=entry["of"].text() if "of" in entry else None,
            every=entry["every"].text() if "every" in entry else None,
            slide=entry["slide"].text() if "slide" in entry else None,
            name=entry["as"].text() if "as" in entry else "window",
            gap=entry["session"].text() if "session" in entry else None,
            end=entry["end"].text() if "end" in entry else None,
        )
        if window.name == window.end:
            entry["end"].fail(f"end is {window.end!r}, which is the name of the start")
        if window.gap is not None and "by" not in found:
            found["window"].fail("sessions need by: Spark keeps them for each group")
    late = found["late"].text() if "late" in found else None
    compute = found["compute"].text_map()
    if not compute:
        found["compute"].fail("compute is empty: name at least one aggregate, like requests: count(*)")
    emit = found["emit"].text() if "emit" in found else "changes"
    return Aggregate(window, found["by"].texts() if "by" in found else (), compute, late, emit)
