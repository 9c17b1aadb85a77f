"""Parses and writes large JSON in pieces, so that other threads run in between.

The parser and the encoder of Python's library hold the interpreter's lock for the whole of a text, half a second for some
megabytes of brackets. Pieces of `PIECE_BYTES` take a few milliseconds each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from barnabas.schemas.json_cuts import CLOSE, OPEN, RUN, TOO_DEEP, TOO_MANY, cuts

PIECE_BYTES: Final = 64 << 10
PIECE_ITEMS: Final = 5_000
CONTAINERS_MAX: Final = 500_000
"""Objects and lists in one text: each costs far more than its characters, again when it is freed, and in collections."""


class Wrong(ValueError):
    """The text is not JSON, or is refused. position: in bytes; -1 if the place does not matter."""

    def __init__(self, message: str, position: int = -1) -> None:
        super().__init__(message)
        self.position = position


def parse_pieces(raw: bytes, loads: Callable[[str], Any], depth_max: int) -> Any:
    """The value of a JSON text in UTF-8. loads: parses a piece. Raises Wrong, ValueError by `loads`."""
    steps = cuts(raw, PIECE_BYTES, depth_max, CONTAINERS_MAX)
    if not steps:
        return _loaded(raw, loads, 0, "", "")
    open_ones: list[tuple[str, Any]] = [("", [])]
    for what, begin, end in steps:
        name, into = open_ones[-1]
        if what == RUN:
            _add(into, raw[begin:end], loads, begin)
        elif what == OPEN:
            inner: Any = [] if raw[end] == 0x5B else {}
            open_ones.append((_name_of(into, raw[begin:end], loads, begin), inner))
        elif what == CLOSE:
            open_ones.pop()
            outer = open_ones[-1][1]
            if isinstance(outer, list):
                outer.append(into)
            else:
                outer[name] = into
        elif what == TOO_DEEP:
            raise Wrong(f"it is nested more than {depth_max} levels deep")
        elif what == TOO_MANY:
            raise Wrong(f"it has more than {CONTAINERS_MAX} objects and lists; send less in one request")
        else:
            raise Wrong("Expecting value", begin)
    return open_ones[0][1][0]


def _add(into: Any, piece: bytes, loads: Callable[[str], Any], place: int) -> None:
    """Add items of a list or an object. place: of the piece in the text."""
    if not piece.strip(b" \t\r\n"):
        raise Wrong("Expecting value", place)
    if isinstance(into, list):
        into.extend(_loaded(piece, loads, place, "[", "]"))
        return
    added = _loaded(piece, loads, place, "{", "}")
    _require_new(into, added)
    into.update(added)


def _name_of(into: Any, before: bytes, loads: Callable[[str], Any], place: int) -> str:
    """The name before an opening bracket: empty in a list."""
    if isinstance(into, list):
        if before.strip(b" \t\r\n"):
            raise Wrong("Expecting ',' delimiter", place)
        return ""
    (name,) = members = _loaded(before, loads, place, "{", "0}")
    _require_new(into, members)
    return str(name)


def _require_new(into: dict[str, Any], added: dict[str, Any]) -> None:
    if not into.keys().isdisjoint(added):
        name = next(name for name in added if name in into)
        raise Wrong(f"the name {name!r} appears twice in one object")


def _loaded(piece: bytes, loads: Callable[[str], Any], place: int, before: str, after: str) -> Any:
    try:
        return loads(f"{before}{piece.decode()}{after}")
    except UnicodeDecodeError as error:
        raise Wrong(f"it is not UTF-8 text (byte {place + error.start})") from None
    except json.JSONDecodeError as error:
        characters = max(error.pos - len(before), 0)
        raise Wrong(error.msg, place + len(error.doc[len(before) :][:characters].encode())) from None


def dump_pieces(value: Any, dumps: Callable[[Any], str]) -> Iterator[str]:
    """The JSON text of a value in pieces. dumps: writes one without spaces."""
    if isinstance(value, list) and (len(value) > PIECE_ITEMS or _holds_more(value)):
        yield "["
        yield from _items(value, dumps)
        yield "]"
    elif isinstance(value, dict) and (len(value) > PIECE_ITEMS or _holds_more(value.values())):
        yield "{"
        before = ""
        for name, inner in value.items():
            yield f"{before}{dumps(name)}:"
            yield from dump_pieces(inner, dumps)
            before = ","
        yield "}"
    else:
        yield dumps(value)


def _holds_more(values: Any) -> bool:
    return any(isinstance(value, (list, dict)) and value for value in values)


def _items(values: list[Any], dumps: Callable[[Any], str]) -> Iterator[str]:
    before = ""
    for begin in range(0, len(values), PIECE_ITEMS):
        part = values[begin : begin + PIECE_ITEMS]
        if not _holds_more(part):
            yield f"{before}{dumps(part)[1:-1]}"
        else:
            for inner in part:
                yield before
                yield from dump_pieces(inner, dumps)
                before = ","
        before = ","
