"""Strict JSON: refuses duplicate names in an object, NaN, and nesting that is too deep for recursive code. Pure."""

from __future__ import annotations

import codecs
import json
from itertools import accumulate
from typing import Any, Final, NoReturn

from barnabas.schemas.json_pieces import Wrong, dump_pieces, parse_pieces

DEPTH_MAX: Final = 300
"""Deeper JSON is refused, because the code that processes it later is recursive."""

IN_PIECES_FROM_BYTES: Final = 256 << 10
_dumps: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""Brackets as signed bytes: 1 opens, -1 closes."""
_OTHERS: Final = bytes(byte for byte in range(256) if byte not in b'[{]}"')


class BadJson(ValueError):
    """The text is not JSON, or is refused; the message says why."""


def parse_json(raw: bytes | str) -> Any:
    """Parse JSON. Raises BadJson if it is not JSON in UTF-8, or has duplicate names, NaN, infinity or deep nesting."""
    if isinstance(raw, bytes) and len(raw) >= IN_PIECES_FROM_BYTES:
        return _parse_large(raw.removeprefix(codecs.BOM_UTF8))
    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8-sig")
        if nesting(text) > DEPTH_MAX:
            raise BadJson(f"it is nested more than {DEPTH_MAX} levels deep")
        return _loads(text)
    except UnicodeDecodeError as error:
        raise BadJson(f"it is not UTF-8 text (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise BadJson(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except ValueError as error:  # an integer of more digits than Python converts
        raise BadJson(str(error)) from None


def _loads(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)


def _parse_large(raw: bytes) -> Any:
    try:
        return parse_pieces(raw, _loads, DEPTH_MAX)
    except Wrong as error:
        if error.position < 0:
            raise BadJson(str(error)) from None
        line = raw.count(b"\n", 0, error.position) + 1
        begin = raw.rfind(b"\n", 0, error.position) + 1
        column = len(raw[begin : error.position].decode(errors="replace")) + 1
        raise BadJson(f"{error} at line {line}, column {column}") from None
    except BadJson:
        raise
    except ValueError as error:  # an integer of more digits than Python converts
        raise BadJson(str(error)) from None


def dump_json(value: Any) -> bytes:
    """The compact JSON text of a value, in UTF-8. Other threads run meanwhile."""
    return "".join(dump_pieces(value, _dumps)).encode("utf-8", "surrogatepass")


def nesting(text: str) -> int:
    """How deep objects and arrays in a JSON text are nested; 0 if there are too few brackets to exceed DEPTH_MAX.

    Brackets in strings do not count. The JSON parser is recursive, so this is checked before it runs. O(n), about 20 ns a
    character at most: each step runs over the whole text in C. Of a text that is not JSON, the part before the first error
    is what the parser reads, and that part is counted right.
    """
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return 0  # cannot be too deep: most texts need no closer look
    unescaped = text.encode("utf-8", "surrogatepass").replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = unescaped.translate(_STEPS, _OTHERS)
    steps = b"".join(marks.split(b'"')[::2])  # what is outside of strings
    if steps.count(1) <= DEPTH_MAX:
        return 0
    return max(accumulate(memoryview(steps).cast("b")))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise BadJson(f"the name {name!r} appears twice in one object")
            seen.add(name)
    return members


def _no_constant(name: str) -> NoReturn:
    raise BadJson(f"{name} is not JSON")
