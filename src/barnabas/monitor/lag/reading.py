"""Asks a cluster how far its groups are behind."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, TypeVar

from barnabas.admin import (
    EARLIEST,
    LATEST,
    AsyncAdmin,
    CommittedOffset,
    Group,
    Member,
    ShareGroup,
    ShareMember,
    ShareOffset,
    TopicPartition,
)
from barnabas.client.async_fetching import fetch
from barnabas.client.errors import BrokerError, ClientError, UnsupportedByBroker
from barnabas.client.fetching import OffsetOutOfRange
from barnabas.monitor.lag.model import GROUPS_OF_CONSUMERS, SHARE, GroupLag, PartitionLag
from barnabas.monitor.lag.unread import Unread, first_unread, newest_timestamp
from barnabas.records.batch import CorruptBatch
from barnabas.records.units import Offset
from barnabas.wire.errors import ErrorCode

FIRST_FETCH_BYTES: Final = 1
"""The broker sends the first batch whole all the same, and it nearly always has the record."""
FETCH_BYTES_MAX: Final = 1 << 20
FETCHES_MAX: Final = 32
"""At most so many fetches look for a record behind markers and what is aborted or compacted away, 25 MB in all."""
AT_ONCE: Final = 16
"""Partitions whose records are looked at at the same time."""
KEPT_MAX: Final = 100_000
"""Timestamps that are remembered."""
KEPT_MS: Final = 300_000
"""How long they are: retention may delete a record, and a topic may be created anew."""

T = TypeVar("T")
Key: TypeAlias = tuple[TopicPartition, int]
"""A partition and an offset."""


@dataclass(frozen=True, slots=True)
class Look:
    """groups: in the order of their names. missing: names of which there is no group. failed: what went wrong, by name."""

    now_ms: int
    groups: tuple[GroupLag, ...]
    missing: tuple[str, ...] = ()
    failed: Mapping[str, ClientError] = field(default_factory=dict)


class LagReader:
    """Looks at the groups of one cluster again and again. It remembers the times of records: a group that stands still
    costs no fetch. Belongs to one event loop.

    read_committed: whether the lag ends where open transactions begin, and aborted records do not count.
    """

    def __init__(self, admin: AsyncAdmin, *, read_committed: bool = True) -> None:
        self._admin = admin
        self._committed = read_committed
        self._next: dict[Key, Unread] = {}
        self._newest: dict[Key, int | None] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._kept_since_ms = 0

    async def names(self) -> list[str]:
        """All groups of consumers and share groups. Raises ClientError."""
        listed = (await self._admin.groups.list()).require()
        return sorted(
            {
                row.name
                for groups_of_broker in listed.values()
                for row in groups_of_broker
                if row.protocol_type in GROUPS_OF_CONSUMERS or row.type.lower() == SHARE
            }
        )

    async def look(self, names: Collection[str] | None, now_ms: int) -> Look:
        """The lag of these groups, None: all. Raises ClientError if the cluster does not answer."""
        if not 0 <= now_ms - self._kept_since_ms < KEPT_MS:
            self._next.clear()
            self._newest.clear()
            self._kept_since_ms = now_ms
        wanted = list(dict.fromkeys(await self.names() if names is None else names))
        shares, failed = await self._share_groups(wanted)
        rest = [name for name in wanted if name not in shares and name not in failed]
        described = await self._admin.groups.describe(rest)
        offsets = await self._admin.groups.offsets(list(described.done))
        share_offsets = await self._admin.share_groups.offsets(list(shares)) if shares else None
        failed |= {**described.failed, **offsets.failed, **(share_offsets.failed if share_offsets else {})}
        rows: dict[str, dict[TopicPartition, PartitionLag]] = {}
        for name, committed in offsets.done.items():
            rows[name] = _rows_of(described.done[name], committed)
        for name, places in (share_offsets.done if share_offsets else {}).items():
            rows[name] = _share_rows_of(shares[name], places)
        await self._measure(rows)
        groups = [_group(shares.get(name) or described.done[name], rows[name]) for name in sorted(rows)]
        missing = tuple(name for name, error in failed.items() if _is_missing(error))
        return Look(
            now_ms, tuple(groups), missing, {k: error for k, error in failed.items() if k not in missing}
        )

    async def _share_groups(self, names: list[str]) -> tuple[dict[str, ShareGroup], dict[str, ClientError]]:
        """Those of the names that are share groups, and what failed for other reasons than that they are none."""
        results = await self._admin.share_groups.describe(names)
        failed = {
            name: error
            for name, error in results.failed.items()
            if not isinstance(error, UnsupportedByBroker) and not _is_missing(error)
        }
        return dict(results.done), failed

    async def _measure(self, rows: dict[str, dict[TopicPartition, PartitionLag]]) -> None:
        """Fill in the ends of logs and the times of records."""
        keys = {key for rows_of_group in rows.values() for key in rows_of_group}
        fresh = {
            key
            for rows_of_group in rows.values()
            for key, row in rows_of_group.items()
            if row.committed is None
        }
        records = self._admin.records
        ends, whole, starts = await asyncio.gather(
            records.offsets(dict.fromkeys(keys, LATEST), read_committed=self._committed),
            records.offsets(dict.fromkeys(keys if self._committed else (), LATEST)),
            records.offsets(dict.fromkeys(fresh, EARLIEST)),
        )
        for group_rows in rows.values():
            for key, row in group_rows.items():
                end = ends.done[key].offset if key in ends.done else None
                high = whole.done[key].offset if key in whole.done else end
                start = starts.done[key].offset if key in starts.done else None
                group_rows[key] = _with_end(row, end, high, start)
        await asyncio.gather(
            *(
                self._fill_times(rows_of_group, key)
                for rows_of_group in rows.values()
                for key, row in rows_of_group.items()
                if row.records and row.committed is not None
            )
        )

    async def _fill_times(self, rows: dict[TopicPartition, PartitionLag], key: TopicPartition) -> None:
        row = rows[key]
        if row.committed is None or row.end is None:
            return
        try:
            async with self._slots:
                unread = await self._first_unread(key, row.committed, row.end)
                if unread is None:
                    rows[key] = replace(row, records=0)
                    return
                newest_ms = await self._newest_ms(key, row.end)
        except (ClientError, CorruptBatch):
            return  # the count is known, the time is not
        rows[key] = replace(row, next_ms=unread.timestamp_ms, newest_ms=newest_ms)

    async def _first_unread(self, key: TopicPartition, offset: Offset, end: Offset) -> Unread | None:
        """The first record from `offset` on; None if there is none before `end`. Raises ClientError, CorruptBatch."""
        known = self._next.get((key, offset))
        if known is not None:
            return known
        at, size = offset, FIRST_FETCH_BYTES
        for _ in range(FETCHES_MAX):
            try:
                piece = await fetch(
                    self._admin.connections, *key, at, max_bytes=size, read_committed=self._committed
                )
            except OffsetOutOfRange:
                start = (await self._admin.records.offsets({key: EARLIEST}))[key].offset or Offset(0)
                if at >= start:
                    raise
                at = start  # retention has deleted what the group had not read
                continue
            unread = first_unread(piece.records, at, piece.aborted)
            if unread is not None:
                _keep(self._next, (key, offset), unread)
                return unread
            if piece.next_offset <= at or piece.next_offset >= end:
                return None
            at, size = piece.next_offset, FETCH_BYTES_MAX
        raise ClientError(f"{key}: no record was found near offset {offset}")

    async def _newest_ms(self, key: TopicPartition, end: Offset) -> int | None:
        if (key, end) not in self._newest:
            piece = await fetch(
                self._admin.connections,
                *key,
                Offset(end - 1),
                max_bytes=FIRST_FETCH_BYTES,
                read_committed=self._committed,
            )
            _keep(self._newest, (key, end), newest_timestamp(piece.records))
        return self._newest[key, end]


def _keep(kept: dict[Key, T], key: Key, value: T) -> None:
    """Remember a value; the oldest ones are forgotten when there are too many."""
    kept[key] = value
    if len(kept) > KEPT_MAX:
        del kept[next(iter(kept))]


def _is_missing(error: ClientError) -> bool:
    return isinstance(error, BrokerError) and error.code == ErrorCode.GROUP_ID_NOT_FOUND


def _rows_of(
    group: Group, offsets: Mapping[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, PartitionLag]:
    """What the group has committed, and what its members read."""
    readers = {part: member for member in group.members for part in member.assigned}
    committed = {key: committed_offset.offset for key, committed_offset in offsets.items()}
    return {
        key: _with_reader(PartitionLag(key, committed.get(key), None, None), readers.get(key))
        for key in sorted({*readers, *committed})
    }


def _share_rows_of(
    group: ShareGroup, offsets: Mapping[TopicPartition, ShareOffset]
) -> dict[TopicPartition, PartitionLag]:
    """Where the group begins. The broker counts the records that are not acknowledged, of which some lie further on."""
    readers = {part: member for member in group.members for part in member.assigned}
    return {
        key: _with_reader(
            PartitionLag(key, share_offset.start, None, share_offset.lag),
            readers.get(key),
        )
        for key, share_offset in sorted(offsets.items())
    }


def _with_reader(row: PartitionLag, member: Member | ShareMember | None) -> PartitionLag:
    return row if member is None else replace(row, client=member.client, host=member.host)


def _with_end(
    row: PartitionLag, end: Offset | None, high: Offset | None, start: Offset | None
) -> PartitionLag:
    """The row with the end of its log. high: the end of what is replicated; start: of the log, if nothing is committed."""
    open_count = 0 if end is None or high is None else max(high - end, 0)
    if row.committed is None:
        unread = None if end is None or start is None else max(end - start, 0)
        return replace(row, end=end, in_transactions=open_count, never_read=unread)
    if end is None:
        return row
    between = max(end - row.committed, 0)
    records = between if row.records is None else min(row.records, between)
    return replace(row, end=end, in_transactions=open_count, records=records)


def _group(group: Group | ShareGroup, rows: Mapping[TopicPartition, PartitionLag]) -> GroupLag:
    kind = SHARE if isinstance(group, ShareGroup) else group.type
    return GroupLag(group.name, kind, group.state, len(group.members), tuple(rows.values()))


def slowest_first(groups: Iterable[GroupLag], now_ms: int) -> list[GroupLag]:
    """By lag in seconds, then in records, then by name."""
    return sorted(groups, key=lambda group: (-(group.waiting_s(now_ms) or 0), -group.records, group.name))
