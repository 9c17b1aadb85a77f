"""Expressions of data contracts: CEL with the functions of Confluent's serializers. Pure, but for the CEL variable `now`.

Needs the extra `rules`: cel-python, and confluent-kafka's own functions and conversions, so that a rule means the same here
and there.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any, Final

from barnabas.registry.errors import InvalidSchema

INSTALL: Final = "pip install 'barnabas[rules]'"
DEPTH_MAX: Final = 200
KEPT_MAX: Final = 2_000
TEXT_MAX: Final = 4_000
COMPREHENSIONS_MAX: Final = 3
"""How many may stand in one another: the time that they take grows with the power of it."""
COMPREHENSIONS: Final = frozenset({"all", "exists", "exists_one", "map", "filter", "min"})

Expression = Callable[[Mapping[str, Any]], Any]


class BadExpression(ValueError):
    """An expression that cannot be read, or has no value for these arguments."""


class RulesMissing(InvalidSchema):
    """The packages that execute rules are not installed."""

    def __init__(self, error: ImportError) -> None:
        super().__init__(f"its rules need the package {error.name}: {INSTALL}")


class _Cel:
    """What there is of the packages."""

    def __init__(self) -> None:
        try:
            import celpy
            from confluent_kafka.schema_registry.rules.cel.cel_executor import (
                field_value_to_cel,
                msg_to_cel,
            )
            from confluent_kafka.schema_registry.rules.cel.cel_field_presence import InterpretedRunner
            from confluent_kafka.schema_registry.rules.cel.extra_func import EXTRA_FUNCS
            from confluent_kafka.schema_registry.rules.cel.protobuf_result_writer import convert
        except ImportError as error:
            raise RulesMissing(error) from error
        self.to_message = convert
        self.to_cel, self.field_to_cel = msg_to_cel, field_value_to_cel
        self.environment = celpy.Environment(runner_class=InterpretedRunner)
        self.functions = EXTRA_FUNCS
        self.types = celpy.celtypes
        self.failures = (celpy.CELEvalError, celpy.CELParseError)


@cache
def cel() -> _Cel:
    """Raises RulesMissing."""
    return _Cel()


@lru_cache(KEPT_MAX)
def compiled(text: str) -> Expression:
    """Raises BadExpression for what is no CEL, RulesMissing."""
    found = cel()
    _require_short(text)
    try:
        tree = found.environment.compile(text)
        _require_bounded(tree, text)
        program = found.environment.program(tree, functions=found.functions)
    except BadExpression:
        raise
    except Exception as error:  # the parser raises more than its own errors
        raise BadExpression(f"{text.strip()!r} is not CEL: {_first_line(error)}") from error

    def evaluate(arguments: Mapping[str, Any]) -> Any:
        given = dict(arguments)
        if "now" in text:
            given["now"] = found.types.TimestampType(datetime.datetime.now(datetime.UTC))
        try:
            made = program.evaluate(given)
        except Exception as error:  # functions raise whatever their arguments lead to
            raise BadExpression(f"{text.strip()!r} has no value: {_first_line(error)}") from error
        return plain(made)

    return evaluate


def check(kind: str, text: str) -> None:
    """Whether a rule's expression can be read. kind: the rule's type; others than CEL and JSONata pass.

    Raises BadExpression, RulesMissing."""
    if kind in ("CEL", "CEL_FIELD"):
        guard, semicolon, rest = text.partition(";")
        for part in (guard, rest) if semicolon else (text,):
            if part.strip() or part is not guard or not semicolon:
                compiled(part)
    elif kind == "JSONATA":
        try:
            import jsonata
        except ImportError as error:
            raise RulesMissing(error) from error
        _require_short(text)
        try:
            jsonata.Jsonata(text)
        except Exception as error:  # it raises whatever the text leads to
            raise BadExpression(f"{text.strip()!r} is not JSONata: {_first_line(error)}") from error


def _require_short(text: str) -> None:
    if len(text) > TEXT_MAX:
        raise BadExpression(
            f"an expression has up to {TEXT_MAX} characters, {text[:60]!r}... has {len(text)}"
        )


def _require_bounded(tree: Any, text: str) -> None:
    """Raises BadExpression for comprehensions in one another, by which a short text may take for ever."""
    waiting = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if node.data == "member_dot_arg":
            name = str(node.children[1])
            if name == "reduce":
                raise BadExpression(f"{text.strip()[:200]!r}: `reduce` is not part of CEL")
            depth += name in COMPREHENSIONS
            if depth > COMPREHENSIONS_MAX:
                raise BadExpression(
                    f"{text.strip()[:200]!r} has more than {COMPREHENSIONS_MAX} of {', '.join(sorted(COMPREHENSIONS))} "
                    "in one another"
                )
        waiting.extend((child, depth) for child in node.children if hasattr(child, "children"))


def argument(value: Any) -> Any:
    """A value of JSON, Avro or Protobuf as an argument. Raises BadExpression, RulesMissing."""
    convert = cel().to_cel
    try:
        return convert(value)
    except (
        Exception
    ) as error:  # a number beyond 64 bits, a time beyond the year 9999, a value nested too deeply
        raise BadExpression(f"the value is nothing to CEL: {_first_line(error)}") from error


def field_argument(value: Any, native: Any) -> Any:
    """native: the Protobuf field that the value is of. Raises BadExpression, RulesMissing."""
    convert = cel().field_to_cel
    try:
        return convert(_Native(native), value)
    except Exception as error:  # as in `argument`
        raise BadExpression(f"the value is nothing to CEL: {_first_line(error)}") from error


def protobuf_result(value: Any, message: Any) -> Any:
    """A message of the kind of `message` from the map that an expression gave. Raises BadExpression."""
    try:
        return cel().to_message(value, message)
    except Exception as error:  # it raises whatever the map leads to
        raise BadExpression(f"its result is no {message.DESCRIPTOR.name}: {_first_line(error)}") from error


class _Native:
    """The one thing that the conversion asks of its context."""

    def __init__(self, field_descriptor: Any) -> None:
        self.field_descriptor = field_descriptor


def plain(value: Any, depth: int = 0) -> Any:
    """What an expression gave, without CEL's own types. Raises BadExpression."""
    types = cel().types
    if depth > DEPTH_MAX:
        raise BadExpression(f"the value is nested more than {DEPTH_MAX} levels deep")
    if isinstance(value, types.BoolType):
        return bool(value)
    if isinstance(value, dict):
        return {plain(key, depth): plain(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner, depth + 1) for inner in value]
    if isinstance(value, (types.IntType, types.UintType)):
        return int(value)
    for kind, make in ((types.StringType, str), (types.DoubleType, float), (types.BytesType, bytes)):
        if isinstance(value, kind):
            return make(value)
    return value


def _first_line(error: Exception) -> str:
    told = " ".join(str(part) for part in error.args) or type(error).__name__
    return next((line.strip() for line in told.splitlines() if line.strip()), type(error).__name__)[:200]
