"""Reads Spark SQL's expressions with sqlglot. Functions stay names with arguments."""

from __future__ import annotations

from typing import ClassVar

from sqlglot import TokenType, exp, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from barnabas.pipelines.plan.interpret.spark.values import NotInterpreted


class _SparkDialect(Dialect):
    """What sqlglot has to know."""

    class Tokenizer(tokens.Tokenizer):
        """Quotes, and letters behind numbers."""

        IDENTIFIERS = ["`"]  # noqa: RUF012
        QUOTES = ["'", '"']  # noqa: RUF012
        STRING_ESCAPES = ["\\"]  # noqa: RUF012
        NUMERIC_LITERALS: ClassVar[dict[str, str]] = {"L": "BIGINT", "D": "DOUBLE"}
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            **{
                word: kind
                for word, kind in tokens.Tokenizer.KEYWORDS.items()
                if word not in ("->>", "#>", "#>>")
            },
            "DIV": TokenType.DIV,
        }
        COMMANDS: ClassVar[set[TokenType]] = set()

    class Parser(parser.Parser):
        """No function means anything yet; `x -> x + 1` is a function."""

        FUNCTIONS = {}  # noqa: RUF012
        NO_PAREN_FUNCTIONS = {}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: parser.Parser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST")
        }
        COLUMN_OPERATORS = {  # noqa: RUF012
            kind: build
            for kind, build in parser.Parser.COLUMN_OPERATORS.items()
            if kind is not TokenType.ARROW
        }
        LAMBDAS = {TokenType.ARROW: parser.Parser.LAMBDAS[TokenType.ARROW]}  # noqa: RUF012


DIALECT = _SparkDialect()


def tree_of(text: str) -> exp.Expr:
    """The tree of an expression. Raises NotInterpreted."""
    try:
        trees = _SparkDialect.Parser(dialect=DIALECT).parse_into(exp.Condition, DIALECT.tokenize(text), text)
    except (SqlglotError, RecursionError):
        raise NotInterpreted(f"the expression {text!r}") from None
    if len(trees) != 1 or trees[0] is None:
        raise NotInterpreted(f"the expression {text!r}")
    return trees[0]
