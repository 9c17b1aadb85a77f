"""Aggregates that Spark does not have under a name of its own: each call becomes an expression of Spark's.

    latest(price)         latest(price, 3)       the value of the newest record, or of the three newest, oldest first
    earliest(price)       earliest(price, 3)     the same of the oldest
    top_k(price, 3)                              the three largest values, largest first
    top_k_distinct(price, 3)                     the same, each value once
    collect_list(price, 100)                     the values of the first hundred records

Null is left out by all of them. Records are as new as their offsets; with equal ones, partition and topic decide.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

PLACE: Final = "struct(_offset, _partition, _topic)"
COUNT_MAX: Final = 10_000
"""The most values that one result has."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED: Final = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`]|``)*`")
_OPENING, _CLOSING = "([{", ")]}"


class BadCall(ValueError):
    """A call that does not fit its function. The message says how it is written."""


def _by_place(value: str, best: str, count: str) -> str:
    return f"{best}({value}, {PLACE}{count}) FILTER (WHERE ({value}) IS NOT NULL)"


def _latest(value: str, count: int | None) -> str:
    if count is None:
        return _by_place(value, "max_by", "")
    return f"reverse({_by_place(value, 'max_by', f', {count}')})"


def _earliest(value: str, count: int | None) -> str:
    return _by_place(value, "min_by", "" if count is None else f", {count}")


def _top(value: str, count: int | None) -> str:
    return f"max_by({value}, {value}, {count}) FILTER (WHERE ({value}) IS NOT NULL)"


def _top_distinct(value: str, count: int | None) -> str:
    return f"slice(sort_array(collect_set({value}), false), 1, {count})"


# Of each: how it is called in messages, whether the number may be left out, and what it becomes.
FUNCTIONS: Final[dict[str, tuple[str, bool, Callable[[str, int | None], str]]]] = {
    "latest": ("latest(value) or latest(value, 3)", True, _latest),
    "earliest": ("earliest(value) or earliest(value, 3)", True, _earliest),
    "top_k": ("top_k(value, 3)", False, _top),
    "top_k_distinct": ("top_k_distinct(value, 3)", False, _top_distinct),
}


def expanded(text: str) -> str:
    """The expression with these calls replaced, so that Spark reads all of it. Raises BadCall."""
    parts: list[str] = []
    place = 0
    while place < len(text):
        quoted = _QUOTED.match(text, place)
        name = None if quoted else _NAME.match(text, place)
        if quoted or not name:
            end = quoted.end() if quoted else place + 1
            parts.append(text[place:end])
            place = end
            continue
        opening = re.compile(r"\s*\(").match(text, name.end())
        if opening is None or text[max(place - 1, 0) : place] == ".":
            parts.append(name[0])
            place = name.end()
            continue
        arguments, place = _arguments(text, opening.end())
        parts.append(_call(name[0], arguments, text[name.end() : place]))
    return "".join(parts)


def _call(name: str, arguments: list[str], written: str) -> str:
    lowered = name.lower()
    if lowered == "collect_list" and len(arguments) == 2:
        return _earliest(expanded(arguments[0]), _count(arguments[1], "collect_list(value, 100)"))
    if lowered not in FUNCTIONS:
        inner = [expanded(argument) for argument in arguments]
        # As it was written, if nothing in it has changed.
        return name + (written if inner == arguments else f"({', '.join(inner)})")
    like, may_lack, work = FUNCTIONS[lowered]
    if len(arguments) not in ((1, 2) if may_lack else (2,)) or not arguments[0]:
        raise BadCall(f"{name}({', '.join(arguments)}) has to be written like {like}")
    count = _count(arguments[1], like) if len(arguments) == 2 else None
    return work(expanded(arguments[0]), count)


def _count(text: str, like: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= COUNT_MAX:
        raise BadCall(f"{text!r} is not a number from 1 to {COUNT_MAX:,}, as in {like}")
    return int(text)


def _arguments(text: str, begin: int) -> tuple[list[str], int]:
    """The arguments of a call whose parenthesis has been passed, and where it ends."""
    depth, start, place = 1, begin, begin
    arguments: list[str] = []
    while place < len(text):
        quoted = _QUOTED.match(text, place)
        if quoted:
            place = quoted.end()
            continue
        sign = text[place]
        if sign in _OPENING:
            depth += 1
        elif sign in _CLOSING:
            depth -= 1
        if depth == 0 or (depth == 1 and sign == ","):
            arguments.append(text[start:place].strip())
            start = place + 1
        place += 1
        if depth == 0:
            return arguments, place
    # Spark says what is wrong with it.
    return [text[start:].strip()], place
