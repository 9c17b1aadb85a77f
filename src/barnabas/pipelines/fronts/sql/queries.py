"""SELECT: what is read, joined, grouped and shown."""

from __future__ import annotations

from typing import Final

from sqlglot import TokenType, exp

from barnabas.pipelines.fronts.sql.cursor import CLOSING, OPENING, Cursor
from barnabas.pipelines.fronts.sql.dialect import read_expression
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.statements import Item, JoinRef, Select, SourceRef, Window

CLAUSES: Final = frozenset(
    [
        "FROM",
        "WINDOW",
        "WHERE",
        "PARTITION",
        "GROUP",
        "HAVING",
        "EMIT",
        "LIMIT",
        "JOIN",
        "INNER",
        "LEFT",
        "RIGHT",
        "FULL",
        "WITHIN",
        "ON",
    ]
) | {"GROUP BY", "PARTITION BY"}
"""Words that end an expression."""
UNITS: Final = ("MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "YEAR")
DAYS_OF_YEAR: Final = 365
NAMES: Final = frozenset({TokenType.VAR, TokenType.IDENTIFIER})
ENDS: Final = NAMES | {
    TokenType.NUMBER,
    TokenType.STRING,
    TokenType.R_PAREN,
    TokenType.R_BRACKET,
    TokenType.END,
    TokenType.NULL,
    TokenType.TRUE,
    TokenType.FALSE,
}
"""What an expression may end with: a name after it is its alias."""


def read_select(cursor: Cursor) -> Select:
    """What follows SELECT. Raises SqlError."""
    items = [_item(cursor)]
    while cursor.take(","):
        items.append(_item(cursor))
    cursor.need("FROM")
    source = _source(cursor)
    joins = []
    while (kind := _join_kind(cursor)) is not None:
        joins.append(_join(cursor, kind))
    window = _window(cursor) if cursor.take("WINDOW") else None
    where = cursor.expression(CLAUSES) if cursor.take("WHERE") else None
    partition_by = _several(cursor) if _by(cursor, "PARTITION") else ()
    group_by = _several(cursor) if _by(cursor, "GROUP") else ()
    having = cursor.expression(CLAUSES) if cursor.take("HAVING") else None
    emit = cursor.choose("CHANGES", "FINAL", what="what to emit") if cursor.take("EMIT") else ""
    limit = cursor.number() if cursor.take("LIMIT") else None
    return Select(
        tuple(items), source, tuple(joins), window, where, partition_by, group_by, having, emit, limit
    )


def _by(cursor: Cursor, word: str) -> bool:
    return cursor.take(f"{word} BY") or cursor.take(word, "BY")


def _several(cursor: Cursor) -> tuple[exp.Expr, ...]:
    """Expressions between commas, perhaps in parentheses."""
    expressions = [cursor.expression(CLAUSES)]
    while cursor.take(","):
        expressions.append(cursor.expression(CLAUSES))
    if len(expressions) == 1 and isinstance(expressions[0], exp.Tuple):
        return tuple(expressions[0].expressions)
    return tuple(one.this if isinstance(one, exp.Paren) else one for one in expressions)


def _item(cursor: Cursor) -> Item:
    where, begin = cursor.spot, cursor.at
    if cursor.take("*"):
        return Item(exp.Star(), "", where)
    depth = 0
    while not cursor.ended:
        token = cursor.token
        if token.token_type in OPENING:
            depth += 1
        elif token.token_type in CLOSING:
            depth -= 1
        elif depth == 0 and (
            token.token_type is TokenType.COMMA or cursor.sees_end_of_clause(CLAUSES | {"AS"})
        ):
            break
        cursor.at += 1
    tokens = cursor.tokens[begin : cursor.at]
    if not tokens:
        cursor.fail("a column or an expression is expected")
    if cursor.take("AS"):
        return Item(read_expression(tokens, cursor.text), cursor.name("the name of the column"), where)
    if len(tokens) > 1 and tokens[-1].token_type in NAMES and tokens[-2].token_type in ENDS:
        last = tokens[-1]
        alias = last.text if last.token_type is TokenType.IDENTIFIER else last.text.upper()
        return Item(read_expression(tokens[:-1], cursor.text), alias, where)
    return Item(read_expression(tokens, cursor.text), "", where)


def _source(cursor: Cursor) -> SourceRef:
    where = cursor.spot
    name = cursor.name("the name of a stream or table")
    alias = name
    if cursor.take("AS") or (
        not cursor.ended and not cursor.sees_end_of_clause(CLAUSES | {"OUTER", ")", ","})
    ):
        alias = cursor.name("an alias")
    return SourceRef(name, alias, where)


def _join_kind(cursor: Cursor) -> str | None:
    for word in ("INNER", "LEFT", "RIGHT", "FULL"):
        if cursor.take(word):
            cursor.take("OUTER")
            cursor.need("JOIN")
            return word.lower()
    return "inner" if cursor.take("JOIN") else None


def _join(cursor: Cursor, kind: str) -> JoinRef:
    source = _source(cursor)
    within, grace = None, None
    if cursor.take("WITHIN"):
        if cursor.take("("):
            before = read_duration(cursor)
            cursor.need(",")
            within = (before, read_duration(cursor))
            cursor.need(")")
        else:
            both = read_duration(cursor)
            within = (both, both)
        if cursor.take("GRACE", "PERIOD"):
            grace = read_duration(cursor)
    cursor.need("ON")
    return JoinRef(source, kind, cursor.expression(CLAUSES), within, grace)


KINDS: Final = ("TUMBLING", "HOPPING", "SESSION")


def _window(cursor: Cursor) -> Window:
    named = cursor.at
    kind = cursor.name("TUMBLING, HOPPING or SESSION")
    if kind not in KINDS:
        if cursor.sees("("):
            cursor.at = named
        kind = cursor.choose(*KINDS, what="a kind of window")  # after a name, which nothing uses
    cursor.need("(")
    if kind == "SESSION":
        size, advance = read_duration(cursor), None
    else:
        cursor.need("SIZE")
        size, advance = read_duration(cursor), None
        if kind == "HOPPING":
            cursor.need(",", "ADVANCE", "BY")
            advance = read_duration(cursor)
    grace = retention = None
    while cursor.take(","):
        if cursor.take("RETENTION"):
            retention = read_duration(cursor)
        else:
            cursor.need("GRACE", "PERIOD")
            grace = read_duration(cursor)
    cursor.need(")")
    return Window(kind, size, advance, grace, retention)


def read_duration(cursor: Cursor) -> str:
    """A duration like 5 MINUTES, as Spark writes it. Raises SqlError."""
    amount, where = cursor.number("how long it is"), cursor.spot
    unit = cursor.name("a unit of time").removesuffix("S")
    if unit not in UNITS:
        raise SqlError(f"{unit}S is no unit of time; allowed: {', '.join(f'{u}S' for u in UNITS)}", where)
    if unit == "YEAR":
        amount, unit = amount * DAYS_OF_YEAR, "DAY"
    return f"{amount} {unit.lower()}{'' if amount == 1 else 's'}"
