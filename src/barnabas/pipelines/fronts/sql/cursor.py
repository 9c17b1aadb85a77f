"""Reads tokens one after the other: words, names, texts, numbers, and what lies in parentheses."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from sqlglot import Token, TokenType, exp

from barnabas.pipelines.fronts.sql.dialect import read_expression, spot_of
from barnabas.pipelines.fronts.sql.errors import Spot, SqlError
from barnabas.pipelines.fronts.sql.types import ALIASES, PLAIN, SqlType

OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})


class Cursor:
    """A place in the tokens of one statement."""

    def __init__(self, tokens: list[Token], text: str, types: Mapping[str, SqlType] | None = None) -> None:
        """tokens: without the semicolon. text: what all tokens were read from. types: those that CREATE TYPE has named."""
        self.tokens = tokens
        self.text = text
        self.types = {} if types is None else types
        self.at = 0

    # --- looking -----------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether all tokens have been read."""
        return self.at >= len(self.tokens)

    @property
    def token(self) -> Token:
        """The next token. Raises SqlError at the end."""
        if self.ended:
            raise SqlError("the statement ends here, but more is expected", self.spot)
        return self.tokens[self.at]

    @property
    def spot(self) -> Spot:
        """The place of the next token, or just after the last one."""
        if not self.ended:
            return spot_of(self.tokens[self.at])
        last = spot_of(self.tokens[-1])
        return Spot(last.line, last.column + last.length)

    def sees(self, *words: str) -> bool:
        """Whether these words come next. A word is not a name in quotes."""
        position = self.at
        for word in words:
            # sqlglot makes one token of some pairs, like GROUP BY.
            if position < len(self.tokens) and _word(self.tokens[position]) == word:
                position += 1
            else:
                return False
        return True

    def sees_end_of_clause(self, stops: frozenset[str]) -> bool:
        """Whether a word comes that ends an expression; the FROM of IS DISTINCT FROM does not."""
        if self.ended:
            return True
        inside = self.at > 0 and self.sees("FROM") and _word(self.tokens[self.at - 1]) == "DISTINCT"
        return _word(self.tokens[self.at]) in stops and not inside

    # --- taking ------------------------------------------------------------------------------------

    def take(self, *words: str) -> bool:
        """Reads these words if they come next, and says whether they did."""
        if not self.sees(*words):
            return False
        self.at += len(words)
        return True

    def need(self, *words: str) -> None:
        """Reads these words. Raises SqlError if others come."""
        for word in words:
            if not self.take(word):
                self.fail(f"{word} is expected")

    def fail(self, message: str) -> None:
        """Raises SqlError at the next token, which it names."""
        what = "the end of the statement" if self.ended else repr(self.tokens[self.at].text)
        raise SqlError(f"{message}, not {what}", self.spot)

    def choose(self, *words: str, what: str) -> str:
        """Reads one of these words. Raises SqlError that names what was meant."""
        for word in words:
            if self.take(word):
                return word
        token_text = "" if self.ended else _word(self.token)
        near = difflib.get_close_matches(token_text, words, 1, 0.6)
        token_text = "the end of the statement" if self.ended else repr(self.token.text)
        hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(words)}"
        raise SqlError(f"{what} is expected, not {token_text}; {hint}", self.spot)

    def name(self, what: str = "a name") -> str:
        """Reads a name: in capitals unless it is in quotes. Raises SqlError."""
        token = self.token
        if token.token_type is TokenType.IDENTIFIER:
            self.at += 1
            return token.text
        if not (token.text[:1].isalpha() or token.text[:1] == "_") or token.token_type is TokenType.STRING:
            self.fail(f"{what} is expected")
        self.at += 1
        return token.text.upper()

    def typed_name(self, what: str = "a name") -> tuple[str, str]:
        """Reads a name; also returns it as it was typed."""
        typed = self.token.text
        return self.name(what), typed

    def dashed_name(self, what: str) -> str:
        """Reads a name that may hold dashes and dots, as those of topics and queries do, as it was typed."""
        if self.token.token_type is TokenType.STRING:
            return self.string()
        first = self.tokens[self.at]
        self.name(what)
        while not self.ended and self.tokens[self.at].start == self.tokens[self.at - 1].end + 1:
            self.at += 1
        return self.text[first.start : self.tokens[self.at - 1].end + 1].strip('`"')

    def string(self, what: str = "a text in quotes like 'this'") -> str:
        """Reads a text in single quotes. Raises SqlError."""
        if self.token.token_type is not TokenType.STRING:
            self.fail(f"{what} is expected")
        self.at += 1
        return self.tokens[self.at - 1].text

    def number(self, what: str = "a whole number") -> int:
        """Reads a whole number. Raises SqlError."""
        token = self.token
        if token.token_type is not TokenType.NUMBER or not token.text.isdecimal():
            self.fail(f"{what} is expected")
        self.at += 1
        return int(token.text)

    def literal(self) -> str | int | float | bool:
        """Reads a text, a number or a truth value. Raises SqlError."""
        token = self.token
        if token.token_type is TokenType.STRING:
            return self.string()
        sign = -1 if self.take("-") else 1
        token = self.token
        if token.token_type is TokenType.NUMBER:
            self.at += 1
            return sign * (int(token.text) if token.text.isdecimal() else float(token.text))
        for word, value in (("TRUE", True), ("FALSE", False)):
            if self.take(word):
                return value
        self.fail("a text, a number, true or false is expected")
        raise AssertionError

    def expression(self, stops: frozenset[str]) -> exp.Expr:
        """Reads an expression up to a comma, a closing parenthesis or one of these words outside of parentheses."""
        begin, depth = self.at, 0
        while not self.ended:
            token = self.tokens[self.at]
            if token.token_type in OPENING:
                depth += 1
            elif token.token_type in CLOSING:
                if depth == 0:
                    break
                depth -= 1
            elif depth == 0 and (token.token_type is TokenType.COMMA or self.sees_end_of_clause(stops)):
                break
            self.at += 1
        if self.at == begin:
            self.fail("an expression is expected")
        return read_expression(self.tokens[begin : self.at], self.text)

    def type(self) -> SqlType:
        """Reads a type. Raises SqlError."""
        where = self.spot
        word = self.name("a type")
        word = ALIASES.get(word, word)
        if word in PLAIN:
            if word == "STRING" and self.take("("):  # VARCHAR(STRING), as older versions print it
                self.name()
                self.need(")")
            return SqlType(word)
        if (named := self.types.get(word)) is not None:
            return named
        if word == "DECIMAL":
            self.need("(")
            precision = self.number()
            self.need(",")
            scale = self.number()
            self.need(")")
            return SqlType("DECIMAL", digits=(precision, scale))
        if word in ("ARRAY", "MAP", "STRUCT"):
            return self._nested(word)
        near = difflib.get_close_matches(
            word, [*PLAIN, *ALIASES, *self.types, "DECIMAL", "ARRAY", "MAP", "STRUCT"], 1, 0.5
        )
        hint = f"; did you mean {near[0]}?" if near else ""
        raise SqlError(f"there is no type {word}{hint}", where)

    def _nested(self, word: str) -> SqlType:
        self.need("<")
        names, typed, items = [], [], []
        while not (word == "STRUCT" and self.sees(">")):
            if word == "STRUCT":
                name, spelt = self.typed_name()
                names.append(name)
                typed.append(spelt)
            items.append(self.type())
            if not self.take(","):
                break
        self._close_angle()
        wanted = {"ARRAY": 1, "MAP": 2}.get(word, len(items))
        if len(items) != wanted:
            raise SqlError(f"{word} needs {wanted} types, not {len(items)}", self.spot)
        return SqlType(word, tuple(items), tuple(names), typed=tuple(typed))

    def _close_angle(self) -> None:
        """Reads `>`, also the first half of `>>`, which the tokens have as one."""
        if not self.ended and self.token.text == ">>":
            token = self.tokens[self.at]
            half = Token(TokenType.GT, ">", token.line, token.col, token.end, token.end)
            self.tokens = [*self.tokens[: self.at], half, *self.tokens[self.at + 1 :]]
            return
        self.need(">")


def _word(token: Token) -> str:
    """The word that a token is; empty for names in quotes and texts."""
    return "" if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING) else token.text.upper()
