"""Goes through a log, the newest lines first, and keeps the newest that match; counts all of them."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.admin.values import TopicPartition
from barnabas.console import rendering
from barnabas.console.clusters import Cluster
from barnabas.console.records.fetching import Columns, Damaged, Piece, Rows, columns_of, fetch
from barnabas.console.said import Refused, Said, said
from barnabas.logs.patterns import Patterns
from barnabas.logs.query import Node
from barnabas.logs.rows import Row, row_of

ROWS_MAX: Final = 200
"""Lines that are shown."""
WINDOW: Final = 20_000
WINDOW_MAX: Final = 200_000
TABLE_ROWS: Final = 5_000
"""Of a table, so many lines are looked at before anything else is done: it gives all of an hour at once."""
STEP_MS: Final = 1000
"""The finest step of the histogram; a look over a long time has coarser ones from the beginning."""
BUCKETS_MAX: Final = 20_000
LATE_MS: Final = 3_600_000
"""How much later than its own time a line may arrive in the topic and still be found by a search until a time."""
VALUES_MAX: Final = 2_000
"""Different values of a field that are counted."""
FIELDS_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class Range:
    """Times in ms since 1970; None: without a limit."""

    since: int | None
    until: int | None

    def __contains__(self, at: int) -> bool:
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


@dataclass(slots=True)
class Counts:
    """What is known of all lines that match. fields: how often each value of a field occurs."""

    matched: int = 0
    buckets: Counter[int] = field(default_factory=Counter)
    step_ms: int = STEP_MS
    fields: dict[str, Counter[str]] = field(default_factory=dict)
    patterns: Patterns = field(default_factory=Patterns)

    def add(self, row: Row) -> None:
        """Count a line."""
        self.matched += 1
        self.buckets[row.time // self.step_ms * self.step_ms] += 1
        if len(self.buckets) > BUCKETS_MAX:
            self.coarsen()
        for name, value in fields_of(row):
            counter = self.fields.get(name)
            if counter is None:
                if len(self.fields) >= FIELDS_MAX:
                    continue
                counter = self.fields[name] = Counter()
            if value in counter or len(counter) < VALUES_MAX:
                counter[value] += 1
        self.patterns.add(row.message, row.time, row.level)

    def coarsen(self) -> None:
        """Longer steps, so that there are fewer of them."""
        self.step_ms *= 10
        merged: Counter[int] = Counter()
        for at, count in self.buckets.items():
            merged[at // self.step_ms * self.step_ms] += count
        self.buckets = merged


def fields_of(row: Row) -> Iterator[tuple[str, str]]:
    """The fields by which lines are counted: level, host, path, and those of an event that are not objects."""
    for name, value in (("level", row.level), ("host", row.host), ("path", row.path)):
        if value:
            yield name, value
    for name, member in members_of(row).items():
        if isinstance(member, (str, int, float, bool)) and len(str(member)) <= 100:
            yield name, str(member)


def members_of(row: Row) -> Mapping[str, Any]:
    """What else is known of a line."""
    if not row.fields:
        return {}
    import json

    members = json.loads(row.fields)
    return members if isinstance(members, dict) else {}


class Look:
    """One way through a log. compares: patterns of the time before, as long as the range, are looked at as well."""

    def __init__(
        self, cluster: Cluster, topic: str, node: Node, when: Range, *, compares: bool = False
    ) -> None:
        self.cluster, self.topic, self.node, self.when = cluster, topic, node, when
        self.compares = compares and when.since is not None
        self.counts = Counts()
        self.looked = self.size_bytes = 0
        self.is_over = False
        self.skipped: list[str] = []
        self.share = 0.0
        self._newest: list[tuple[tuple[int, int, int], Row]] = []

    def rows(self) -> list[Row]:
        """The newest lines that match, the newest first."""
        return [row for _, row in sorted(self._newest, reverse=True)]

    def said(self) -> Said:
        """How far the look is."""
        words = {"matched": rendering.number(self.counts.matched), "looked": rendering.number(self.looked)}
        if self.is_over:
            return said("{matched} of {looked} lines match.", **words)
        return said("{matched} of {looked} lines match so far; {percent} % of the time is looked at.", **words,
                    percent=int(self.share * 100))  # fmt: skip

    async def steps(self) -> AsyncIterator[None]:
        """Look at some more, again and again, until everything is looked at. Raises ClientError, Refused."""
        begins, ends = await self._bounds()
        table = self.cluster.tables.get(self.topic)
        if table is not None:
            for number, offset in (await asyncio.to_thread(_offsets_in, table)).items():
                if number in begins:
                    begins[number] = min(max(begins[number], offset), ends[number])
        whole = sum(ends[n] - begins[n] for n in ends) or 1
        at, window = dict(ends), WINDOW
        while any(at[n] > begins[n] for n in at):
            lows = {n: max(begins[n], high - window) for n, high in at.items()}
            for number, low in lows.items():
                async for _ in self._window(number, low, at[number]):
                    yield
            at, window = lows, min(window * 2, WINDOW_MAX)
            self.share = sum(ends[n] - at[n] for n in ends) / whole
        if table is not None:
            async for _ in self._table(table):
                yield
        self.is_over, self.share = True, 1.0

    async def _bounds(self) -> tuple[dict[int, int], dict[int, int]]:
        """(where to begin, where to end), by partition."""
        admin = self.cluster.admin
        topic = (await admin.topics.describe([self.topic]))[self.topic]
        keys = [TopicPartition(self.topic, part.number) for part in topic.partitions if part.leader >= 0]
        bounds = (await admin.records.bounds(keys, read_committed=True)).done
        begins = {key.partition: int(bound.start) for key, bound in bounds.items()}
        ends = {key.partition: int(bound.end) for key, bound in bounds.items()}
        since, until = self.when.since, self.when.until
        if since is not None:
            if self.compares:
                since -= max((until or _now_ms()) - since, 0)
            await self._by_time(begins, ends, bounds, since, begins)
        if until is not None:
            await self._by_time(ends, ends, bounds, until + LATE_MS, begins)
        return begins, ends

    async def _by_time(
        self,
        changed: dict[int, int],
        ends: dict[int, int],
        bounds: Mapping[TopicPartition, Any],
        at: int,
        lows: dict[int, int],
    ) -> None:
        offsets = (await self.cluster.admin.records.offsets(dict.fromkeys(bounds, at))).done
        last = dict(ends)
        for key, place in offsets.items():
            offset = last[key.partition] if place.offset is None else int(place.offset)
            changed[key.partition] = max(min(offset, last[key.partition]), lows[key.partition])

    async def _window(self, number: int, low: int, high: int) -> AsyncIterator[None]:
        place = TopicPartition(self.topic, number)
        at = low
        while at < high:
            piece = await fetch(self.cluster.reading, place, at)
            self.size_bytes += len(piece.records)
            if not piece.records:
                return
            try:
                after = await asyncio.to_thread(self._take, piece, high)
            except Damaged as error:
                self.skipped.append(str(error))
                return
            at = max(after, at + 1)
            yield

    def _take(self, piece: Piece, end: int) -> int:
        """Look at the lines of a piece; the offset after them."""
        after = piece.start
        for part in columns_of(piece, end):
            for row in rows_in(part):
                self.looked += 1
                after = row.offset + 1
                self._one(row)
            if isinstance(part, Columns):
                after = max(after, part.next_offset)
        return after

    def _one(self, row: Row) -> None:
        if row.time in self.when:
            if self.node.matches(row):
                self.counts.add(row)
                self._keep(row)
        elif (
            self.compares
            and self.when.since is not None
            and row.time < self.when.since
            and self.node.matches(row)
        ):
            self.counts.patterns.add(row.message, row.time, row.level, is_before=True)

    def _keep(self, row: Row) -> None:
        entry = ((row.time, row.offset, row.partition), row)
        if len(self._newest) < ROWS_MAX:
            heapq.heappush(self._newest, entry)
        else:
            heapq.heappushpop(self._newest, entry)

    async def _table(self, folder: str) -> AsyncIterator[None]:
        """The lines in the table, hour by hour."""
        hours = await asyncio.to_thread(_table_rows, folder, self)
        while (rows := await asyncio.to_thread(next, hours, None)) is not None:
            for begin in range(0, len(rows), TABLE_ROWS):
                await asyncio.to_thread(self._all, rows[begin : begin + TABLE_ROWS])
                yield

    def _all(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._one(row)
        self.looked += len(rows)


def _now_ms() -> int:
    import time

    return int(time.time() * 1000)


def rows_in(part: Columns | Rows) -> Iterator[Row]:
    """The records of a part as lines of a log."""
    if isinstance(part, Rows):
        for record in part.records:
            yield row_of(
                record.value or b"",
                record.timestamp_ms,
                _headers(record.headers),
                record.partition,
                record.offset,
            )
        return
    for index in range(part.rows):
        yield row_of(
            part.value(index) or b"",
            part.times_us[index] // 1000,
            _headers(part.headers(index)),
            part.partition,
            part.offsets[index],
        )


def _headers(headers: Any) -> list[tuple[str, bytes]]:
    return [(name, value or b"") for name, value in headers]


def _opened(folder: str) -> Any:
    from pathlib import Path

    try:
        from barnabas.logs.tables import LogTable
    except ImportError as error:
        raise Refused(
            501,
            said("Tables need {module}, which is not installed", module=error.name or ""),
            said("Install it with: pip install 'barnabas[pipelines]'"),
        ) from None
    return LogTable(Path(folder))


def _offsets_in(folder: str) -> Mapping[int, int]:
    from barnabas.logs.errors import LogError

    try:
        offsets: Mapping[int, int] = _opened(folder).offsets()
    except LogError as error:
        raise Refused(502, said("{reason}", reason=str(error))) from None
    return offsets


def _table_rows(folder: str, look: Look) -> Iterator[list[Row]]:
    since = look.when.since
    if look.compares and since is not None:
        since -= max((look.when.until or _now_ms()) - since, 0)
    pieces: Iterator[list[Row]] = _opened(folder).search(look.node, since, look.when.until)
    return pieces
