"""Java's properties syntax, as in server.properties."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.config.option import ConfigError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


class Property(NamedTuple):
    """One key with its value and the line (from 1) on which it begins."""

    name: str
    value: str
    line: int


def parse_properties(text: str) -> Iterator[Property]:
    """The properties in a file's text, in order; repeated keys are all returned.

    Raises ConfigError for a malformed \\uXXXX. Source: java.util.Properties.load.
    """
    for line, number in _logical_lines(text):
        split = _key_end(line)
        rest = line[split:].lstrip(_BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANKS)
        yield Property(_unescape(line[:split], number), _unescape(rest, number), number)


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    """Lines without comments and blank ones, with continuations joined, each with the number of its first line."""
    joined, first = "", 0
    for number, natural in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        line = natural.lstrip(_BLANKS)
        if not first and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined, first = joined + line[:-1], first or number
            continue
        yield joined + line, first or number
        joined, first = "", 0
    if joined:
        yield joined, first


def _key_end(line: str) -> int:
    escaped = False
    for at, char in enumerate(line):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char in "=: \t\f":
            return at
    return len(line)


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\" or at == len(text):
            out.append(char)
            continue
        char = text[at]
        at += 1
        if char == "u":
            digits = text[at : at + 4]
            try:
                out.append(chr(int(digits.rjust(4, "-"), 16)))
            except ValueError:
                raise ConfigError(
                    f"line {line}: \\u{digits} is not \\u and four hexadecimal digits"
                ) from None
            at += 4
        else:
            out.append(_ESCAPES.get(char, char))
    return "".join(out)
