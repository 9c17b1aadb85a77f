"""Filters of records: a safe part of Spark SQL, which the pipelines' `filter` is written in. Pure.

    value.country = 'DE' AND amount > 100 AND headers['source'] LIKE 'shop%'

Names: `key`, `value` (as text), `partition`, `offset`, `timestamp` (milliseconds; texts compared with it are times),
`headers['name']`, `value.field.field[0]`, `key.field`; every other name is a field of the value. What is missing is
NULL, and NULL is neither true nor false, as in SQL. Texts and numbers are compared as numbers where both can be read so.

An expression becomes nested functions once. There are no loops, no subqueries, no user functions, and regular expressions
take linear time, so that no filter can run for longer than its record is long.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import re2
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

LENGTH_MAX: Final = 4_000
NODES_MAX: Final = 300
_QUIET: Final = re2.Options()
_QUIET.log_errors = False


class BadFilter(ValueError):
    """A filter cannot be used; the message says where and why."""


class Readable(Protocol):
    """What a filter sees of a record. Fields are decoded when they are first asked for."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    def text(self, part: str) -> str | None:
        """Key or value as text."""
        ...

    def document(self, part: str) -> Any:
        """Key or value as JSON; None if it is none."""
        ...

    def header(self, name: str) -> str | None:
        """The last header of this name."""
        ...


Value = Callable[[Readable], Any]
Filter = Callable[[Readable], bool]


def compile_filter(text: str) -> Filter:
    """The function that says whether a record fits. Raises BadFilter."""
    if len(text) > LENGTH_MAX:
        raise BadFilter(f"it has {len(text)} characters; at most {LENGTH_MAX} are allowed")
    try:
        tree = parse_one(text, read="spark")
    except SqlglotError as error:
        raise BadFilter(_reason(error)) from None
    except RecursionError:
        raise BadFilter("it is nested too deeply") from None
    if sum(1 for _ in tree.walk()) > NODES_MAX:
        raise BadFilter(f"it has more than {NODES_MAX} parts")
    value = _value(tree)

    def fits(record: Readable) -> bool:
        return value(record) is True

    return fits


def _reason(error: SqlglotError) -> str:
    """The parser's words for its authors, as words for whoever writes a filter."""
    errors = getattr(error, "errors", None)
    if not errors:
        return "a quotation mark is not closed" if "tokenizing" in str(error) else "it is empty"
    first = errors[0]
    what, here = str(first["description"]), f"at character {first['col']}"
    missing = re.match(r"Expecting (\S+)", what)
    if missing:
        return f"{missing[1]} is missing, {here}"
    if "Required keyword" in what:
        side = "before" if "'this'" in what else "after"
        return f"something is missing {side} {first['highlight']!r}, {here}"
    return f"{first['highlight']!r} does not fit there, {here}"


# --- values ----------------------------------------------------------------------------------------------


def _value(node: exp.Expr) -> Value:
    """The function that computes a part of an expression. Raises BadFilter for what is not part of the language."""
    make = _MAKERS.get(type(node))
    if make is None:
        shown = node.sql(dialect="spark")
        raise BadFilter(f"{shown[:80]!r} cannot be used in a filter of records")
    return make(node)


def _literal(node: Any) -> Value:
    value = _literal_of(node)
    return lambda record: value


def _literal_of(node: Any) -> Any:
    """The text or number that is written there."""
    value: Any = node.this
    if node.is_string:
        return value
    return float(value) if any(c in str(value) for c in ".eE") else int(value)


def _path(node: Any) -> tuple[list[str | int], str]:
    """(names and indexes, outermost first, "") of a name with what stands behind it."""
    if isinstance(node, exp.Column):
        return [part.name for part in node.parts], ""
    if isinstance(node, exp.Dot):
        return [*_path(node.this)[0], node.expression.name], ""
    if isinstance(node, exp.Bracket):
        inner = node.expressions
        if len(inner) != 1 or not isinstance(inner[0], exp.Literal):
            raise BadFilter("[...] takes one text or one number")
        step = inner[0].this if inner[0].is_string else int(inner[0].this)
        return [*_path(node.this)[0], step], ""
    raise BadFilter(f"{node.sql(dialect='spark')[:80]!r} has no fields")


def _field(node: Any) -> Value:
    steps, _ = _path(node)
    first, rest = steps[0], steps[1:]
    if first in ("partition", "offset", "timestamp") and not rest:
        return operator.attrgetter(str(first))
    if first in ("key", "value"):
        part = str(first)
        if not rest:
            return lambda record: record.text(part)
        return lambda record: _inside(record.document(part), rest)
    if first == "headers" and len(rest) == 1:
        name = str(rest[0])
        return lambda record: record.header(name)
    return _of_value(str(first)) if not rest else lambda record: _inside(record.document("value"), steps)


def _of_value(name: str) -> Value:
    """A field of the value."""

    def run(record: Readable) -> Any:
        document = record.document("value")
        return document.get(name) if type(document) is dict else None

    return run


def _inside(value: Any, steps: list[str | int]) -> Any:
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


# --- comparisons -----------------------------------------------------------------------------------------


def _is_time(node: Any) -> bool:
    return isinstance(node, exp.Column) and node.name == "timestamp" and len(node.parts) == 1


def _time(text: str) -> int:
    """Milliseconds of a time as text; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadFilter(f"{text!r} is not a time like 2026-01-31 12:00:00") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _literal_beside(node: Any, other: Any) -> Any:
    """A literal as one side of a comparison; a text beside `timestamp` is a time."""
    return _time(node.this) if _is_time(other) and node.is_string else _literal_of(node)


def _alike(left: Any, right: Any) -> tuple[Any, Any] | None:
    """Both values so that they can be compared; None if they cannot."""
    if isinstance(left, bool) or isinstance(right, bool):
        return (_as_bool(left), _as_bool(right)) if None not in (_as_bool(left), _as_bool(right)) else None
    left_is_number, right_is_number = isinstance(left, (int, float)), isinstance(right, (int, float))
    if left_is_number and right_is_number:
        return left, right
    if left_is_number or right_is_number:
        a, b = _as_number(left), _as_number(right)
        return None if a is None or b is None else (a, b)
    if isinstance(left, str) and isinstance(right, str):
        return left, right
    return None


def _as_number(value: Any) -> float | int | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and len(value) <= 40:
        try:
            return int(value) if value.strip().lstrip("+-").isdecimal() else float(value)
        except ValueError:
            return None
    return None


def _as_bool(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else None


def _comparison(compare: Callable[[Any, Any], Any]) -> Callable[[Any], Value]:
    def make(node: Any) -> Value:
        if isinstance(node.expression, exp.Literal):
            literal = _literal_beside(node.expression, node.this)
            return _with_literal(compare, _value(node.this), literal)
        if isinstance(node.this, exp.Literal):
            literal = _literal_beside(node.this, node.expression)
            return _with_literal(lambda a, b: compare(b, a), _value(node.expression), literal)
        left, right = _value(node.this), _value(node.expression)

        def run(record: Readable) -> bool | None:
            a, b = left(record), right(record)
            if a is None or b is None:
                return None
            if type(a) is type(b) and isinstance(a, (str, int, float)):
                return bool(compare(a, b))
            pair = _alike(a, b)
            return None if pair is None else bool(compare(*pair))

        return run

    return make


def _with_literal(compare: Callable[[Any, Any], Any], left: Value, literal: Any) -> Value:
    """The comparison that most filters consist of, by the shortest way."""
    kind = type(literal)

    def run(record: Readable) -> bool | None:
        operand = left(record)
        if type(operand) is kind:
            return compare(operand, literal) is True
        if operand is None:
            return None
        pair = _alike(operand, literal)
        return None if pair is None else bool(compare(*pair))

    return run


def _null_safe(node: Any) -> Value:
    equal, left, right = _comparison(operator.eq)(node), _value(node.this), _value(node.expression)

    def run(record: Readable) -> bool:
        a, b = left(record), right(record)
        return a is None and b is None if a is None or b is None else equal(record) is True

    return run


def _and(node: Any) -> Value:
    left, right = _value(node.this), _value(node.expression)

    def run(record: Readable) -> bool | None:
        a = left(record)
        if a is False:
            return False
        b = right(record)
        return False if b is False else True if a is True and b is True else None

    return run


def _or(node: Any) -> Value:
    left, right = _value(node.this), _value(node.expression)

    def run(record: Readable) -> bool | None:
        a = left(record)
        if a is True:
            return True
        b = right(record)
        return True if b is True else False if a is False and b is False else None

    return run


def _not(node: Any) -> Value:
    inner = _value(node.this)

    def run(record: Readable) -> bool | None:
        value = inner(record)
        return not value if isinstance(value, bool) else None

    return run


def _is(node: Any) -> Value:
    inner, wanted = _value(node.this), node.expression
    if isinstance(wanted, exp.Null):
        return lambda record: inner(record) is None
    if isinstance(wanted, exp.Boolean):
        expected = bool(wanted.this)
        return lambda record: inner(record) is expected
    raise BadFilter("IS takes NULL, TRUE or FALSE")


def _in(node: Any) -> Value:
    if not node.expressions:
        raise BadFilter("IN takes a list of values")
    tests = [_comparison(operator.eq)(exp.EQ(this=node.this, expression=one)) for one in node.expressions]

    def run(record: Readable) -> bool | None:
        seen = [test(record) for test in tests]
        return True if True in seen else None if None in seen else False

    return run


def _between(node: Any) -> Value:
    low = _comparison(operator.ge)(exp.GTE(this=node.this, expression=node.args["low"]))
    high = _comparison(operator.le)(exp.LTE(this=node.this, expression=node.args["high"]))

    def run(record: Readable) -> bool | None:
        a, b = low(record), high(record)
        return False if a is False or b is False else True if a is True and b is True else None

    return run


# --- texts -----------------------------------------------------------------------------------------------


def as_text(value: Any) -> str | None:
    """A value as SQL casts it to text; None for objects and lists."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else None


def _constant(node: Any, what: str) -> str:
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise BadFilter(f"{what} takes a text in quotes")
    return str(node.this)


def _matching(text: Value, test: Callable[[str], Any]) -> Value:
    def run(record: Readable) -> bool | None:
        content = as_text(text(record))
        return None if content is None else bool(test(content))

    return run


def _like(flags: str) -> Callable[[Any], Value]:
    def make(node: Any) -> Value:
        pattern = _constant(node.expression, "LIKE")
        inner = pattern.strip("%")
        if not flags and not any(c in inner for c in "%_\\"):
            return _matching(_value(node.this), _plain_like(pattern, inner))
        parts = [{"%": ".*", "_": "."}.get(c, re2.escape(c)) for c in pattern]
        compiled = _regex(f"(?s{flags})" + "".join(parts))
        return _matching(_value(node.this), compiled.fullmatch)

    return make


def _plain_like(pattern: str, inner: str) -> Callable[[str], bool]:
    """LIKE with `%` only at its ends, without regular expressions."""
    starts, ends = not pattern.startswith("%"), not pattern.endswith("%")
    if not inner and pattern:
        return lambda text: True
    if starts and ends:
        return lambda text: text == inner
    if starts:
        return lambda text: text.startswith(inner)
    if ends:
        return lambda text: text.endswith(inner)
    return lambda text: inner in text


def _regex(pattern: str) -> Any:
    try:
        return re2.compile(pattern, _QUIET)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise BadFilter(f"the regular expression {pattern!r} is wrong: {reason}") from None


def _rlike(node: Any) -> Value:
    return _matching(_value(node.this), _regex(_constant(node.expression, "RLIKE")).search)


def _test_of_two(test: Callable[[str, str], Any]) -> Callable[[Any], Value]:
    def make(node: Any) -> Value:
        left, right = _value(node.this), _value(node.expression)

        def run(record: Readable) -> bool | None:
            a, b = as_text(left(record)), as_text(right(record))
            return None if a is None or b is None else bool(test(a, b))

        return run

    return make


def _of_text(change: Callable[[str], Any]) -> Callable[[Any], Value]:
    def make(node: Any) -> Value:
        inner = _value(node.this)

        def run(record: Readable) -> Any:
            text = as_text(inner(record))
            return None if text is None else change(text)

        return run

    return make


def _length(node: Any) -> Value:
    inner = _value(node.this)

    def run(record: Readable) -> int | None:
        value = inner(record)
        if isinstance(value, (dict, list)):
            return len(value)
        text = as_text(value)
        return None if text is None else len(text)

    return run


def _substring(node: Any) -> Value:
    inner = _value(node.this)
    start = _value(node.args["start"])
    length = _value(node.args["length"]) if node.args.get("length") is not None else None

    def run(record: Readable) -> str | None:
        text, begin = as_text(inner(record)), start(record)
        if text is None or not isinstance(begin, int):
            return None
        first = begin - 1 if begin > 0 else max(len(text) + begin, 0) if begin < 0 else 0
        count = len(text) if length is None else length(record)
        return text[first : first + max(count, 0)] if isinstance(count, int) else None

    return run


def _coalesce(node: Any) -> Value:
    values = [_value(one) for one in (node.this, *node.expressions)]
    return lambda record: next((content for value in values if (content := value(record)) is not None), None)


def _arithmetic(compute: Callable[[Any, Any], Any]) -> Callable[[Any], Value]:
    def make(node: Any) -> Value:
        left, right = _value(node.this), _value(node.expression)

        def run(record: Readable) -> Any:
            a, b = _as_number(left(record)), _as_number(right(record))
            if a is None or b is None:
                return None
            try:
                return compute(a, b)
            except (ZeroDivisionError, OverflowError):
                return None

        return run

    return make


def _negative(node: Any) -> Value:
    inner = _value(node.this)

    def run(record: Readable) -> Any:
        number = _as_number(inner(record))
        return None if number is None else -number

    return run


_CASTS: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("INT", "BIGINT", "SMALLINT", "TINYINT"), lambda v: None if (n := _as_number(v)) is None else int(n)),
    **dict.fromkeys(("DOUBLE", "FLOAT", "DECIMAL"), lambda v: None if (n := _as_number(v)) is None else float(n)),
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR"), as_text),
    "BOOLEAN": _as_bool,
}  # fmt: skip


def _cast(node: Any) -> Value:
    inner, name = _value(node.this), node.to.this.name
    convert = _CASTS.get(name)
    if convert is None:
        raise BadFilter(
            f"CAST to {name.lower()} is not supported; int, bigint, double, string and boolean are"
        )

    def run(record: Readable) -> Any:
        try:
            return convert(inner(record))
        except (OverflowError, ValueError):
            return None

    return run


def _inner(node: Any) -> Value:
    return _value(node.this)


def _boolean(node: Any) -> Value:
    value = bool(node.this)
    return lambda record: value


def _null(node: Any) -> Value:
    return lambda record: None


_MAKERS: Final[Mapping[type, Callable[[Any], Value]]] = {
    exp.Literal: _literal, exp.Boolean: _boolean, exp.Null: _null, exp.Paren: _inner, exp.Neg: _negative,
    exp.Column: _field, exp.Dot: _field, exp.Bracket: _field,
    exp.And: _and, exp.Or: _or, exp.Not: _not, exp.Is: _is, exp.In: _in, exp.Between: _between,
    exp.EQ: _comparison(operator.eq), exp.NEQ: _comparison(operator.ne), exp.LT: _comparison(operator.lt),
    exp.LTE: _comparison(operator.le), exp.GT: _comparison(operator.gt), exp.GTE: _comparison(operator.ge),
    exp.NullSafeEQ: _null_safe, exp.Like: _like(""), exp.ILike: _like("i"), exp.RegexpLike: _rlike,
    exp.Contains: _test_of_two(lambda a, b: b in a), exp.StartsWith: _test_of_two(str.startswith),
    exp.EndsWith: _test_of_two(str.endswith), exp.Lower: _of_text(str.lower), exp.Upper: _of_text(str.upper),
    exp.Trim: _of_text(str.strip), exp.Length: _length, exp.Substring: _substring, exp.Coalesce: _coalesce,
    exp.Add: _arithmetic(operator.add), exp.Sub: _arithmetic(operator.sub), exp.Mul: _arithmetic(operator.mul),
    exp.Div: _arithmetic(operator.truediv), exp.Mod: _arithmetic(operator.mod), exp.Cast: _cast, exp.TryCast: _cast,
}  # fmt: skip
