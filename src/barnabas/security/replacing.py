"""Java's replacement texts, as rules for principals contain them.

Source: java.util.regex.Matcher.appendReplacement; Kafka's SslPrincipalMapper, which leaves references to groups that the
pattern does not have as they are if it has any group.
"""

from __future__ import annotations

import re
from typing import Final

_PART: Final = re.compile(r"\\(.?)|\$(\d*)", re.DOTALL)


def python_replacement(text: str, groups: int, *, keep_missing: bool = False) -> str:
    """The same replacement for Python's `re`. groups: how many the pattern has.

    `$1` refers to a group, with as many digits as there are groups for; a backslash makes the next character literal.
    keep_missing: a reference to a missing group stays as it is. Raises ValueError for what Java rejects when it replaces.
    """
    parts, at = [], 0
    for part in _PART.finditer(text):
        parts.append(_literal(text[at : part.start()]))
        if part[2]:
            parts.append(_reference(part[2], groups, keep_missing))
        elif part[1]:
            parts.append(_literal(part[1]))
        else:
            raise ValueError(
                f"{text!r}: a {part[0]} must be followed by {'a number' if part[0] == '$' else 'a character'}"
            )
        at = part.end()
    parts.append(_literal(text[at:]))
    return "".join(parts)


def _reference(digits: str, groups: int, keep_missing: bool) -> str:
    count = 1
    while count < len(digits) and int(digits[: count + 1]) <= groups:
        count += 1
    number, rest = digits[:count], _literal(digits[count:])
    if int(number) <= groups:
        return f"\\g<{number}>{rest}"
    if keep_missing:
        return f"${number}{rest}"
    raise ValueError(f"${number} refers to a group that the pattern does not have")


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\")
