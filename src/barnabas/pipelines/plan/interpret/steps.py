"""What steps make of the fields of one row."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal, InvalidOperation
from functools import singledispatch
from typing import Any, Final

from barnabas.pipelines.plan import operators
from barnabas.pipelines.plan.interpret.expressions import Failed, NotInterpreted, evaluated
from barnabas.pipelines.plan.schema import spark_name

Fields = dict[str, Any]
VALUE: Final = ""
"""The name under which the record's value is kept beside the fields, as bytes."""


def worked(steps: Iterable[operators.Operator], fields: Fields) -> Fields | None:
    """The fields after these steps; None if one has filtered the row out. Raises Failed and NotInterpreted."""
    for step in steps:
        found: Fields | None = one_step(step, fields)
        if found is None:
            return None
        fields = found
    return fields


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
    made = {step.prefix + name: _typed(value.get(name), kind) for name, kind in step.fields.items()}
    return {**fields, **made}


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
    return {name: value for name, value in fields.items() if name in step.names or name == VALUE}


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
    make = _TYPES.get(str(spark_name(kind)))
    if make is None:
        raise NotInterpreted(f"the type {kind}")
    try:
        return make(value)
    except (ValueError, TypeError, InvalidOperation):
        raise Failed(f"{value!r} is no {kind}") from None


def _whole(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, Decimal) and value != int(value)):
        raise ValueError(value)
    return int(value)


def _truth(value: Any) -> bool:
    found = {"true": True, "false": False}.get(str(value).lower())
    if found is None:
        raise ValueError(value)
    return found


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
