"""The step that calls user code.

process: {with: alerts:Dangerous, key: driver, time: event}
process: {with: stats:Percentiles, key: host, window: {every: 1 minute, as: minute}, emit: final}
process: {with: "alerts:count", key: [a, b], state: {seen: {value: long, ttl: 1 hour}}, returns: {a: string, n: long}}
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from barnabas.pipelines.entries.document import Item
from barnabas.pipelines.entries.shapes import Choice, Duration, Group, Named, Open, Schema, Several, Text
from barnabas.pipelines.kinds.steps.base import StepRule, rules
from barnabas.pipelines.kinds.steps.fields import read_expression
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.operators import Operator
from barnabas.pipelines.plan.processing import Process, State
from barnabas.pipelines.processing.code import loaded
from barnabas.pipelines.processing.processor import (
    Processor,
    checked_fields,
    declared_states,
    from_function,
    milliseconds,
)
from barnabas.pipelines.processing.values import BadType, type_named
from barnabas.pipelines.processing.windows import Aggregator, windowed, windows_in
from barnabas.pipelines.spark.frame import Frame, complaint, expression, first_of, flag
from barnabas.pipelines.spark.processing import processed


@dataclass(frozen=True, slots=True)
class Code(Open):
    """User code: `module:name` in a file, the class or function itself in Python."""

    doc: str

    def check(self, item: Item) -> None:
        if not callable(item.value):
            item.text()

    def schema(self) -> Schema:
        return Text(self.doc).schema()


TYPE: Final = Text("a type like bigint, timestamp or array<string>")
TIMES: Final = ("none", "event", "clock")
PROCESS: Final = Group(
    {
        "with": Code("module:name, a class or function in a module beside the pipeline file"),
        "key": Several(
            Text("a Spark SQL expression over the fields"), "rows with the same key share a state", 1
        ),
        "time": Choice(TIMES, "what timers go by: event, the event time of the rows; clock; default none"),
        "state": Named(
            Group(
                {
                    "value": TYPE,
                    "list": TYPE,
                    "map": Named(TYPE, "the type of the keys, with the type of the values", least=1),
                    "ttl": Duration("how long after its last change it is kept, by the clock"),
                },
                one_of=("value", "list", "map"),
            ),
            "what a function keeps for each key; a class declares it itself",
        ),
        "window": Group(
            {
                "every": Duration("how long a window is"),
                "slide": Duration("how often a window begins; default: when the last one ends"),
                "session": Duration("the pause that ends a session"),
                "sliding": Duration("how far the window of each row reaches back"),
                "as": Text("the field with the window's start; default window"),
                "end": Text("a field with the window's end"),
            },
            "windows of event time, of a class derived from Aggregator",
            one_of=("every", "session", "sliding"),
            needs={"slide": "every"},
        ),
        "emit": Choice(
            ("changes", "final"),
            "results of windows: final (default): once, when a window is over; changes: at each row",
        ),
        "returns": Named(TYPE, "the fields of the rows that it makes; a class may declare them itself"),
    },
    "user code that keeps something for each key",
    required=("with", "key"),
    needs={"emit": "window"},
)


def _check(item: Item) -> Operator:
    entries = PROCESS.open(item)
    states = (
        {name: _state(name, entry) for name, entry in entries["state"].mapping().items()}
        if "state" in entries
        else {}
    )
    returns = (
        _fields(
            {name: kind.text() for name, kind in entries["returns"].mapping().items()}, entries["returns"]
        )
        if "returns" in entries
        else {}
    )
    called, processor = _code(entries["with"])
    if isinstance(processor, type) and issubclass(processor, Aggregator):
        return _aggregate(called, processor, item, entries)
    if "window" in entries:
        entries["window"].fail(f"{called} is not derived from Aggregator, so it has no windows")
    if isinstance(processor, type) and issubclass(processor, Processor):
        if states:
            entries["state"].fail(f"{called} is a class, which declares its states itself")
        if returns and processor.returns:
            entries["returns"].fail(f"{called} declares itself what it returns")
        code = processor
        states, returns = declared_states(processor), returns or _fields(processor.returns, entries["with"])
    elif callable(processor) and not isinstance(processor, type):
        _check_parameters(processor, called, entries["with"])
        code = from_function(processor, states, returns)
    else:
        entries["with"].fail(f"{called} is neither a function nor a class derived from Processor")
    if not returns:
        entries["with"].fail(
            f"{called} needs returns, the fields of the rows that it makes, with their types"
        )
    time = entries["time"].choice(TIMES) if "time" in entries else "none"
    with_ttl = [name for name, state in states.items() if state.ttl_ms is not None]
    if with_ttl and time == "event":
        entries["time"].fail(
            f"{with_ttl[0]} has a ttl, which goes by the clock: use time: clock, or a timer that removes the state"
        )
    return Process(
        called=called,
        key=tuple(read_expression(key) for key in entries["key"].items()),
        states=states,
        returns=returns,
        time="clock" if with_ttl else time,  # type: ignore[arg-type]
        code=code,
    )


def _aggregate(
    called: str, code_class: type[Aggregator], item: Item, entries_of_item: Mapping[str, Item]
) -> Process:
    """The step of a class that aggregates."""
    for name in ("state", "returns"):
        if name in entries_of_item:
            entries_of_item[name].fail(f"{called} is a class, which declares its {name} itself")
    if "window" not in entries_of_item:
        item.fail(f"{called} aggregates, which needs a window, like window: {{every: 1 hour}}")
    if "time" in entries_of_item and entries_of_item["time"].choice(TIMES) != "event":
        entries_of_item["time"].fail("windows go by event time")
    entries = {name: entry.text() for name, entry in entries_of_item["window"].mapping().items()}
    needed = {"session": "merge", "sliding": "takes"}
    for kind, member in needed.items():
        if kind in entries and getattr(code_class, member) is getattr(Aggregator, member):
            entries_of_item["window"].fail(f"{called} needs {member} for windows of this kind")
    keys = tuple(read_expression(key) for key in entries_of_item["key"].items())
    try:
        windows = windows_in(
            entries, entries_of_item["emit"].text() if "emit" in entries_of_item else "final"
        )
        code = windowed(code_class, windows, tuple(key.text for key in keys))
    except ValueError as error:  # BadType is one
        entries_of_item["window"].fail(f"{called}: {error}")
    returns = _fields(code_class.returns, entries_of_item["with"])
    if not returns:
        entries_of_item["with"].fail(f"{called} needs returns, the fields of its results, with their types")
    states = declared_states(code)
    return Process(
        called=called, key=keys, states=states, returns=returns, time="event", windows=windows, code=code
    )


def _code(item: Item) -> tuple[str, Any]:
    """The name of the code, and the code."""
    if callable(item.value):
        return f"{item.value.__module__}:{item.value.__qualname__}", item.value
    try:
        return item.text(), loaded(item.text())
    except PipelineError as error:
        item.fail(str(error))


def _check_parameters(function: Any, called: str, item: Item) -> None:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        item.fail(
            f"{called} is called with two arguments, the row and what it keeps: def {function.__name__}(row, kept)"
        )
    except ValueError:
        item.fail(f"{called} is no function written in Python")


def _state(name: str, item: Item) -> State:
    entries = item.mapping()
    ttl = milliseconds(entries["ttl"].text()) if "ttl" in entries else None
    if (
        not name.isidentifier()
        or name.startswith("_")
        or hasattr(Processor, name)
        or name in ("cells", "timers", "key")
    ):
        item.fail(f"a state cannot be called {name!r}: it becomes an attribute of what the function gets")
    if "map" in entries:
        pairs = entries["map"].mapping()
        if len(pairs) != 1:
            entries["map"].fail(
                "a map has one pair: the type of its keys, and that of its values, like {string: bigint}"
            )
        ((key, value),) = pairs.items()
        return State("map", _type(value.text(), value), _type(key, value), ttl)
    kind = "value" if "value" in entries else "list"
    return State(kind, _type(entries[kind].text(), entries[kind]), None, ttl)  # type: ignore[arg-type]


def _type(name: str, item: Item) -> str:
    try:
        return type_named(name).name
    except BadType as error:
        item.fail(str(error))


def _fields(returns: Any, item: Item) -> dict[str, str]:
    try:
        return checked_fields(returns)
    except BadType as error:
        item.fail(str(error))


def _apply(frame: Frame, step: Process) -> Frame:
    keys: dict[str, Column] = {}
    for wanted in step.key:
        frame, keys[wanted.text] = expression(frame, wanted, step)
    missing = first_of(
        F.when(key.isNull(), complaint(f"the key {name} is null")) for name, key in keys.items()
    )
    assert missing is not None
    return processed(replace(frame, data=flag(frame.data, missing, step)), step, keys)


PROCESS_STEPS: Final[dict[str, StepRule]] = rules(
    StepRule("process", "Call user code with state for each row", PROCESS, _check, _apply)
)
