"""A view's file: an SQLite database with its rows, and a note of the micro-batch that it is as of.

    rows        a column for each field; the key's columns, then the window's start, are the primary key
    barnabas    name and value: format, view, identity (the id of the query's checkpoint), columns (JSON), keys (JSON),
                window (the field with a window's start), window_us (its length), end (the field with a window's end), and
                about the newest micro-batch: batch, offsets (JSON: by topic and partition, the next one to be read), at_ms

Each micro-batch is one transaction that also changes the note, so a reader sees whole micro-batches only, and a repeated
one is recognized. The journal is a write-ahead log: readers and the writer do not wait for each other. `synchronous` is
FULL: what Spark then counts as done is on the disk.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from barnabas.pipelines.views.columns import Column, Stored, quoted

FORMAT: Final = "1"
FILE_NAME: Final = "view.sqlite"
SIDE_FILES: Final = ("", "-wal", "-shm")
WAIT_S: Final = 60.0
"""How long a writer waits for another one, such as one that is about to be stopped."""
CACHE_KIB: Final = 64 << 10
LOG_BYTES_MAX: Final = 64 << 20
"""The write-ahead log is cut to this size after a large micro-batch."""
AT: Final = "at"
"""The column with the time of a row's last change, in shapes with a TTL."""
EXPIRED_MAX: Final = 50_000
"""How many rows of old windows a micro-batch deletes at most; the next one deletes more."""

Row = Sequence[Stored]
Offsets = Mapping[str, Mapping[str, int]]


class ViewError(Exception):
    """A view cannot be read or written; the message names its file and says what to do."""


class ViewUnwritable(ViewError):
    """The file cannot be written now: the disk is full, or its folder cannot be used."""


class ViewDamaged(ViewError):
    """The file is not a whole database."""


@dataclass(frozen=True, slots=True)
class Note:
    """As of when a view is. batch: the number of the micro-batch. offsets: where the next one begins. at_ms: when it was
    applied, in milliseconds since 1970."""

    batch: int
    offsets: Offsets = field(default_factory=dict)
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class ViewShape:
    """What a view holds. label: pipeline/output. identity: of the query's checkpoint. columns: those of the key first, in
    its order. window: the key's last column, if rows are of windows: their start. window_us: the windows' length, if all
    have the same one. end: the column with their end. ttl_us: how long after its last change a row is found."""

    label: str
    identity: str
    columns: tuple[Column, ...]
    window: str | None = None
    window_us: int | None = None
    end: str | None = None
    ttl_us: int | None = None

    @property
    def key(self) -> tuple[Column, ...]:
        """The columns of the primary key, with the window's start at its end."""
        return tuple(column for column in self.columns if column.is_key)

    @property
    def plain_key(self) -> tuple[Column, ...]:
        """The columns of the key that users name, without the window's start."""
        return tuple(column for column in self.key if column.name != self.window and not column.hidden)

    @property
    def shown(self) -> tuple[tuple[int, Column], ...]:
        """The columns that are shown, with their places."""
        return tuple((place, column) for place, column in enumerate(self.columns) if not column.hidden)

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return [column.name for column in self.columns]

    def column(self, name: str) -> Column:
        """The column of this name."""
        return next(column for column in self.columns if column.name == name)

    def to_notes(self) -> dict[str, str]:
        """As rows of the table `barnabas`."""
        return {
            "format": FORMAT,
            "view": self.label,
            "identity": self.identity,
            "columns": json.dumps([column.to_json() for column in self.columns]),
            "keys": json.dumps([column.name for column in self.key]),
            "window": self.window or "",
            "window_us": str(self.window_us or 0),
            "end": self.end or "",
            "ttl_us": str(self.ttl_us or 0),
        }

    @classmethod
    def from_notes(cls, notes: Mapping[str, str]) -> ViewShape:
        """From the rows of the table `barnabas`."""
        columns = tuple(Column(**entry) for entry in json.loads(notes["columns"]))
        length = int(notes["window_us"]) or None
        return cls(
            notes["view"],
            notes["identity"],
            columns,
            notes["window"] or None,
            length,
            notes["end"] or None,
            int(notes.get("ttl_us", "0")) or None,
        )


def read_notes(connection: sqlite3.Connection) -> dict[str, str]:
    """The table `barnabas`; empty if there is none."""
    there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'barnabas'").fetchone()
    return dict(connection.execute("SELECT name, value FROM barnabas")) if there else {}


def note_in(notes: Mapping[str, str]) -> Note | None:
    """As of when a view is; None before its first micro-batch."""
    if "batch" not in notes:
        return None
    return Note(int(notes["batch"]), json.loads(notes["offsets"]), int(notes["at_ms"]))


@contextmanager
def described(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into those of views, which name the file."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise ViewDamaged(f"the file {path} is damaged ({error})") from error
        if code == sqlite3.SQLITE_FULL:
            raise ViewUnwritable(f"the file {path} cannot grow: the disk is full; free some space") from error
        if code == sqlite3.SQLITE_BUSY:
            raise ViewUnwritable(f"another program is writing to {path}") from error
        raise ViewUnwritable(f"the file {path} cannot be used: {error}") from error


def remove_file(path: Path) -> None:
    """Removes a view's file and those beside it."""
    for suffix in SIDE_FILES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def put_aside(path: Path, at_ms: int) -> Path:
    """Renames a damaged view's file and those beside it; returns its new name."""
    aside = path.with_name(f"{path.name}.damaged.{at_ms}")
    for suffix in SIDE_FILES:
        file = path.with_name(path.name + suffix)
        if file.exists():
            file.rename(aside.with_name(aside.name + suffix))
    return aside


class ViewFile:
    """A view's file, open for writing. Use it as a context manager."""

    def __init__(self, path: Path) -> None:
        """Raises ViewUnwritable, ViewDamaged."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ViewUnwritable(f"the folder of {path} cannot be used: {error}") from error
        with described(path):
            self._connection = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None)
            try:
                for setting in (
                    "journal_mode = WAL",
                    "synchronous = FULL",
                    f"cache_size = -{CACHE_KIB}",
                    f"journal_size_limit = {LOG_BYTES_MAX}",
                ):
                    self._connection.execute(f"PRAGMA {setting}")
                self.notes = read_notes(self._connection)
            except BaseException:
                self._connection.close()
                raise
        if self.notes and self.notes.get("format") != FORMAT:
            self.close()
            raise ViewError(
                f"the file {path} has format {self.notes.get('format')} of views, and this version knows {FORMAT}: use the "
                "version that wrote it"
            )

    def __enter__(self) -> ViewFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; an open transaction is undone."""
        self._connection.close()

    @property
    def note(self) -> Note | None:
        """As of when the view is; None before its first micro-batch."""
        return note_in(self.notes)

    @property
    def shape(self) -> ViewShape | None:
        """What it holds; None for a new file."""
        return ViewShape.from_notes(self.notes) if self.notes else None

    def adopt(self, shape: ViewShape) -> None:
        """Makes the tables, or changes them to hold `shape`: columns beside the key may be added and removed. To be called
        in a transaction. Raises ViewError if the key or a column's type has changed."""
        before = self.shape
        if before is None:
            self._create(shape)
        elif before != shape:
            self._change(before, shape)
        self._set(shape.to_notes())

    def _create(self, shape: ViewShape) -> None:
        run = self._connection.execute
        run("CREATE TABLE barnabas (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
        key = ", ".join(column.quoted for column in shape.key)
        columns = ", ".join(column.declaration for column in shape.columns)
        run(f"CREATE TABLE rows ({columns}, PRIMARY KEY ({key})) WITHOUT ROWID")
        if shape.window is not None:
            run(f"CREATE INDEX rows_by_window ON rows ({quoted(shape.window)})")

    def _change(self, before: ViewShape, shape: ViewShape) -> None:
        if [(c.name, c.kind) for c in before.key] != [(c.name, c.kind) for c in shape.key]:
            raise ViewError(
                f"view {shape.label} has another key now: {_columns_text(shape.key)}, and its file {self.path} has "
                f"{_columns_text(before.key)}; change it back, or begin anew with `restart --from earliest` or another "
                "output name"
            )
        old = {column.name: column for column in before.columns}
        new = {column.name: column for column in shape.columns}
        for name, column in new.items():
            if name not in old:
                self._connection.execute(f"ALTER TABLE rows ADD COLUMN {column.declaration}")
            elif old[name].kind != column.kind:
                raise ViewError(
                    f"{name} of view {shape.label} is {column.kind} now, and {old[name].kind} in its file {self.path}; "
                    "change it back, or begin anew with `restart --from earliest` or another output name"
                )
        for name, column in old.items():
            if name not in new:
                self._connection.execute(f"ALTER TABLE rows DROP COLUMN {column.quoted}")

    def _set(self, notes: Mapping[str, str]) -> None:
        self._connection.executemany("INSERT OR REPLACE INTO barnabas VALUES (?, ?)", notes.items())
        self.notes |= notes

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything in the block is written, or nothing."""
        with described(self.path):
            before = dict(self.notes)
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                self.notes = before
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def clear(self) -> None:
        """Removes the tables, in a transaction."""
        self._connection.execute("DROP TABLE IF EXISTS rows")
        self._connection.execute("DROP TABLE IF EXISTS barnabas")
        self.notes = {}

    def put(self, shape: ViewShape, rows: Iterable[Row]) -> None:
        """Stores rows, in the order of `shape.columns`; a row replaces the one with the same key."""
        names = ", ".join(column.quoted for column in shape.columns)
        marks = ", ".join("?" * len(shape.columns))
        self._connection.executemany(f"INSERT OR REPLACE INTO rows ({names}) VALUES ({marks})", rows)

    def remove(self, shape: ViewShape, keys: Iterable[Row]) -> None:
        """Removes the rows with these keys, in the order of `shape.key`; keys without a row change nothing."""
        self._remove(shape.key, keys)

    def remove_keys(self, shape: ViewShape, keys: Iterable[Row]) -> None:
        """Removes the rows of all windows of these keys, in the order of `shape.key`."""
        self._remove([column for column in shape.key if column.name != shape.window], keys)

    def _remove(self, columns: Sequence[Column], keys: Iterable[Row]) -> None:
        where = " AND ".join(f"{column.quoted} = ?" for column in columns)
        self._connection.executemany(f"DELETE FROM rows WHERE {where}", keys)

    def expired(self, shape: ViewShape, keep_us: int, now_us: int) -> list[Row]:
        """The keys of rows whose window ended more than `keep_us` before the newest one, at most EXPIRED_MAX; a window in
        the future does not count."""
        if shape.window is None:
            return []
        window = quoted(shape.window)
        length = shape.window_us or 0
        (newest,) = self._connection.execute(f"SELECT max({window}) FROM rows").fetchone()
        if not isinstance(newest, int):
            return []
        last = min(newest + length, now_us) - keep_us
        key = ", ".join(column.quoted for column in shape.key)
        where, bounds = f"{window} <= ?", [last - length]
        if shape.end is not None:
            where, bounds = f"{where} AND {quoted(shape.end)} <= ?", [last - length, last]
        cursor = self._connection.execute(f"SELECT {key} FROM rows WHERE {where} LIMIT {EXPIRED_MAX}", bounds)
        return cursor.fetchall()

    def set_note(self, note: Note) -> None:
        """Notes which micro-batch the transaction applies."""
        offsets = json.dumps({topic: dict(places) for topic, places in note.offsets.items()})
        self._set({"batch": str(note.batch), "offsets": offsets, "at_ms": str(note.at_ms)})


def _columns_text(columns: Sequence[Column]) -> str:
    return ", ".join(f"{column.name} {column.kind}" for column in columns)


def file_bytes(path: Path) -> int:
    """The size of a view's file with its write-ahead log; 0 if there is none."""
    total = 0
    for suffix in SIDE_FILES[:2]:
        try:
            total += os.stat(path.with_name(path.name + suffix)).st_size
        except OSError:
            continue
    return total


def shape_and_note(path: Path) -> tuple[ViewShape, Note] | None:
    """What a view's file holds, and as of when; None if there is none yet. Raises ViewError."""
    if not path.exists():
        return None
    with described(path):
        connection: Any = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None)
        try:
            notes = read_notes(connection)
        finally:
            connection.close()
    note = note_in(notes)
    return None if note is None else (ViewShape.from_notes(notes), note)
