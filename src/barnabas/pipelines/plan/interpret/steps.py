"""What steps make of the fields of one row."""

from __future__ import annotations

import csv
import datetime
import json
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal, InvalidOperation
from functools import singledispatch
from typing import Any, Final

from barnabas.pipelines.plan import operators
from barnabas.pipelines.plan.interpret.expressions import Failed, NotInterpreted, evaluated
from barnabas.pipelines.plan.interpret.processes import Record
from barnabas.pipelines.plan.interpret.spark.values import from_json
from barnabas.pipelines.plan.schema import spark_name

Fields = dict[str, Any]
VALUE: Final = ""
"""The name under which the record's value is kept beside the fields, as bytes."""
HIDDEN: Final = frozenset(
    {VALUE, "_key", "_value", "_headers", "_topic", "_partition", "_offset", "_timestamp"}
)
"""The parts of the record, which expressions can name beside the fields."""
EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def parts_of(record: Record) -> Fields:
    """The parts of a record under the names that expressions know them by."""
    return {
        VALUE: record.value,
        "_value": record.value,
        "_key": record.key,
        "_topic": record.topic,
        "_partition": record.partition,
        "_offset": record.offset,
        "_timestamp": EPOCH + datetime.timedelta(microseconds=record.at_us),
        "_headers": [{"key": name, "value": value} for name, value in record.headers],
    }


def plain(fields: Mapping[str, Any]) -> Fields:
    """The fields without the parts of the record."""
    return {name: value for name, value in fields.items() if name not in HIDDEN}


def worked(steps: Iterable[operators.Operator], fields: Fields) -> Fields | None:
    """The fields after these steps; None if one has filtered the row out. Raises Failed and NotInterpreted."""
    for step in steps:
        row: Fields | None = one_step(step, fields)
        if row is None:
            return None
        fields = row
    return fields


def several(steps: Iterable[operators.Operator], fields: Fields) -> list[Fields]:
    """All rows that steps make of one. Raises Failed and NotInterpreted."""
    rows = [fields]
    for step in steps:
        if isinstance(step, operators.Explode):
            rows = [exploded for row in rows for exploded in _exploded(step, row)]
        else:
            rows = [worked_row for row in rows if (worked_row := one_step(step, row)) is not None]
    return rows


def _exploded(step: operators.Explode, fields: Fields) -> list[Fields]:
    """A row for each element of an array; one with null for an array without elements, or null."""
    elements = fields[step.field]
    if elements is not None and not isinstance(elements, list):
        raise NotInterpreted(f"the elements of {type(elements).__name__}")
    rest = {name: value for name, value in fields.items() if name != step.field}
    rows = []
    for at, value in enumerate(elements) if elements else [(None, None)]:
        rows.append({**rest, step.to: value, **({} if step.index is None else {step.index: at})})
    return rows


@singledispatch
def one_step(step: operators.Operator, fields: Fields) -> Fields | None:
    """The fields after a step; None if it filters the row out."""
    raise NotInterpreted(f"the step {step.kind}")


@one_step.register
def _(step: operators.ParseJson, fields: Fields) -> Fields | None:
    source = fields.get(step.source or VALUE)
    if source is None:
        raise Failed(f"{step.source or 'the value'} is null")
    try:
        value = json.loads(source, parse_float=Decimal)
    except ValueError as error:
        raise Failed("no JSON") from error
    if not isinstance(value, dict):
        raise Failed("no JSON object")
    shown = {step.prefix + name: _typed(value.get(name), kind) for name, kind in step.fields.items()}
    return {**fields, **shown}


@one_step.register
def _(step: operators.ParseCsv, fields: Fields) -> Fields | None:
    source = fields.get(step.source or VALUE)
    if source is None:
        raise Failed(f"{step.source or 'the value'} is null")
    text = source.decode() if isinstance(source, bytes) else source
    try:
        cells = next(csv.reader([text], delimiter=step.separator, quotechar=step.quote), [])
    except csv.Error as error:
        raise Failed(f"no line of values: {error}") from error
    if len(cells) != len(step.fields):
        raise Failed(f"{len(cells)} values, but {len(step.fields)} fields")
    values = [None if cell == "" and step.empty_is_null else cell for cell in cells]
    kinds = step.fields.items()
    return {**fields, **{name: _typed(cell, kind) for (name, kind), cell in zip(kinds, values, strict=True)}}


@one_step.register
def _(step: operators.ShowRecord, fields: Fields) -> Fields | None:
    shown = {}
    for name, part in step.fields.items():
        value = fields[f"_{part}"]
        shown[name] = value.decode() if isinstance(value, bytes) else value
    return {**fields, **shown}


@one_step.register
def _(step: operators.Filter, fields: Fields) -> Fields | None:
    return fields if evaluated(step.wanted.text, fields) is True else None


@one_step.register
def _(step: operators.Compute, fields: Fields) -> Fields | None:
    for name, expression in step.fields.items():
        fields = {**fields, name: evaluated(expression.text, fields)}
    return fields


@one_step.register
def _(step: operators.Constant, fields: Fields) -> Fields | None:
    return {**fields, **step.fields}


@one_step.register
def _(step: operators.Drop, fields: Fields) -> Fields | None:
    return {name: value for name, value in fields.items() if name not in step.names}


@one_step.register
def _(step: operators.Keep, fields: Fields) -> Fields | None:
    return {name: value for name, value in fields.items() if name in step.names or name in HIDDEN}


@one_step.register
def _(step: operators.Rename, fields: Fields) -> Fields | None:
    return {step.names.get(name, name): value for name, value in fields.items()}


@one_step.register
def _(step: operators.Convert, fields: Fields) -> Fields | None:
    return {**fields, **{name: _typed(fields[name], kind) for name, kind in step.types.items()}}


def _typed(value: Any, kind: str) -> Any:
    """A value of JSON, or text, as this type."""
    if value is None:
        return None
    name = str(spark_name(kind))
    make = _TYPES.get(name)
    if make is None:
        return from_json(value, kind) if "<" in kind else _converted(value, name)
    try:
        return make(value)
    except (ValueError, TypeError, InvalidOperation):
        raise Failed(f"{value!r} is no {kind}") from None


def _converted(value: Any, kind: str) -> Any:
    """A value of a type that has no rules of its own. Raises Failed."""
    value_of_kind = from_json(value, kind)
    if value_of_kind is None:
        raise Failed(f"{value!r} is no {kind}")
    return value_of_kind


def _whole(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, Decimal) and value != int(value)):
        raise ValueError(value)
    return int(value)


def _truth(value: Any) -> bool:
    truth = {"true": True, "false": False}.get(str(value).lower())
    if truth is None:
        raise ValueError(value)
    return truth


def _time(value: Any) -> datetime.datetime:
    time = datetime.datetime.fromisoformat(str(value))
    return time if time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, separators=(",", ":"))


_TYPES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "string": _written,
    "int": _whole,
    "bigint": _whole,
    "double": float,
    "boolean": _truth,
    "timestamp": _time,
}
