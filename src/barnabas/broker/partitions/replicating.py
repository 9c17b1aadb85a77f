"""Followers: copies the logs of partitions that other brokers lead, by Kafka's fetch protocol.

There is one fetcher per leading broker, with its own connection and fetch session (KIP-227). Each fetch tells the leader how
far this follower is, and the leader epoch of the last record here. If the logs have diverged there, the leader answers
with the end of that epoch (KIP-595), and this log is truncated before fetching continues.

A partition whose fetch fails leaves the session for a while; the others continue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from barnabas.broker.net.peers import PeerConnection, PeerLost, Peers
from barnabas.config import broker_replication
from barnabas.cores.replication import truncation_offset
from barnabas.records.batch import CorruptBatch, batches, check_batch
from barnabas.records.units import LeaderEpoch, Offset
from barnabas.storage.errors import LogDirOffline, OffsetOutOfRange
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

if TYPE_CHECKING:
    from barnabas.broker.partitions.partition import Partition
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.broker.partitions.throttling import Throttles
    from barnabas.config.loader import BrokerConfig
    from barnabas.runtime.clock import Clock

log = logging.getLogger("barnabas.replication")

FETCH_VERSION: Final = 15
SOON_MS: Final = 100
"""When a fetch is retried while leader and follower have not received the same metadata yet."""
THROTTLED_MS_MAX: Final = 1_000
"""The longest wait for the throttle, so that a changed rate is noticed soon."""
BYTES_PER_TURN: Final = 1 << 18
NEWS_TO_COME: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)

Key = tuple[UUID, int]
Asked = tuple[int, int, int, int]
"""Leader epoch, offset, epoch of the last record, log start offset."""


class Followed:
    """A partition that a fetcher copies. asked: what the session knows of it; None while it is not in the session."""

    __slots__ = ("asked", "partition", "retry_ms")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.asked: Asked | None = None
        self.retry_ms = 0.0


class Replication:
    """All fetchers of one broker. Call `roles_changed` whenever partitions have another leader; `close` at the end."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        node_id: int,
        partitions: Partitions,
        peers: Peers,
        throttles: Throttles,
    ) -> None:
        self.throttles = throttles
        self.config = config
        self.clock = clock
        self.node_id = node_id
        self.partitions = partitions
        self.peers = peers
        self.broker_epoch: Callable[[], int] = lambda: -1
        """The epoch of this broker's registration, by which leaders tell its incarnations apart (KIP-903)."""
        self._fetchers: dict[int, Fetcher] = {}
        self._leaders: dict[Key, int] = {}
        self._closed = False

    def roles_changed(self, changed: Iterable[Partition]) -> None:
        """Follow the current leaders of these partitions."""
        if self._closed:
            return
        for partition in changed:
            key = (partition.topic_id, partition.index)
            leader = partition.image.leader
            if partition.is_deleted or partition.is_leader or leader == self.node_id or leader < 0:
                leader = -1
            before = self._leaders.pop(key, -1)
            if before >= 0 and before != leader:
                self._fetchers[before].forget(key)
            if leader >= 0 and self._must_wait(partition):
                log.warning(
                    "a follower's log lacks records; it waits until it is out of the in-sync replicas",
                    extra={"partition": str(partition), "from": partition.log.hole_from},
                )
            elif leader >= 0:
                self._mend(partition)
                self._leaders[key] = leader
                fetcher = self._fetchers.get(leader)
                if fetcher is None:
                    fetcher = self._fetchers[leader] = Fetcher(self, leader)
                fetcher.follow(key, partition)

    def _must_wait(self, partition: Partition) -> bool:
        """Whether this replica counts as in sync although records are missing in its log.

        To be repaired it must drop everything behind the hole, and would then have even fewer records if it were elected
        leader. So the leader first has to remove it from the in-sync set, as it does with any follower that does not fetch.
        """
        return partition.log.hole_from is not None and self.node_id in partition.image.isr

    def _mend(self, partition: Partition) -> None:
        """Drop what follows a damaged place, to fetch it again: a log with a hole must never be taken for a complete one."""
        if partition.offline is not None:
            return
        end = partition.log_end_offset
        try:
            cut = partition.log.drop_damaged(self.clock.now_ms())
        except LogDirOffline as error:
            self.partitions.write_failed(partition, error)
            return
        if cut is not None:
            log.warning(
                "a follower's log is damaged; what follows is fetched again from its leader",
                extra={"partition": str(partition), "from": cut, "end": end},
            )

    async def close(self) -> None:
        """End all fetchers."""
        self._closed = True
        fetchers = list(self._fetchers.values())
        self._fetchers.clear()
        await asyncio.gather(*(fetcher.close() for fetcher in fetchers))


class Fetcher:
    """Copies the partitions that one broker leads."""

    def __init__(self, replication: Replication, leader: int) -> None:
        self._replication = replication
        self._leader = leader
        self._followed: dict[Key, Followed] = {}
        self._forgotten: set[Key] = set()
        self._session_id = 0
        self._session_epoch = 0
        self._connection: PeerConnection | None = None
        self._woken = asyncio.Event()
        self._is_lost = False
        config = replication.config
        self._backoff_ms = config.get(broker_replication.REPLICA_FETCH_BACKOFF_MS)
        self._wait_ms = config.get(broker_replication.REPLICA_FETCH_WAIT_MAX_MS)
        self._bytes_max = config.get(broker_replication.REPLICA_FETCH_RESPONSE_MAX_BYTES)
        self._partition_bytes_max = config.get(broker_replication.REPLICA_FETCH_MAX_BYTES)
        self._min_bytes = config.get(broker_replication.REPLICA_FETCH_MIN_BYTES)
        self._timeout_s = config.get(broker_replication.REPLICA_SOCKET_TIMEOUT_MS) / 1000
        self._task = asyncio.ensure_future(self._run())

    def follow(self, key: Key, partition: Partition) -> None:
        """Copy a partition from now on, or again after its leader epoch has changed."""
        followed = self._followed.get(key)
        if followed is None or followed.partition is not partition:
            self._followed[key] = Followed(partition)
        else:
            followed.retry_ms = 0
        self._woken.set()

    def forget(self, key: Key) -> None:
        """The partition is now led by another broker."""
        followed = self._followed.pop(key, None)
        if followed is not None and followed.asked is not None:
            self._forgotten.add(key)

    async def close(self) -> None:
        """End the fetcher."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()

    # --- fetching --------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                if not await self._fetch():
                    await self._rest()
            except PeerLost as error:
                self._lost(error)
                await asyncio.sleep(min(self._backoff_ms, SOON_MS * 2) / 1000)
            except Exception:
                log.exception("a follower met a bug; it begins again", extra={"leader": self._leader})
                self._disconnect()
                await asyncio.sleep(self._backoff_ms / 1000)

    def _lost(self, error: PeerLost) -> None:
        if not self._is_lost and self._followed:
            self._is_lost = True
            log.warning(
                "a follower has lost its leader; it tries again",
                extra={"leader": self._leader, "reason": str(error)},
            )
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._new_session()

    def _new_session(self) -> None:
        self._session_id = self._session_epoch = 0
        self._forgotten.clear()
        for followed in self._followed.values():
            followed.asked = None

    async def _rest(self) -> None:
        """Wait until there is something to fetch."""
        now_ms = self._replication.clock.monotonic_ms()
        soonest_ms = min((followed.retry_ms for followed in self._followed.values()), default=None)
        self._woken.clear()
        try:
            timeout_s = None if soonest_ms is None else max(soonest_ms - now_ms, 1) / 1000
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _fetch(self) -> bool:
        """Send one request and handle its answer; False when there is nothing to fetch. Raises PeerLost."""
        asked = self._changed()
        if not any(followed.asked is not None for followed in self._followed.values()):
            return False
        if self._connection is None or self._connection.closed:
            self._new_session()
            asked = self._changed()
            self._connection = await self._replication.peers.open(
                self._leader, f"broker-{self._replication.node_id}-fetcher-{self._leader}"
            )
        forgotten, self._forgotten = self._forgotten, set()
        request = FetchRequest(
            replica_state=ReplicaState(
                replica_id=self._replication.node_id, replica_epoch=self._replication.broker_epoch()
            ),
            max_wait_ms=self._wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._bytes_max,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=_by_topic(asked, self._partition_bytes_max),
            forgotten_topics_data=_forgotten_by_topic(forgotten) if self._session_id else [],
        )
        answer = await self._connection.call(request, FETCH_VERSION, self._timeout_s)
        if answer.error_code:
            if answer.error_code not in SESSION_ERRORS:
                raise PeerLost(f"fetch refused: {ErrorCode(answer.error_code).name}")
            self._new_session()
            return True
        if self._is_lost:
            self._is_lost = False
            log.info("a follower has reached its leader again", extra={"leader": self._leader})
        if answer.session_id:
            self._session_id = answer.session_id
            self._session_epoch += 1
        else:
            self._new_session()
        await self._take(answer.responses)
        return True

    def _changed(self) -> list[tuple[Key, Asked]]:
        """What the session does not know yet: new partitions, and new offsets."""
        now_ms = self._replication.clock.monotonic_ms()
        changed: list[tuple[Key, Asked]] = []
        throttle = self._replication.throttles.follower
        held_ms = throttle.wait_ms() if throttle.is_on else 0
        for key, followed in self._followed.items():
            partition = followed.partition
            if followed.retry_ms > now_ms or partition.offline is not None:
                continue
            if held_ms and throttle.limits(partition, self._replication.node_id):
                self._set_back(key, followed, min(held_ms, THROTTLED_MS_MAX))
                continue
            core = partition.log.core
            asks = (partition.leader_epoch, core.log_end_offset, core.epochs.latest, core.log_start_offset)
            if followed.asked != asks:
                followed.asked = asks
                changed.append((key, asks))
                self._forgotten.discard(key)
        return changed

    # --- answers ---------------------------------------------------------------------------------------

    async def _take(self, topics: Sequence[Any]) -> None:
        taken_bytes = 0
        for topic in topics:
            for row in topic.partitions:
                key = (topic.topic_id, row.partition_index)
                followed = self._followed.get(key)
                if followed is None or not self._still_holds(followed):
                    continue
                try:
                    self._take_one(key, followed, row)
                    if followed.partition.log.must_flush_now:
                        await asyncio.get_running_loop().run_in_executor(None, followed.partition.log.flush)
                except LogDirOffline as error:
                    self._replication.partitions.write_failed(followed.partition, error)
                    self._set_back(key, followed, self._backoff_ms)
                except (CorruptBatch, OffsetOutOfRange) as error:
                    log.error(
                        "records from a leader cannot be appended; they are fetched again",
                        extra={"partition": str(followed.partition), "reason": str(error)},
                    )
                    self._set_back(key, followed, self._backoff_ms)
                except Exception:
                    log.exception(
                        "a follower met a bug in a partition; it is fetched again",
                        extra={"partition": str(followed.partition)},
                    )
                    self._set_back(key, followed, self._backoff_ms)
                taken_bytes += len(row.records or b"")
                if taken_bytes >= BYTES_PER_TURN:
                    taken_bytes = 0
                    await asyncio.sleep(0)

    def _still_holds(self, followed: Followed) -> bool:
        """Whether the partition still has the same leader and end as when the fetch was sent."""
        partition = followed.partition
        asked = followed.asked
        return (
            asked is not None
            and partition.offline is None
            and not partition.is_leader
            and partition.image.leader == self._leader
            and asked[0] == partition.leader_epoch
            and asked[1] == partition.log_end_offset
        )

    def _set_back(self, key: Key, followed: Followed, wait_ms: float) -> None:
        """Keep a partition out of the session for a while."""
        followed.retry_ms = self._replication.clock.monotonic_ms() + wait_ms
        if followed.asked is not None:
            followed.asked = None
            self._forgotten.add(key)

    def _take_one(self, key: Key, followed: Followed, row: PartitionData) -> None:
        partition = followed.partition
        now_ms = self._replication.clock.now_ms()
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if not self._begin_again(partition, row, now_ms):
                self._set_back(key, followed, self._backoff_ms)
        elif row.error_code:
            soon = row.error_code in NEWS_TO_COME
            self._set_back(key, followed, SOON_MS if soon else self._backoff_ms)
        elif row.diverging_epoch is not None:
            if not self._truncate(partition, row, now_ms):
                self._set_back(key, followed, self._backoff_ms)
        else:
            if row.records:
                records = memoryview(row.records)
                for position, header in batches(records):
                    check_batch(records[position : position + header.size_bytes])
                throttle = self._replication.throttles.follower
                if throttle.limits(partition, self._replication.node_id):
                    throttle.note(len(records))
                partition.log.append_replicated(records, now_ms)
                partition.replicated_in += len(records)
            partition.follow_leader(Offset(row.high_watermark), Offset(row.log_start_offset))

    def _begin_again(self, partition: Partition, row: PartitionData, now_ms: int) -> bool:
        """The leader has nothing at the end of this log, so the log here is unrelated: drop it. False if it was empty."""
        start = Offset(max(row.log_start_offset, 0))
        if partition.log_start_offset == partition.log_end_offset == start:
            return False
        log.warning(
            "a follower's log is not part of its leader's; it begins again at the leader's start",
            extra={"partition": str(partition), "end": partition.log_end_offset, "start": start},
        )
        partition.log.truncate_fully_and_start_at(start, now_ms)
        return True

    def _truncate(self, partition: Partition, row: PartitionData, now_ms: int) -> bool:
        """Truncate the log where it diverges from the leader's; False if that removes nothing."""
        assert row.diverging_epoch is not None
        core = partition.log.core
        end = core.log_end_offset
        cut = truncation_offset(
            core.epochs,
            end,
            LeaderEpoch(row.diverging_epoch.epoch),
            Offset(row.diverging_epoch.end_offset),
        )
        if cut < core.high_watermark:
            log.warning(
                "a follower cuts its log below its high watermark: its leader was elected uncleanly or has lost records",
                extra={"partition": str(partition), "to": cut, "high_watermark": core.high_watermark},
            )
        if not partition.log.truncate_to(cut, now_ms):
            return False
        log.info(
            "a follower has cut its log to its leader's",
            extra={"partition": str(partition), "from": end, "to": partition.log_end_offset},
        )
        return True


def _by_topic(asked: Iterable[tuple[Key, Asked]], bytes_max: int) -> list[FetchTopic]:
    topics: dict[UUID, FetchTopic] = {}
    for (topic_id, index), (epoch, offset, last_epoch, log_start) in asked:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchTopic(topic_id=topic_id, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=epoch,
                fetch_offset=offset,
                last_fetched_epoch=last_epoch,
                log_start_offset=log_start,
                partition_max_bytes=bytes_max,
            )
        )
    return list(topics.values())


def _forgotten_by_topic(keys: Iterable[Key]) -> list[ForgottenTopic]:
    topics: dict[UUID, ForgottenTopic] = {}
    for topic_id, index in keys:
        topic = topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[]))
        topic.partitions.append(index)
    return list(topics.values())
