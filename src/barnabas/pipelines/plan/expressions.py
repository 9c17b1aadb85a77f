"""Spark SQL expressions over the fields of a row.

An expression is Spark's language, so only Spark reads all of it. What can be said without Spark is found out once, when
the expression becomes part of a plan: that it is just a field, a text, or some fields with text between them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEXT: Final = re.compile(r"'([^'\\$]*)'")  # no $: Spark replaces ${name} by a setting
_JOINED: Final = re.compile(
    r"concat_ws\(\s*'([^'\\$]*)'((?:\s*,\s*`?[A-Za-z_][A-Za-z0-9_]*`?)+)\s*\)", re.IGNORECASE
)
_SIMPLE: Final = re.compile(r"[A-Za-z_][\w.]*|`[^`]+`|\d+|'[^'\\]*'")
_WORDS: Final = frozenset({"null", "true", "false", "default", "interval"})
"""Words that Spark does not read as names of fields."""


@dataclass(frozen=True, slots=True)
class FieldName:
    """Just a field."""

    name: str


@dataclass(frozen=True, slots=True)
class FixedText:
    """The same text for every row."""

    text: str


@dataclass(frozen=True, slots=True)
class JoinedFields:
    """`concat_ws` of fields."""

    separator: str
    names: tuple[str, ...]


Form = FieldName | FixedText | JoinedFields


@dataclass(frozen=True, slots=True)
class Expression:
    """A Spark SQL expression. where: file and line. form: what is known of it without Spark; None: Spark has to read
    it. cannot_fail: whether it is a name or a literal."""

    text: str
    where: str = field(default="", compare=False)
    form: Form | None = field(default=None, compare=False, repr=False)
    cannot_fail: bool = field(default=False, compare=False, repr=False)

    @classmethod
    def of(cls, text: str, where: str = "") -> Expression:
        """The expression that this text is."""
        return cls(text, where, _form_of(text.strip()), _SIMPLE.fullmatch(text) is not None)


def expressions_of(texts: Mapping[str, str], where: str = "") -> dict[str, Expression]:
    """Expressions by name."""
    return {name: Expression.of(text, where) for name, text in texts.items()}


def _form_of(text: str) -> Form | None:
    if fixed := _TEXT.fullmatch(text):
        return FixedText(fixed[1])
    if joined := _JOINED.fullmatch(text):
        names = [_name(part.strip()) for part in joined[2].split(",")[1:]]
        return None if None in names else JoinedFields(joined[1], tuple(name for name in names if name))
    name = _name(text)
    return None if name is None else FieldName(name)


def _name(text: str) -> str | None:
    """The field of this name, with or without quotes; None if it is anything else."""
    bare = text.removeprefix("`").removesuffix("`")
    if not _FIELD.fullmatch(bare) or len(text) - len(bare) == 1 or text.lower() in _WORDS:
        return None
    return bare
