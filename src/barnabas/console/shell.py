"""The command that does on a terminal what a page does."""

from __future__ import annotations

import re
import shlex
from typing import Final

_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def command(*words: str) -> str:
    """Words as one line for a shell. Control characters are written as escapes, so that pasting the line runs only it."""
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    if not _UNSAFE.search(word):
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{_UNSAFE.sub(_escape, escaped)}'"


def _escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 0x80 else f"\\u{number:04x}"
