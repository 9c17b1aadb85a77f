"""What stores of user code keep, to be looked up while it runs: a view's file for each store.

A change says all that the store now keeps for a key, so the rows of the key are replaced. How the rows are in it is the
store's layout:

    table, key_value   [value, at]
    windows            [[start, end, value, at], ...]
    versions           [[value, at], ...], the newest last
    window             [[start, value], ...]
    session            [[end, start, value], ...]
    versioned          [[at, value], ...], the newest last

Times are milliseconds since 1970. A value is JSON, in which an object with the one field `$` and a kind stands for what JSON
does not have; each is stored together with its key as it was, and shown without such marks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from barnabas.pipelines.views.columns import KEPT, MARK, Column, Stored
from barnabas.pipelines.views.store import AT, Row, ViewFile, ViewShape

KEY, TEXT, WINDOW, END, VALUE = "key", "is_text", "window", "window_end", "value"
"""TEXT: whether the key is text, because 5 and "5" are shown alike."""
WINDOWED: Final = frozenset({"windows", "window", "session"})
LAYOUTS: Final = frozenset({"table", "key_value", "versions", "versioned", *WINDOWED})
FOREVER_MS: Final = 1 << 53
"""Later times than this stand for no end."""
Change = tuple[str, str | None]
"""A key, and what a store keeps for it, as texts; None: nothing."""


def store_file(checkpoint: Path | str, store: str) -> Path:
    """The file of a store. checkpoint: of its query."""
    return Path(checkpoint) / "stores" / f"{quote(store, safe='')}.sqlite"


def store_shape(label: str, identity: str, layout: str, ttl_ms: int | None = None) -> ViewShape:
    """What the file of a store holds. ttl_ms: how long after its last change an entry is kept."""
    key = (Column(KEY, "string", True), Column(TEXT, "boolean", True, hidden=True))
    rest = (Column(VALUE, KEPT), Column(AT, "timestamp"))
    if layout not in WINDOWED:
        ttl_us = None if ttl_ms is None else ttl_ms * 1000
        return ViewShape(label, identity, (*key, *rest), ttl_us=ttl_us)
    start, end = Column(WINDOW, "timestamp", True), Column(END, "timestamp")
    return ViewShape(label, identity, (*key, start, end, *rest), WINDOW, None, END)


def apply_changes(file: ViewFile, shape: ViewShape, layout: str, changes: Iterable[Change]) -> None:
    """Replaces the rows of keys, in a transaction."""
    last = dict(changes)
    file.remove_keys(shape, [(shown_key(key), _is_text(key)) for key in last])
    file.put(shape, (row for key, text in last.items() for row in _rows(layout, key, text)))


def shown_key(text: str) -> str:
    """A key as users write it: text as it is, everything else as JSON."""
    return str(json.loads(text)) if _is_text(text) else text


def _is_text(key: str) -> bool:
    return key.startswith('"')


def _rows(layout: str, key: str, text: str | None) -> Iterator[Row]:
    shown = shown_key(key)
    for start, end, value, at in () if text is None else _entries(layout, json.loads(text)):
        whole = f'{{"{MARK}":"row","k":{key},"v":{json.dumps(value, ensure_ascii=False)}}}'
        times: list[Stored] = [_micros(start), _micros(end)] if layout in WINDOWED else []
        yield [shown, _is_text(key), *times, whole, _micros(at)]


def _entries(layout: str, entry: Any) -> Iterator[tuple[int | None, int | None, Any, int | None]]:
    """Start, end, value and time of each row."""
    if layout in ("table", "key_value"):
        yield None, None, entry[0], entry[1]
    elif layout == "windows":
        yield from (tuple(one) for one in entry)
    elif layout == "window":
        yield from ((start, None, value, None) for start, value in entry)
    elif layout == "session":
        yield from ((start, end, value, None) for end, start, value in entry)
    elif entry:
        value, at = entry[-1] if layout == "versions" else reversed(entry[-1])
        if value is not None:
            yield None, None, value, at


def _micros(at: int | None) -> int | None:
    return None if at is None or at >= FOREVER_MS else at * 1000


def kept_row(row: Mapping[str, Stored]) -> tuple[str, int | None, int | None, str, int | None]:
    """Key and value as texts with their marks, and the times of a row, in milliseconds: (key, start, end, value, at)."""
    whole = json.loads(str(row[VALUE]))
    key, value = (json.dumps(whole[part], ensure_ascii=False) for part in "kv")
    start, end, at = (_millis(row.get(name)) for name in (WINDOW, END, AT))
    return key, start, end, value, at


def _millis(at: Stored) -> int | None:
    return at // 1000 if isinstance(at, int) else None
