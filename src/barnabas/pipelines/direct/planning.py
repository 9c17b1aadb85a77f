"""Finds the queries that need no Spark expressions for most of their lines, and plans what is made of such a line.

These are queries over topics whose first step parses `common-log` or `combined-log`, whose other steps are `convert`
(to int, long and string), `time` (of the logs' own format), `unescape`, `drop`, `keep` and `rename`, and whose outputs
are topics with keys, values and headers of plain fields, texts and `concat_ws`. All other queries use Spark's
expressions.

The processes that read the topics then send lines through Spark in parcels (parcels.py), up to a thousand of them in a
row, and those that write make the records of the outputs (lines.pyx). A line that is not plain in every respect goes
through Spark's expressions, in the same query, so that the result is the same to the byte; lines.pyx says which lines
are plain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.pipelines.direct.lines import FIELDS, GROUPS, Kind, Shape
from barnabas.pipelines.direct.program import Made, Program, Recipe
from barnabas.pipelines.plan.expressions import Expression, FieldName, FixedText, JoinedFields
from barnabas.pipelines.plan.operators import (
    Convert,
    Drop,
    Keep,
    Operator,
    ParsePattern,
    ReadTime,
    Rename,
    Unescape,
)
from barnabas.pipelines.plan.patterns import NAMED_PATTERNS, compile_pattern

if TYPE_CHECKING:
    from barnabas.pipelines.plan.outputs import Output
    from barnabas.pipelines.plan.pipeline import PipelineSpec, Query
    from barnabas.pipelines.plan.sources import Source

COMBINED: Final = {
    compile_pattern(NAMED_PATTERNS[f"{name}-log"]): name == "combined" for name in ("common", "combined")
}
LAYOUT: Final = "dd/MMM/yyyy:HH:mm:ss Z"
STEPS: Final = ("convert", "time", "unescape", "drop", "keep", "rename")
KINDS: Final = {"int": Kind.INT, "bigint": Kind.LONG}
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class NeedsSpark(Exception):
    """A query needs Spark's expressions; the message tells users the reason."""


def direct_program(spec: PipelineSpec, query: Query) -> Program | None:
    """The program for the lines of a query; None if it needs Spark. The session's settings are not checked."""
    try:
        return planned_program(spec, query)
    except NeedsSpark:
        return None


def planned_program(spec: PipelineSpec, query: Query) -> Program:
    """The program for the lines of a query. Raises NeedsSpark with the first reason why there is none."""
    if not spec.plan.single:
        raise NeedsSpark("there are several sources or relations")
    settings = [name for name in spec.spark if name.startswith("spark.sql.")]  # for zones, case or errors
    if settings:
        raise NeedsSpark(f"{settings[0]} is set")
    for output in query.outputs:
        _check_output(output)
    if query.only_dead or query.relation not in query.sends:
        raise NeedsSpark("it sends only dead letters, or another query sends its dead letters")
    _check_source(spec.source)
    work = _Fields(spec.plan[query.relation].operators)
    outputs = tuple(_made(work, output) for output in query.outputs)
    if len({made.topic for made in outputs}) < len(outputs):
        raise NeedsSpark("two outputs write to one topic")  # where a line's records are adjacent
    return Program(work.combined, tuple(work.made), outputs)


def _check_source(source: Source) -> None:
    if source.kind != "topic":
        raise NeedsSpark(f"the source is of kind {source.kind}, not a topic")
    if source.deletes:
        raise NeedsSpark("records without a value are deletes")
    if source.encoding is not None and source.encoding.lower().replace("-", "") != "utf8":
        raise NeedsSpark(f"the source's encoding is {source.encoding}, not UTF-8")


def _check_output(output: Output) -> None:
    found = {
        "is not a topic": output.target is not None,
        "is an aggregate": output.aggregate is not None,
        "has steps of its own": bool(output.operators),
        "has a route": output.route is not None,
        "is written with a schema": output.schema is not None,
        "sets timestamps": output.timestamp is not None,
    }
    for reason, is_so in found.items():
        if is_so:
            raise NeedsSpark(f"output {output.name} {reason}")


class _Fields:
    """The fields after the steps. made: group and Kind of every value that a step makes, whether it is kept or not.
    names: the fields that are left in the end, in order, with their indices in `made`."""

    def __init__(self, steps: tuple[Operator, ...]) -> None:
        if not steps:
            raise NeedsSpark("no step parses an access log")
        first = steps[0]
        if not isinstance(first, ParsePattern) or first.pattern not in COMBINED:
            raise NeedsSpark(f"step {first.label} does not parse combined-log or common-log")
        if first.source is not None:
            raise NeedsSpark(f"step {first.label} parses a field, not the record's value")
        self.combined = COMBINED[first.pattern]
        self.made: list[tuple[int, int]] = []
        self.names: dict[str, int] = {}
        for _, name in first.pattern.groups:
            self._make(name, GROUPS.index(name), Kind.TEXT)
        for step in steps[1:]:
            self._take(step)
        if len(self.made) > FIELDS or not self.names:
            raise NeedsSpark(f"the steps leave no field, or make more than {FIELDS}")
        for name in self.names:
            if not _PLAIN.fullmatch(name):
                raise NeedsSpark(f"field {name!r} has more than letters, digits and underscores in its name")

    def _make(self, name: str, group: int, kind: Kind) -> None:
        self.names[name] = len(self.made)
        self.made.append((group, kind))

    def place(self, name: str) -> int:
        """The index of a field in `made`. Raises NeedsSpark."""
        if name not in self.names:
            raise NeedsSpark(f"{name!r} is not a field of the line")
        return self.names[name]

    def text(self, name: str) -> int:
        """The index in `made` of a field whose text is used unchanged. Raises NeedsSpark."""
        place = self.place(name)
        if self.made[place][1] == Kind.TIME:
            raise NeedsSpark(f"the time {name!r} is used in a key, a header or a text")
        return place

    def group(self, name: str) -> int:
        """The group of a field that was not converted. Raises NeedsSpark."""
        group, kind = self.made[self.place(name)]
        if kind not in (Kind.TEXT, Kind.BARE):
            raise NeedsSpark(f"{name!r} is converted twice")
        return group

    def _take(self, step: Operator) -> None:
        if isinstance(step, Convert):
            groups = {name: self.group(name) for name in step.types}
            for name, kind in step.types.items():
                if kind in KINDS:
                    self._make(name, groups[name], KINDS[kind])
                elif kind != "string":
                    raise NeedsSpark(f"step {step.label} converts {name!r} to {kind}, not to int or long")
        elif isinstance(step, ReadTime):
            if step.formats[:1] != (LAYOUT,):
                raise NeedsSpark(f"step {step.label} has another format than {LAYOUT}")
            self._make(step.to, self.group(step.field), Kind.TIME)
        elif isinstance(step, Unescape):
            for name in step.names:
                self._make(name, self.group(name), Kind.BARE)
        elif isinstance(step, Drop):
            for name in step.names:
                self.place(name)
                del self.names[name]
        elif isinstance(step, Keep):
            self._rename([(name, self.place(name)) for name in step.names])
        elif isinstance(step, Rename):
            new = step.names
            self._rename([(new.get(name, name), place) for name, place in self.names.items()])
        else:
            raise NeedsSpark(f"step {step.label} is not one of {', '.join(STEPS)}")

    def _rename(self, names: Sequence[tuple[str, int]]) -> None:
        self.names = dict(names)
        if len(self.names) < len(names):
            raise NeedsSpark("two fields have one name")


def _made(work: _Fields, output: Output) -> Made:
    return Made(
        output.name,
        output.topic,
        None if output.key is None else _recipe(work, output.key),
        _object(work.names) if output.value is None else _recipe(work, output.value),
        tuple((name, _recipe(work, sql)) for name, sql in output.headers.items()),
    )


def _object(names: Mapping[str, int]) -> Recipe:
    """The recipe of a JSON object of all fields."""
    before = [f'{"," if number else "{"}"{name}":' for number, name in enumerate(names)]
    return Recipe(Shape.OBJECT, tuple(names.values()), (*before, "}"))


def _recipe(work: _Fields, wanted: Expression) -> Recipe:
    """The recipe of an output's expression. Raises NeedsSpark."""
    form = wanted.form
    if isinstance(form, FixedText):
        return Recipe(Shape.CONSTANT, (), (form.text,))
    if isinstance(form, JoinedFields):
        if len(form.names) > FIELDS:
            raise NeedsSpark(f"concat_ws has more than {FIELDS} fields")
        return Recipe(Shape.JOINED, tuple(work.text(name) for name in form.names), (form.separator,))
    if isinstance(form, FieldName):
        return Recipe(Shape.FIELD, (work.text(form.name),))
    raise NeedsSpark(f"`{wanted.text}` is not a field, a text or a concat_ws of fields")
