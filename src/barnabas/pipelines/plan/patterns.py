"""Regular expressions with named groups, matched once per row, and named patterns.

Java's group names cannot have underscores, so names are removed from the pattern and kept beside it. One match yields
all groups: the text is replaced by its groups with marks between them, and split at these. An empty group is null.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_NAMED: Final = re.compile(r"\?P?<([A-Za-z_][A-Za-z0-9_]*)>")
_QUOTED_TAIL: Final = r'[^"\\]*+(?:\\.[^"\\]*+)*+'
"""Matches what may be between double quotes: any text, but a quote or backslash only after a backslash. Possessive,
because Java's matcher uses stack space for what it may have to give back."""


_NUMERIC: Final = re.compile(
    r"(?:tinyint|smallint|int|integer|bigint|long|float|double|decimal\b.*)", re.IGNORECASE
)


def quoted_numbers(fields: Mapping[str, str]) -> str | None:
    """Matches numbers in quotes that are values of these fields of a JSON object, if they are numbers: the group 1 is what
    stands before the quotes, 2 the number. None if no field is. fields: types by name."""
    names = [re.escape(name) for name, kind in fields.items() if _NUMERIC.fullmatch(kind.strip())]
    if not names:
        return None
    number = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
    return rf'("(?:{"|".join(names)})"\s*:\s*)"({number})"(?=\s*[,}}])'


class PatternError(ValueError):
    """The pattern cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """regex: Java syntax with plain groups. groups: number and field name, in order."""

    regex: str
    groups: tuple[tuple[int, str], ...]


def compile_pattern(text: str) -> Pattern:
    """Makes fields of `(?<name>...)` and `(?P<name>...)`. Raises PatternError if there is none, or two of one name."""
    out: list[str] = []
    groups: list[tuple[int, str]] = []
    number, pos, in_class = 0, 0, 0
    while pos < len(text):
        char = text[pos]
        if char == "\\":
            if text.startswith("\\Q", pos):
                end = text.find("\\E", pos)
                end = len(text) if end < 0 else end + 2
                out.append(text[pos:end])
                pos = end
                continue
            out.append(text[pos : pos + 2])
            pos += 2
            continue
        if char == "[":
            in_class += 1
        elif char == "]" and in_class:
            in_class -= 1
        elif char == "(" and not in_class:
            named = _NAMED.match(text, pos + 1)
            if named:
                number += 1
                groups.append((number, named[1]))
                out.append("(")
                pos = named.end()
                continue
            if not text.startswith("?", pos + 1):
                number += 1
        out.append(char)
        pos += 1
    names = [name for _, name in groups]
    if not names:
        raise PatternError("has no named group: write (?<field>...) around each part to keep")
    for name in names:
        if names.count(name) > 1:
            raise PatternError(f"has two groups called {name!r}")
    return Pattern("".join(out), tuple(groups))


NAMED_PATTERNS: Final[dict[str, str]] = {
    "common-log": (
        r"^(?<remote_addr>\S++) (?<ident>\S++) (?<remote_user>\S++) \[(?<time>[^\]]++)\] "
        r'"(?<method>[A-Z]++) (?<path>\S++)(?: (?<protocol>HTTP/[0-9.]++))?" '
        r"(?<status>\d{3}) (?:(?<body_bytes_sent>\d++)|-)\s*$"
    ),
    "combined-log": (
        r"^(?<remote_addr>\S++) (?<ident>\S++) (?<remote_user>\S++) \[(?<time>[^\]]++)\] "
        r'"(?<method>[A-Z]++) (?<path>\S++)(?: (?<protocol>HTTP/[0-9.]++))?" '
        r"(?<status>\d{3}) (?:(?<body_bytes_sent>\d++)|-) "
        rf'"(?:-|(?<referer>{_QUOTED_TAIL}))" "(?:-|(?<user_agent>{_QUOTED_TAIL}))"\s*$'
    ),
    "syslog": (
        r"^(?:<(?<priority>\d{1,3})>)?(?<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (?<host>\S++) "
        r"(?<program>[^\s\[:]++)(?:\[(?<pid>\d++)\])?: (?<message>.*+)$"
    ),
}
"""Patterns for whole lines of common log formats. In the web logs there is a backslash before a quote inside of quotes,
and a dash means that there is no value."""
