"""A search over both: the table, and what is in the topic but not in the table yet."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.logs.query import Node
from barnabas.logs.rows import MINUTE_MS, Row

if TYPE_CHECKING:
    from barnabas.logs.tables import LogTable

STEPS_MS: Final = tuple(
    1000 * seconds
    for seconds in (
        1,
        5,
        10,
        30,
        60,
        300,
        600,
        1800,
        3600,
        10_800,
        21_600,
        43_200,
        86_400,
        604_800,
        2_592_000,
    )
)
STEPS_WANTED: Final = 60


class Source(Protocol):
    """The part of a log that is in its topic."""

    def rows(self, starts: Mapping[int, int] | None, since: int | None) -> Iterator[Row]:
        """The rows that are there now. starts: by partition, offsets before which is nothing new; since: ms."""


@dataclass(slots=True)
class Search:
    """What is searched where. since, until: ms since 1970; None: without a limit."""

    node: Node
    tail: Source | None
    table: LogTable | None
    since: int | None = None
    until: int | None = None

    def fresh(self) -> Iterator[Row]:
        """The rows that match in the topic and are not in the table. Raises LogError, and what the topic's reader raises."""
        if self.tail is None:
            return
        starts = None if self.table is None else self.table.offsets()
        node = self.node
        for row in self.tail.rows(starts, self.since):
            if self.is_in_time(row) and node.matches(row):
                yield row

    def is_in_time(self, row: Row) -> bool:
        """Whether a row is in the range of times."""
        return (self.since is None or row.time >= self.since) and (
            self.until is None or row.time < self.until
        )

    def rows(self, limit: int | None) -> Iterator[Row]:
        """The rows that match, the newest first. Raises LogError, and what the topic's reader raises."""
        fresh: list[Row] = (
            sorted(self.fresh(), key=age, reverse=True)
            if limit is None
            else heapq.nlargest(limit, self.fresh(), key=age)
        )
        kept: Iterable[Row] = ()
        if self.table is not None:
            kept = chain.from_iterable(self.table.search(self.node, self.since, self.until))
        for number, row in enumerate(heapq.merge(fresh, kept, key=age, reverse=True)):
            if limit is not None and number >= limit:
                return
            yield row

    def histogram(self, step_ms: int) -> Counter[int]:
        """How many rows match, by the time at which a step begins. Raises LogError, and what the topic's reader raises."""
        counts: Counter[int] = Counter()
        if self.table is not None:
            counts = self.table.histogram(self.node, self.since, self.until, step_ms)
        for row in self.fresh():
            counts[row.time // step_ms * step_ms] += 1
        return counts

    def over_time(self) -> tuple[Counter[int], int]:
        """A histogram by steps that fit a screen, and their length in ms. Raises as `histogram`.

        The table is asked by minutes first, which its indexes know; only what is a matter of an hour is counted finer.
        """
        counts: Counter[int] = Counter()
        for row in self.fresh():
            counts[row.time // STEPS_MS[0] * STEPS_MS[0]] += 1
        if self.table is None:
            return coarser(counts, STEPS_MS[0])
        kept, step = self.table.histogram(self.node, self.since, self.until, MINUTE_MS), MINUTE_MS
        both = kept + counts
        if both and max(both) - min(both) < STEPS_WANTED * MINUTE_MS:
            kept, step = self.table.histogram(self.node, self.since, self.until, STEPS_MS[0]), STEPS_MS[0]
        return coarser(kept + counts, step)


def age(row: Row) -> tuple[int, int]:
    """What rows are sorted by."""
    return row.time, row.offset


def step_for(span_ms: int) -> int:
    """The length of a histogram's steps for a range of times."""
    return next((step for step in STEPS_MS if span_ms / step <= STEPS_WANTED), STEPS_MS[-1])


def coarser(counts: Counter[int], step_ms: int) -> tuple[Counter[int], int]:
    """Counts by longer steps, if there are too many of them for a screen."""
    if not counts:
        return counts, step_ms
    wanted = max(step_for(max(counts) - min(counts) + step_ms), step_ms)
    merged: Counter[int] = Counter()
    for begins, count in counts.items():
        merged[begins // wanted * wanted] += count
    return merged, wanted
