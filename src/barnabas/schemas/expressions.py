"""Expressions in data contracts: CEL with the functions of Confluent's serializers. Pure except for the variable `now`.

Needs the extra `rules`: cel-python, and confluent-kafka for its functions and conversions, so that rules have the same
results as in Confluent's clients.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache, wraps
from typing import Any, Final

from barnabas.schemas.errors import InvalidSchema

INSTALL: Final = "pip install 'barnabas[rules]'"
DEPTH_MAX: Final = 200
KEPT_MAX: Final = 2_000
TEXT_MAX: Final = 4_000
COMPREHENSIONS_MAX: Final = 3
"""How deeply comprehensions may be nested: the run time grows exponentially with the depth."""
COMPREHENSIONS: Final = frozenset({"all", "exists", "exists_one", "map", "filter", "min"})

STEPS_MAX: Final = 20_000
"""How many expressions and list elements one rule may evaluate for one record, which takes one to three seconds."""
LONG: Final = ("_in_", "_==_", "_!=_", "_+_", "contains", "startsWith", "endsWith", "matches")
"""CEL's own functions whose run time grows with the length of their arguments."""
PIECE: Final = re.compile(
    r"""(?<!\w)(?:[rR][bB]?|[bB][rR])(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')
    |\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'
    |//[^\n]*
    |(?P<end>;)
    |.""",
    re.X | re.S,
)
"""A string literal or a comment of CEL, which may contain semicolons, or one other character."""

Expression = Callable[[Mapping[str, Any]], Any]


class BadExpression(ValueError):
    """An expression is invalid, or cannot be evaluated for these arguments."""


class _Spent(Exception):
    """A rule has evaluated as much as it may for one record."""


_steps: ContextVar[list[int] | None] = ContextVar("steps", default=None)


@contextmanager
def bounded() -> Iterator[None]:
    """Limit all evaluations inside to STEPS_MAX steps together; beyond, they raise BadExpression."""
    token = _steps.set([STEPS_MAX])
    try:
        yield
    finally:
        _steps.reset(token)


def _step(count: int = 1) -> None:
    """Count steps. Raises _Spent if none are left."""
    left = _steps.get()
    if left is not None:
        left[0] -= count
        if left[0] < 0:
            raise _Spent(f"it takes more than {STEPS_MAX:,} steps for one record")


def split_guard(text: str) -> tuple[str, str]:
    """The guard before the first semicolon outside literals and comments (empty if none), and the rest."""
    for piece in PIECE.finditer(text):
        if piece["end"]:
            return text[: piece.start()], text[piece.end() :]
    return "", text


class RulesMissing(InvalidSchema):
    """The packages that execute rules are not installed."""

    def __init__(self, error: ImportError) -> None:
        super().__init__(f"its rules need the package {error.name}: {INSTALL}")


class _Cel:
    """The parts of cel-python and confluent-kafka that this module uses."""

    def __init__(self) -> None:
        try:
            import celpy
            import celpy.evaluation
            from confluent_kafka.schema_registry.common.protobuf import rebuild_value_type
            from confluent_kafka.schema_registry.rules.cel.cel_executor import (
                field_value_to_cel,
                msg_to_cel,
            )
            from confluent_kafka.schema_registry.rules.cel.cel_field_presence import InterpretedRunner
            from confluent_kafka.schema_registry.rules.cel.extra_func import EXTRA_FUNCS
            from confluent_kafka.schema_registry.rules.cel.protobuf_result_writer import convert
        except ImportError as error:
            raise RulesMissing(error) from error
        self.to_message, self.to_leaf = convert, rebuild_value_type
        self.to_cel, self.field_to_cel = msg_to_cel, field_value_to_cel
        self.environment = celpy.Environment(runner_class=_counting(InterpretedRunner))
        known = {**{name: celpy.evaluation.base_functions[name] for name in LONG}, **EXTRA_FUNCS}
        self.functions = {
            **{name: work if isinstance(work, type) else _charged(work) for name, work in known.items()},
            "_*_": _product,
        }
        self.types = celpy.celtypes
        self.failures = (celpy.CELEvalError, celpy.CELParseError)


def _counting(runner: Any) -> Any:
    """A runner of celpy that counts steps: celpy clones the variables for each expression and each list element."""
    from celpy.evaluation import Activation

    class Counted(Activation):  # type: ignore[misc]
        def clone(self) -> Activation:
            _step()
            clone = super().clone()
            clone.__class__ = Counted
            return clone

    class CountingRunner(runner):  # type: ignore[misc]
        def new_activation(self) -> Any:
            activation = super().new_activation()
            activation.__class__ = Counted
            return activation

    return CountingRunner


def _charged(work: Callable[..., Any]) -> Callable[..., Any]:
    """The same function; long arguments cost steps."""

    @wraps(work)
    def run(*arguments: Any) -> Any:
        _step(
            sum(
                len(value) >> (5 if isinstance(value, (list, dict)) else 12)
                for value in arguments
                if isinstance(value, (str, bytes, list, dict))
            )
        )
        return work(*arguments)

    return run


def _product(left: Any, right: Any) -> Any:
    """CEL multiplies numbers only; in Python, a string times a number is a string of any length."""
    if isinstance(left, (str, bytes, list)) or isinstance(right, (str, bytes, list)):
        raise TypeError("no such overload")
    return left * right


@cache
def cel() -> _Cel:
    """The packages, imported on first use. Raises RulesMissing."""
    return _Cel()


@lru_cache(KEPT_MAX)
def compiled(text: str) -> Expression:
    """Compile an expression. Raises BadExpression if it is not valid CEL, RulesMissing."""
    language = cel()
    _require_short(text)
    try:
        tree = language.environment.compile(text)
        _require_bounded(tree, text)
        program = language.environment.program(tree, functions=language.functions)
    except BadExpression:
        raise
    except Exception as error:  # the parser may raise anything
        raise BadExpression(f"{text.strip()!r} is not valid CEL: {_first_line(error)}") from error

    def evaluate(arguments: Mapping[str, Any]) -> Any:
        variables = dict(arguments)
        if "now" in text:
            variables["now"] = language.types.TimestampType(datetime.datetime.now(datetime.UTC))
        try:
            evaluated = program.evaluate(variables)
        except Exception as error:  # functions may raise anything
            raise BadExpression(f"{text.strip()!r} cannot be evaluated: {_first_line(error)}") from error
        return plain(evaluated)

    return evaluate


def check(kind: str, text: str) -> None:
    """Check that a rule's expression is valid. kind: the rule's type; types other than CEL and JSONata pass.

    Raises BadExpression, RulesMissing."""
    if kind in ("CEL", "CEL_FIELD"):
        guard, rest = split_guard(text)
        if guard.strip():
            compiled(guard)
        compiled(rest)
    elif kind == "JSONATA":
        try:
            import jsonata
        except ImportError as error:
            raise RulesMissing(error) from error
        _require_short(text)
        try:
            jsonata.Jsonata(text)
        except Exception as error:  # it may raise anything
            raise BadExpression(f"{text.strip()!r} is not valid JSONata: {_first_line(error)}") from error


def _require_short(text: str) -> None:
    if len(text) > TEXT_MAX:
        raise BadExpression(
            f"an expression may have up to {TEXT_MAX} characters, {text[:60]!r}... has {len(text)}"
        )


def _require_bounded(tree: Any, text: str) -> None:
    """Raises BadExpression for deeply nested comprehensions, with which a short expression may run forever."""
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
                    f"{text.strip()[:200]!r} nests more than {COMPREHENSIONS_MAX} of "
                    f"{', '.join(sorted(COMPREHENSIONS))} in each other"
                )
        waiting.extend((child, depth) for child in node.children if hasattr(child, "children"))


def argument(value: Any) -> Any:
    """Convert a value of JSON, Avro or Protobuf to an argument. Raises BadExpression, RulesMissing."""
    convert = cel().to_cel
    try:
        return convert(value)
    except (
        Exception
    ) as error:  # a number beyond 64 bits, a time beyond the year 9999, a value nested too deeply
        raise BadExpression(f"the value cannot be converted to CEL: {_first_line(error)}") from error


def field_argument(value: Any, native: Any) -> Any:
    """Like `argument`, for a field. native: the Protobuf field of the value. Raises BadExpression, RulesMissing."""
    convert = cel().field_to_cel
    try:
        return convert(_Native(native), value)
    except Exception as error:  # as in `argument`
        raise BadExpression(f"the value cannot be converted to CEL: {_first_line(error)}") from error


def protobuf_result(value: Any, message: Any) -> Any:
    """Convert the map that an expression returned to a message of the type of `message`. Raises BadExpression."""
    try:
        return cel().to_message(value, message)
    except Exception as error:  # it may raise anything
        raise BadExpression(
            f"its result is not of type {message.DESCRIPTOR.name}: {_first_line(error)}"
        ) from error


def protobuf_leaf(value: Any, native: Any) -> Any:
    """Convert an expression's result to a Timestamp or Decimal. native: the field it is for. Raises BadExpression."""
    try:
        return cel().to_leaf(None, native, value)
    except Exception as error:  # as in `protobuf_result`
        raise BadExpression(
            f"its result is not of type {native.message_type.name}: {_first_line(error)}"
        ) from error


class _Native:
    """Replaces the context that the conversion expects, of which it uses only this attribute."""

    def __init__(self, field_descriptor: Any) -> None:
        self.field_descriptor = field_descriptor


def plain(value: Any, depth: int = 0) -> Any:
    """Convert the result of an expression from CEL's types to Python's. Raises BadExpression."""
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
    message = " ".join(str(part) for part in error.args) or type(error).__name__
    return next((line.strip() for line in message.splitlines() if line.strip()), type(error).__name__)[:200]
