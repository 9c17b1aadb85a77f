"""Java's replacement texts, as rules for principals contain them.

Source: java.util.regex.Matcher.appendReplacement; Kafka's SslPrincipalMapper, which leaves references to groups that the
pattern does not have as they are if it has any group.
"""

from __future__ import annotations

import re
from typing import Final

_PART: Final = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


def python_replacement(text: str, groups: int, *, keep_missing: bool = False) -> str:
    """The same replacement for Python's `re`. groups: how many the pattern has.

    `$1` refers to a group, with as many digits as there are groups for; a backslash makes the next character literal.
    keep_missing: a reference to a missing group stays as it is; otherwise `re` raises re.error when it is applied.
    """
    made, at = [], 0
    for part in _PART.finditer(text):
        made.append(_literal(text[at : part.start()]))
        made.append(_literal(part[1]) if part[1] else _reference(part[2], groups, keep_missing))
        at = part.end()
    made.append(_literal(text[at:]))
    return "".join(made)


def _reference(digits: str, groups: int, keep_missing: bool) -> str:
    count = 1
    while count < len(digits) and int(digits[: count + 1]) <= groups:
        count += 1
    rest = _literal(digits[count:])
    is_missing = int(digits[:count]) > groups
    return f"${digits[:count]}{rest}" if is_missing and keep_missing else f"\\g<{digits[:count]}>{rest}"


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\")
