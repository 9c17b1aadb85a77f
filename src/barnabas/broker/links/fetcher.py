"""Fetches partitions of another cluster from one of its brokers, as a consumer that keeps every byte.

A fetch names the leader epoch of the last copied batch, which is the source's own. If the source's log has parted from the
copy there, it says where (KIP-595), and the copy is cut. Brokers too old for that are asked for the end of the epoch before
the first fetch from each of their leader epochs (KIP-101); those of 0.10 know no epochs. What goes wrong with one partition
keeps only that partition out of the next fetches.

While the records of one answer are written, the source already prepares the next one: the request for it names the ends that
the copies will have. Where a copy ends elsewhere after all, that part of the answer is ignored, and asked for again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from barnabas.broker.links.arriving import Arrived, end_of, in_old_format, whole_batches
from barnabas.broker.links.session import Asked, FetchSession
from barnabas.client.errors import ClientError
from barnabas.cores.links import AGAIN, BEGIN, Step, decide_out_of_range, start_to_follow
from barnabas.cores.replication import truncation_offset
from barnabas.records.batch import CorruptBatch
from barnabas.records.units import LeaderEpoch, Offset
from barnabas.storage.errors import LogDirOffline, OffsetOutOfRange
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from barnabas.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.links.mirror import Mirror
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.client.async_cluster import AsyncCluster
    from barnabas.client.async_connection import AsyncConnection
    from barnabas.cores.links import Ends
    from barnabas.runtime.clock import Clock

log = logging.getLogger("barnabas.links")

FETCH_VERSION: Final = 12
"""The last one that names topics; ids are compared with every look at the source's metadata."""
DIVERGENCE_VERSION: Final = 12
SESSION_VERSION: Final = 7
SESSION_ERRORS: Final = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
WAIT_MS: Final = 500
SOON_MS: Final = 100
BACKOFF_MS: Final = 1_000
BYTES_PER_TURN: Final = 1 << 18
OTHER_LEADER: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)

Key = tuple[str, int]


class Owner(Protocol):
    """The link that a fetcher works for; see link.py."""

    clock: Clock
    partitions: Partitions
    source: AsyncCluster

    @property
    def name(self) -> str: ...
    def lost(self, reason: str) -> None: ...
    def reached(self) -> None: ...
    def look_soon(self) -> None: ...
    def raise_epoch(self, mirror: Mirror, epoch: int) -> None: ...
    async def first_offset(self, mirror: Mirror) -> int: ...
    async def source_ends(self, mirror: Mirror) -> Ends: ...
    async def converted(self, mirror: Mirror, records: memoryview) -> memoryview: ...


class Sent(NamedTuple):
    """A request under way. asked: how each partition is asked for."""

    asked: dict[Key, Asked]
    version: int
    answer: asyncio.Future[FetchResponse]


class LinkFetcher:
    """See the module. `follow` and `forget` say what is fetched; `close` ends it."""

    def __init__(self, link: Owner, node: int, bytes_max: int, partition_bytes_max: int) -> None:
        self._link = link
        self._node = node
        self._bytes_max = bytes_max
        self._partition_bytes_max = partition_bytes_max
        self._mirrors: dict[Key, Mirror] = {}
        self._session = FetchSession()
        self._session_of: AsyncConnection | None = None
        self._ahead: Sent | None = None
        """The request that was sent before the last answer was written."""
        self._woken = asyncio.Event()
        self._task = asyncio.ensure_future(self._run())

    def follow(self, key: Key, mirror: Mirror) -> None:
        """Fetch a partition from now on."""
        self._mirrors[key] = mirror
        self._woken.set()

    def forget(self, key: Key) -> None:
        """Another broker leads the partition, here or there, or it is not mirrored any more."""
        self._mirrors.pop(key, None)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is fetched from this broker."""
        return not self._mirrors

    async def close(self) -> None:
        """End it."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._begin_again()

    async def _begin_again(self) -> None:
        """Expect no answer any more, and begin a new session with the next request."""
        self._session.reset()
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.answer.cancel()
            await asyncio.gather(ahead.answer, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                if not await self._fetch():
                    await self._rest()
            except ClientError as error:
                await self._begin_again()
                self._link.lost(str(error))
                await asyncio.sleep(BACKOFF_MS / 1000)
            except Exception:
                await self._begin_again()
                log.exception("a link met a bug; it begins again", extra={"link": self._link.name})
                await asyncio.sleep(BACKOFF_MS / 1000)

    async def _rest(self) -> None:
        """Wait until there is something to fetch."""
        now_ms = self._link.clock.monotonic_ms()
        soonest_ms = min(
            (mirror.retry_ms for mirror in self._mirrors.values() if not mirror.stopped), default=None
        )
        self._woken.clear()
        try:
            async with asyncio.timeout(None if soonest_ms is None else max(soonest_ms - now_ms, 1) / 1000):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _fetch(self) -> bool:
        """Handle the answer to one request; False when there is nothing to fetch. Raises ClientError."""
        sent, self._ahead = self._ahead, None
        if sent is None:
            sent = await self._send()
        if sent is None:
            return False
        answer = await sent.answer
        if answer.error_code in SESSION_ERRORS:
            self._session.reset()
            return True
        if answer.error_code:
            raise ClientError(f"the source refuses to be read: {ErrorCode(answer.error_code).name}")
        if sent.version >= SESSION_VERSION:
            self._session.answered(answer.session_id)
        self._link.reached()
        self._ahead = self._send_ahead(sent, answer.responses)
        if self._ahead is not None:
            await asyncio.sleep(0)  # the request goes out
        await self._take(answer.responses, {key: row.offset for key, row in sent.asked.items()})
        return True

    def _ready(self) -> dict[Key, Mirror]:
        """What is to be fetched now."""
        now_ms = self._link.clock.monotonic_ms()
        return {
            key: mirror
            for key, mirror in self._mirrors.items()
            if mirror.retry_ms <= now_ms and not mirror.stopped and mirror.is_copied
        }

    async def _send(self) -> Sent | None:
        """Ask for what is ready; None if nothing is. Raises ClientError."""
        ready = self._ready()
        if not ready:
            return None
        connection = await self._link.source.node(self._node)
        for mirror in [mirror for mirror in ready.values() if not mirror.is_placed]:
            await self._place(mirror)
        version = min(connection.version_for(FetchRequest), FETCH_VERSION)
        if version < DIVERGENCE_VERSION:
            await self._compare_epochs(connection, ready)
        wanted = {key: _asked(mirror) for key, mirror in ready.items() if mirror.is_copied}
        return self._sent(connection, wanted, version)

    def _sent(self, connection: AsyncConnection, wanted: dict[Key, Asked], version: int) -> Sent:
        request = self._request(connection, wanted, version)
        answer = connection.call(request, FetchResponse, version_max=FETCH_VERSION)
        return Sent(wanted, version, asyncio.ensure_future(answer))

    def _send_ahead(self, sent: Sent, topics: Sequence[Any]) -> Sent | None:
        """Ask for what follows an answer before it is written; None where that is not certain, or nothing was answered."""
        connection = self._session_of
        ready = self._ready()
        if sent.version < DIVERGENCE_VERSION or connection is None:
            return None
        wanted = {key: _asked(mirror) for key, mirror in ready.items() if mirror.is_placed}
        has_records = False
        for topic in topics:
            for row in topic.partitions:
                key = (topic.topic, row.partition_index)
                if row.error_code or row.diverging_epoch is not None:
                    return None
                if not row.records or key not in wanted or wanted[key] != sent.asked.get(key):
                    continue
                end = end_of(memoryview(row.records), ready[key].partition.leader_epoch)
                if end is None:
                    return None
                wanted[key] = end
                has_records = True
        return self._sent(connection, wanted, sent.version) if has_records else None

    def _request(self, connection: AsyncConnection, wanted: dict[Key, Asked], version: int) -> FetchRequest:
        """All partitions, or what the session does not know yet."""
        request = FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=self._bytes_max, session_epoch=-1)
        named: Iterable[Key] = wanted
        if version >= SESSION_VERSION:
            if connection is not self._session_of:
                self._session_of = connection
                self._session.reset()
            request.session_id, request.session_epoch = self._session.id, self._session.epoch
            named, forgotten = self._session.step(wanted)
            request.forgotten_topics_data = [
                ForgottenTopic(topic=name, partitions=indexes)
                for name, indexes in by_topic(forgotten).items()
            ]
        request.topics = [
            FetchTopic(
                topic=name,
                partitions=[
                    FetchPartition(
                        partition=index,
                        fetch_offset=wanted[name, index].offset,
                        last_fetched_epoch=wanted[name, index].last_epoch
                        if version >= DIVERGENCE_VERSION
                        else -1,
                        partition_max_bytes=self._partition_bytes_max,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in by_topic(named).items()
        ]
        return request

    # --- answers ---------------------------------------------------------------------------------------

    async def _take(self, topics: Sequence[Any], asked: dict[Key, int]) -> None:
        taken_bytes = 0
        for topic in topics:
            for row in topic.partitions:
                key = (topic.topic, row.partition_index)
                mirror = self._mirrors.get(key)
                if mirror is None or not mirror.is_copied or asked.get(key) != mirror.ends.end:
                    continue
                await self._take_guarded(key, mirror, row)
                taken_bytes += len(row.records or b"")
                if taken_bytes >= BYTES_PER_TURN:
                    taken_bytes = 0
                    await asyncio.sleep(0)

    async def _take_guarded(self, key: Key, mirror: Mirror, row: PartitionData) -> None:
        try:
            await self._take_one(mirror, row)
        except LogDirOffline as error:
            self._link.partitions.write_failed(mirror.partition, error)
            self._wait(mirror, str(error))
        except (CorruptBatch, OffsetOutOfRange, ApiError) as error:
            self._wait(mirror, f"records of the source cannot be appended: {error}")
            log.error(
                "records of a link's source cannot be appended; they are fetched again",
                extra={"link": self._link.name, "partition": str(mirror.partition), "reason": str(error)},
            )
        except ClientError as error:
            self._wait(mirror, str(error))
        except Exception:
            log.exception(
                "a link met a bug in a partition; it is fetched again",
                extra={"link": self._link.name, "partition": str(mirror.partition)},
            )
            self._wait(mirror, "a bug; see the broker's log")

    def _wait(self, mirror: Mirror, reason: str, wait_ms: float = BACKOFF_MS) -> None:
        """Keep a partition out of the fetches for a while."""
        mirror.reason = reason
        mirror.retry_ms = self._link.clock.monotonic_ms() + wait_ms

    async def _take_one(self, mirror: Mirror, row: PartitionData) -> None:
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._out_of_range(mirror)
        elif row.error_code:
            code = ErrorCode(row.error_code)
            self._wait(mirror, f"the source answers {code.name}")
            if code in OTHER_LEADER:
                self._link.look_soon()
        elif row.diverging_epoch is not None:
            epoch, end = row.diverging_epoch.epoch, row.diverging_epoch.end_offset
            self._cut_to(mirror, LeaderEpoch(epoch), Offset(end))
        else:
            await self._append(mirror, row)

    async def _append(self, mirror: Mirror, row: PartitionData) -> None:
        mirror.source_end = row.high_watermark
        if row.log_start_offset >= 0:
            mirror.source_start = row.log_start_offset
        if row.records:
            records = memoryview(row.records)
            if in_old_format(records):
                records = await self._link.converted(mirror, records)
                if not mirror.is_copied:
                    return
            arrived = whole_batches(records, mirror.partition.leader_epoch)
            if arrived.needs_epoch > mirror.partition.leader_epoch:
                self._link.raise_epoch(mirror, arrived.needs_epoch)
                self._wait(mirror, "", SOON_MS)
            self._append_batches(mirror, arrived)
        elif mirror.reason:
            mirror.reason = ""
        start = start_to_follow(mirror.ends, mirror.partition.high_watermark, mirror.source_start)
        if start is not None:
            mirror.partition.delete_before(Offset(start))

    def _append_batches(self, mirror: Mirror, arrived: Arrived) -> None:
        if not arrived.records:
            return
        mirror.partition.append_mirrored(arrived.records)
        mirror.reached_ms = max(mirror.reached_ms, arrived.max_timestamp)
        mirror.reason = ""

    # --- where logs part -------------------------------------------------------------------------------

    async def _place(self, mirror: Mirror) -> None:
        """Begin an empty copy where the link says. Raises ClientError."""
        first = await self._link.first_offset(mirror)
        if mirror.is_copied and mirror.ends == (0, 0) and first > 0:
            mirror.partition.cut_mirrored(Offset(first), fully=True)
        mirror.is_placed = True

    async def _out_of_range(self, mirror: Mirror) -> None:
        source = await self._link.source_ends(mirror)
        mirror.source_start, mirror.source_end = source
        own = mirror.ends
        step = decide_out_of_range(own, source, source.start)
        if step.kind == AGAIN:
            self._wait(mirror, "", SOON_MS)
            return
        if not mirror.is_copied:
            return
        if step.missed or step.dropped:
            self._note(mirror, step, own.end)
        mirror.partition.cut_mirrored(Offset(step.offset), fully=step.kind == BEGIN)

    def _note(self, mirror: Mirror, step: Step, end: int) -> None:
        mirror.missed += step.missed
        mirror.dropped += step.dropped
        if step.missed:
            log.error(
                "retention at a link's source has overtaken the mirror: records were deleted before they were copied",
                extra={
                    "link": self._link.name,
                    "partition": str(mirror.partition),
                    "from": end,
                    "to": step.offset,
                },
            )
        else:
            log.error(
                "the source of a link has lost records; the copy is cut to what the source has",
                extra={
                    "link": self._link.name,
                    "partition": str(mirror.partition),
                    "from": step.offset,
                    "to": end,
                },
            )

    def _cut_to(self, mirror: Mirror, epoch: LeaderEpoch, end: Offset) -> None:
        core = mirror.partition.log.core
        before = core.log_end_offset
        cut = truncation_offset(core.epochs, before, epoch, end)
        if cut >= before:
            self._wait(mirror, "the source says that its log parts from the copy, and not where")
            return
        fully = cut < core.log_start_offset
        dropped = before - max(cut, core.log_start_offset)
        mirror.partition.cut_mirrored(cut, fully=fully)
        self._note(mirror, Step("cut", cut, dropped=dropped), before)

    async def _compare_epochs(self, connection: AsyncConnection, ready: dict[Key, Mirror]) -> None:
        """For brokers that do not compare epochs with every fetch: cut copies that have parted. Raises ClientError."""
        todo = {
            key: mirror
            for key, mirror in ready.items()
            if mirror.epochs != mirror.source_epoch and mirror.partition.log.core.epochs.latest >= 0
        }
        if not todo or not connection.serves(OffsetForLeaderEpochRequest):
            return
        topics: dict[str, list[OffsetForLeaderPartition]] = {}
        for (name, index), mirror in todo.items():
            epoch = mirror.partition.log.core.epochs.latest
            topics.setdefault(name, []).append(OffsetForLeaderPartition(partition=index, leader_epoch=epoch))
        request = OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic=name, partitions=rows) for name, rows in topics.items()]
        )
        answer: OffsetForLeaderEpochResponse = await connection.call(request, OffsetForLeaderEpochResponse)
        for topic in answer.topics:
            for row in topic.partitions:
                mirror = todo[topic.topic, row.partition]
                if row.error_code or not mirror.is_copied:
                    continue
                mirror.epochs = mirror.source_epoch
                core = mirror.partition.log.core
                epoch = LeaderEpoch(row.leader_epoch) if row.leader_epoch >= 0 else core.epochs.latest
                if 0 <= row.end_offset < core.log_end_offset:
                    self._cut_to(mirror, epoch, Offset(row.end_offset))


def _asked(mirror: Mirror) -> Asked:
    core = mirror.partition.log.core
    return Asked(core.log_end_offset, core.epochs.latest)


def by_topic(keys: Iterable[Key]) -> dict[str, list[int]]:
    """The partitions of each topic."""
    indexes_by_topic: dict[str, list[int]] = {}
    for name, index in keys:
        indexes_by_topic.setdefault(name, []).append(index)
    return indexes_by_topic


def keys_of(mirrors: Iterable[Mirror]) -> list[Key]:
    """The partitions of mirrors."""
    return [(mirror.partition.topic, mirror.partition.index) for mirror in mirrors]
