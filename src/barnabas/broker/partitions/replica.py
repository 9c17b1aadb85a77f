"""This broker's replica of a partition: its role, what its followers have, the in-sync set, and who waits for all that.

The leader's high watermark follows from what the in-sync replicas have (cores/replication.py); `flush.messages` holds it
back until the records are on disk. An Acknowledgement is ready once both allow it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.broker.partitions.acknowledgement import Acknowledgement, Deletion
from barnabas.broker.partitions.plain_append import PartitionState
from barnabas.cores.cluster_image import PartitionImage
from barnabas.cores.epochs import EpochEnd
from barnabas.cores.fetch import FetchPartition
from barnabas.cores.replication import InSyncReplicas
from barnabas.records.batch import BatchHeader
from barnabas.records.units import LeaderEpoch, Offset
from barnabas.storage.errors import LogDirOffline
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.runtime.clock import Clock
    from barnabas.storage.config import LogConfig
    from barnabas.storage.logs.log import Log

log = logging.getLogger("barnabas.partitions")

NO_IMAGE: Final = PartitionImage(())


class Waiter(Protocol):
    """Called when the partition that it waits on has something new."""

    def wake(self) -> None:
        """Look again. Never raises."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all partitions of a broker share.

    wake: called when a partition has something new for the fetches that wait on it. in_sync_changed: called when the in-sync
    replicas of a partition should become `partition.wanted_in_sync`. run_in_thread: runs functions that may block.
    write_failed: called when a log could not be written. check_transaction: raises ApiError unless a producer's
    transactional batch belongs to a transaction that this partition was added to; True when its first batch here
    must have sequence 0. broker_epoch: the registration of a broker that is known to this one, None if it is not alive.
    """

    node_id: int
    clock: Clock
    wake: Callable[[Replica], None]
    run_in_thread: Callable[[Callable[[], object]], asyncio.Future[object]]
    write_failed: Callable[[Replica, LogDirOffline], None]
    check_transaction: Callable[[Replica, BatchHeader], bool]
    in_sync_changed: Callable[[Replica], None] = lambda partition: None
    broker_epoch: Callable[[int], int | None] = lambda broker: -1


class Replica(PartitionState):
    """See the module. Partition (partition.py) adds appending and reading."""

    __slots__ = (
        "_deletions", "_epoch_start", "_led_before", "image", "index", "is_deleted", "topic", "topic_id", "wanted_in_sync",
    )  # fmt: skip

    def __init__(
        self,
        surroundings: Surroundings,
        topic: str,
        index: int,
        topic_id: UUID,
        log: Log,
        image: PartitionImage,
    ) -> None:
        self._surroundings = surroundings
        self._replicas = InSyncReplicas(surroundings.node_id)
        self._pending: list[Acknowledgement] = []
        self._deletions: list[Deletion] = []
        self._flushing: asyncio.Future[object] | None = None
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = LeaderEpoch(-1)
        self.is_leader = False
        self.image = NO_IMAGE
        """The partition as described by the metadata."""
        self.wanted_in_sync: tuple[int, ...] = ()
        """The in-sync set that has been requested of the metadata; empty when no change is under way."""
        self._epoch_start = Offset(0)
        self._led_before = 0
        """How many messages were appended in earlier epochs in which this replica led; see `messages_in`."""
        self.offline: str | None = None
        """Why the partition is unusable: its log cannot be written, or its topic was deleted; None while it is usable."""
        self.is_deleted = False
        self.waiters: dict[Waiter, None] = {}
        self.take_role(image)

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    # --- role ------------------------------------------------------------------------------------------

    def take_role(self, image: PartitionImage) -> bool:
        """Lead or follow, as the cluster's metadata says; called whenever that has changed. True when the role is new, or
        when this replica, whose log lacks records, has left the in-sync set.
        """
        was, self.image = self.image, image
        if image.partition_epoch != was.partition_epoch:
            self.wanted_in_sync = ()  # the requested change has been made, or came too late
            self._replicas.settled()
        was_leader, self.is_leader = self.is_leader, image.leader == self._surroundings.node_id
        is_new = self.leader_epoch != image.leader_epoch or was.leader != image.leader
        self.leader_epoch = LeaderEpoch(image.leader_epoch)
        if was_leader and (is_new or not self.is_leader):
            self._led_before += self.log_end_offset - self._epoch_start
        if self.is_leader:
            if is_new or not was_leader:
                self._epoch_start = self.log_end_offset
                self._replicas.begin(image.isr, self._surroundings.clock.monotonic_ms())
            else:
                self._replicas.set(image.isr)
            self._replicas.retain(image.replicas)
            self._advance()
            if image.partition_epoch != was.partition_epoch and len(image.replicas) > 1:
                self._consider_followers()
            self._finish_deletions()
        else:
            self._fail_pending(self._not_leader())
            if was_leader:
                self._surroundings.wake(self)
        if self.log.hole_from is not None and self.offline is None:
            node_id = self._surroundings.node_id
            if self.is_leader and image.isr == (node_id,):
                self._forget_missing()
            is_new = is_new or (node_id in was.isr and node_id not in image.isr)
        return is_new or was_leader != self.is_leader

    @property
    def messages_in(self) -> int:
        """How many messages this replica has appended as leader since the broker's start, those of coordinators included."""
        return self._led_before + (self.log_end_offset - self._epoch_start if self.is_leader else 0)

    @property
    def waiting_writes(self) -> int:
        """How many writes wait for followers or for the disk."""
        return len(self._pending)

    def _forget_missing(self) -> None:
        """Only this replica is in sync: the records missing in its log are lost, and its log is now authoritative."""
        try:
            self.log.forget_missing()
        except LogDirOffline as error:
            self._surroundings.write_failed(self, error)

    def note_replica_fetch(self, follower: int, asked: FetchPartition, epoch: int = -1) -> None:
        """A follower fetches: unless its log diverges from this one, it has everything below the offset that it asks for.

        epoch: its broker epoch, -1 if it does not say.
        """
        core = self.log.core
        if not self.is_leader or not core.log_start_offset <= asked.fetch_offset <= core.log_end_offset:
            return
        if asked.last_fetched_epoch >= 0:
            end = self.end_of_epoch(LeaderEpoch(asked.last_fetched_epoch))
            if end.epoch < asked.last_fetched_epoch or end.end_offset < asked.fetch_offset:
                return
        self.note_fetch(follower, Offset(asked.fetch_offset), epoch)
        self._replicas.note_start(follower, Offset(asked.log_start_offset))
        if self._deletions:
            self._finish_deletions()

    def note_fetch(self, follower: int, offset: Offset, epoch: int = -1) -> None:
        """A follower has fetched from `offset`, so it has everything below."""
        core, replicas = self.log.core, self._replicas
        now_ms = self._surroundings.clock.monotonic_ms()
        replicas.note_fetch(follower, offset, core.log_end_offset, now_ms, epoch)
        if replicas.followers:
            self._advance()
        self._consider(follower)

    def _consider(self, follower: int) -> None:
        """Request that a follower join the in-sync set if it has caught up."""
        if self.wanted_in_sync or follower in self._replicas.followers:
            return
        if self._may_join(follower):
            self._want_in_sync((*self.image.isr, follower))

    def _may_join(self, follower: int) -> bool:
        """Whether a follower has caught up, in the registration that its broker has now: the disk may be another."""
        replicas = self._replicas
        if not replicas.may_join(follower, self.high_watermark, self._epoch_start):
            return False
        registered = self._surroundings.broker_epoch(follower)
        return registered is not None and replicas.epoch_of(follower) in (-1, registered)

    def follower_registered(self, follower: int, epoch: int | None) -> None:
        """A broker has registered anew, and what it had before may be gone; or, without an epoch, it is not alive."""
        if not self.is_leader or follower not in self.image.replicas:
            return
        if epoch is not None:
            if self._replicas.epoch_of(follower) != epoch:
                self._replicas.forget(follower, epoch, self._surroundings.clock.monotonic_ms())
            self._consider(follower)
        self._finish_deletions()

    def in_sync_to_request(self) -> tuple[int, ...]:
        """`wanted_in_sync`, if it is still right; otherwise the wish is withdrawn.

        Those who would join must still have everything, in the registration that their brokers have now. Called before each
        attempt, never while one may be under way: until that is settled, the wanted set counts.
        """
        wanted = self.wanted_in_sync
        joining = [node for node in wanted if node not in self.image.isr]
        if all(map(self._may_join, joining)):
            return wanted
        self.in_sync_settled(wanted)
        return ()

    def epochs_of(self, in_sync: tuple[int, ...]) -> tuple[int, ...]:
        """The broker epochs in which these followers have fetched; -1 where that is unknown, and for this broker."""
        return tuple(map(self._replicas.epoch_of, in_sync))

    def _consider_followers(self) -> None:
        for replica in self.image.replicas:
            self._consider(replica)

    def shrink_in_sync(self, lag_ms_max: float) -> None:
        """Request that followers leave the in-sync set if they have been behind for longer than `lag_ms_max`."""
        if not self.is_leader or self.wanted_in_sync or not self._replicas.followers:
            return
        now_ms = self._surroundings.clock.monotonic_ms()
        lagging = self._replicas.lagging(self.log_end_offset, now_ms, lag_ms_max)
        if lagging:
            self._want_in_sync(tuple(node for node in self.image.isr if node not in lagging))

    def held_up_by(self, behind_ms: float) -> tuple[int, ...]:
        """The in-sync followers that writes wait for and that have been behind for longer than this."""
        if not self._pending or not self._replicas.followers:
            return ()
        return self._replicas.lagging(self.log_end_offset, self._surroundings.clock.monotonic_ms(), behind_ms)

    def _want_in_sync(self, in_sync: tuple[int, ...]) -> None:
        self.wanted_in_sync = in_sync
        self._replicas.want(in_sync)
        self._surroundings.in_sync_changed(self)

    def in_sync_settled(self, wanted: tuple[int, ...]) -> None:
        """The change of the in-sync set to `wanted` is in the metadata, or was refused."""
        if self.wanted_in_sync == wanted:
            self.wanted_in_sync = ()
            self._replicas.settled()
            if self.is_leader:
                self._advance()

    def in_sync_with(self, offset: int) -> list[int]:
        """The in-sync followers that have everything below `offset`, those with the most records first."""
        return self._replicas.in_sync_with(offset)

    @property
    def low_watermark(self) -> Offset:
        """The offset below which no replica that may lead soon has records; -1 while that is unknown."""
        live = [node for node in self.image.replicas if self._surroundings.broker_epoch(node) is not None]
        return self._replicas.low_watermark(self.log_start_offset, live)

    def delete_before(self, offset: Offset) -> Deletion:
        """Delete the records below `offset`. Raises ApiError with nothing deleted, OffsetOutOfRange, LogDirOffline."""
        self._require_leader()
        self.log.advance_log_start(offset)
        deletion = Deletion(offset)
        self._deletions.append(deletion)
        self._finish_deletions()
        self.wake_waiters()  # followers learn of it at once, and a share group's window may have room now
        return deletion

    def _finish_deletions(self) -> None:
        if not self._deletions:
            return
        low = self.low_watermark
        done = [deletion for deletion in self._deletions if deletion.next_offset <= low]
        self._deletions = [
            deletion for deletion in self._deletions if not deletion.is_ready and deletion not in done
        ]
        for deletion in done:
            deletion.finish()

    def follow_leader(self, high_watermark: Offset, log_start_offset: Offset) -> None:
        """Take over the leader's offsets; a follower's high watermark is never above its own end."""
        core = self.log.core
        if core.advance_high_watermark(min(high_watermark, core.log_end_offset)) and self.waiters:
            self._surroundings.wake(self)
        if core.log_start_offset < log_start_offset <= core.high_watermark:
            self.log.advance_log_start(log_start_offset)

    @property
    def high_watermark_is_known(self) -> bool:
        """False while a new leader does not know yet which of the records that it started with are committed."""
        return self.high_watermark >= self._epoch_start or not self._replicas.followers

    def _not_leader(self) -> ApiError:
        return ApiError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self.topic}-{self.index}"
        )

    @property
    def config(self) -> LogConfig:
        """The topic's options."""
        return self.log.config

    @property
    def log_start_offset(self) -> Offset:
        """The first offset that is served."""
        return self.log.core.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        """The offset that the next record gets."""
        return self.log.core.log_end_offset

    @property
    def high_watermark(self) -> Offset:
        """The offset below which consumers may read."""
        return self.log.core.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """The offset below which every transaction has ended."""
        return self.log.core.last_stable_offset

    def epoch_error(self, current_leader_epoch: int) -> ErrorCode:
        """NONE unless a client that believes in `current_leader_epoch` (-1: it did not say) is out of date."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def leader_error(self, current_leader_epoch: int) -> ErrorCode:
        """The same, and an error unless this broker is the leader."""
        if self.offline is None and not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self.epoch_error(current_leader_epoch)

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The leader epoch under which the record at `offset` was (or will be) written."""
        if offset >= self.log_end_offset:
            return self.leader_epoch
        return self.log.core.epochs.epoch_at(offset)

    def end_of_epoch(self, epoch: LeaderEpoch) -> EpochEnd:
        """The largest known epoch that is not above `epoch`, and where it ended; (-1, -1) when there is none."""
        epochs, end = self.log.core.epochs, self.log_end_offset
        if epoch == self.leader_epoch:
            return EpochEnd(epoch, end)
        if 0 <= epochs.latest <= epoch < self.leader_epoch:
            # This leader has not written anything yet, so the last epoch with records ends at the log's end.
            return EpochEnd(epochs.latest, end)
        return epochs.end_of(epoch, end)

    def _require_leader(self) -> None:
        if self.offline is not None:
            raise self.unavailable()
        if not self.is_leader:
            raise self._not_leader()

    def _too_few_replicas(self, code: ErrorCode) -> ApiError:
        return ApiError(
            code,
            f"{self.topic}-{self.index} has {self._replicas.count} in-sync replica(s); "
            f"min.insync.replicas is {self.config.min_insync_replicas}",
        )

    def unavailable(self) -> ApiError:
        """The error for requests to this partition while it is `offline`."""
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if self.is_deleted else ErrorCode.KAFKA_STORAGE_ERROR
        return ApiError(code, f"{self.topic}-{self.index}: {self.offline}")

    # --- acknowledging ---------------------------------------------------------------------------------

    def _promise(
        self, base_offset: int, next_offset: int, append_time_ms: int, wants_replicas: bool
    ) -> Acknowledgement:
        core = self.log.core
        acknowledgement = Acknowledgement(
            base_offset, next_offset, append_time_ms, core.log_start_offset, wants_replicas
        )
        # What a thread has flushed counts before the loop hears of it, also for consumers: an answer to a repeated batch
        # must not come before they see what it acknowledges.
        if self._flushing is not None:
            self._advance()
        # On a single node without pending flushes nothing else is needed: see `_holds`.
        if self._flushing is not None or (wants_replicas and next_offset > core.high_watermark):
            acknowledgement.is_ready = self._holds(acknowledgement)
            if not acknowledgement.is_ready:
                self._pending.append(acknowledgement)
        return acknowledgement

    def _holds(self, promise: Acknowledgement) -> bool:
        """Whether the records of `promise` are on disk (if a flush is due) and on the replicas that count."""
        if self._flushing is not None and promise.next_offset > self.log.recovery_point:
            return False
        return not promise.wants_replicas or promise.next_offset <= self.high_watermark

    def _advance(self) -> None:
        """Advance the high watermark as far as replicas and a pending flush allow, and finish acknowledgements below it."""
        core = self.log.core
        end = core.log_end_offset
        if self._flushing is not None:
            end = min(end, Offset(self.log.recovery_point))
        if self._replicas.followers or not self._replicas.is_settled:
            end = self._replicas.high_watermark(end)
        if core.advance_high_watermark(end) and self.waiters:
            self._surroundings.wake(self)
        if self._pending:
            self._finish_pending()

    def _finish_pending(self) -> None:
        ready: list[Acknowledgement] = []
        left: list[Acknowledgement] = []
        for promise in self._pending:
            if not promise.is_ready:
                (ready if self._holds(promise) else left).append(promise)
        self._pending = left
        error: ApiError | None = None
        if self._replicas.count < self.config.min_insync_replicas:
            error = self._too_few_replicas(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        for promise in ready:
            promise.finish(error if promise.wants_replicas else None)

    def _fail_pending(self, error: ApiError) -> None:
        failed: list[Acknowledgement] = [*self._pending, *self._deletions]
        self._pending, self._deletions = [], []
        for promise in failed:
            promise.finish(error)

    def _flush_soon(self) -> None:
        """Flush the log in a thread; records appended meanwhile wait for the next flush."""
        if self._flushing is None:
            self._flushing = self._surroundings.run_in_thread(self.log.flush)
            self._flushing.add_done_callback(self._flushed)

    def _flushed(self, flushing: asyncio.Future[object]) -> None:
        self._flushing = None
        if flushing.cancelled():
            return
        error = flushing.exception()
        if isinstance(error, LogDirOffline):
            self._surroundings.write_failed(self, error)  # this takes the partition offline
            return
        if error is not None:
            log.error("a flush met a bug", extra={"partition": f"{self.topic}-{self.index}"}, exc_info=error)
            self._fail_pending(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log was not flushed: {error}"))
        elif self.log.must_flush_now:
            self._flush_soon()
        self._advance()

    def go_offline(self, reason: str) -> None:
        """The log cannot be used any more: refuse all requests from now on, including the waiting ones."""
        self.offline = reason
        self._fail_pending(self.unavailable())
        self._surroundings.wake(self)

    def move_away(self) -> None:
        """This broker no longer has a replica: clients that wait are answered and ask again elsewhere."""
        self.is_leader = False
        self.image = NO_IMAGE
        self._fail_pending(self._not_leader())
        self._surroundings.wake(self)

    def close(self) -> None:
        """The topic was deleted: answer everything that waits; later requests will not find the partition."""
        self.is_deleted = True
        self.is_leader = False
        self.go_offline("the topic was deleted")

    def wake_waiters(self) -> None:
        """Make every fetch that waits on this partition look again."""
        for waiter in list(self.waiters):
            waiter.wake()
