"""KCQL, by which Lenses' connectors say what goes where: INSERT INTO target SELECT * FROM source. No I/O.

    INSERT INTO truck_position SELECT * FROM truck/+/position
    INSERT INTO `$` SELECT * FROM sensors/# WITHCONVERTER=`...JsonSimpleConverter` WITHKEY(id, place.room) KEYDELIMITER='-'

Source: Lenses' documentation of Stream Reactor. What it says about a connector's own clauses is kept in `clauses`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.connect.errors import OptionError

TOKEN: Final = re.compile(r"\s*(`[^`]*`|'[^']*'|\"[^\"]*\"|[(),;=]|[^\s(),;=`'\"]+)")


@dataclass(frozen=True, slots=True)
class Route:
    """One statement. fields: empty for *. key: of WITHKEY; delimiter: between its values. clauses: the others."""

    target: str
    source: str
    fields: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    delimiter: str = "."
    clauses: Mapping[str, str] = field(default_factory=dict)


def parse(text: str, option: str) -> list[Route]:
    """The statements of a text, between semicolons. Raises OptionError about `option`."""
    tokens = _tokens(text, option)
    routes = []
    while tokens:
        end = tokens.index(";") if ";" in tokens else len(tokens)
        statement, tokens = tokens[:end], tokens[end + 1 :]
        if statement:
            routes.append(_route(statement, option))
    if not routes:
        raise OptionError(f"{option} is empty: it is like INSERT INTO target SELECT * FROM source", option)
    return routes


def _tokens(text: str, option: str) -> list[str]:
    tokens, place = [], 0
    text = text.rstrip()
    while place < len(text):
        match = TOKEN.match(text, place)
        if match is None:
            raise OptionError(
                f"{option}: a quotation mark has no partner: {text[place : place + 40]!r}", option
            )
        tokens.append(match[1])
        place = match.end()
    return tokens


def _bare(token: str) -> str:
    return token[1:-1] if token[0] in "`'\"" else token


def _route(tokens: Sequence[str], option: str) -> Route:
    words = list(tokens)

    def take(*wanted: str) -> None:
        for word in wanted:
            if not words or words[0].upper() != word:
                next_word = words[0] if words else "the end"
                raise OptionError(
                    f"{option}: expected {word}, found {next_word}: "
                    "a statement is like INSERT INTO target SELECT * FROM source",
                    option,
                )
            words.pop(0)

    def name(what: str) -> str:
        if not words or words[0] in "(),=;":
            raise OptionError(f"{option}: the name of {what} is missing", option)
        return _bare(words.pop(0))

    if words and words[0].upper() == "UPSERT":
        words[0] = "INSERT"
    take("INSERT", "INTO")
    target = name("the target")
    take("SELECT")
    fields = [name("a field")]
    while words and words[0] == ",":
        words.pop(0)
        fields.append(name("a field"))
    take("FROM")
    source = name("the source")
    clauses: dict[str, str] = {}
    while words:
        clause = words.pop(0).upper()
        clauses[clause] = _value(clause, words, option)
    key = tuple(part.strip() for part in clauses.pop("WITHKEY", "").split(",") if part.strip())
    delimiter = clauses.pop("KEYDELIMITER", ".")
    return Route(target, source, () if fields == ["*"] else tuple(fields), key, delimiter, clauses)


def _value(clause: str, words: list[str], option: str) -> str:
    """What follows the name of a clause: = and a value, or names in brackets."""
    if words and words[0] == "=":
        words.pop(0)
        if not words:
            raise OptionError(f"{option}: {clause} has no value", option)
        return _bare(words.pop(0))
    if words and words[0] == "(":
        end = words.index(")") if ")" in words else len(words)
        inner = words[1:end]
        del words[: end + 1]
        return "".join(map(_bare, inner))
    return "true"
