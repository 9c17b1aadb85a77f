"""Finds the queries that need no Spark expressions for most of their records, and plans what is made of such a record.

These are queries over topics with the steps in `_STEPS`: parsing of JSON objects with declared fields, of CSV and of
access logs, filters, simple expressions, conversions, choosing and renaming fields; and whose outputs are topics with keys,
values, headers and routes of simple expressions. All other queries use Spark's expressions.

The processes that read the topics make the records of the outputs (machine.pyx) and send them through Spark in parcels
(parcels.py), up to a thousand of them in a row; those that write the topics open the parcels. A record about which the
machine is not certain goes through Spark's expressions, in the same query, so that the result is the same to the byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.pipelines.direct.lines import GROUPS
from barnabas.pipelines.direct.machine import Part, Shape
from barnabas.pipelines.direct.operations import Op
from barnabas.pipelines.direct.program import Program, Recipe, RecordRecipe, Step
from barnabas.pipelines.direct.slots import HEADERS, NeedsSpark, Slots, of_types
from barnabas.pipelines.direct.values import SlotType
from barnabas.pipelines.plan.expressions import Expression
from barnabas.pipelines.plan.operators import (
    ChangeText,
    Compute,
    Constant,
    Convert,
    Drop,
    Filter,
    Keep,
    Lower,
    Operator,
    ParseCsv,
    ParseJson,
    ParsePattern,
    ReadTime,
    Rename,
    ShowRecord,
    Trim,
    Unescape,
    Upper,
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
FIELDS_MAX: Final = 256
PARTS: Final = {
    "topic": Part.TOPIC,
    "partition": Part.PARTITION,
    "offset": Part.OFFSET,
    "timestamp": Part.TIMESTAMP,
    "key": Part.KEY,
    "value": Part.VALUE,
}
TEXT_OPS: Final[Mapping[type[Operator], Op]] = {
    Trim: Op.TRIM,
    Upper: Op.UPPER,
    Lower: Op.LOWER,
    Unescape: Op.PLAIN,
}
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def direct_program(spec: PipelineSpec, query: Query) -> Program | None:
    """The program for the records of a query; None if it needs Spark. The session's settings are not checked."""
    try:
        return planned_program(spec, query)
    except NeedsSpark:
        return None


def planned_program(spec: PipelineSpec, query: Query) -> Program:
    """The program for the records of a query. Raises NeedsSpark with the first reason why there is none."""
    if not spec.plan.single:
        raise NeedsSpark("there are several sources or relations")
    settings = [name for name in spec.spark if name.startswith("spark.sql.")]  # for zones, case or errors
    if settings:
        raise NeedsSpark(f"{settings[0]} is set")
    for output in query.outputs:
        _check_output(output)
    if query.only_dead:
        raise NeedsSpark("it sends only dead letters")
    _check_source(spec.source)
    # Outputs that share a query have no steps of their own.
    work = _Fields((*spec.plan[query.relation].operators, *query.output.operators))
    outputs = tuple(_record_recipe(work.slots, output, spec) for output in query.outputs)
    written = [topic for output in query.outputs for topic in output.topics()]
    any_topic = any(output.route is not None and not output.route.topics for output in query.outputs)
    if len(set(written)) < len(written) or (any_topic and len(outputs) > 1):
        raise NeedsSpark("two outputs write to one topic")  # where a record's results are adjacent
    slots = work.slots
    return Program(
        work.reader,
        work.base,
        tuple(map(int, slots.kinds)),
        tuple(slots.constants.items()),
        tuple((slot, int(part)) for part, slot in slots.parts.items()),
        slots.with_headers,
        tuple(slots.steps),
        outputs,
    )


def _check_source(source: Source) -> None:
    if source.kind != "topic":
        raise NeedsSpark(f"the source is of kind {source.kind}, not a topic")
    if source.deletes:
        raise NeedsSpark("records without a value are deletes")
    if source.encoding is not None and source.encoding.lower().replace("-", "") != "utf8":
        raise NeedsSpark(f"the source's encoding is {source.encoding}, not UTF-8")


def _check_output(output: Output) -> None:
    obstacles = {
        "is not a topic": output.target is not None,
        "is an aggregate": output.aggregate is not None,
        "is written with a schema": output.schema is not None or output.key_schema is not None,
        "sets timestamps": output.timestamp is not None,
    }
    for reason, is_so in obstacles.items():
        if is_so:
            raise NeedsSpark(f"output {output.name} {reason}")


class _Fields:
    """Plans the steps. reader: see `Program`."""

    def __init__(self, steps: tuple[Operator, ...]) -> None:
        self.slots = Slots()
        self.reader: dict[str, Any] = {}
        self.base = 0
        for step in steps:
            take = _STEPS.get(type(step))
            if take is None:
                raise NeedsSpark(
                    f"step {step.label} is not one of the steps that are made without Spark's expressions"
                )
            try:
                take(self, step)
            except NeedsSpark as error:
                raise NeedsSpark(f"step {step.label}: {error}") from None
        for name in self.slots.names:
            if not _PLAIN.fullmatch(name):
                raise NeedsSpark(f"field {name!r} has more than letters, digits and underscores in its name")

    def _parse(self, source: str | None, reader: Mapping[str, Any], fields: Mapping[str, SlotType]) -> None:
        if source is not None:
            raise NeedsSpark("it parses a field, not the record's value")
        if self.reader:
            raise NeedsSpark("it is the second that parses the value")
        if len(fields) > FIELDS_MAX:
            raise NeedsSpark(f"it has more than {FIELDS_MAX} fields")
        self.reader = {**reader, "kinds": [int(kind) for kind in fields.values()]}
        self.base = len(self.slots.kinds)
        places = {name: self.slots.new(kind) for name, kind in fields.items()}
        self.slots.steps.append(Step(int(Op.READ), self.base))
        self.slots.names |= places

    def pattern(self, step: ParsePattern) -> None:
        if step.pattern not in COMBINED:
            raise NeedsSpark("its pattern is not combined-log or common-log")
        combined = COMBINED[step.pattern]
        groups = GROUPS if combined else GROUPS[:-2]
        self._parse(step.source, {"lines": combined}, dict.fromkeys(groups, SlotType.TEXT))

    def json(self, step: ParseJson) -> None:
        kinds = of_types(step.fields, step.prefix)
        self._parse(step.source, {"objects": list(step.fields)}, kinds)

    def csv(self, step: ParseCsv) -> None:
        signs = [step.separator, step.quote, step.escape]
        if any(len(sign) != 1 or not 0x20 <= ord(sign) < 0x7F for sign in signs if sign != "\t"):
            raise NeedsSpark("separator, quote and escape are not one ASCII character each")
        if len(set(signs[:2])) < 2 or step.escape != step.quote:
            raise NeedsSpark("an escape is not a second quote")
        self._parse(step.source, {"separated": [*signs, step.empty_is_null]}, of_types(step.fields))

    def convert(self, step: Convert) -> None:
        slots = self.slots
        olds = {name: slots.place(name) for name in step.types}
        slots.names |= {name: slots.converted(olds[name], kind) for name, kind in step.types.items()}

    def time(self, step: ReadTime) -> None:
        old = self.slots.place(step.field)
        if self.slots.kinds[old] != SlotType.TEXT:
            raise NeedsSpark(f"{step.field} is not text")
        if step.formats[:1] not in ((), (LAYOUT,)) or (not step.formats and step.zone is not None):
            raise NeedsSpark(f"it has another format than ISO 8601 and {LAYOUT}")
        op = Op.LINE_TIME if step.formats else Op.TEXT_TO_TIME
        self.slots.names[step.to] = self.slots.step(op, SlotType.TIME, old)

    def text(self, step: ChangeText) -> None:
        slots = self.slots
        olds = {name: slots.text(slots.place(name)) for name in step.names}
        op = TEXT_OPS[type(step)]
        slots.names |= {name: slots.step(op, SlotType.TEXT, olds[name]) for name in step.names}

    def compute(self, step: Compute) -> None:
        for name, wanted in step.fields.items():
            self.slots.names[name] = self.slots.result(wanted)

    def constant(self, step: Constant) -> None:
        for name, value in step.fields.items():
            kind = SlotType.TEXT
            if isinstance(value, bool):
                kind = SlotType.BOOLEAN
            elif isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
                kind = SlotType.INT if -(1 << 31) <= value < 1 << 31 else SlotType.LONG
            elif not isinstance(value, str):
                raise NeedsSpark(f"{name} is neither text nor a whole number nor true or false")
            self.slots.names[name] = self.slots.constant(value, kind)

    def record(self, step: ShowRecord) -> None:
        for name, part in step.fields.items():
            if part == "headers":
                self.slots.with_headers = True
                # Headers that are not text fail here even if nobody asks for them.
                self.slots.step(Op.HEADER, SlotType.TEXT, self.slots.constant("", SlotType.TEXT))
                self.slots.names[name] = HEADERS
            elif part in PARTS:
                self.slots.names[name] = self.slots.part(PARTS[part])
            else:
                raise NeedsSpark(f"{name} is the time at which the record is processed")

    def filter(self, step: Filter) -> None:
        self.slots.steps.append(Step(int(Op.FILTER), 0, (self.slots.condition(step.wanted),)))

    def drop(self, step: Drop) -> None:
        for name in step.names:
            if name not in self.slots.names:
                raise NeedsSpark(f"{name!r} is not a field of the record")
            del self.slots.names[name]

    def keep(self, step: Keep) -> None:
        if missing := [name for name in step.names if name not in self.slots.names]:
            raise NeedsSpark(f"{missing[0]!r} is not a field of the record")
        self._rename([(name, self.slots.names[name]) for name in step.names])

    def rename(self, step: Rename) -> None:
        new = step.names
        if missing := [name for name in new if name not in self.slots.names]:
            raise NeedsSpark(f"{missing[0]!r} is not a field of the record")
        self._rename([(new.get(name, name), place) for name, place in self.slots.names.items()])

    def _rename(self, names: Sequence[tuple[str, int]]) -> None:
        self.slots.names = dict(names)
        if len(self.slots.names) < len(names):
            raise NeedsSpark("two fields have one name")


_STEPS: Final[Mapping[type[Operator], Callable[[_Fields, Any], None]]] = {
    ParsePattern: _Fields.pattern,
    ParseJson: _Fields.json,
    ParseCsv: _Fields.csv,
    Convert: _Fields.convert,
    ReadTime: _Fields.time,
    Trim: _Fields.text,
    Upper: _Fields.text,
    Lower: _Fields.text,
    Unescape: _Fields.text,
    Compute: _Fields.compute,
    Constant: _Fields.constant,
    ShowRecord: _Fields.record,
    Filter: _Fields.filter,
    Drop: _Fields.drop,
    Keep: _Fields.keep,
    Rename: _Fields.rename,
}
"""The steps that are planned here."""


def _record_recipe(slots: Slots, output: Output, spec: PipelineSpec) -> RecordRecipe:
    def own(wanted: Expression) -> Recipe:
        return Recipe(Shape.FIELD, (slots.text(slots.result(wanted)),))

    try:
        value = own(output.value) if output.value is not None else _object(slots) if slots.names else None
        return RecordRecipe(
            output.name,
            output.topic if output.route is None else _topic(slots, output, spec),
            None if output.key is None else own(output.key),
            value,
            tuple((name, own(wanted)) for name, wanted in output.headers.items()) or None,
        )
    except NeedsSpark as error:
        raise NeedsSpark(f"output {output.name}: {error}") from None


def _object(slots: Slots) -> Recipe:
    """The recipe of a JSON object of all fields."""
    places = [slots.place(name) for name in slots.names]
    before = [f'{"," if number else "{"}"{name}":' for number, name in enumerate(slots.names)]
    return Recipe(Shape.OBJECT, tuple(places), (*before, "}"))


def _topic(slots: Slots, output: Output, spec: PipelineSpec) -> Recipe:
    """The recipe of the topic that an output's route chooses."""
    assert output.route is not None
    by = slots.text(slots.result(output.route.by))
    otherwise = slots.constant(output.topic, SlotType.TEXT)
    refused = []
    if output.route.topics:
        pairs = [slots.constant(text, SlotType.TEXT) for pair in output.route.topics.items() for text in pair]
        # An unknown value is looked up as if it were empty.
        unknown = slots.constant("", SlotType.TEXT)
        chosen = slots.step(Op.COALESCE, SlotType.TEXT, by, unknown)
        chosen = slots.step(Op.LOOKUP, SlotType.TEXT, chosen, otherwise, *pairs)
    else:
        if any(source.pattern is not None for source in spec.sources):
            raise NeedsSpark("it may write to a topic that the pipeline reads")
        chosen = slots.step(Op.COALESCE, SlotType.TEXT, by, otherwise)
        topics = [topic for source in spec.sources for topic in source.topics]
        refused = [slots.constant(topic, SlotType.TEXT) for topic in topics]
    slots.steps.append(Step(int(Op.REFUSE), chosen, (chosen, *refused)))
    return Recipe(Shape.FIELD, (chosen,))
