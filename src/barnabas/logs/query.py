"""What is searched for: words (`timeout -retry user:anna "connection reset" time*`), or a condition in SQL (`level =
'ERROR' AND message LIKE '%timeout%'`). Both become the same small tree.

A tree is asked in three ways: whether one row matches, which rows of an Arrow table match, and which blocks of an indexed
file may have rows that match. The last answer may be too large, never too small.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.logs.rows import COLUMNS, Row, milliseconds

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

TOKEN: Final = re.compile(r"[^\W]+")
"""A word of a text: letters, digits and underscores."""
SQL: Final = re.compile(r"(?i)(?:[=<>]|\b(?:LIKE|ILIKE|IN|IS|BETWEEN)\b(?!:))")
PART: Final = re.compile(r"(-?)(?:([\w.@-]+):)?(?:\"((?:[^\"\\]|\\.)*)\"|([^\s\"()]+))|([()])")
EQUAL: Final = ("level", "host", "path")
"""Columns of which a word search asks whether they are equal."""


class BadQuery(ValueError):
    """A query cannot be read; the message says why."""


class Lookup(Protocol):
    """An indexed file."""

    def blocks_of(self, token: str, part: str) -> np.ndarray[Any, Any]:
        """Which blocks have a token: `token` as a whole (part ""), one that begins so ("prefix"), or one that contains it
        ("inside")."""


class Node(Protocol):
    """A part of a query."""

    def matches(self, row: Row) -> bool:
        """Whether a row matches."""

    def mask(self, table: pa.Table) -> Any:
        """Which rows of a table match, as an Arrow array of booleans without nulls."""

    def blocks(self, index: Lookup) -> np.ndarray[Any, Any] | None:
        """Which blocks may have rows that match; None: all."""


@dataclass(frozen=True, slots=True)
class Everything:
    """Every row."""

    def matches(self, row: Row) -> bool:
        """See Node."""
        return True

    def mask(self, table: pa.Table) -> Any:
        """See Node."""
        import numpy as np
        import pyarrow as pa

        return pa.array(np.ones(len(table), bool))

    def blocks(self, index: Lookup) -> np.ndarray[Any, Any] | None:
        """See Node."""
        return None


@dataclass(frozen=True, slots=True)
class Contains:
    """A pattern in the message or the fields. pattern: of RE2. tokens: what the text must have, each with how (see
    Lookup). folds: without regard to case.
    """

    pattern: str
    tokens: tuple[tuple[str, str], ...]
    columns: tuple[str, ...] = ("message", "fields")
    folds: bool = True

    def matches(self, row: Row) -> bool:
        """See Node."""
        search = _compiled(self.pattern, self.folds)
        return any(search(getattr(row, column)) for column in self.columns)

    def mask(self, table: pa.Table) -> Any:
        """See Node."""
        import pyarrow.compute as pc

        mask = None
        for column in self.columns:
            one = pc.fill_null(
                pc.match_substring_regex(table[column], self.pattern, ignore_case=self.folds), False
            )
            mask = one if mask is None else pc.or_(mask, one)
        return mask

    def blocks(self, index: Lookup) -> np.ndarray[Any, Any] | None:
        """See Node."""
        blocks = None
        for token, part in self.tokens:
            one = index.blocks_of(token, part)
            blocks = one if blocks is None else blocks & one
        return blocks


@lru_cache(maxsize=200)
def _compiled(pattern: str, folds: bool) -> Callable[[str], object]:
    return re.compile(pattern, re.IGNORECASE if folds else 0).search


@dataclass(frozen=True, slots=True)
class Compare:
    """A column beside a value. operator: =, !=, <, <=, >, >=; both sides in capitals for `=` if `folds`."""

    column: str
    operator: str
    value: Any
    folds: bool = False

    def matches(self, row: Row) -> bool:
        """See Node."""
        cell, value = getattr(row, self.column), self.value
        if self.folds:
            cell, value = cell.upper(), value.upper()
        match self.operator:
            case "=":
                return bool(cell == value)
            case "!=":
                return bool(cell != value)
            case "<":
                return bool(cell < value)
            case "<=":
                return bool(cell <= value)
            case ">":
                return bool(cell > value)
            case _:
                return bool(cell >= value)

    def mask(self, table: pa.Table) -> Any:
        """See Node."""
        import pyarrow.compute as pc

        names = {
            "=": "equal",
            "!=": "not_equal",
            "<": "less",
            "<=": "less_equal",
            ">": "greater",
            ">=": "greater_equal",
        }
        column, value = table[self.column], self.value
        if self.folds:
            column, value = pc.utf8_upper(column), value.upper()
        return pc.fill_null(pc.call_function(names[self.operator], [column, value]), False)

    def blocks(self, index: Lookup) -> np.ndarray[Any, Any] | None:
        """See Node."""
        if self.operator == "=" and self.column in EQUAL and self.value:
            return index.blocks_of(f"{self.column}={self.value.lower()}", "")
        return None


@dataclass(frozen=True, slots=True)
class Both:
    """All of several conditions."""

    nodes: tuple[Node, ...]

    def matches(self, row: Row) -> bool:
        """See Node."""
        return all(node.matches(row) for node in self.nodes)

    def mask(self, table: pa.Table) -> Any:
        """See Node."""
        import pyarrow.compute as pc

        mask = self.nodes[0].mask(table)
        for node in self.nodes[1:]:
            mask = pc.and_(mask, node.mask(table))
        return mask

    def blocks(self, index: Lookup) -> np.ndarray[Any, Any] | None:
        """See Node."""
        blocks = None
        for node in self.nodes:
            one = node.blocks(index)
            if one is not None:
                blocks = one if blocks is None else blocks & one
        return blocks


@dataclass(frozen=True, slots=True)
class Either:
    """One of several conditions."""

    nodes: tuple[Node, ...]

    def matches(self, row: Row) -> bool:
        """See Node."""
        return any(node.matches(row) for node in self.nodes)

    def mask(self, table: pa.Table) -> Any:
        """See Node."""
        import pyarrow.compute as pc

        mask = self.nodes[0].mask(table)
        for node in self.nodes[1:]:
            mask = pc.or_(mask, node.mask(table))
        return mask

    def blocks(self, index: Lookup) -> np.ndarray[Any, Any] | None:
        """See Node."""
        blocks = None
        for node in self.nodes:
            one = node.blocks(index)
            if one is None:
                return None
            blocks = one if blocks is None else blocks | one
        return blocks


@dataclass(frozen=True, slots=True)
class Without:
    """Not this condition."""

    node: Node

    def matches(self, row: Row) -> bool:
        """See Node."""
        return not self.node.matches(row)

    def mask(self, table: pa.Table) -> Any:
        """See Node."""
        import pyarrow.compute as pc

        return pc.invert(self.node.mask(table))

    def blocks(self, index: Lookup) -> np.ndarray[Any, Any] | None:
        """See Node."""
        return None


def tokens_of(text: str) -> list[str]:
    """The words of a text, as they are in an index."""
    return TOKEN.findall(text.lower())


def parse(text: str) -> Node:
    """A query. Raises BadQuery."""
    if not text.strip():
        return Everything()
    bare = re.sub(r"'(?:[^']|'')*'|\"(?:[^\"\\]|\\.)*\"", "''", text)
    return _sql(text) if SQL.search(bare) else _words(text)


def word(text: str) -> Node:
    """Rows that have a word or phrase; `*` at its end stands for anything that goes on."""
    is_open = text.endswith("*") and len(text) > 1
    text = text.rstrip("*") if is_open else text
    tokens = tokens_of(text)
    head = r"(?:^|\W)" if text[:1].isalnum() or text[:1] == "_" else ""
    tail = r"(?:$|\W)" if not is_open and (text[-1:].isalnum() or text[-1:] == "_") else ""
    parts = [(token, "") for token in tokens]
    if is_open and parts:
        parts[-1] = (parts[-1][0], "prefix")
    return Contains(f"{head}{re.escape(text)}{tail}", tuple(parts))


def named(name: str, value: str) -> Node:
    """Rows in which a field has a value: a column, or `name=value`, `name: value`, `"name":"value"` in the text."""
    if name in EQUAL:
        if "*" in value:
            return Contains("^" + ".*".join(map(re.escape, value.split("*"))) + "$", (), (name,))
        return Compare(name, "=", value, folds=True)
    if name in ("message", "fields"):
        return word(value)
    is_open = value.endswith("*")
    value = value.rstrip("*")
    tail = "" if is_open else r"(?:$|\W)"
    parts = [(token, "") for token in (*tokens_of(name.rpartition(".")[2]), *tokens_of(value))]
    if is_open and tokens_of(value):
        parts[-1] = (parts[-1][0], "prefix")
    short = re.escape(name.rpartition(".")[2])
    return Contains(rf"(?:^|\W){short}[\"']?\s*[=:]\s*[\"']?{re.escape(value)}{tail}", tuple(parts))


def _words(text: str) -> Node:
    """Words with AND between them, `-` before what must not be there, OR, and parentheses."""
    parts = list(PART.finditer(text))
    if "".join(match[0] for match in parts) != re.sub(r"\s", "", text) and re.search(r'"', text):
        rest = PART.sub("", text)
        if '"' in rest:
            raise BadQuery(f"a quotation mark is not closed in {text!r}")
    node, at = _any(parts, 0)
    if at < len(parts):
        raise BadQuery(f"there is a parenthesis too much in {text!r}")
    return node


def _any(parts: Sequence[re.Match[str]], at: int) -> tuple[Node, int]:
    nodes = []
    while True:
        node, at = _all(parts, at)
        nodes.append(node)
        if at >= len(parts) or parts[at][4] != "OR":
            break
        at += 1
    return (nodes[0] if len(nodes) == 1 else Either(tuple(nodes))), at


def _all(parts: Sequence[re.Match[str]], at: int) -> tuple[Node, int]:
    nodes: list[Node] = []
    while at < len(parts) and parts[at][4] != "OR" and parts[at][5] != ")":
        match = parts[at]
        at += 1
        if match[5] == "(":
            node, at = _any(parts, at)
            if at >= len(parts):
                raise BadQuery("a parenthesis is not closed")
            at += 1
        elif match[4] == "AND" and not match[1] and not match[2]:
            continue
        elif match[4] == "NOT" and not match[1] and not match[2] and at < len(parts) and parts[at][5] is None:
            node, at = Without(_one(parts[at])), at + 1
        else:
            node = _one(match)
        nodes.append(node)
    if not nodes:
        raise BadQuery("there is nothing to search for between the parts")
    return (nodes[0] if len(nodes) == 1 else Both(tuple(nodes))), at


def _one(match: re.Match[str]) -> Node:
    quoted = match[3]
    text = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else match[4]
    if not text:
        raise BadQuery("an empty text in quotation marks matches nothing")
    node = named(match[2], text) if match[2] else word(text)
    return Without(node) if match[1] else node


def _sql(text: str) -> Node:
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        tree = sqlglot.parse_one(f"SELECT 1 WHERE {text}", read="spark").args["where"].this
    except (SqlglotError, AttributeError, KeyError) as error:
        reason = str(error).splitlines()[0].partition(" Line ")[0].rstrip(".")
        raise BadQuery(f"not a condition in SQL: {reason}") from None
    return _condition(tree)


def _condition(tree: Any) -> Node:
    from sqlglot import exp

    operators = {exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
    match tree:
        case exp.Paren():
            return _condition(tree.this)
        case exp.And():
            return Both((_condition(tree.left), _condition(tree.right)))
        case exp.Or():
            return Either((_condition(tree.left), _condition(tree.right)))
        case exp.Not():
            return Without(_condition(tree.this))
        case exp.Boolean():
            return Everything() if tree.this else Without(Everything())
        case exp.Like() | exp.ILike():
            return _like(_name(tree.this), _text(tree.expression), isinstance(tree, exp.ILike))
        case exp.In():
            name = _name(tree.this)
            return Either(tuple(_compare(name, "=", _text(value)) for value in tree.expressions))
        case exp.Between():
            name = _name(tree.this)
            low, high = _text(tree.args["low"]), _text(tree.args["high"])
            return Both((_compare(name, ">=", low), _compare(name, "<=", high)))
        case exp.Is():
            name = _name(tree.this)
            if not isinstance(tree.expression, exp.Null) or name not in COLUMNS:
                raise BadQuery(
                    f"{tree.sql()} is not understood; IS NULL asks for columns: {', '.join(COLUMNS)}"
                )
            return Compare(name, "=", "")
    for kind, operator in operators.items():
        if isinstance(tree, kind):
            return _compare(_name(tree.left), operator, _text(tree.right))
    raise BadQuery(
        f"{tree.sql()} is not understood; allowed: =, !=, <, >, LIKE, ILIKE, IN, BETWEEN, IS NULL, AND, OR, NOT"
    )


def _name(tree: Any) -> str:
    from sqlglot import exp

    if not isinstance(tree, exp.Column):
        raise BadQuery(f"{tree.sql()} is no field; the field stands on the left, the value on the right")
    return ".".join(part.name for part in tree.parts)


def _text(tree: Any) -> str:
    from sqlglot import exp

    if isinstance(tree, exp.Column):
        raise BadQuery(f"{tree.sql()} is no value; put texts in single quotes: '{tree.name}'")
    if not isinstance(tree, exp.Literal):
        raise BadQuery(f"{tree.sql()} is no value")
    return str(tree.this)


def _compare(name: str, operator: str, value: str) -> Node:
    if name == "time":
        time = milliseconds(value)
        if time is None:
            raise BadQuery(f"{value!r} is no time; an example: '2026-01-31T12:00:00Z'")
        return Compare(name, operator, time)
    if name in ("partition", "offset"):
        if not re.fullmatch("[0-9]{1,18}", value):
            raise BadQuery(f"{value!r} is no number")
        return Compare(name, operator, int(value))
    if name in COLUMNS:
        return Compare(name, operator, value, folds=name == "level" and operator in ("=", "!="))
    if operator == "=":
        return named(name, value)
    if operator == "!=":
        return Without(named(name, value))
    raise BadQuery(f"{name} is no column, so {operator} cannot be computed; columns: {', '.join(COLUMNS)}")


def _like(name: str, pattern: str, folds: bool) -> Node:
    """LIKE and ILIKE. Words between the signs may be parts of longer words."""
    if name not in COLUMNS or name in ("time", "partition", "offset"):
        raise BadQuery(f"LIKE is for message, level, host, path and fields, not for {name}")
    regex = ""
    pieces = re.split(r"(%|_)", pattern)
    for piece in pieces:
        regex += ".*" if piece == "%" else "." if piece == "_" else re.escape(piece)
    tokens = [(token, "inside") for piece in pieces if piece not in ("%", "_") for token in tokens_of(piece)]
    return Contains(f"(?s)^{regex}$", tuple(tokens) if name == "message" else (), (name,), folds)
