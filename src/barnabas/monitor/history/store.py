"""The history's file: an SQLite database that one process writes.

Values of one time are written as one row (`tick`). Once an hour is over, it becomes a row for each series (`row`), which is
what readers ask for; coarser rows are made of finer ones, which are deleted by age. A process that is killed loses nothing
that was written. When the file grows over its limit, the oldest rows go. A damaged file is moved aside; a new one begins.

Not thread-safe: the caller uses it from one thread.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sqlite3
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.monitor.history.packing import NAN, TIERS, Tier, fold, pack, unpack

log = logging.getLogger("barnabas.monitor")

FILE: Final = "history.db"
TICK_S: Final = TIERS[0].step_s
SERIES_MAX: Final = 50_000
SCHEMA: Final = """
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS series (id INTEGER PRIMARY KEY, name TEXT NOT NULL, labels TEXT NOT NULL, last_s INTEGER NOT NULL,
    UNIQUE (name, labels));
CREATE TABLE IF NOT EXISTS tick (at_s INTEGER PRIMARY KEY, ids BLOB NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS row (tier INTEGER, start_s INTEGER, series INTEGER, means BLOB NOT NULL, peaks BLOB,
    PRIMARY KEY (series, tier, start_s)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS packed (tier INTEGER PRIMARY KEY, until_s INTEGER NOT NULL);
"""


class HistoryError(Exception):
    """The history cannot be opened, read or written. The sentence says why."""


class Series(NamedTuple):
    """A metric of something. labels: (name, value), sorted by name."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, name: str, **labels: str) -> Series:
        return cls(name, tuple(sorted(labels.items())))


class Point(NamedTuple):
    """The mean and the maximum of the time from at_s to the next point."""

    at_s: int
    mean: float
    peak: float


class History:
    """folder: created if it is missing. size_max_bytes: of the file, about."""

    def __init__(self, folder: Path, size_max_bytes: int) -> None:
        self._path = folder / FILE
        self._size_max = size_max_bytes
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise HistoryError(f"cannot write to {folder}: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise HistoryError(
                f"another process writes the history in {folder}; name another folder"
            ) from None
        self._ids: dict[Series, int] = {}
        self._db = self._opened()

    def close(self) -> None:
        """Close the file."""
        self._db.close()
        os.close(self._lock)

    # --- writing --------------------------------------------------------------------------------------------

    def write(self, at_s: int, values: Mapping[Series, float]) -> None:
        """The values of a time; a second write in the same minute takes the place of the first. Raises HistoryError."""
        at_s -= at_s % TICK_S
        with self._guard("written"):
            ids = array("I", self._ids_of(values, at_s))
            data = zlib.compress(array("d", values.values()).tobytes(), 3)
            self._db.execute("INSERT OR REPLACE INTO tick VALUES (?, ?, ?)", (at_s, ids.tobytes(), data))
            self._db.commit()

    def tidy(self, now_s: int) -> None:
        """Make rows of what is complete, and delete what is too old or too much. Raises HistoryError."""
        with self._guard("tidied"):
            self._pack_ticks(now_s)
            for number in range(1, len(TIERS)):
                self._pack_rows(number, now_s)
            for number, tier in enumerate(TIERS):
                self._db.execute(
                    "DELETE FROM row WHERE tier = ? AND start_s < ?", (number, now_s - tier.keep_s)
                )
            self._db.execute("DELETE FROM series WHERE last_s < ?", (now_s - TIERS[-1].keep_s,))
            self._shrink()
            self._db.commit()
            self._ids.clear()

    def _ids_of(self, values: Iterable[Series], at_s: int) -> Iterator[int]:
        for series in values:
            number = self._ids.get(series)
            if number is None:
                if len(self._ids) >= SERIES_MAX:
                    raise HistoryError(f"there are more than {SERIES_MAX} series")
                (number,) = self._db.execute(
                    "INSERT INTO series (name, labels, last_s) VALUES (?, ?, ?)"
                    " ON CONFLICT DO UPDATE SET last_s = max(last_s, excluded.last_s) RETURNING id",
                    (series.name, json.dumps(series.labels), at_s),
                ).fetchone()
                self._ids[series] = number
            yield number

    def _until(self, number: int) -> int | None:
        row = self._db.execute("SELECT until_s FROM packed WHERE tier = ?", (number,)).fetchone()
        return None if row is None else row[0]

    def _pack_ticks(self, now_s: int) -> None:
        """Hours that are over become rows of the finest tier. A tick that comes late is left out."""
        tier = TIERS[0]
        oldest = self._db.execute("SELECT min(at_s) FROM tick").fetchone()[0]
        while oldest is not None and oldest - oldest % tier.span_s + tier.span_s <= now_s:
            start_s = oldest - oldest % tier.span_s
            rows: dict[int, array[float]] = {}
            for at_s, number, value in self._ticks(start_s, start_s + tier.span_s):
                values = rows.get(number)
                if values is None:
                    values = rows[number] = array("d", [NAN]) * tier.slots
                values[(at_s - start_s) // tier.step_s] = value
            self._db.executemany(
                "INSERT OR REPLACE INTO row VALUES (0, ?, ?, ?, NULL)",
                [(start_s, number, pack(values)) for number, values in rows.items()],
            )
            self._db.execute("DELETE FROM tick WHERE at_s < ?", (start_s + tier.span_s,))
            self._db.execute("INSERT OR REPLACE INTO packed VALUES (0, ?)", (start_s + tier.span_s,))
            self._db.commit()
            oldest = self._db.execute("SELECT min(at_s) FROM tick").fetchone()[0]

    def _pack_rows(self, number: int, now_s: int) -> None:
        """Spans of a tier that are over are made of the rows of the finer one."""
        tier, finer = TIERS[number], TIERS[number - 1]
        reached = self._until(number - 1)
        until = self._until(number)
        if reached is None:
            return
        if until is None:
            first = self._db.execute("SELECT min(start_s) FROM row WHERE tier = ?", (number - 1,)).fetchone()[
                0
            ]
            if first is None:
                return
            until = first - first % tier.span_s
        while until + tier.span_s <= min(reached, now_s):
            self._pack_span(number, tier, finer, until)
            until += tier.span_s
            self._db.execute("INSERT OR REPLACE INTO packed VALUES (?, ?)", (number, until))
            self._db.commit()

    def _pack_span(self, number: int, tier: Tier, finer: Tier, start_s: int) -> None:
        factor = tier.step_s // finer.step_s
        slots = tier.slots * factor
        by_series: dict[int, tuple[array[float], array[float]]] = {}
        rows = self._db.execute(
            "SELECT start_s, series, means, peaks FROM row WHERE tier = ? AND start_s >= ? AND start_s < ?",
            (number - 1, start_s, start_s + tier.span_s),
        )
        for at_s, series, means, peaks in rows:
            if series not in by_series:
                by_series[series] = (array("d", [NAN]) * slots, array("d", [NAN]) * slots)
            place = (at_s - start_s) // finer.step_s
            values = unpack(means)
            by_series[series][0][place : place + len(values)] = values
            by_series[series][1][place : place + len(values)] = values if peaks is None else unpack(peaks)
        self._db.executemany(
            "INSERT OR REPLACE INTO row VALUES (?, ?, ?, ?, ?)",
            [
                (number, start_s, series, *map(pack, fold(means, peaks, factor)))
                for series, (means, peaks) in by_series.items()
            ],
        )

    def size_bytes(self) -> int:
        """Of what the file holds, without pages that are free."""
        pages, free, size = (
            int(self._db.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    def _shrink(self) -> None:
        """Delete the oldest rows until the file is no larger than it may be."""
        while self.size_bytes() > self._size_max:
            oldest = self._db.execute("SELECT min(start_s) FROM row").fetchone()[0]
            if oldest is None:
                oldest_tick = self._db.execute("SELECT min(at_s) FROM tick").fetchone()[0]
                if oldest_tick is None:
                    break
                self._db.execute("DELETE FROM tick WHERE at_s < ?", (oldest_tick + 10 * TICK_S,))
            else:
                self._db.execute("DELETE FROM row WHERE start_s <= ?", (oldest,))
            self._db.commit()
        self._db.execute("PRAGMA incremental_vacuum").fetchall()

    # --- reading --------------------------------------------------------------------------------------------

    def names(self) -> list[Series]:
        """All series that there are values of. Raises HistoryError."""
        with self._guard("read"):
            rows = self._db.execute("SELECT name, labels FROM series ORDER BY name, labels").fetchall()
        return [
            Series(name, tuple((key, value) for key, value in json.loads(labels))) for name, labels in rows
        ]

    def read(self, series: Series, since_s: int, until_s: int) -> list[Point]:
        """The values since_s <= time < until_s, as fine as they are kept, in order of time. Raises HistoryError."""
        with self._guard("read"):
            row_id = self._db.execute(
                "SELECT id FROM series WHERE name = ? AND labels = ?",
                (series.name, json.dumps(series.labels)),
            ).fetchone()
            if row_id is None:
                return []
            points: dict[int, Point] = {}
            for point in self._tick_points(row_id[0], since_s, until_s):
                points[point.at_s] = point
            packed = self._until(0)
            finer_from = min(until_s, packed) if packed is not None else until_s
            for number, tier in enumerate(TIERS):
                rows = self._db.execute(
                    "SELECT start_s, means, peaks FROM row WHERE series = ? AND tier = ? AND start_s > ? AND start_s < ?"
                    " ORDER BY start_s",
                    (row_id[0], number, since_s - tier.span_s, finer_from),
                ).fetchall()
                for start_s, means, peaks in rows:
                    for point in _points(tier, start_s, means, peaks):
                        if since_s <= point.at_s < finer_from:
                            points.setdefault(point.at_s, point)
                if rows:
                    finer_from = min(finer_from, rows[0][0])
        return [points[at_s] for at_s in sorted(points)]

    def _tick_points(self, number: int, since_s: int, until_s: int) -> Iterator[Point]:
        for at_s, series, value in self._ticks(since_s, until_s, only=number):
            if series == number:
                yield Point(at_s, value, value)

    def _ticks(self, since_s: int, until_s: int, only: int | None = None) -> Iterator[tuple[int, int, float]]:
        """(time, series, value) of the ticks in this time."""
        rows = self._db.execute(
            "SELECT at_s, ids, data FROM tick WHERE at_s >= ? AND at_s < ? ORDER BY at_s", (since_s, until_s)
        ).fetchall()
        for at_s, packed_ids, data in rows:
            ids, values = array("I"), array("d")
            ids.frombytes(packed_ids)
            try:
                values.frombytes(zlib.decompress(data))
            except zlib.error as error:
                raise sqlite3.DatabaseError(f"the values of {at_s} are damaged: {error}") from error
            if only is None:
                yield from ((at_s, number, value) for number, value in zip(ids, values, strict=True))
            elif only in ids:
                yield at_s, only, values[ids.index(only)]

    # --- the file -------------------------------------------------------------------------------------------

    def _opened(self) -> sqlite3.Connection:
        try:
            return self._checked()
        except sqlite3.OperationalError as error:
            raise HistoryError(f"cannot open {self._path}: {error}") from None
        except sqlite3.DatabaseError as error:
            self._move_aside(str(error))
        try:
            return self._checked()
        except sqlite3.Error as error:
            raise HistoryError(f"cannot open {self._path}: {error}") from None

    def _checked(self) -> sqlite3.Connection:
        """The open database. Raises sqlite3.Error if it is damaged."""
        db = sqlite3.connect(self._path, check_same_thread=False, timeout=5)
        try:
            (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)
            db.executescript(SCHEMA)
        except BaseException:
            db.close()
            raise
        return db

    def _move_aside(self, reason: str) -> None:
        number = 1
        while (aside := self._path.with_name(f"{FILE}.damaged-{number}")).exists():
            number += 1
        log.error(
            "the history is damaged; it is moved aside and begins anew",
            extra={"file": str(self._path), "moved_to": str(aside), "reason": reason},
        )
        os.replace(self._path, aside)
        for suffix in ("-wal", "-shm"):
            self._path.with_name(FILE + suffix).unlink(missing_ok=True)

    def _guard(self, done: str) -> _Guard:
        return _Guard(self, done)

    def _failed(self, done: str, error: sqlite3.Error) -> HistoryError:
        """What a failure means. A damaged file is replaced, so that the next call works."""
        self._ids.clear()
        if isinstance(error, sqlite3.OperationalError):
            try:
                self._db.rollback()
            except sqlite3.Error:
                log.debug("nothing to roll back")
            return HistoryError(f"{self._path} cannot be {done}: {error}")
        self._db.close()
        self._move_aside(str(error))
        self._db = self._opened()
        return HistoryError(f"{self._path} was damaged and begins anew: {error}")


class _Guard:
    """Turns SQLite's errors into HistoryError."""

    def __init__(self, history: History, done: str) -> None:
        self._history = history
        self._done = done

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError):
            error = sqlite3.DatabaseError(str(error))
        if isinstance(error, sqlite3.Error):
            raise self._history._failed(self._done, error) from None


def _points(tier: Tier, start_s: int, means: bytes, peaks: bytes | None) -> Iterator[Point]:
    mean_values = unpack(means)
    peak_values = mean_values if peaks is None else unpack(peaks)
    for slot, (mean, peak) in enumerate(zip(mean_values, peak_values, strict=True)):
        if mean == mean:
            yield Point(start_s + slot * tier.step_s, mean, peak)
