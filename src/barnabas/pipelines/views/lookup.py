"""Finds rows of a view: by key or the beginning of one, by range, by window, or all, page by page.

A lookup reads the rows and the note in one transaction, so they belong to the same micro-batch. It is bounded in rows,
bytes and time.
"""

from __future__ import annotations

import base64
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from barnabas.pipelines.views.columns import EXAMPLES, BadKey, Column, Family, Stored, parsed_time, quoted
from barnabas.pipelines.views.store import AT, Note, Row, ViewShape, described, note_in, read_notes

Answer = TypeVar("Answer")
ROWS_MAX: Final = 10_000
BYTES_MAX: Final = 8 << 20
SECONDS_MAX: Final = 2.0
STEPS: Final = 20_000
"""After so many instructions SQLite asks whether the time is over."""
IDLE_MAX: Final = 4
"""How many connections to a view stay open while no lookup uses them."""
CACHE_KIB: Final = 4 << 10


class NothingYet(Exception):
    """A view has no micro-batch yet."""


class TooSlow(Exception):
    """A lookup took longer than SECONDS_MAX."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What to look up, in the words of a user. key: values of the key's fields, or of the first ones. low, high: bounds of
    the key's next field; high itself is not in the range. window: a time, for the windows that contain it, or FROM/TO, for
    those that begin between them, TO not included. after: the `next` of an earlier answer."""

    key: tuple[str, ...] = ()
    low: str | None = None
    high: str | None = None
    window: str | None = None
    limit: int = 100
    after: str | None = None


@dataclass(frozen=True, slots=True)
class LookupPage:
    """rows: each as JSON text. next: what to give as `after` to go on; None at the end. note: as of when they are."""

    shape: ViewShape
    note: Note
    rows: list[str]
    next: str | None


@dataclass(slots=True)
class _Where:
    """The conditions of a SELECT, with their values, and the columns that its rows are sorted by."""

    order: Sequence[Column]
    texts: list[str] = field(default_factory=list)
    values: list[Stored] = field(default_factory=list)

    def add(self, text: str, *values: Stored) -> None:
        """Adds a condition."""
        self.texts.append(text)
        self.values += values


class Reader:
    """Connections to one view's file. Methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._idle: SimpleQueue[tuple[int, sqlite3.Connection]] = SimpleQueue()

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection to the file that has the name now: it may have been replaced. Raises NothingYet."""
        try:
            inode = self.path.stat().st_ino
        except OSError:
            raise NothingYet from None
        connection = self._taken(inode)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if self._idle.qsize() < IDLE_MAX:
            self._idle.put((inode, connection))
        else:
            connection.close()

    def _taken(self, inode: int) -> sqlite3.Connection:
        while True:
            try:
                of, connection = self._idle.get_nowait()
            except Empty:
                break
            if of == inode:
                return connection
            connection.close()
        opened = sqlite3.connect(
            self.path, timeout=SECONDS_MAX, isolation_level=None, check_same_thread=False
        )
        opened.execute("PRAGMA query_only = ON")
        opened.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        return opened

    def find(self, asked: Asked) -> LookupPage:
        """The rows that were asked for. Raises BadKey, NothingYet, TooSlow, ViewError."""
        return self._asked(asked, _page)

    def rows(self, asked: Asked) -> tuple[list[dict[str, Stored]], str | None]:
        """The rows as they are stored, and what to give as `after` to go on. Raises as `find`."""
        return self._asked(asked, _stored)

    def _asked(self, asked: Asked, read: Callable[[sqlite3.Connection, Asked], Answer]) -> Answer:
        give_up = time.monotonic() + SECONDS_MAX
        try:
            with described(self.path), self._connection() as connection:
                connection.set_progress_handler(lambda: time.monotonic() > give_up, STEPS)
                connection.execute("BEGIN")
                try:
                    return read(connection, asked)
                finally:
                    connection.set_progress_handler(None, 0)
                    connection.execute("ROLLBACK")
        except Exception as error:
            if getattr(error.__cause__, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
                raise TooSlow(
                    f"the lookup took longer than {SECONDS_MAX:g} s: name the key, or the beginning of one"
                ) from None
            raise

    def close(self) -> None:
        """Closes the connections that no lookup uses."""
        while True:
            try:
                self._idle.get_nowait()[1].close()
            except Empty:
                return


def _selected(connection: sqlite3.Connection, asked: Asked) -> tuple[ViewShape, Note, _Where, sqlite3.Cursor]:
    """The rows that were asked for, and one more."""
    notes = read_notes(connection)
    note = note_in(notes)
    if note is None:
        raise NothingYet
    shape = ViewShape.from_notes(notes)
    where = _conditions(shape, asked)
    columns = ", ".join(column.quoted for column in shape.columns)
    condition = " AND ".join(where.texts) or "1"
    order = ", ".join(column.quoted for column in where.order)
    cursor = connection.execute(
        f"SELECT {columns} FROM rows WHERE {condition} ORDER BY {order} LIMIT ?",
        [*where.values, asked.limit + 1],
    )
    return shape, note, where, cursor


def _stored(connection: sqlite3.Connection, asked: Asked) -> tuple[list[dict[str, Stored]], str | None]:
    shape, _, where, cursor = _selected(connection, asked)
    rows = cursor.fetchall()
    kept = rows[: asked.limit]
    more = _token(shape, where.order, kept[-1]) if len(rows) > asked.limit else None
    return [dict(zip(shape.names, row, strict=True)) for row in kept], more


def _page(connection: sqlite3.Connection, asked: Asked) -> LookupPage:
    shape, note, where, cursor = _selected(connection, asked)
    rows: list[str] = []
    size, last = 0, None
    for row in cursor:
        text = row_json(shape, row)
        size += len(text)
        if len(rows) == asked.limit or (rows and size > BYTES_MAX):
            return LookupPage(shape, note, rows, _token(shape, where.order, last))
        rows.append(text)
        last = row
    return LookupPage(shape, note, rows, None)


def row_json(shape: ViewShape, row: Row) -> str:
    """A row as a JSON object."""
    shown = shape.shown
    return _object([column for _, column in shown], [row[place] for place, _ in shown])


def key_json(shape: ViewShape, key: Row) -> str:
    """A key as a JSON object."""
    return _object(shape.key, key)


def _object(columns: Sequence[Column], values: Row) -> str:
    parts = [
        f"{json.dumps(column.name)}:{column.fragment(value)}"
        for column, value in zip(columns, values, strict=True)
    ]
    return "{" + ",".join(parts) + "}"


def _conditions(shape: ViewShape, asked: Asked) -> _Where:
    """Raises BadKey for what does not fit the view's key."""
    key = shape.plain_key
    if len(asked.key) > len(key):
        raise BadKey(
            f"the key has {len(key)} fields ({key_text(shape)}), and {len(asked.key)} values are given"
        )
    by_window = asked.window is not None and not asked.key and asked.low is None and asked.high is None
    order = list(shape.key)
    if by_window:
        order = [*shape.key[-1:], *shape.key[:-1]]
    where = _Where(order)
    for column, text in zip(key, asked.key, strict=False):
        where.add(f"{column.quoted} = ?", column.parse(text))
    if asked.low is not None or asked.high is not None:
        if len(asked.key) == len(key):
            raise BadKey(
                f"the key is whole, so there is no range: from and to are bounds of the field after it ({key_text(shape)})"
            )
        column = key[len(asked.key)]
        if asked.low is not None:
            where.add(f"{column.quoted} >= ?", column.parse(asked.low))
        if asked.high is not None:
            where.add(f"{column.quoted} < ?", column.parse(asked.high))
        # A null is stored as a blob, or a text among blobs, and is in no range.
        where.add(f"{column.quoted} <> ?", column.null)
    if shape.ttl_us is not None:
        where.add(f"{quoted(AT)} > ?", time.time_ns() // 1000 - shape.ttl_us)
    if asked.window is not None:
        _add_window(shape, asked.window, where)
    if asked.after is not None:
        names = ", ".join(column.quoted for column in order)
        values = _placed(shape, order, asked.after)
        where.add(f"({names}) > ({', '.join('?' * len(order))})", *values)
    return where


def _add_window(shape: ViewShape, text: str, where: _Where) -> None:
    if shape.window is None:
        raise BadKey(f"the rows of {shape.label} have no window: its key is {key_text(shape)}")
    start = shape.column(shape.window)
    if "/" in text:
        low, _, high = text.partition("/")
        if low:
            where.add(f"{start.quoted} >= ?", _time(low))
        if high:
            where.add(f"{start.quoted} < ?", _time(high))
        return
    moment = _time(text)
    where.add(f"{start.quoted} <= ?", moment)
    if shape.window_us is not None:
        where.add(f"{start.quoted} > ?", moment - shape.window_us)
    elif shape.end is not None:
        where.add(f"{shape.column(shape.end).quoted} > ?", moment)
    else:
        raise BadKey(
            f"the windows of {shape.label} are of different lengths, and no field has their end: name one with `end` in the "
            "pipeline's window, or ask for windows that begin between two times, FROM/TO"
        )


def _time(text: str) -> int:
    try:
        return parsed_time(text)
    except (ValueError, OverflowError):
        raise BadKey(
            f"window is {text!r}; it is a time like {EXAMPLES[Family.TIME]}, or two times with / between them"
        ) from None


def key_text(shape: ViewShape) -> str:
    """What a key looks like, for messages."""
    return ", ".join(f"{column.name} {column.kind}" for column in shape.plain_key)


def _token(shape: ViewShape, order: Sequence[Column], row: Any) -> str:
    """The place of a row, from which a later lookup goes on."""
    values = dict(zip(shape.names, row, strict=True))
    plain = [
        {"hex": value.hex()} if isinstance(value, bytes) else value
        for value in (values[column.name] for column in order)
    ]
    return base64.urlsafe_b64encode(json.dumps(plain).encode()).decode().rstrip("=")


def _placed(shape: ViewShape, order: Sequence[Column], token: str) -> list[Stored]:
    """The values of a place. Raises BadKey."""
    try:
        plain = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        values = [bytes.fromhex(v["hex"]) if isinstance(v, dict) else v for v in plain]
        if len(values) != len(order) or any(not isinstance(v, (int, float, str, bytes)) for v in values):
            raise ValueError(token)
    except (ValueError, KeyError, TypeError):
        raise BadKey(f"after is {token[:80]!r}, not the `next` of an earlier answer of this view") from None
    return values
