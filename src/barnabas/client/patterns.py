"""Regular expressions of topic and group names in Java's syntax, which Kafka's and Spark's options are written in."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

QUOTED_BEGIN, QUOTED_END = "\\Q", "\\E"


class PatternError(ValueError):
    """The text is no regular expression; the message says why."""


@lru_cache(maxsize=64)
def java_pattern(text: str) -> Any:
    """A compiled expression with the methods of `re.Pattern` for an expression in Java's syntax. Raises PatternError.

    Python's own module lacks what people write for Java: `\\Q...\\E`, `\\p{Alpha}`, `[a-z&&[^b]]`, `(?<name>...)`.
    """
    import regex  # loaded only by those who use expressions

    try:
        return regex.compile(_unquoted(text), regex.V1)
    except regex.error as error:
        raise PatternError(f"{text!r} is not a regular expression: {error}") from error


def _unquoted(text: str) -> str:
    """The expression with every `\\Q...\\E` written out as escaped characters; a missing `\\E` is at the end."""
    parts: list[str] = []
    position = 0
    while position < len(text):
        if text.startswith(QUOTED_BEGIN, position):
            end = text.find(QUOTED_END, position)
            quoted = text[position + 2 : end if end >= 0 else len(text)]
            parts.append("".join(c if c.isalnum() or c == "_" else f"\\{c}" for c in quoted))
            position = end + 2 if end >= 0 else len(text)
        else:
            taken = 2 if text[position] == "\\" else 1
            parts.append(text[position : position + taken])
            position += taken
    return "".join(parts)
