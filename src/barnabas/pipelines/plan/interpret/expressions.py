"""Values of expressions over fields, with SQL's logic of three values.

Types are Python's: int, float, str, bool, Decimal, datetime, list, dict; None is null.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from barnabas.pipelines.plan.formulas import Call, Formula, Literal, Name, formula_of

Value = Any


class NotInterpreted(Exception):
    """The plan has a part that only Spark carries out."""


class Failed(Exception):
    """An expression or a step cannot process a row."""


def evaluated(text: str, fields: Mapping[str, Value]) -> Value:
    """The value of an expression. Raises NotInterpreted, or Failed where Spark's would raise an error."""
    if (name := text.strip().strip("`")) in fields:
        return fields[name]  # it may be a word of SQL, like `at`
    formula = formula_of(text)
    if formula is None:
        raise NotInterpreted(f"the expression {text!r}")
    return _value(formula, fields)


def _value(formula: Formula, fields: Mapping[str, Value]) -> Value:
    if isinstance(formula, Literal):
        return Decimal(str(formula.value)) if formula.decimal else formula.value
    if isinstance(formula, Name):
        if formula.name not in fields:
            raise NotInterpreted(f"the name {formula.name!r}, which is no field")
        return fields[formula.name]
    return _called(formula, fields)


def _called(call: Call, fields: Mapping[str, Value]) -> Value:
    name = call.name
    if name in ("and", "or"):
        return _logic(name, [_value(argument, fields) for argument in call.arguments])
    if name == "if":
        chosen = call.arguments[1] if _value(call.arguments[0], fields) is True else call.arguments[2]
        return _value(chosen, fields)
    if name == "coalesce":
        found = (_value(argument, fields) for argument in call.arguments)
        return next((value for value in found if value is not None), None)
    values = [_value(argument, fields) for argument in call.arguments]
    if name == "is null":
        return values[0] is None
    if name == "in":
        return _logic("or", [_compared(operator.eq, values[0], other) for other in values[1:]])
    if name == "concat_ws":
        parts = [_text(value) for value in values[1:] if value is not None]
        return None if values[0] is None else str(values[0]).join(parts)
    function = FUNCTIONS.get(name)
    if function is None:
        raise NotInterpreted(f"the function {name!r}")
    return None if any(value is None for value in values) else function(*values)


def _logic(name: str, values: list[Value]) -> bool | None:
    deciding = name == "or"
    if any(value is deciding for value in values):
        return deciding
    return None if any(value is None for value in values) else not deciding


def _compared(function: Callable[[Value, Value], Value], one: Value, other: Value) -> Value:
    return None if one is None or other is None else function(one, other)


def _divided(one: Value, other: Value) -> Value:
    if other == 0:
        raise Failed("division by zero")
    if isinstance(one, Decimal) or isinstance(other, Decimal):
        raise NotInterpreted("a division of decimals")
    return one / other


def _rest(one: Value, other: Value) -> Value:
    if other == 0:
        raise Failed("division by zero")
    if isinstance(one, int) and isinstance(other, int):
        return abs(one) % abs(other) * (-1 if one < 0 else 1)
    raise NotInterpreted("a remainder of numbers that are not whole")


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, str, Decimal)):
        return str(value)
    raise NotInterpreted(f"text of {type(value).__name__}")


def _like(value: Value, pattern: Value) -> bool:
    parts = [".*" if c == "%" else "." if c == "_" else re.escape(c) for c in str(pattern)]
    return re.fullmatch("".join(parts), str(value), re.DOTALL) is not None


def _to_int(value: Value) -> int:
    try:
        return int(value)
    except ValueError:
        raise Failed(f"{value!r} is no number") from None


FUNCTIONS: Final[Mapping[str, Callable[..., Value]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "%": _rest,
    "not": operator.not_,
    "like": _like,
    "||": lambda one, other: _text(one) + _text(other),
    "concat": lambda *parts: "".join(_text(part) for part in parts),
    "upper": lambda text: _text(text).upper(),
    "lower": lambda text: _text(text).lower(),
    "trim": lambda text: _text(text).strip(" "),
    "length": lambda text: len(_text(text)),
    "abs": abs,
    "greatest": max,
    "least": min,
    "cast string": _text,
    "cast int": _to_int,
    "cast bigint": _to_int,
    "cast double": float,
    "string": _text,
    "int": _to_int,
    "bigint": _to_int,
    "double": float,
}
"""Functions that are null if one of their arguments is."""
