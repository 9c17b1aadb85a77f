"""Strict JSON: refuses duplicate names in an object, NaN, and nesting that is too deep for recursive code. Pure."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

DEPTH_MAX: Final = 300
"""Deeper JSON is refused, because the code that processes it later is recursive."""


class BadJson(ValueError):
    """The text is not JSON, or is refused; the message says why."""


def parse_json(raw: bytes | str) -> Any:
    """Parse JSON. Raises BadJson if it is not JSON in UTF-8, or has duplicate names, NaN, infinity or deep nesting."""
    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8-sig")
        if nesting(text) > DEPTH_MAX:
            raise BadJson(f"it is nested more than {DEPTH_MAX} levels deep")
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise BadJson(f"it is not UTF-8 text (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise BadJson(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except ValueError as error:  # an integer of more digits than Python converts
        raise BadJson(str(error)) from None


def nesting(text: str) -> int:
    """How deep objects and arrays in a JSON text are nested; 0 if there are too few brackets to exceed DEPTH_MAX.

    Brackets in strings do not count. The JSON parser is recursive, so this is checked before it runs. O(n).
    """
    depth = deepest = 0
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return 0  # cannot be too deep: most texts need no closer look
    quoted = escaped = False
    for character in text:
        if quoted:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                quoted = False
        elif character == '"':
            quoted = True
        elif character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise BadJson(f"the name {name!r} appears twice in one object")
            seen.add(name)
    return made


def _no_constant(name: str) -> NoReturn:
    raise BadJson(f"{name} is not JSON")
