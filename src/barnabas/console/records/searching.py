"""Searches: which partitions, from where, in which direction; and where to go on."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from barnabas.client.async_cluster import AsyncCluster
from barnabas.console.records.decoding import Decoder
from barnabas.console.records.fetching import Row
from barnabas.console.records.scanning import Progress, Ranges, Scan, Wanted
from barnabas.records.partitioner import partition_for_key

WINDOW: Final = 200
"""Offsets per partition that a search for the newest looks at first; the next windows grow fourfold. It is small because
nothing of a window is shown before all of it has been looked at, and records may be large."""
WINDOW_MAX: Final = 100_000
PARTITIONERS: Final[Mapping[str, Callable[[bytes, int], int]]] = {
    "java": partition_for_key,
    "librdkafka": lambda key, count: zlib.crc32(key) % count,
}
"""Where producers send a key: Java's default (murmur2), and that of librdkafka (CRC-32, `consistent_random`)."""


def cursor_text(places: Mapping[int, int]) -> str:
    """Offsets by partition as one word: `0:15,3:20`."""
    return ",".join(f"{number}:{offset}" for number, offset in sorted(places.items()))


def parse_cursor(text: str) -> dict[int, int]:
    """The offsets in a word that `cursor_text` made. Raises ValueError."""
    pairs = [part.partition(":") for part in text.split(",") if part]
    return {int(number): int(offset) for number, _, offset in pairs}


def newest_first(row: Row) -> tuple[int, int, int]:
    """The order of records that are shown with the newest first."""
    return row.timestamp_ms, row.offset, -row.partition


class Search:
    """What is asked for, on the way. starts, ends: of the partitions that are looked at. ranges: what to read of
    them, if an index knows.

    Forward, records come in the order in which they are found; backward, in windows from the end, each with its newest
    records first. After each batch, `cursor` says where to go on.
    """

    def __init__(
        self,
        cluster: AsyncCluster,
        decoder: Decoder,
        topic: str,
        wanted: Wanted,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        limit: int,
        *,
        backward: bool,
        ranges: Ranges | None = None,
    ) -> None:
        self._cluster = cluster
        self._decoder = decoder
        self._topic = topic
        self._wanted = wanted
        self._starts = dict(starts)
        self._ends = dict(ends)
        self._limit = limit
        self._ranges = ranges
        self.backward = backward
        self.cursor: dict[int, int] = dict(ends if backward else starts)
        self.progress = Progress(dict(starts), ends, starts)
        self.fitting = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to look at."""
        if self.backward:
            return all(self.cursor[n] <= start for n, start in self._starts.items())
        return all(self.cursor[n] >= end for n, end in self._ends.items())

    def batches(self) -> AsyncIterator[list[Row]]:
        """Records that fit, in lists that may be empty, until there are `limit`, or all has been looked at."""
        return self._backward() if self.backward else self._forward()

    async def _forward(self) -> AsyncIterator[list[Row]]:
        scan = self._scan(self._starts, self._ends)
        self.progress = scan.progress
        async for rows in scan.steps(lambda: self._limit - self.fitting):
            self.fitting += len(rows)
            self.cursor = dict(scan.progress.at)
            yield rows

    async def _backward(self) -> AsyncIterator[list[Row]]:
        window = self._first_window()
        whole = self.progress
        while not self.is_over and self.fitting < self._limit:
            begins = {n: max(start, self.cursor[n] - window) for n, start in self._starts.items()}
            scan = self._scan(begins, self.cursor)
            before = whole.scanned, whole.size_bytes
            kept: list[tuple[tuple[int, int, int], Row]] = []
            dropped: dict[int, int] = {}
            async for rows in scan.steps(lambda: 1 << 30):
                for row in rows:
                    self._keep(kept, dropped, row)
                whole.scanned = before[0] + scan.progress.scanned
                whole.size_bytes = before[1] + scan.progress.size_bytes
                yield []
            whole.failed += scan.progress.failed
            whole.skipped += scan.progress.skipped
            self.fitting += len(kept)
            self.cursor = {n: dropped.get(n, begin) for n, begin in begins.items()}
            whole.at = {n: self._starts[n] + self._ends[n] - at for n, at in self.cursor.items()}
            yield [row for _, row in sorted(kept, reverse=True)]
            window = min(window * 4, WINDOW_MAX)

    def _scan(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> Scan:
        return Scan(self._cluster, self._decoder, self._topic, self._wanted, starts, ends, self._ranges)

    def _keep(self, kept: list[tuple[tuple[int, int, int], Row]], dropped: dict[int, int], row: Row) -> None:
        """Keep the newest records; `dropped` has the offset after the newest one of each partition that is not kept."""
        entry = (newest_first(row), row)
        if len(kept) < self._limit - self.fitting:
            heapq.heappush(kept, entry)
            return
        _, out = heapq.heappushpop(kept, entry)
        dropped[out.partition] = max(dropped.get(out.partition, 0), out.offset + 1)

    def _first_window(self) -> int:
        if not self._wanted.is_everything:
            return WINDOW
        return max(-(-self._limit * 2 // max(len(self._starts), 1)), 5)
