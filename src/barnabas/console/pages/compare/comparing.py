"""Finds the records in which two topics differ: offset by offset, or by the newest record of each key. In bounded memory."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.client.async_cluster import AsyncCluster
from barnabas.console.records.decoding import Decoder
from barnabas.console.records.fetching import Row
from barnabas.console.records.scanning import Scan, Wanted

KEYS_MAX: Final = 200_000
"""Keys of one topic that are kept for a comparison."""
ROWS_MAX: Final = 5_000
"""Records that one step takes of each topic."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record is."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Difference:
    """One record that is not the same in both. what: missing here, missing there, key, value or headers.

    key: of either. here, there: where the record is; None where it is missing. rows: the records, if they were kept.
    """

    what: str
    key: bytes | None
    here: Place | None
    there: Place | None
    rows: tuple[Row | None, Row | None] = (None, None)


class Reader:
    """Reads partitions of one topic from their starts to their ends, a bounded step at a time."""

    def __init__(
        self,
        cluster: AsyncCluster,
        decoder: Decoder,
        topic: str,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
    ) -> None:
        self._scan = Scan(cluster, decoder, topic, Wanted(), starts, ends)
        self._steps = self._scan.steps(lambda: ROWS_MAX)
        self.progress = self._scan.progress

    async def step(self) -> list[Row]:
        """The next records; none at the end. Raises ClientError."""
        return await anext(self._steps, [])


@dataclass(slots=True)
class Pair:
    """A reader of each topic. share: the part that was read, from 0 to 1."""

    here: Reader
    there: Reader

    @property
    def scanned(self) -> int:
        return self.here.progress.scanned + self.there.progress.scanned

    @property
    def share(self) -> float:
        return min(self.here.progress.share, self.there.progress.share)

    @property
    def is_over(self) -> bool:
        return self.here.progress.is_over and self.there.progress.is_over

    @property
    def skipped(self) -> list[str]:
        return [*self.here.progress.skipped, *self.there.progress.skipped]


def differing(here: Row, there: Row) -> str | None:
    """In what two records differ; None if they are the same. Times do not count: copies may have times of their own."""
    if here.key != there.key:
        return "key"
    if here.value != there.value:
        return "value"
    return "headers" if here.headers != there.headers else None


async def by_offset(pair: Pair, number: int) -> AsyncIterator[tuple[list[Difference], int]]:
    """Compare one partition: after each step, what differs, and the offset before which everything was compared."""
    kept: tuple[dict[int, Row], dict[int, Row]] = {}, {}
    while not pair.is_over:
        readers = (pair.here, pair.there)
        places = [reader.progress.at[number] for reader in readers]
        side = 0 if places[0] <= places[1] else 1
        if readers[side].progress.is_over:
            side = 1 - side
        kept[side].update((row.offset, row) for row in await readers[side].step())
        done = [
            reader.progress.at[number]
            if not reader.progress.is_over
            else max(reader.progress.ends[number], 0)
            for reader in readers
        ]
        horizon = min(done)
        yield list(_merged(kept, horizon)), horizon


def _merged(kept: tuple[dict[int, Row], dict[int, Row]], horizon: int) -> Iterator[Difference]:
    """The differences before an offset; what was compared is forgotten."""
    for offset in sorted({at for rows in kept for at in rows if at < horizon}):
        here, there = kept[0].pop(offset, None), kept[1].pop(offset, None)
        row = here or there
        assert row is not None
        if here is None:
            what = "missing here"
        elif there is None:
            what = "missing there"
        else:
            differs = differing(here, there)
            if differs is None:
                continue
            what = differs
        yield Difference(what, row.key, _place(here), _place(there), (here, there))


def _place(row: Row | None) -> Place | None:
    return None if row is None else Place(row.partition, row.offset)


@dataclass(slots=True)
class Newest:
    """The newest record of each key of one topic. digest: of value and headers, None for a deleted key."""

    by_key: dict[bytes, tuple[bytes | None, Place]] = field(default_factory=dict)
    without_key: int = 0

    @property
    def is_full(self) -> bool:
        return len(self.by_key) >= KEYS_MAX

    def add(self, rows: list[Row]) -> None:
        """Take records in the order of their partitions."""
        for row in rows:
            if row.key is None:
                self.without_key += 1
                continue
            digest = None
            if row.value is not None:
                text = repr(row.headers).encode("utf-8", "surrogatepass") + b"\0" + row.value
                digest = hashlib.blake2b(text, digest_size=16).digest()
            self.by_key[row.key] = digest, Place(row.partition, row.offset)


class ByKey:
    """Compares the newest records of all keys."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self.here, self.there = Newest(), Newest()

    @property
    def is_full(self) -> bool:
        """Whether there are more keys than are kept."""
        return self.here.is_full or self.there.is_full

    async def steps(self) -> AsyncIterator[None]:
        """Read both topics, in turn. Raises ClientError."""
        sides = ((self._pair.here, self.here), (self._pair.there, self.there))
        while not self._pair.is_over and not self.is_full:
            for reader, newest in sides:
                if not reader.progress.is_over:
                    await asyncio.to_thread(newest.add, await reader.step())
            yield

    def differences(self) -> Iterator[Difference]:
        """By key; a key that is missing in one and deleted in the other is the same in both."""
        missing = (None, None)
        for key in sorted({*self.here.by_key, *self.there.by_key}):
            (digest, here), (other, there) = (
                self.here.by_key.get(key, missing),
                self.there.by_key.get(key, missing),
            )
            if digest == other:
                continue
            if here is None:
                yield Difference("missing here", key, None, there)
            elif there is None:
                yield Difference("missing there", key, here, None)
            else:
                yield Difference("value", key, here, there)
