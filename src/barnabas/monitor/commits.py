"""Follows the commits of all groups of a cluster in `__consumer_offsets`, as Burrow does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from barnabas.admin import LATEST, AsyncAdmin, TopicPartition
from barnabas.client.async_fetching import fetch_many
from barnabas.client.errors import ClientError
from barnabas.client.fetching import Fetched, OffsetOutOfRange
from barnabas.monitor.lag.by import readable
from barnabas.records.batch import CorruptBatch, Record
from barnabas.records.units import Offset
from barnabas.wire.primitives import WireError
from barnabas.wire.records_schemas.group_log import OffsetCommitKey, OffsetCommitValue

log = logging.getLogger("barnabas.monitor")

TOPIC: Final = "__consumer_offsets"
BACK_MS: Final = 3_600_000
"""Commits of the last hour are read at the start: a window of ten commits is seldom longer."""
PARTITION_BYTES: Final = 1 << 20
ANSWER_BYTES: Final = 8 << 20
RECORDS_PER_TURN: Final = 200
"""Records that are read before others get a turn, a few milliseconds."""
OFFSETS_MAX: Final = (1 << 63) - 1


class GroupCommit(NamedTuple):
    """A group's commit; offset: None if its offset was deleted. at_ms: when it was made."""

    group: str
    key: tuple[str, int]
    offset: int | None
    at_ms: int


class CommitFollower:
    """Hands every commit to `note`, in the order of each partition of the topic. Belongs to one event loop.

    is_refused: why the topic cannot be read; None if it can. since_ms: when the oldest commit may be that was read; None
    until all is read that was there at the start.
    """

    def __init__(self, admin: AsyncAdmin, note: Callable[[GroupCommit], None]) -> None:
        self._admin = admin
        self._note = note
        self._positions: dict[tuple[str, int], Offset] = {}
        self.is_refused: ClientError | None = None
        self.since_ms: int | None = None

    async def poll(self, now_ms: int) -> None:
        """Read what is new. Raises ClientError if the cluster does not answer."""
        if not self._positions and not await self._start(now_ms):
            return
        has_more = True
        while has_more:
            pieces = await fetch_many(
                self._admin.connections,
                self._positions,
                partition_bytes=PARTITION_BYTES,
                max_bytes=ANSWER_BYTES,
                read_committed=True,
            )
            has_more = False
            for key, piece in pieces.items():
                if isinstance(piece, ClientError):
                    await self._failed(key, piece)
                    continue
                if piece.next_offset > self._positions[key]:
                    await self._read(piece, self._positions[key])
                    self._positions[key] = piece.next_offset
                    has_more = True
        if self.since_ms is None:
            self.since_ms = now_ms - BACK_MS

    async def _start(self, now_ms: int) -> bool:
        """Find where the last hour begins; False if there is no such topic yet, or it may not be read."""
        described = await self._admin.topics.describe([TOPIC])
        self.is_refused = next(iter(described.failed.values()), None)
        if self.is_refused is not None:
            return False
        keys = [TopicPartition(TOPIC, row.number) for row in described.done[TOPIC].partitions]
        recent = await self._admin.records.offsets(dict.fromkeys(keys, max(now_ms - BACK_MS, 0)))
        ends = await self._admin.records.offsets(dict.fromkeys(keys, LATEST))
        for key in keys:
            place = recent.done.get(key)
            end = ends.done.get(key)
            if place is not None and place.offset is not None:
                self._positions[key] = place.offset
            elif end is not None and end.offset is not None:
                self._positions[key] = end.offset
        self.is_refused = None if self._positions else next(iter(ends.failed.values()), None)
        return bool(self._positions)

    async def _failed(self, key: tuple[str, int], error: ClientError) -> None:
        """Deleted records are passed over; everything else is tried again with the next poll."""
        if isinstance(error, OffsetOutOfRange) and error.log_start > self._positions[key]:
            self._positions[key] = error.log_start
        elif isinstance(error, OffsetOutOfRange):
            offsets = (await self._admin.records.offsets({TopicPartition(*key): LATEST})).done
            for row in offsets.values():
                self._positions[key] = row.offset or Offset(0)
        else:
            log.debug(
                "a partition of commits cannot be read", extra={"partition": key[1], "reason": str(error)}
            )

    async def _read(self, piece: Fetched, start: int) -> None:
        count = 0
        try:
            for commit in commits_in(readable(piece.records, start, OFFSETS_MAX, piece.aborted)):
                self._note(commit)
                count += 1
                if count % RECORDS_PER_TURN == 0:
                    await asyncio.sleep(0)
        except CorruptBatch as error:
            log.warning("commits cannot be read", extra={"offset": start, "reason": str(error)})


def commits_in(records: Iterator[Record]) -> Iterator[GroupCommit]:
    """The commits among records of __consumer_offsets; the other kinds, and what cannot be read, are left out."""
    for record in records:
        kind = int.from_bytes((record.key or b"")[:2] or b"\xff\xff", "big", signed=True)
        if kind not in (0, 1) or record.key is None:
            continue
        try:
            key = OffsetCommitKey.decode(record.key, kind, 2)
            value = None if record.value is None else OffsetCommitValue.decode_versioned(record.value)
        except WireError:
            continue
        if value is None:
            yield GroupCommit(key.group, (key.topic, key.partition), None, record.timestamp)
        else:
            yield GroupCommit(key.group, (key.topic, key.partition), value.offset, value.commit_timestamp)
