"""Makes functions of expressions: from the fields of a row to a value, with SQL's logic of three values."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from sqlglot import exp

from barnabas.pipelines.plan.interpret.spark.collections import WITH_BODIES
from barnabas.pipelines.plan.interpret.spark.functions import FUNCTIONS, WITH_NULLS
from barnabas.pipelines.plan.interpret.spark.read import tree_of
from barnabas.pipelines.plan.interpret.spark.values import (
    EXACT,
    Failed,
    Misfit,
    NotInterpreted,
    Value,
    as_text,
    converter,
)

Fields = Mapping[str, Value]
Computed = Callable[[Fields], Value]


@lru_cache(maxsize=8192)
def computed(text: str) -> Computed:
    """The function that an expression is. Raises NotInterpreted."""
    return function_of(tree_of(text))


def function_of(node: exp.Expr) -> Computed:
    """The function that a tree is. Raises NotInterpreted."""
    for kind, make in MAKERS.items():
        if isinstance(node, kind):
            return make(node)
    raise NotInterpreted(f"the expression {node.sql()!r}")


# --- names and literals -------------------------------------------------------------------------------


def _column(node: exp.Column) -> Computed:
    parts = [part.name for part in node.parts]
    name = parts[0]

    def get(fields: Fields) -> Value:
        if name not in fields:
            raise NotInterpreted(f"the name {name!r}, which is no field")
        value = fields[name]
        for part in parts[1:]:
            value = _entry(value, part)
        return value

    return get


def _entry(value: Value, name: str) -> Value:
    """A field of a struct; of an array of structs, that of each."""
    if value is None:
        return None
    if isinstance(value, list):
        return [_entry(one, name) for one in value]
    if not isinstance(value, dict):
        raise NotInterpreted(f"the field {name!r} of {type(value).__name__}")
    return value.get(name)


def _identifier(node: exp.Identifier) -> Computed:
    return _column(exp.Column(this=node))


def _dot(node: exp.Dot) -> Computed:
    of, field = function_of(node.this), node.expression
    name = field.name
    return lambda fields: _entry(of(fields), name)


def _literal(node: exp.Literal) -> Computed:
    text = str(node.this)
    if node.is_string:
        return lambda _: text
    if text.isdecimal():
        whole = int(text)
        return lambda _: whole
    number: Value = float(text) if "e" in text.lower() else Decimal(text)
    return lambda _: number


def _constant(value: Value) -> Callable[[exp.Expr], Computed]:
    return lambda node: lambda fields: value


def _boolean(node: exp.Boolean) -> Computed:
    value = bool(node.this)
    return lambda _: value


# --- operators ----------------------------------------------------------------------------------------


def _binary(function: Callable[[Value, Value], Value]) -> Callable[[exp.Binary], Computed]:
    def make(node: exp.Binary) -> Computed:
        left, right = function_of(node.left), function_of(node.right)

        def work(fields: Fields) -> Value:
            one, other = left(fields), right(fields)
            return None if one is None or other is None else function(one, other)

        return work

    return make


def _alike(one: Value, other: Value) -> tuple[Value, Value]:
    """Two numbers as the wider of their types; text beside a number becomes one."""
    if isinstance(one, Decimal) and isinstance(other, float):
        return float(one), other
    if isinstance(one, float) and isinstance(other, Decimal):
        return one, float(other)
    if isinstance(one, str) != isinstance(other, str):
        return _of_text(one, other)
    return one, other


def _of_text(one: Value, other: Value) -> tuple[Value, Value]:
    """A text beside a value of another type, as that type."""
    text, kind = (one, other) if isinstance(one, str) else (other, one)
    names = {bool: "boolean", int: "bigint", float: "double"}
    name = names.get(type(kind)) or (
        "timestamp" if hasattr(kind, "hour") else "date" if hasattr(kind, "year") else ""
    )
    try:
        made_of = converter(name)(text) if name else text
    except Misfit:
        raise Failed(f"{text!r} is no {name}") from None
    return (made_of, other) if isinstance(one, str) else (one, made_of)


def _compared(function: Callable[[Value, Value], bool]) -> Callable[[Value, Value], Value]:
    return lambda one, other: function(*_alike(one, other))


def _calculated(function: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    def work(one: Value, other: Value) -> Value:
        one, other = _alike(one, other)
        if isinstance(one, Decimal) or isinstance(other, Decimal):
            return function(Decimal(one), Decimal(other))
        return function(one, other)

    return work


def _divided(one: Value, other: Value) -> Value:
    one, other = _alike(one, other)
    if other == 0:
        raise Failed("division by zero")
    if isinstance(one, Decimal) or isinstance(other, Decimal):
        one, other = Decimal(one), Decimal(other)
        scale = max(6, -int(one.as_tuple().exponent) + len(other.as_tuple().digits) + 1)
        return EXACT.divide(one, other).quantize(Decimal(1).scaleb(-scale), context=EXACT)
    return one / other


def _whole_division(one: Value, other: Value) -> Value:
    if other == 0:
        raise Failed("division by zero")
    quotient = abs(one) // abs(other)
    return int(quotient if (one < 0) == (other < 0) else -quotient)


def _rest(one: Value, other: Value) -> Value:
    one, other = _alike(one, other)
    if other == 0:
        raise Failed("division by zero")
    if isinstance(one, float) or isinstance(other, float):
        import math

        return math.fmod(one, other)
    if isinstance(one, Decimal) or isinstance(other, Decimal):
        return Decimal(one) % Decimal(other)
    return abs(one) % abs(other) * (-1 if one < 0 else 1)


def _connected(node: exp.Connector) -> Computed:
    left, right, deciding = function_of(node.left), function_of(node.right), isinstance(node, exp.Or)

    def work(fields: Fields) -> Value:
        one = left(fields)
        if one is deciding:
            return deciding
        other = right(fields)
        if other is deciding:
            return deciding
        return None if one is None or other is None else not deciding

    return work


def _unary(function: Callable[[Value], Value]) -> Callable[[exp.Unary], Computed]:
    def make(node: exp.Unary) -> Computed:
        of = function_of(node.this)

        def work(fields: Fields) -> Value:
            value = of(fields)
            return None if value is None else function(value)

        return work

    return make


def _is(node: exp.Is) -> Computed:
    of = function_of(node.this)
    negated = isinstance(node.expression, exp.Not)
    inner = node.expression.this if negated else node.expression
    if isinstance(inner, exp.Null):
        return lambda fields: (of(fields) is None) is not negated
    wanted = bool(inner.this)
    return lambda fields: (of(fields) is wanted) is not negated


def _same(node: exp.Binary) -> Computed:
    left, right, negated = function_of(node.left), function_of(node.right), isinstance(node, exp.NullSafeNEQ)

    def work(fields: Fields) -> Value:
        one, other = left(fields), right(fields)
        is_same = one is other if one is None or other is None else operator.eq(*_alike(one, other))
        return is_same is not negated

    return work


def _in(node: exp.In) -> Computed:
    of, others = function_of(node.this), [function_of(one) for one in node.expressions]

    def work(fields: Fields) -> Value:
        value, unknown = of(fields), False
        if value is None:
            return None
        for other in others:
            member = other(fields)
            unknown |= member is None
            if member is not None and operator.eq(*_alike(value, member)):
                return True
        return None if unknown else False

    return work


def _between(node: exp.Between) -> Computed:
    low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
    high = exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
    return _connected(exp.And(this=low, expression=high))


def like_pattern(text: str, escape: str = "\\") -> re.Pattern[str]:
    """A pattern of LIKE as a regular expression."""
    parts, escaped = [], False
    for char in text:
        if escaped or char not in (escape, "%", "_"):
            parts.append(re.escape(char))
            escaped = False
        elif char == escape:
            escaped = True
        else:
            parts.append(".*" if char == "%" else ".")
    return re.compile("".join(parts), re.DOTALL)


def _like(node: exp.Expr) -> Computed:
    escape, negated = "\\", False
    if isinstance(node, exp.Escape):
        escape, node = str(node.expression.this), node.this
    if isinstance(node, exp.Not):
        node, negated = node.this, True
    negated = negated or bool(node.args.get("negate"))
    of, pattern = function_of(node.this), function_of(node.args["expression"])

    def work(fields: Fields) -> Value:
        value, wanted = of(fields), pattern(fields)
        if value is None or wanted is None:
            return None
        return (like_pattern(wanted, escape).fullmatch(as_text(value)) is not None) is not negated

    return work


def _case(node: exp.Case) -> Computed:
    of = None if node.this is None else node.this
    branches = []
    for branch in node.args["ifs"]:
        wanted = branch.this if of is None else exp.EQ(this=of.copy(), expression=branch.this.copy())
        branches.append((function_of(wanted), function_of(branch.args["true"])))
    default = (
        function_of(node.args["default"]) if node.args.get("default") is not None else _constant(None)(node)
    )

    def work(fields: Fields) -> Value:
        for condition, value in branches:
            if condition(fields) is True:
                return value(fields)
        return default(fields)

    return work


def _cast(node: exp.Cast) -> Computed:
    of, tries = function_of(node.this), isinstance(node, exp.TryCast)
    kind = TYPE_NAMES.get(node.args["to"].this.name, "") or node.args["to"].sql().lower()
    if node.args["to"].expressions:
        kind = node.args["to"].sql(dialect="spark").lower()
    convert = converter(kind)

    def work(fields: Fields) -> Value:
        try:
            value = of(fields)
            return None if value is None else convert(value)
        except Misfit as error:
            if tries:
                return None
            raise Failed(f"{error} is no {kind}") from None

    return work


TYPE_NAMES: Final = {
    "TEXT": "string", "VARCHAR": "string", "STRING": "string", "INT": "int", "BIGINT": "bigint", "DOUBLE": "double",
    "BOOLEAN": "boolean", "DATE": "date", "TIMESTAMP": "timestamp", "TIMESTAMPTZ": "timestamp", "DATETIME": "timestamp",
    "BINARY": "binary", "VARBINARY": "binary", "SMALLINT": "smallint", "TINYINT": "tinyint", "FLOAT": "float",
}  # fmt: skip


def _element(node: exp.Bracket) -> Computed:
    of, place = function_of(node.this), function_of(node.expressions[0])

    def work(fields: Fields) -> Value:
        value, at = of(fields), place(fields)
        if value is None or at is None:
            return None
        if isinstance(value, dict):
            return value.get(at)
        if not 0 <= at < len(value):
            raise Failed(f"the array has no element {at}")
        return value[at]

    return work


# --- functions ----------------------------------------------------------------------------------------


def _call(node: exp.Expr) -> Computed:
    name = str(node.this).lower() if isinstance(node, exp.Anonymous) else ""
    arguments = node.expressions
    if name in WITH_BODIES:
        return _with_bodies(name, arguments)
    if name in ("timestampadd", "dateadd"):
        unit = arguments[0].name.lower()
        arguments = [exp.Literal.string(unit), *arguments[1:]]
        name = "timestampadd"
    inner = [function_of(one) for one in arguments]
    if (whole := WITH_NULLS.get(name)) is not None:
        return lambda fields: whole([one(fields) for one in inner])
    function = FUNCTIONS.get(name)
    if function is None:
        raise NotInterpreted(f"the function {name!r}")

    def work(fields: Fields) -> Value:
        values = [one(fields) for one in inner]
        if any(value is None for value in values):
            return None
        try:
            return function(*values)
        except Misfit as error:
            raise Failed(f"{name}: {error}") from None

    return work


def _with_bodies(name: str, arguments: list[exp.Expr]) -> Computed:
    """A call with functions like x -> x + 1 among its arguments."""
    plain = [function_of(one) for one in arguments if not isinstance(one, exp.Lambda)]
    bodies = [
        ([parameter.name for parameter in one.expressions], function_of(one.this))
        for one in arguments
        if isinstance(one, exp.Lambda)
    ]
    function = WITH_BODIES[name]

    def work(fields: Fields) -> Value:
        def bound(names: list[str], body: Computed) -> Callable[..., Value]:
            return lambda *values: body({**fields, **dict(zip(names, values, strict=False))})

        values = [one(fields) for one in plain]
        if values[0] is None:
            return None
        counted = [(len(names), bound(names, body)) for names, body in bodies]
        return function(values, counted)

    return work


def _array(node: exp.Expr) -> Computed:
    items = [function_of(one) for one in node.expressions]
    return lambda fields: [one(fields) for one in items]


MAKERS: Final[Mapping[type[exp.Expr], Callable[[Any], Computed]]] = {
    exp.Column: _column,
    exp.Identifier: _identifier,
    exp.Literal: _literal,
    exp.Boolean: _boolean,
    exp.Null: _constant(None),
    exp.Paren: lambda node: function_of(node.this),
    exp.Neg: _unary(operator.neg),
    exp.Add: _binary(_calculated(operator.add)),
    exp.Sub: _binary(_calculated(operator.sub)),
    exp.Mul: _binary(_calculated(operator.mul)),
    exp.IntDiv: _binary(_whole_division),
    exp.Div: _binary(_divided),
    exp.Mod: _binary(_rest),
    exp.BitwiseXor: _binary(operator.xor),
    exp.DPipe: _binary(lambda one, other: as_text(one) + as_text(other)),
    exp.EQ: _binary(_compared(operator.eq)),
    exp.NEQ: _binary(_compared(operator.ne)),
    exp.LT: _binary(_compared(operator.lt)),
    exp.LTE: _binary(_compared(operator.le)),
    exp.GT: _binary(_compared(operator.gt)),
    exp.GTE: _binary(_compared(operator.ge)),
    exp.And: _connected,
    exp.Or: _connected,
    exp.Not: _unary(operator.not_),
    exp.Is: _is,
    exp.NullSafeEQ: _same,
    exp.NullSafeNEQ: _same,
    exp.In: _in,
    exp.Between: _between,
    exp.RegexpLike: _binary(lambda text, pattern: re.search(pattern, text) is not None),
    exp.Like: _like,
    exp.Escape: _like,
    exp.Case: _case,
    exp.TryCast: _cast,
    exp.Cast: _cast,
    exp.Dot: _dot,
    exp.Bracket: _element,
    exp.Array: _array,
    exp.Anonymous: _call,
}
