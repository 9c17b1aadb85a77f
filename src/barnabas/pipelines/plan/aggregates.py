"""Aggregates of tables: which aggregate functions an expression calls, and the rest of it.

Of a table, rows are taken away again. So each function is one from which a value can be subtracted, or one that keeps its
values; an expression like `sum(amount) / count(*)` is divided into calls of such functions, which are kept for each group,
and what Spark computes of their results.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

FUNCTIONS: Final = {
    "count": "count",
    "sum": "sum",
    "avg": "avg",
    "mean": "avg",
    "min": "min",
    "max": "max",
    "min_by": "min",
    "max_by": "max",
    "collect_list": "list",
    "array_agg": "list",
    "collect_set": "set",
}
"""Functions of SQL, and what they are called in Totals.java."""
ALLOWED: Final = "count, sum, avg, min, max, min_by, max_by, collect_list and collect_set"
OTHERS: Final = frozenset(
    """
    any any_value approx_count_distinct approx_percentile approx_top_k bit_and bit_or bit_xor
    bitmap_construct_agg bitmap_or_agg bool_and bool_or corr count_if count_min_sketch covar_pop covar_samp every
    first first_value grouping grouping_id histogram_numeric hll_sketch_agg hll_union_agg kurtosis last
    last_value listagg median mode percentile percentile_approx percentile_cont percentile_disc regr_avgx
    regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness some std stddev
    stddev_pop stddev_samp string_agg sum_distinct try_avg try_sum var_pop var_samp variance schema_of_json_agg
    schema_of_variant_agg earliest latest top_k top_k_distinct
    """.split()  # noqa: SIM905
)
"""Other aggregate functions, of Spark and of own_aggregates.py."""
OF_STREAMS: Final[Mapping[str, str]] = {
    "approx_count_distinct": "distinct",
    "bool_or": "any",
    "bool_and": "every",
    "stddev_samp": "deviation",
    "corr": "correlation",
}
"""Functions that can be computed only of rows that are not taken away again, and what processing/sessions.py calls them."""
_TOKEN: Final = re.compile(
    r"(?P<text>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\")|(?P<quoted>`(?:[^`]|``)*`)|(?P<name>[A-Za-z_]\w*)|(?P<blank>\s+)|(?P<sign>.)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One call. function: one of the values of FUNCTIONS and OF_STREAMS, or `distinct`. text: as Spark reads it, for the
    result's type. value: the expression of the value, of `count(*)` a constant. order: the second argument, of min_by,
    max_by and corr. only: the condition after FILTER."""

    function: str
    text: str
    value: str
    order: str | None = None
    only: str | None = None

    @property
    def keeps_values(self) -> bool:
        """Whether each value is kept if rows are taken away again."""
        return self.function in ("min", "max", "list", "set", "distinct")

    @property
    def grows(self) -> bool:
        """Whether it keeps values of a stream, too."""
        return self.function in ("list", "set", "distinct")


@dataclass(frozen=True, slots=True)
class Divided:
    """An expression with calls. rest: the expression, with RESULT and their numbers in place of the calls."""

    calls: tuple[AggregateCall, ...]
    rest: str


RESULT: Final = "_result"
NO_MORE: Final[Mapping[str, str]] = {}


def divided(expression: str, first: int = 0, more: Mapping[str, str] = NO_MORE) -> Divided:
    """An expression's calls, and the rest. first: the number of its first call. more: functions besides those that tables
    can have. Raises ValueError, with the reason, for an expression that calls others, or none."""
    functions = {**FUNCTIONS, **more}
    tokens = [(str(match.lastgroup), match[0]) for match in _TOKEN.finditer(expression)]
    calls: list[AggregateCall] = []
    rest: list[str] = []
    at = 0
    while at < len(tokens):
        kind, text = tokens[at]
        opening = _skip_blanks(tokens, at + 1)
        name = text.lower()
        is_call = kind == "name" and opening < len(tokens) and tokens[opening][1] == "("
        if is_call and name in OTHERS and name not in more:
            raise ValueError(f"{name} cannot be computed of rows that change; allowed: {ALLOWED}")
        if not is_call or name not in functions:
            rest.append(text)
            at += 1
            continue
        call, at = _call(tokens, name, functions[name], opening)
        rest.append(f"`{RESULT}{first + len(calls)}`")
        calls.append(call)
    if not calls:
        raise ValueError("it calls no aggregate function, like count(*)")
    return Divided(tuple(calls), "".join(rest))


def _skip_blanks(tokens: list[tuple[str, str]], at: int) -> int:
    while at < len(tokens) and tokens[at][0] == "blank":
        at += 1
    return at


def _word(tokens: list[tuple[str, str]], at: int) -> str:
    return tokens[at][1].lower() if at < len(tokens) else ""


def _call(tokens: list[tuple[str, str]], name: str, function: str, opening: int) -> tuple[AggregateCall, int]:
    """The call whose bracket opens there, and where the tokens go on. function: what it is called in AggregateCall."""
    arguments, at = _arguments(tokens, opening)
    only, after = None, _skip_blanks(tokens, at)
    if _word(tokens, after) == "filter":
        (condition,), at = _arguments(tokens, _skip_blanks(tokens, after + 1))
        only = re.sub(r"^\s*where\b", "", condition, flags=re.IGNORECASE).strip()
        after = _skip_blanks(tokens, at)
    if _word(tokens, after) == "over":
        raise ValueError("a window function (over) is no aggregate")
    for argument in arguments:
        for inner in re.findall(r"([A-Za-z_]\w*)\s*\(", re.sub(r"'(?:[^'\\]|\\.)*'", "''", argument)):
            if inner.lower() in FUNCTIONS or inner.lower() in OTHERS:
                raise ValueError(f"{inner} is inside {name}: aggregate an aggregate in a relation of its own")
    text = f"{name}({', '.join(arguments)})"
    order = None
    if distinct := re.match(r"distinct\b", arguments[0], re.IGNORECASE) if arguments else None:
        if name != "count":
            raise ValueError(f"{name} cannot be distinct here, only count")
        arguments[0] = arguments[0][distinct.end() :].strip()
        function = "distinct"
    wanted = 2 if name.endswith("_by") or name == "corr" else 1
    if len(arguments) != wanted or not all(arguments):
        raise ValueError(f"{name} needs {wanted} argument{'s' if wanted > 1 else ''}")
    if wanted == 2:
        order = arguments[1]
    value = "true" if arguments[0] == "*" else arguments[0]
    return AggregateCall(function, text, value, order, only), at


def _arguments(tokens: list[tuple[str, str]], opening: int) -> tuple[list[str], int]:
    """The arguments between brackets, and where the tokens go on."""
    pieces, depth, at = [""], 0, opening
    while at < len(tokens):
        text = tokens[at][1]
        depth += (text in "([{" and len(text) == 1) - (text in ")]}" and len(text) == 1)
        at += 1
        if depth == 0:
            arguments = [argument.strip() for argument in pieces]
            return ([] if arguments == [""] else arguments), at
        if text == "," and depth == 1:
            pieces.append("")
        elif at - 1 != opening:
            pieces[-1] += text
    raise ValueError("a bracket is not closed")
