"""The tokens of a .proto file, with their line numbers. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from barnabas.schemas.errors import InvalidSchema

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*|\.[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
    |(?P<number>0[xX][0-9A-Fa-f]+|\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<mark>[{}\[\]()<>;:,=+\-/])""",
    re.X | re.S | re.ASCII,
)
_ESCAPE: Final = re.compile(r"\\([xX][0-9A-Fa-f]{1,2}|[0-7]{1,3}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.S)
_PLAIN: Final = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


class Token(NamedTuple):
    """kind: name, number, text, mark, or end."""

    kind: str
    text: str
    line: int


def tokens_of(text: str) -> list[Token]:
    """Split a .proto file into tokens; the last is of kind `end`. Raises InvalidSchema, which names the line. O(n)."""
    tokens = []
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InvalidSchema(f"line {line}: {text[position : position + 20]!r} cannot be read")
        kind, word = match.lastgroup or "", match.group()
        if kind != "space":
            tokens.append(Token(kind, word, line))
        line += word.count("\n")
        position = match.end()
    tokens.append(Token("end", "", line))
    return tokens


def unquoted(text: str) -> str:
    """The value of a quoted string; escaped bytes above 127 become the characters of the same number."""

    def unescaped(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "xX" and len(code) > 1:
            return chr(int(code[1:], 16))
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
        if code[0] in "uU" and len(code) > 1:
            return chr(min(int(code[1:], 16), 0x10FFFF))
        return _PLAIN.get(code, code)

    return _ESCAPE.sub(unescaped, text[1:-1])


def quoted(text: str) -> str:
    """A string literal of this text, in double quotes."""
    shown = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return '"' + shown.replace("\t", "\\t") + '"'
