"""Writes the markers that end transactions into their partitions, retrying until it succeeds.

A decided transaction must be ended in every partition that it wrote to; otherwise read_committed consumers wait there
forever. So a marker that cannot be written is tried again, after a while and after a restart. Writing a marker twice does no
harm: the second one finds no transaction to end.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from barnabas.broker.cluster.internal_topics import OFFSETS_TOPIC
from barnabas.broker.net.peers import PeerLost
from barnabas.cores.decision import Producer
from barnabas.cores.group import EndTransaction
from barnabas.records.units import CoordinatorEpoch
from barnabas.runtime.pace import in_pieces
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from barnabas.broker.coordinators.groups import GroupCoordinator
    from barnabas.broker.net.peers import Peers
    from barnabas.broker.partitions.acknowledgement import Acknowledgement
    from barnabas.broker.partitions.partition import Partition
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.cores.cluster_image import ClusterImage
    from barnabas.cores.transactions import WriteMarkers
    from barnabas.cores.transactions.state import TopicPartition
    from barnabas.runtime.clock import Clock

log = logging.getLogger("barnabas.transactions")

RETRY_S: Final = 1.0
MARKERS_VERSION: Final = 2
SEND_TIMEOUT_S: Final = 60.0
MOVED_ON: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.POLICY_VIOLATION,
    }
)
"""The partition has seen a newer end of this producer's transactions, or has become a copy of another cluster's, which gets
its markers from there: this marker is no longer needed."""


class Job:
    """The markers of one transaction. `left`: partitions without a marker; `waiting`: with one not yet acknowledged."""

    __slots__ = ("coordinator_epoch", "effect", "left", "named", "waiting")

    def __init__(self, effect: WriteMarkers, coordinator_epoch: int) -> None:
        self.effect = effect
        self.coordinator_epoch = coordinator_epoch
        self.left = set(effect.partitions)
        self.waiting: set[TopicPartition] = set()
        self.named: set[tuple[TopicPartition, ErrorCode]] = set()
        """Failures (partition, error) that have already been logged."""


class MarkerWriter:
    """See the module."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        partitions: Partitions,
        groups: GroupCoordinator,
        image: Callable[[], ClusterImage],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._partitions = partitions
        self._groups = groups
        self._image = image
        self.on_written: Callable[[WriteMarkers], bool] = lambda effect: True
        """Called when all markers of a transaction are acknowledged; if it returns False, it is called again later."""
        self.is_wanted: Callable[[WriteMarkers], bool] = lambda effect: True
        """Whether the markers are still needed; asked before retrying."""
        self.peers: Peers | None = None
        """Used to reach partition leaders on other brokers."""
        self.on_marker: Callable[[str, int, int], None] = lambda topic, index, producer_id: None
        """Called before each marker that is written on this broker: (topic, partition, producer id)."""
        self._sending: set[asyncio.Task[None]] = set()
        self._current: dict[str, Job] = {}
        """Transactional id -> its newest job. A job from before its coordinator was reloaded writes nothing more."""
        self._queue: deque[Job] = deque()
        self._is_draining = False
        self._retries: set[asyncio.TimerHandle] = set()

    def close(self) -> None:
        """Stop retrying; the next start writes the remaining markers."""
        for handle in self._retries:
            handle.cancel()
        for task in self._sending:
            task.cancel()
        self._retries.clear()
        self._queue.clear()

    # --- one marker ------------------------------------------------------------------------------------

    def append(
        self, topic: str, index: int, producer: Producer, commit: bool, coordinator_epoch: int, version: int
    ) -> Acknowledgement:
        """Write one marker. Raises ApiError with nothing written."""
        partition = self._partitions.require_leader(topic, index)
        self.on_marker(topic, index, producer.producer_id)

        def write(partition: Partition) -> Acknowledgement:
            return partition.append_marker(producer, commit, CoordinatorEpoch(coordinator_epoch), version)

        if topic != OFFSETS_TOPIC:
            return write(partition)
        return self._groups.runtime.append_marker(
            index, write, lambda now_ms: EndTransaction(None, now_ms, producer, commit)
        )

    # --- all markers of a transaction ------------------------------------------------------------------

    def write_soon(self, effect: WriteMarkers, coordinator_epoch: int) -> None:
        """Write the markers; those of a transaction with few partitions are written at once."""
        job = self._current[effect.transactional_id] = Job(effect, coordinator_epoch)
        self._enqueue(job)

    def _enqueue(self, job: Job) -> None:
        self._queue.append(job)
        if not self._is_draining:
            self._is_draining = True
            in_pieces(self._loop, self._clock, self._drain())

    def _drain(self) -> Iterator[None]:
        try:
            while self._queue:
                job = self._queue.popleft()
                try:
                    yield from self._write(job)
                except Exception:
                    log.exception(
                        "the end of a transaction met a bug; it is tried again",
                        extra={"transactional_id": job.effect.transactional_id},
                    )
                    self._try_again(job)
        finally:
            self._is_draining = False

    def _write(self, job: Job) -> Iterator[None]:
        if not self._is_current(job):
            return
        elsewhere: dict[int, list[TopicPartition]] = {}
        for where in sorted(job.left):
            leader = self._other_leader(where)
            if leader is not None:
                elsewhere.setdefault(leader, []).append(where)
                continue
            try:
                self.write_one(job, where)
            except Exception:
                log.exception("a transaction's marker met a bug; it is tried again", extra=_place(job, where))
            yield
        for leader, partitions in elsewhere.items():
            job.left.difference_update(partitions)
            job.waiting.update(partitions)
            task = self._loop.create_task(self._send(job, leader, partitions))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        self._look_after(job)

    def _other_leader(self, where: TopicPartition) -> int | None:
        """The id of the other broker that leads a partition; None when there is no leader or it is this broker."""
        served = self._partitions.get(*where)
        if self.peers is None or (served is not None and served.is_leader):
            return None
        known = self._image().partition(*where)
        return None if known is None or known.leader < 0 else known.leader

    async def _send(self, job: Job, leader: int, partitions: list[TopicPartition]) -> None:
        """Have the leader of `partitions` write the markers (WriteTxnMarkers)."""
        errors = dict.fromkeys(partitions, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        why = "the leader did not write it"
        try:
            assert self.peers is not None
            answer = await self.peers.call(leader, _request(job, partitions), MARKERS_VERSION, SEND_TIMEOUT_S)
            for marker in answer.markers:
                for topic in marker.topics:
                    for row in topic.partitions:
                        errors[topic.name, row.partition_index] = ErrorCode(row.error_code)
        except PeerLost as error:
            why = str(error)
        except Exception:
            log.exception(
                "sending a transaction's markers met a bug; it is tried again", extra={"leader": leader}
            )
        for where in partitions:
            job.waiting.discard(where)
            if errors[where]:
                job.left.add(where)
                self._not_written(job, where, ApiError(errors[where], f"{errors[where].name}: {why}"))
        self._look_after(job)

    def write_one(self, job: Job, where: TopicPartition) -> None:
        effect = job.effect
        try:
            acknowledgement = self.append(
                *where, effect.producer, effect.commit, job.coordinator_epoch, effect.version
            )
        except ApiError as error:
            self._not_written(job, where, error)
            return
        job.left.discard(where)
        if acknowledgement.is_ready:
            return
        job.waiting.add(where)

        def ready(acknowledgement: Acknowledgement) -> None:
            job.waiting.discard(where)
            if acknowledgement.error is not None:
                job.left.add(where)
                self._not_written(job, where, acknowledgement.error)
            if not job.waiting:
                self._look_after(job)

        acknowledgement.when_ready(ready)

    def _not_written(self, job: Job, where: TopicPartition, error: ApiError) -> None:
        if error.code in MOVED_ON or self._is_deleted(where):
            job.left.discard(where)
            log.warning(
                "a transaction's marker is no longer needed",
                extra={**_place(job, where), "reason": error.message},
            )
            return
        if (where, error.code) in job.named:  # logged once: an offline partition would fill the log
            return
        job.named.add((where, error.code))
        log.warning(
            "a transaction's marker cannot be written; it is tried again",
            extra={**_place(job, where), "after_s": RETRY_S, "reason": error.message},
        )

    def _is_current(self, job: Job) -> bool:
        return self._current.get(job.effect.transactional_id) is job

    def _is_deleted(self, where: TopicPartition) -> bool:
        topic = self._image().topics.get(where[0])
        return topic is None or where[1] not in topic.partitions

    def _look_after(self, job: Job) -> None:
        """Continue once no acknowledgement is outstanding: retry what is left, or complete the transaction."""
        if job.waiting or not self._is_current(job):
            return
        if not job.left and self.on_written(job.effect):
            del self._current[job.effect.transactional_id]
            return
        self._try_again(job)

    def _try_again(self, job: Job) -> None:
        handle: asyncio.TimerHandle | None = None

        def again() -> None:
            assert handle is not None
            self._retries.discard(handle)
            if not self._is_current(job):
                return
            if self.is_wanted(job.effect):
                self._enqueue(job)
            else:
                del self._current[job.effect.transactional_id]

        handle = self._loop.call_later(RETRY_S, again)
        self._retries.add(handle)


def _request(job: Job, partitions: list[TopicPartition]) -> WriteTxnMarkersRequest:
    topics: dict[str, WritableTxnMarkerTopic] = {}
    for name, index in partitions:
        topics.setdefault(
            name, WritableTxnMarkerTopic(name=name, partition_indexes=[])
        ).partition_indexes.append(index)
    marker = WritableTxnMarker(
        producer_id=job.effect.producer.producer_id,
        producer_epoch=job.effect.producer.producer_epoch,
        transaction_result=job.effect.commit,
        topics=list(topics.values()),
        coordinator_epoch=job.coordinator_epoch,
        transaction_version=job.effect.version,
    )
    return WriteTxnMarkersRequest(markers=[marker])


def _place(job: Job, where: TopicPartition) -> dict[str, object]:
    return {
        "transactional_id": job.effect.transactional_id,
        "producer_id": job.effect.producer.producer_id,
        "partition": f"{where[0]}-{where[1]}",
    }
