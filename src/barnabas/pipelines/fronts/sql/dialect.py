"""ksqlDB's tokens and expressions, for sqlglot: it reads them, and means nothing by them.

Functions stay names with arguments: sqlglot would give those that it knows from other databases their meaning.
"""

from __future__ import annotations

import difflib
from typing import ClassVar, Final

from sqlglot import Token, TokenType, exp, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from barnabas.pipelines.fronts.sql.errors import Spot, SqlError


class KsqlDialect(Dialect):
    """What sqlglot has to know."""

    class Tokenizer(tokens.Tokenizer):
        """Backquotes and quotes around names; no statement is taken whole as a command of a shell."""

        IDENTIFIERS = ["`", '"']  # noqa: RUF012
        COMMANDS: ClassVar[set[TokenType]] = set()

    class Parser(parser.Parser):
        """`a->b` is a field of a struct, and `x => x + 1` a function."""

        FUNCTIONS = {}  # noqa: RUF012
        NO_PAREN_FUNCTIONS = {}  # noqa: RUF012
        FUNCTION_PARSERS = {"CAST": parser.Parser.FUNCTION_PARSERS["CAST"]}  # noqa: RUF012
        COLUMN_OPERATORS = {  # noqa: RUF012
            **parser.Parser.COLUMN_OPERATORS,
            TokenType.ARROW: lambda self, this, field: exp.Dot(this=this, expression=field),
        }
        LAMBDAS = {TokenType.FARROW: parser.Parser.LAMBDAS[TokenType.ARROW]}  # noqa: RUF012


DIALECT = KsqlDialect()


def spot_of(token: Token) -> Spot:
    """The place of a token."""
    return Spot(token.line, token.col - (token.end - token.start), token.end - token.start + 1)


def spot_of_node(node: exp.Expr, *, alone: bool = False) -> Spot | None:
    """The place of an expression: its names and functions, as far as they are in one line; None if it has none. alone: only
    that of its own word, like the name of a function."""
    parts = [node] if alone else node.walk()
    places = [part.meta for part in parts if "start" in part.meta and "line" in part.meta]
    if not places:
        return None
    first = min(places, key=lambda place: int(place["start"]))
    end = max(int(place["end"]) for place in places if place["line"] == first["line"])
    column = first["col"] - (first["end"] - first["start"])
    return Spot(first["line"], max(column, 1), end - first["start"] + 1)


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text, without comments. Raises SqlError."""
    try:
        return DIALECT.tokenize(text)
    except SqlglotError as error:
        for quote, what in (("'", "a text"), ('"', "a name"), ("`", "a name")):
            if text.count(quote) % 2:
                before, _, _ = text.rpartition(quote)
                spot = Spot(before.count("\n") + 1, len(before) - before.rfind("\n"))
                raise SqlError(f"{what} that begins with {quote} has no {quote} at its end", spot) from None
        raise SqlError(f"the text cannot be read: {str(error).splitlines()[0]}") from None


CLAUSES: Final = (
    "FROM", "WHERE", "WINDOW", "GROUP", "PARTITION", "HAVING", "EMIT", "LIMIT", "JOIN", "WITHIN", "AS", "AND", "OR", "LIKE",
    "BETWEEN", "THEN", "WHEN", "ELSE", "END",
)  # fmt: skip
"""Words that are sometimes misspelt, and then taken for names."""


def _suggested(word: str | None) -> str:
    near = difflib.get_close_matches((word or "").upper(), CLAUSES, 1, 0.6)
    return f"; did you mean {near[0]}?" if near else ""


def read_expression(expression_tokens: list[Token], text: str) -> exp.Expr:
    """The expression that these tokens are. Raises SqlError."""
    where = spot_of(expression_tokens[0])
    try:
        trees = KsqlDialect.Parser(dialect=DIALECT).parse_into(exp.Condition, expression_tokens, text)
    except SqlglotError as error:
        details = getattr(error, "errors", [])
        if details and details[0].get("line"):
            first = details[0]
            word = first.get("highlight") or " "
            where = Spot(first["line"], max(first["col"] - len(word) + 1, 1), len(word))
        reason = details[0]["description"] if details and details[0].get("description") else str(error)
        if reason.startswith("Invalid expression"):
            raise SqlError(
                f"this is not understood here{_suggested(details[0].get('highlight'))}", where
            ) from None
        raise SqlError(f"this is not an expression: {reason.rstrip('.')}", where) from None
    if len(trees) != 1 or trees[0] is None:
        raise SqlError("an expression is missing here", where)
    return trees[0]
