"""The part of Spark SQL that is understood without Spark: an expression's text as a tree.

Names, texts, numbers, comparisons, `and`, `or`, `not`, `in`, `between`, `like`, `is null`, `+ - * / %`, `||`, functions,
`case when` and `cast`. None for everything else, which only Spark reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?![\w.]))|(?P<text>'[^'\\$]*')|(?P<name>[A-Za-z_][A-Za-z0-9_]*|`[A-Za-z_][A-Za-z0-9_]*`)"
    r"|(?P<sign><=(?!>)|>=|<>|!=|\|\||[=<>+\-*/%(),\[\]]))"
)
_WORDS: Final = frozenset(
    {
        *(
            "and",
            "or",
            "not",
            "in",
            "between",
            "like",
            "is",
            "null",
            "true",
            "false",
            "case",
            "when",
            "then",
            "else",
        ),
        *("end", "cast", "as", "distinct", "div", "rlike", "regexp", "ilike", "exists", "any", "all", "some"),
        *("interval", "from", "default", "escape", "filter", "over", "within", "at", "collate", "select"),
    }
)
"""Words that are no names here; Spark reads some of them as names in some places."""
_COMPARISONS: Final = {"=": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "<>": "<>", "!=": "<>"}
DEPTH_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class Name:
    """A field."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A text, a whole number, a truth value; a decimal as its text in `decimal`."""

    value: str | int | bool
    decimal: bool = False


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """An operator or a function in lower case (`=`, `and`, `upper`, `cast string`, ...) and its arguments."""

    name: str
    arguments: tuple[Formula, ...]


Formula = Name | Literal | FunctionCall


class _Unknown(Exception):
    """Something that only Spark reads."""


@lru_cache(maxsize=1024)
def formula_of(text: str) -> Formula | None:
    """The tree of an expression; None if only Spark can read it."""
    tokens: list[tuple[str, str]] = []
    at, whole = 0, text.rstrip()
    while at < len(whole):
        match = _TOKEN.match(whole, at)
        if match is None:
            return None
        kind = str(match.lastgroup)
        tokens.append((kind, match[kind]))
        at = match.end()
    reader = _Reader(tokens)
    try:
        formula = reader.either()
    except (_Unknown, RecursionError):
        return None
    return formula if reader.at == len(tokens) else None


class _Reader:
    """Reads tokens from left to right, by the precedence of Spark's grammar."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    def _word(self) -> str:
        """The next token in lower case, if it is a sign or a word without quotes."""
        if self.at >= len(self.tokens):
            return ""
        kind, text = self.tokens[self.at]
        return text.lower() if kind in ("sign", "name") else ""

    def _take(self, *words: str) -> bool:
        """Move behind these words if they are next."""
        before = self.at
        for word in words:
            if self._word() != word:
                self.at = before
                return False
            self.at += 1
        return True

    def _need(self, word: str) -> None:
        if not self._take(word):
            raise _Unknown

    def either(self) -> Formula:
        """Operands of `or`."""
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise _Unknown
        left = self._both()
        while self._take("or"):
            left = FunctionCall("or", (left, self._both()))
        self.depth -= 1
        return left

    def _both(self) -> Formula:
        left = self._negated()
        while self._take("and"):
            left = FunctionCall("and", (left, self._negated()))
        return left

    def _negated(self) -> Formula:
        if self._take("not"):
            return FunctionCall("not", (self._negated(),))
        return self._predicate()

    def _predicate(self) -> Formula:
        left = self._sum()
        if self._word() in _COMPARISONS:
            sign = _COMPARISONS[self._word()]
            self.at += 1
            comparison: Formula = FunctionCall(sign, (left, self._sum()))
            if self._word() in {*_COMPARISONS, "in", "between", "like", "is", "not"}:
                raise _Unknown
            return comparison
        if self._take("is", "null"):
            return FunctionCall("is null", (left,))
        if self._take("is", "not", "null"):
            return FunctionCall("not", (FunctionCall("is null", (left,)),))
        if self._take("not"):
            return FunctionCall("not", (self._range(left),))
        return self._range(left) if self._word() in ("in", "between", "like") else left

    def _range(self, left: Formula) -> Formula:
        if self._take("in"):
            self._need("(")
            return FunctionCall("in", (left, *self._list()))
        if self._take("between"):
            low = self._sum()
            self._need("and")
            return FunctionCall(
                "and", (FunctionCall(">=", (left, low)), FunctionCall("<=", (left, self._sum())))
            )
        if self._take("like"):
            return FunctionCall("like", (left, self._sum()))
        raise _Unknown

    def _list(self) -> tuple[Formula, ...]:
        """Expressions up to a bracket that closes."""
        formulas: list[Formula] = []
        if self._take(")"):
            return ()
        while True:
            formulas.append(self.either())
            if self._take(")"):
                return tuple(formulas)
            self._need(",")

    def _sum(self) -> Formula:
        left = self._product()
        while self._word() in ("+", "-", "||"):
            sign = self._word()
            self.at += 1
            left = FunctionCall(sign, (left, self._product()))
        return left

    def _product(self) -> Formula:
        left = self._one()
        while self._word() in ("*", "/", "%"):
            sign = self._word()
            self.at += 1
            left = FunctionCall(sign, (left, self._one()))
        return left

    def _one(self) -> Formula:
        if self.at >= len(self.tokens):
            raise _Unknown
        kind, text = self.tokens[self.at]
        word = self._word()
        self.at += 1
        formula: Formula
        if kind == "text":
            formula = Literal(text[1:-1])
        elif kind == "number":
            formula = Literal(text, decimal=True) if "." in text else Literal(int(text))
        elif word == "-" and self.at < len(self.tokens) and self.tokens[self.at][0] == "number":
            number = self.tokens[self.at][1]
            self.at += 1
            formula = Literal("-" + number, decimal=True) if "." in number else Literal(-int(number))
        elif word == "(":
            formula = self.either()
            self._need(")")
        elif kind == "sign":
            raise _Unknown
        else:
            formula = self._named(text, word)
        if self._take("["):
            formula = FunctionCall("[]", (formula, self._one()))
            self._need("]")
        return formula

    def _named(self, text: str, word: str) -> Formula:
        if word in ("true", "false"):
            return Literal(word == "true")
        if word == "case" and self._take("when"):
            return self._cases()
        if word == "cast" and self._take("("):
            value = self.either()
            self._need("as")
            kind = self._word()
            self.at += 1
            self._need(")")
            return FunctionCall(f"cast {kind}", (value,))
        if word in _WORDS:
            raise _Unknown
        if text[0] != "`" and self._take("("):
            return FunctionCall(word, self._list())
        return Name(text.strip("`"))

    def _cases(self) -> Formula:
        condition = self.either()
        self._need("then")
        value = self.either()
        if self._take("when"):
            return FunctionCall("if", (condition, value, self._cases()))
        self._need("else")
        otherwise = self.either()
        self._need("end")
        return FunctionCall("if", (condition, value, otherwise))
