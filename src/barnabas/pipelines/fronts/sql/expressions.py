"""Expressions of ksqlDB as Spark's, with their types. What fails for a row (a text that is no number, a division by zero) is
null, as in ksqlDB."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from sqlglot import exp

from barnabas.pipelines.fronts.sql.dialect import spot_of_node
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.functions import DAY_MS, FUNCTIONS, UNIT_ARGUMENTS, Function
from barnabas.pipelines.fronts.sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    SqlType,
    array_of,
    common_type,
    map_of,
    wider,
)

INT_MAX: Final = (1 << 31) - 1
COMPARED: Final[Mapping[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
CALCULATED: Final[Mapping[type[exp.Expr], str]] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
NAMED_TYPES: Final = {
    "INT": INTEGER,
    "INTEGER": INTEGER,
    "BIGINT": BIGINT,
    "DOUBLE": DOUBLE,
    "VARCHAR": STRING,
    "STRING": STRING,
    "TEXT": STRING,
    "BOOLEAN": BOOLEAN,
    "DATE": DATE,
    "TIME": TIME,
    "TIMESTAMP": TIMESTAMP,
    "DATETIME": TIMESTAMP,
}
UNITS: Final = ("MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "YEAR")


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression of Spark and its type. aggregates: whether it is made of many rows."""

    text: str
    type: SqlType
    aggregates: bool = False


class Scope(Protocol):
    """What names stand for."""

    def column(self, source: str, name: str) -> Typed:
        """A column; source: its alias, or empty. Raises SqlError."""

    def offset(self) -> Typed:
        """The offset of a row's record; of joined rows, that of the first stream."""


def quoted(name: str) -> str:
    """A name as Spark reads it."""
    return "`" + name.replace("`", "``") + "`"


def text_literal(value: str) -> str:
    """A text as Spark reads it. Spark replaces ${name} by a setting, so the two characters do not stand together."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    if "${" not in escaped:
        return f"'{escaped}'"
    return "concat('" + escaped.replace("${", "$', '{") + "')"


def name_of(identifier: exp.Expr) -> str:
    """The name that an identifier stands for: in capitals unless it is in quotes."""
    if isinstance(identifier, exp.Column):
        identifier = identifier.this
    quotes = bool(identifier.args.get("quoted"))
    return str(identifier.name) if quotes else str(identifier.name).upper()


@dataclass
class Translator:
    """Translates expressions over the columns of one scope. aggregates: whether functions of many rows are allowed here."""

    scope: Scope
    aggregates: bool = False
    _locals: dict[str, SqlType] = field(default_factory=dict)

    def translate(self, node: exp.Expr) -> Typed:
        """The expression in Spark's language. Raises SqlError, at the innermost part that is wrong."""
        try:
            return self._translated(node)
        except SqlError as error:
            raise SqlError(error.message, error.spot or spot_of_node(node)) from None

    def _translated(self, node: exp.Expr) -> Typed:
        for kind, translate in TRANSLATORS.items():
            if isinstance(node, kind):
                typed = translate(self, node)
                if self.aggregates and not typed.aggregates and _calls_aggregate(node):
                    typed = replace(typed, aggregates=True)
                return typed
        raise SqlError(f"{_shown(node)}: expressions of this kind are not understood")

    def condition(self, node: exp.Expr) -> Typed:
        """An expression that is true or false. Raises SqlError."""
        typed = self.translate(node)
        if typed.type != BOOLEAN:
            raise SqlError(f"{_shown(node)} is {typed.type}, but a condition is BOOLEAN", spot_of_node(node))
        return typed

    # --- names and literals ------------------------------------------------------------------------

    def column(self, node: exp.Column) -> Typed:
        if isinstance(node.this, exp.Star):
            raise SqlError("* is allowed as a column of SELECT and in COUNT(*) only")
        table = node.args.get("table")
        name = name_of(node.this)
        if table is None and name in self._locals:
            return Typed(quoted(name), self._locals[name])
        return self.scope.column("" if table is None else name_of(table), name)

    def identifier(self, node: exp.Identifier) -> Typed:
        name = name_of(node)
        if name in self._locals:
            return Typed(quoted(name), self._locals[name])
        return self.scope.column("", name)

    def literal(self, node: exp.Literal) -> Typed:
        if node.is_string:
            return Typed(text_literal(node.this), STRING)
        text = str(node.this)
        if text.isdecimal():
            return Typed(text, INTEGER) if int(text) <= INT_MAX else Typed(f"{text}L", BIGINT)
        if "e" in text.lower():
            return Typed(f"cast({text} as double)", DOUBLE)
        whole, _, rest = text.partition(".")
        digits = len(whole.lstrip("0")) + len(rest)
        return Typed(text, SqlType("DECIMAL", digits=(max(digits, 1), len(rest))))

    def boolean(self, node: exp.Boolean) -> Typed:
        return Typed("true" if node.this else "false", BOOLEAN)

    def null(self, node: exp.Null) -> Typed:
        return Typed("NULL", STRING)

    # --- operators ---------------------------------------------------------------------------------

    def paren(self, node: exp.Paren) -> Typed:
        typed = self.translate(node.this)
        return Typed(f"({typed.text})", typed.type, typed.aggregates)

    def negative(self, node: exp.Neg) -> Typed:
        typed = self.translate(node.this)
        self._need_number(typed, node)
        return Typed(f"(- {typed.text})", typed.type, typed.aggregates)

    def calculated(self, node: exp.Binary) -> Typed:
        left, right = self.translate(node.left), self.translate(node.right)
        if isinstance(node, exp.Add) and left.type == right.type == STRING:
            return Typed(f"concat({left.text}, {right.text})", STRING, left.aggregates or right.aggregates)
        kind = wider(left.type, right.type)
        if kind is None:
            raise SqlError(
                f"{_shown(node)}: {left.type} and {right.type} cannot be calculated with each other"
            )
        return Typed(
            f"({left.text} {CALCULATED[type(node)]} {right.text})", kind, left.aggregates or right.aggregates
        )

    def divided(self, node: exp.Binary) -> Typed:
        left, right = self.translate(node.left), self.translate(node.right)
        kind = wider(left.type, right.type)
        if kind is None:
            raise SqlError(
                f"{_shown(node)}: {left.type} and {right.type} cannot be calculated with each other"
            )
        both = left.aggregates or right.aggregates
        if isinstance(node, exp.Mod):
            return Typed(f"({left.text} % nullif({right.text}, 0))", kind, both)
        if kind.name in ("INTEGER", "BIGINT"):  # whole numbers stay whole
            return Typed(f"cast({left.text} div nullif({right.text}, 0) as {kind.spark})", kind, both)
        return Typed(f"({left.text} / nullif({right.text}, 0))", kind, both)

    def joined_text(self, node: exp.DPipe) -> Typed:
        left, right = self.translate(node.left), self.translate(node.right)
        return Typed(f"concat({left.text}, {right.text})", STRING, left.aggregates or right.aggregates)

    def compared(self, node: exp.Binary) -> Typed:
        left, right = self.translate(node.left), self.translate(node.right)
        left, right = self._as_times(left, node.left, right, node.right)
        if left.type != right.type and common_type([left.type, right.type]) is None and not _is_null(node):
            raise SqlError(
                f"{_shown(node)}: {left.type} and {right.type} cannot be compared: CAST one of them"
            )
        both = left.aggregates or right.aggregates
        return Typed(f"({left.text} {COMPARED[type(node)]} {right.text})", BOOLEAN, both)

    def _as_times(
        self, left: Typed, left_node: exp.Expr, right: Typed, right_node: exp.Expr
    ) -> tuple[Typed, Typed]:
        """A text that is compared with a time, as a time: ROWTIME and the bounds of windows are milliseconds."""

        def timed(text: Typed, node: exp.Expr, other: Typed, other_node: exp.Expr) -> Typed:
            if not (isinstance(node, exp.Literal) and node.is_string):
                return text
            if other.type == TIME:
                return Typed(_as_time(text.text), TIME)
            if other.type in (TIMESTAMP, DATE):
                return Typed(f"cast({text.text} as {other.type.spark})", other.type)
            if isinstance(other_node, exp.Column) and name_of(other_node) in (
                "ROWTIME",
                "WINDOWSTART",
                "WINDOWEND",
            ):
                return Typed(f"unix_millis(cast({text.text} as timestamp))", BIGINT)
            return text

        return timed(left, left_node, right, right_node), timed(right, right_node, left, left_node)

    def both(self, node: exp.Connector) -> Typed:
        left, right = self.condition(node.left), self.condition(node.right)
        word = "AND" if isinstance(node, exp.And) else "OR"
        return Typed(f"({left.text} {word} {right.text})", BOOLEAN, left.aggregates or right.aggregates)

    def negated(self, node: exp.Not) -> Typed:
        typed = self.condition(node.this)
        return Typed(f"(NOT {typed.text})", BOOLEAN, typed.aggregates)

    def is_(self, node: exp.Is) -> Typed:
        typed = self.translate(node.this)
        what = "NULL" if isinstance(node.expression, exp.Null) else str(node.expression.this).upper()
        return Typed(f"({typed.text} IS {what})", BOOLEAN, typed.aggregates)

    def distinct_from(self, node: exp.Binary) -> Typed:
        left, right = self.translate(node.left), self.translate(node.right)
        text = f"({left.text} <=> {right.text})"
        return Typed(text if isinstance(node, exp.NullSafeEQ) else f"(NOT {text})", BOOLEAN)

    def like(self, node: exp.Expr) -> Typed:
        escape = ""
        if isinstance(node, exp.Escape):
            escape = f" ESCAPE {text_literal(node.expression.this)}"
            node = node.this
        left, right = self.translate(node.this), self.translate(node.args["expression"])
        if left.type != STRING:
            raise SqlError(f"{_shown(node)}: LIKE is for text, not for {left.type}")
        word = "NOT LIKE" if node.args.get("negate") else "LIKE"
        return Typed(f"({left.text} {word} {right.text}{escape})", BOOLEAN, left.aggregates)

    def in_(self, node: exp.In) -> Typed:
        typed = self.translate(node.this)
        items = [self.translate(item) for item in node.expressions]
        for item, source in zip(items, node.expressions, strict=True):
            if common_type([typed.type, item.type]) is None and not isinstance(source, exp.Null):
                raise SqlError(
                    f"{_shown(node)}: {typed.type} and {item.type} cannot be compared: CAST one of them"
                )
        return Typed(f"({typed.text} IN ({', '.join(i.text for i in items)}))", BOOLEAN, typed.aggregates)

    def between(self, node: exp.Between) -> Typed:
        low = self.compared(exp.GTE(this=node.this, expression=node.args["low"]))
        high = self.compared(exp.LTE(this=node.this, expression=node.args["high"]))
        return Typed(f"({low.text} AND {high.text})", BOOLEAN, low.aggregates or high.aggregates)

    def case(self, node: exp.Case) -> Typed:
        parts, kinds = [], []
        for branch in node.args["ifs"]:
            wanted = branch.this if node.this is None else exp.EQ(this=node.this, expression=branch.this)
            result = self.translate(branch.args["true"])
            parts.append(f"WHEN {self.condition(wanted).text} THEN {result.text}")
            kinds += [] if isinstance(branch.args["true"], exp.Null) else [result.type]
        if node.args.get("default") is not None:
            result = self.translate(node.args["default"])
            parts.append(f"ELSE {result.text}")
            kinds += [] if isinstance(node.args["default"], exp.Null) else [result.type]
        kind = common_type(kinds) if kinds else STRING
        if kind is None:
            raise SqlError(f"{_shown(node)}: its results have different types: {', '.join(map(str, kinds))}")
        return Typed(f"CASE {' '.join(parts)} END", kind)

    # --- nested values -----------------------------------------------------------------------------

    def field_of(self, node: exp.Dot) -> Typed:
        typed = self.translate(node.this)
        name = name_of(node.expression)
        kind = typed.type.field(name) if typed.type.name == "STRUCT" else None
        if kind is None:
            has = f"has {', '.join(typed.type.fields)}" if typed.type.name == "STRUCT" else f"is {typed.type}"
            raise SqlError(f"{_shown(node)}: there is no field {name}; {_shown(node.this)} {has}")
        return Typed(f"{typed.text}.{quoted(name)}", kind, typed.aggregates)

    def element(self, node: exp.Bracket) -> Typed:
        typed = self.translate(node.this)
        place = self.translate(node.expressions[0])
        if typed.type.name not in ("ARRAY", "MAP"):
            raise SqlError(f"{_shown(node)}: [ ] is for arrays and maps, not for {typed.type}")
        return Typed(f"try_element_at({typed.text}, {place.text})", typed.type.items[-1], typed.aggregates)

    def array(self, node: exp.Array) -> Typed:
        items = [self.translate(item) for item in node.expressions]
        kind = common_type([item.type for item in items])
        if kind is None:
            raise SqlError(f"{_shown(node)}: the elements of an array have one type")
        return Typed(f"array({', '.join(item.text for item in items)})", array_of(kind))

    def cast(self, node: exp.Cast) -> Typed:
        typed, kind = self.translate(node.this), _type_of(node.args["to"])
        if kind == STRING and typed.type.items:
            raise SqlError(f"{_shown(node)}: {typed.type} cannot become text: use TO_JSON_STRING")
        if TIME in (typed.type, kind):
            return _cast_time(typed, kind, node)
        if typed.type == BOOLEAN and kind == STRING:
            return Typed(f"cast({typed.text} as string)", STRING, typed.aggregates)
        return Typed(f"try_cast({typed.text} as {kind.spark})", kind, typed.aggregates)

    # --- functions ---------------------------------------------------------------------------------

    def call(self, node: exp.Anonymous) -> Typed:
        name = str(node.this).upper()
        special = SPECIAL.get(name)
        if special is not None:
            return special(self, node)
        function = FUNCTIONS.get(name)
        if function is None:
            near = difflib.get_close_matches(name, FUNCTIONS, 1, 0.6)
            hint = f"; did you mean {near[0]}?" if near else "; SHOW FUNCTIONS lists them"
            raise SqlError(f"there is no function {name}{hint}", spot_of_node(node, alone=True))
        return self._called(function, node)

    def _called(self, function: Function, node: exp.Anonymous) -> Typed:
        arguments = list(node.expressions)
        if function.aggregate and not self.aggregates:
            raise SqlError(
                f"{function.name} is for groups of rows: it needs GROUP BY, and is not allowed in WHERE"
            )
        template = function.template(len(arguments))
        if template is None:
            raise SqlError(f"{function.name} takes {function.counts} arguments, not {len(arguments)}")
        unit = ""
        if function.name in UNIT_ARGUMENTS:
            unit = _unit(arguments[0])
            arguments[0] = exp.Null()
        if function.name == "COUNT" and isinstance(arguments[0], exp.Star):
            return Typed("count(*)", BIGINT, aggregates=True)
        inner = Translator(
            self.scope, aggregates=self.aggregates and not function.aggregate, _locals=self._locals
        )
        typed_arguments = [inner.translate(one) for one in arguments]
        kinds = [one.type for one in typed_arguments]
        wanted = [
            t if isinstance(g, exp.Null) else k
            for g, k, t in zip(arguments, kinds, function.takes, strict=False)
        ]
        if (problem := function.misfit(wanted)) is not None:
            raise SqlError(problem)
        result = function.kind(kinds) if kinds else function.kind(())
        texts = [one.text for one in typed_arguments]
        values = {
            "{all}": ", ".join(texts),
            "{rest}": ", ".join(texts[1:]),
            "{r}": result.spark,
            "{u0}": unit,
        }
        if "{offset}" in template:
            values["{offset}"] = self.scope.offset().text
        for number, one in enumerate(typed_arguments):
            values |= {f"{{{number}}}": one.text, f"{{t{number}}}": one.type.spark}
        # All at once: a text in an argument may look like a placeholder.
        text = PLACEHOLDER.sub(lambda match: values[match[0]], template)
        return Typed(text, result, function.aggregate or any(one.aggregates for one in typed_arguments))

    def with_locals(self, names: Sequence[str], kinds: Sequence[SqlType]) -> Translator:
        """A translator for the body of a function with these parameters."""
        inside = {**self._locals, **dict(zip(names, kinds, strict=True))}
        return Translator(self.scope, self.aggregates, _locals=inside)

    def _need_number(self, typed: Typed, node: exp.Expr) -> None:
        if not typed.type.is_number:
            raise SqlError(f"{_shown(node)}: {typed.type} is not a number")


PLACEHOLDER: Final = re.compile(r"\{(?:all|rest|r|offset|u0|t?\d)\}")


DAY_TIME: Final = "'^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,3})?)?$'"
"""What a TIME is as text: hours and minutes, perhaps seconds and milliseconds."""


def _as_time(text: str) -> str:
    """A text as a TIME; null if it is none."""
    moment = f"try_cast(concat('1970-01-01 ', {text}) as timestamp)"
    return f"CASE WHEN {text} RLIKE {DAY_TIME} THEN cast(unix_millis({moment}) as int) END"


def _cast_time(typed: Typed, kind: SqlType, node: exp.Cast) -> Typed:
    """A cast from or to TIME. Raises SqlError."""
    if typed.type == kind:
        return typed
    if typed.type == STRING:
        return Typed(_as_time(typed.text), TIME, typed.aggregates)
    if kind == STRING:
        shown = f"date_format(timestamp_millis({typed.text}), 'HH:mm:ss')"
        return Typed(f"regexp_replace({shown}, ':00$', '')", STRING, typed.aggregates)
    if typed.type == TIMESTAMP:
        return Typed(
            f"cast((unix_millis({typed.text}) % {DAY_MS} + {DAY_MS}) % {DAY_MS} as int)",
            TIME,
            typed.aggregates,
        )
    raise SqlError(
        f"{_shown(node)}: {typed.type} cannot become {kind}; TIME is made of text and of timestamps"
    )


def _calls_aggregate(node: exp.Expr) -> bool:
    """Whether a function of many rows is called anywhere in an expression."""
    names = (str(call.this).upper() for call in node.find_all(exp.Anonymous))
    return any(name in FUNCTIONS and FUNCTIONS[name].aggregate for name in names)


def _shown(node: exp.Expr) -> str:
    return node.sql(dialect="presto")


def _is_null(node: exp.Binary) -> bool:
    return isinstance(node.left, exp.Null) or isinstance(node.right, exp.Null)


def _unit(node: exp.Expr) -> str:
    unit = name_of(node).removesuffix("S") if isinstance(node, exp.Column | exp.Identifier) else ""
    if unit not in UNITS:
        raise SqlError(f"{_shown(node)} is no unit of time; allowed: {', '.join(f'{u}S' for u in UNITS)}")
    return unit


def _type_of(kind: exp.DataType) -> SqlType:
    name = kind.this.name if hasattr(kind.this, "name") else str(kind.this)
    if name in NAMED_TYPES:
        return NAMED_TYPES[name]
    inner = kind.expressions
    if name == "DECIMAL" and len(inner) == 2:
        return SqlType("DECIMAL", digits=(int(inner[0].name), int(inner[1].name)))
    if name == "ARRAY":
        return array_of(_type_of(inner[0]))
    if name == "MAP":
        return map_of(_type_of(inner[0]), _type_of(inner[1]))
    if name == "STRUCT":
        return SqlType(
            "STRUCT", tuple(_type_of(f.args["kind"]) for f in inner), tuple(name_of(f.this) for f in inner)
        )
    if name in ("VARBINARY", "BINARY", "BYTES"):
        return SqlType("BYTES")
    raise SqlError(f"there is no type {kind.sql()}")


# --- functions with other kinds of arguments ---------------------------------------------------------------


def _body(translator: Translator, node: exp.Expr, kinds: Sequence[SqlType], called: str) -> tuple[str, Typed]:
    """A function argument like x => x + 1: its text for Spark, and what it makes."""
    if not isinstance(node, exp.Lambda):
        raise SqlError(f"{called} needs a function like x => x + 1, not {_shown(node)}")
    names = [name_of(one) for one in node.expressions]
    if len(names) != len(kinds):
        raise SqlError(f"{called} needs a function of {len(kinds)} arguments, not of {len(names)}")
    typed = translator.with_locals(names, kinds).translate(node.this)
    shown = ", ".join(map(quoted, names))
    # Spark takes a single parameter without parentheses only.
    return f"{shown if len(names) == 1 else f'({shown})'} -> {typed.text}", typed


def _transform(translator: Translator, node: exp.Anonymous) -> Typed:
    value = translator.translate(node.expressions[0])
    if value.type.name == "MAP" and len(node.expressions) == 3:
        keys, key = _body(translator, node.expressions[1], value.type.items, "TRANSFORM")
        values, item = _body(translator, node.expressions[2], value.type.items, "TRANSFORM")
        return Typed(
            f"map_from_arrays(map_values(transform_values({value.text}, {keys})), "
            f"map_values(transform_values({value.text}, {values})))",
            map_of(key.type, item.type),
        )
    if value.type.name != "ARRAY" or len(node.expressions) != 2:
        raise SqlError("TRANSFORM takes an array and a function, or a map and two functions")
    text, item = _body(translator, node.expressions[1], value.type.items, "TRANSFORM")
    return Typed(f"transform({value.text}, {text})", array_of(item.type))


def _filter(translator: Translator, node: exp.Anonymous) -> Typed:
    if len(node.expressions) != 2:
        raise SqlError("FILTER takes an array or a map, and a function")
    value = translator.translate(node.expressions[0])
    text, _ = _body(translator, node.expressions[1], value.type.items, "FILTER")
    return Typed(
        f"{'map_filter' if value.type.name == 'MAP' else 'filter'}({value.text}, {text})", value.type
    )


def _reduce(translator: Translator, node: exp.Anonymous) -> Typed:
    if len(node.expressions) != 3:
        raise SqlError("REDUCE takes an array, what to begin with, and a function of two arguments")
    value, first = (translator.translate(one) for one in node.expressions[:2])
    if value.type.name != "ARRAY":
        raise SqlError("REDUCE takes an array")
    text, _ = _body(translator, node.expressions[2], (first.type, value.type.items[0]), "REDUCE")
    return Typed(f"aggregate({value.text}, cast({first.text} as {first.type.spark}), {text})", first.type)


def _struct(translator: Translator, node: exp.Anonymous) -> Typed:
    names, typed = [], []
    for one in node.expressions:
        if not isinstance(one, exp.PropertyEQ):
            raise SqlError("STRUCT is written like STRUCT(a := 1, b := 'x')")
        names.append(name_of(one.this))
        typed.append(translator.translate(one.expression))
    inner = ", ".join(f"{text_literal(n)}, {m.text}" for n, m in zip(names, typed, strict=True))
    return Typed(f"named_struct({inner})", SqlType("STRUCT", tuple(m.type for m in typed), tuple(names)))


def _map(translator: Translator, node: exp.Anonymous) -> Typed:
    keys, values = [], []
    for one in node.expressions:
        if not isinstance(one, exp.PropertyEQ):
            raise SqlError("MAP is written like MAP('a' := 1, 'b' := 2)")
        keys.append(translator.translate(one.this))
        values.append(translator.translate(one.expression))
    kind = common_type([value.type for value in values])
    if kind is None:
        raise SqlError("the values of a map have one type")
    inner = ", ".join(f"{k.text}, {v.text}" for k, v in zip(keys, values, strict=True))
    return Typed(f"map({inner})", map_of(keys[0].type, kind))


SPECIAL: Final[Mapping[str, Callable[[Translator, exp.Anonymous], Typed]]] = {
    "TRANSFORM": _transform,
    "FILTER": _filter,
    "REDUCE": _reduce,
    "STRUCT": _struct,
    "MAP": _map,
}
TRANSLATORS: Final[Mapping[type[exp.Expr], Callable[[Translator, Any], Typed]]] = {
    exp.Column: Translator.column,
    exp.Identifier: Translator.identifier,
    exp.Literal: Translator.literal,
    exp.Boolean: Translator.boolean,
    exp.Null: Translator.null,
    exp.Paren: Translator.paren,
    exp.Neg: Translator.negative,
    **dict.fromkeys(CALCULATED, Translator.calculated),
    exp.Div: Translator.divided,
    exp.Mod: Translator.divided,
    exp.DPipe: Translator.joined_text,
    **dict.fromkeys(COMPARED, Translator.compared),
    exp.And: Translator.both,
    exp.Or: Translator.both,
    exp.Not: Translator.negated,
    exp.Is: Translator.is_,
    exp.NullSafeEQ: Translator.distinct_from,
    exp.NullSafeNEQ: Translator.distinct_from,
    exp.Like: Translator.like,
    exp.Escape: Translator.like,
    exp.In: Translator.in_,
    exp.Between: Translator.between,
    exp.Case: Translator.case,
    exp.Dot: Translator.field_of,
    exp.Bracket: Translator.element,
    exp.Array: Translator.array,
    exp.Cast: Translator.cast,
    exp.Anonymous: Translator.call,
}
