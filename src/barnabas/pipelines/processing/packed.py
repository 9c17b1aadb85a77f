"""User code that takes all rows of a task at once: what it gets, what it makes, and how its state is kept.

A row of a data frame costs Spark's Python workers far more than the work on it, and so does each access to state, which asks
Java over a socket. So code of this project may take rows that hold thousands of records (entries), and keep its state in
buckets: texts with some dozens of names each, which are read and written whole, once in a micro-batch.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from barnabas.pipelines.processing.cells import Store

BUCKETS: Final = "buckets"
"""The state with the buckets: a map of their numbers to JSON objects, and of ABOUT to what is known of all of them."""
ABOUT: Final = "about"
FEWEST: Final = 64
FULL: Final = 64
"""Names in a bucket, on average, from which on there are twice as many buckets."""
FINISHED: Final = 1 << 40
"""The number of what is made once all records of a task have been processed."""


class Origin(NamedTuple):
    """The record of a topic that something was made of. at_us: its timestamp in microseconds since 1970. reached_us: the
    latest one of the records before it in its partition, by which all stages put it in the same place, although not each of
    them gets these records."""

    topic: str
    partition: int
    offset: int
    at_us: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    reached_us: int = 0


class Entry(NamedTuple):
    """What was made of a record, for one task. origin: None if a timer has made it. place: which of the things that were
    made of the record this is: a number for each stage that it has passed. items: what the code sends itself, each with
    its number among what was made with it."""

    origin: Origin | None
    place: tuple[int, ...]
    items: list[tuple[Any, ...]]


@dataclass
class TaskOutput:
    """What code has made. onward: entries by stage and task. rows: fields of rows that leave the last stage, with where they
    come from. failed: records, and why."""

    onward: dict[tuple[int, int], list[Entry]] = field(default_factory=dict)
    rows: list[tuple[dict[str, Any], Origin | None]] = field(default_factory=list)
    failed: list[tuple[Origin | None, str]] = field(default_factory=list)


class PackedCode(Protocol):
    """A processor (processor.py) that takes entries. keeps_nothing: whether it has neither state nor timers, so that any
    process may run it on any part of the records."""

    keeps_nothing: bool

    def process_entries(self, entries: list[Entry]) -> TaskOutput: ...

    def fire_entries(self, at_ms: int) -> TaskOutput: ...


class Buckets(MutableMapping[str, str]):
    """Texts by name, in a store of the present key. `back` undoes what has changed since the last `settle`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[int, dict[str, str]] = {}
        self._changed: set[int] = set()
        self._undo: list[tuple[int, str, str | None]] = []
        about = store.get(BUCKETS, ABOUT)
        counts: list[int] = [FEWEST, 0] if about is None else json.loads(about)
        self._buckets, self._names = counts
        self._about = about

    def _number(self, name: str) -> int:
        return zlib.crc32(name.encode("utf-8", "surrogatepass")) & (self._buckets - 1)

    def _bucket(self, number: int) -> dict[str, str]:
        bucket = self._open.get(number)
        if bucket is None:
            text = self._store.get(BUCKETS, str(number)) if self._about is not None else None
            bucket = self._open[number] = {} if text is None else json.loads(text)
        return bucket

    def get(self, name: str, default: Any = None) -> Any:
        """The text of a name."""
        return self._bucket(self._number(name)).get(name, default)

    def __getitem__(self, name: str) -> str:
        return self._bucket(self._number(name))[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._bucket(self._number(name))

    def __setitem__(self, name: str, text: str) -> None:
        number = self._number(name)
        bucket = self._bucket(number)
        before = bucket.get(name)
        self._undo.append((number, name, before))
        if before is None:
            self._names += 1
        bucket[name] = text
        self._changed.add(number)

    def __delitem__(self, name: str) -> None:
        number = self._number(name)
        bucket = self._bucket(number)
        self._undo.append((number, name, bucket.pop(name)))
        self._names -= 1
        self._changed.add(number)

    def pop(self, name: str, default: Any = None) -> Any:
        """Removes a name; returns its text."""
        text = self.get(name)
        if text is None:
            return default
        del self[name]
        return text

    def __len__(self) -> int:
        return self._names

    def __iter__(self) -> Iterator[str]:
        self._read_all()
        return iter([name for bucket in self._open.values() for name in bucket])

    def _read_all(self) -> None:
        for number, text in self._store.pairs(BUCKETS) if self._about is not None else ():
            if number != ABOUT and int(number) not in self._open:
                self._open[int(number)] = json.loads(text)

    def settle(self) -> None:
        """What has changed so far stays."""
        self._undo.clear()

    def back(self) -> None:
        """Undoes what has changed since `settle`."""
        for number, name, before in reversed(self._undo):
            bucket = self._open[number]
            if name in bucket:
                self._names -= 1
            if before is None:
                bucket.pop(name, None)
            else:
                bucket[name] = before
                self._names += 1
        self._undo.clear()

    def flush(self) -> None:
        """Writes what has changed."""
        if self._names > FULL * self._buckets:
            self._divide()
        for number in sorted(self._changed):
            bucket = self._open[number]
            self._store.put(BUCKETS, str(number), written(bucket) if bucket else None)
        about = json.dumps([self._buckets, self._names])
        if self._changed and about != self._about:
            self._store.put(BUCKETS, ABOUT, about)
            self._about = about
        self._changed.clear()
        self._undo.clear()

    def _divide(self) -> None:
        """Makes more buckets, and puts each name where it belongs now."""
        self._read_all()
        before = self._open
        while self._names > FULL * self._buckets // 2:
            self._buckets *= 2
        self._open = {number: {} for number in range(self._buckets)}
        for bucket in before.values():
            for name, text in bucket.items():
                self._open[self._number(name)][name] = text
        self._changed = {number for number, bucket in self._open.items() if bucket or number in before}


def written(bucket: dict[str, str]) -> str:
    """A bucket as text."""
    text = json.dumps(bucket, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a pair of surrogates, which user code may have made
        return json.dumps(bucket, separators=(",", ":"))
    return text


def names_in(text: str) -> dict[str, str]:
    """The names in a bucket's text, with theirs."""
    names: dict[str, str] = json.loads(text)
    return names


def in_order(entries: list[Entry]) -> list[Entry]:
    """Entries in the order of their partitions' offsets; those of several partitions by their times, but none before an
    older offset of its partition."""
    if len({len(entry.place) for entry in entries}) > 1:
        # Of one record, some came a shorter way: only item by item it can be said what comes first.
        entries = [
            Entry(entry.origin, (*entry.place, item[0]), [item]) for entry in entries for item in entry.items
        ]
    placed = sorted(entries, key=_by_offset)
    reached: dict[tuple[str, int], int] = {}
    times = []
    for number, (origin, _, _) in enumerate(placed):
        where, at = ("", -1), 0
        if origin is not None:
            where, at = (origin.topic, origin.partition), max(origin.at_us, origin.reached_us)
        at = reached[where] = max(at, reached.get(where, at))
        times.append((at, number))
    if len(reached) > 1:
        times.sort()
        return [placed[number] for _, number in times]
    return placed


def _by_offset(entry: Entry) -> tuple[Any, ...]:
    origin = entry.origin
    if origin is None:
        return "", -1, -1, entry.place
    return origin.topic, origin.partition, origin.offset, entry.place
