"""One partition as the queue of one share group, at the partition's leader: the core with log, state and timers.

A queue starts from the state stored by the share coordinator, and has no records for anybody until that has arrived. Changes
by requests or expired locks are stored by the share coordinator before anything is answered. A change that is refused at
once is undone. When a change turns out to be lost later, the whole queue is dropped, since other changes may depend on it:
the next fetch starts again from the stored state. Records that are given up on are written to the group's dead-letter topic
before they are marked, so that a crash in between duplicates letters rather than losing them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.shares.options import ShareOptions, duration_ms
from barnabas.broker.coordinators.shares.persister import NOT_NOW, when_done
from barnabas.broker.coordinators.shares.reading import Readable, readable
from barnabas.cores.group.share.partition import (
    AckBatch,
    AcquireMode,
    Delivery,
    ShareChange,
    SharePartitionCore,
)
from barnabas.cores.group.share.state import NO_START_OFFSET, ShareKey, ShareState, StateReply
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.coordinators.shares.persister import Answer, Persister
    from barnabas.broker.coordinators.shares.reading import Taken
    from barnabas.broker.partitions.partition import Partition
    from barnabas.broker.partitions.replica import Waiter

log = logging.getLogger("barnabas.shares")

RETRY_MS = 1_000
"""When expired locks are retried after their release could not be stored."""
OVERTAKEN = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Refusals that say that the state has changed: it belongs to a newer leader or group, or is gone."""

OnDeadLetters = Callable[["SharePartition", ShareChange], "asyncio.Future[None] | None"]
"""Called before a change with dead letters is stored; the future, if any, ends when another broker has written them."""


class SharePartition:
    """See the module. Locks use the monotonic clock (`Shares.lock_now_ms`); only the `now_ms` at which a state begins is
    wall-clock time.

    error: why the queue cannot be used, once that is known. is_lost: the next fetch must create a new queue.
    """

    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        persister: Persister,
        options: ShareOptions,
        now_ms: int,
        *,
        waiters: dict[Waiter, None],
        set_timer: Callable[[ShareKey, int], None],
        on_dead_letters: OnDeadLetters,
        on_lost: Callable[[SharePartition], None],
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.options = options
        self.waiters = waiters
        self.error: ApiError | None = None
        self.is_lost = False
        self.lost_ms = 0.0
        self.is_loaded = False
        self.state = ShareState(0, self.leader_epoch, NO_START_OFFSET)
        self.core = SharePartitionCore(options.limits, 0)
        self._persister = persister
        self._begin_ms = now_ms
        self._set_timer = set_timer
        self._on_dead_letters = on_dead_letters
        self._on_lost = on_lost
        self._armed_for_ms: int | None = None
        self._has_cut = False
        self._storing: Answer | None = None
        """The newest change that is still being stored."""
        self._read()

    # --- loading ---------------------------------------------------------------------------------------

    def _read(self) -> None:
        when_done(self._persister.read(self.key, self.leader_epoch), self._on_state)

    def _on_state(self, reply: StateReply) -> None:
        if reply.error is not ErrorCode.NONE:
            self._give_up(as_fetch_error(_refusal(reply)))
            return
        if reply.state is None:
            text = f"share group {self.key.group_id!r} does not read {self.partition} (yet)"
            self._give_up(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))
            return
        self.state = state = replace(reply.state, leader_epoch=self.leader_epoch)
        if not self.is_current:
            self._give_up(
                ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self.partition}")
            )
        elif not self._has_cut and self._persister.cut(self.key, state, self.partition.log_end_offset):
            self._has_cut = True  # tried once: if it fails, the stored state is used as it is
            self._read()
        elif state.start_offset == NO_START_OFFSET:
            # Stored at once: whatever is produced from now on belongs to the group, also after a crash.
            begin = first_offset(self.partition, self.options.reset, self._begin_ms)
            when_done(self._persister.write(self.key, state, begin, (), 0), self._begun)
        else:
            self.core = SharePartitionCore(self.options.limits, state.start_offset, state.batches)
            self.is_loaded = True
            self.wake()

    def _begun(self, reply: StateReply) -> None:
        if reply.error is not ErrorCode.NONE:
            self._give_up(as_fetch_error(_refusal(reply)))
        else:
            self._read()

    def _give_up(self, error: ApiError) -> None:
        """The queue cannot be loaded. While the share coordinator is away, fetches find nothing and the next one retries."""
        if error.code not in NOT_NOW:
            self.error = error
        self._on_lost(self)

    @property
    def is_current(self) -> bool:
        """Whether this broker still leads the partition in the same term as when the queue was created."""
        partition = self.partition
        return (
            partition.offline is None and partition.is_leader and partition.leader_epoch == self.leader_epoch
        )

    def configure(self, options: ShareOptions) -> None:
        """Apply new options from now on; locks that are held keep their expiry times. A higher limit may free records."""
        self.options = options
        self.core.limits = options.limits
        self.wake()

    # --- fetching --------------------------------------------------------------------------------------

    def readable(self, max_bytes: int) -> Readable | None:
        """What could be handed out now; None when there is nothing. Raises ApiError."""
        if not self.is_loaded:
            return None
        if self.core.start < self.partition.log_start_offset:
            self._store(self.core.log_start_moved(self.partition.log_start_offset))
        offset = self.core.next_fetch_offset()
        if offset is None:
            return None
        return readable(self.partition, offset, max_bytes, self.options.read_committed)

    def acquire(
        self, now_ms: int, member_id: str, fetched: Readable, max_records: int, mode: AcquireMode
    ) -> Taken | None:
        """Lock records in `fetched` for a member; None when none of them is available. Raises ApiError."""
        core = self.core
        readable: Readable | None = fetched
        while readable is not None:
            ranges, read_to = readable.ranges(max_records + core.end - core.start)
            change = core.acquire(now_ms, member_id, readable.offset, ranges, max_records, mode, read_to)
            self._store(change)
            if change.acquired:
                self._arm(now_ms + core.limits.record_lock_duration_ms)
                return readable.taken(change.acquired)
            # Only markers and aborted records here: continue behind them as long as there is progress.
            offset = core.next_fetch_offset()
            if offset is None or offset <= readable.offset:
                return None
            readable = self.readable(readable.max_bytes)
        return None

    @property
    def is_idle(self) -> bool:
        """Whether no fetch waits and nothing is locked, so that the stored state is complete."""
        return not self.waiters and (self.is_lost or self.core.next_lock_end_ms() is None)

    # --- acknowledging ---------------------------------------------------------------------------------

    def acknowledge(self, now_ms: int, member_id: str, batches: Sequence[AckBatch]) -> Answer | None:
        """Apply all of `batches` or, with ApiError, nothing. The future, if any, is done when the change is stored."""
        had_room = self.core.next_fetch_offset() is not None
        change = self.core.acknowledge(now_ms, member_id, batches)
        pending = self._store(change)
        if not had_room or any(batch.state is Delivery.AVAILABLE for batch in change.writes):
            self.wake()  # what is finished cannot be handed out again, unless it makes room
        return pending

    def release_member(self, member_id: str) -> None:
        """The member's session has ended: release what it held. Raises ApiError."""
        self._store(self.core.release_member(member_id))
        self.wake()

    def on_timer(self, now_ms: int) -> None:
        """Release records whose locks have expired."""
        self._armed_for_ms = None
        try:
            self._store(self.core.release_expired(now_ms))
        except ApiError as error:
            log.error("locks that ran out are kept for now", extra={**self._names(), "reason": error.message})
            self._arm(now_ms + RETRY_MS)
            return
        next_ms = self.core.next_lock_end_ms()
        if next_ms is not None:
            self._arm(next_ms)
        self.wake()

    def _arm(self, deadline_ms: int) -> None:
        """Keep at most one timer, which fires at or before the first expiry and is then set to the next."""
        if self._armed_for_ms is None or deadline_ms < self._armed_for_ms:
            self._armed_for_ms = deadline_ms
            self._set_timer(self.key, deadline_ms)

    def _store(self, change: ShareChange) -> Answer | None:
        """Store a change. Raises ApiError with the change undone; the future, if any, is done when the outcome is known."""
        written = self._on_dead_letters(self, change) if change.dead_letters else None
        if not change.must_store:
            return None
        if self._storing is not None and self._storing.done() and self._storing.result().error:
            self.core.abandon(
                change
            )  # the change that it depends on is lost: this queue is dropped in this turn
            raise _refusal(self._storing.result())
        stored = self._persister.write(
            self.key,
            self.state,
            change.start_offset,
            change.writes,
            self.core.done_in_window(),
            written,
        )
        if not stored.done():
            self._storing = stored
            stored.add_done_callback(self._stored_later)
            return stored
        reply = stored.result()
        if reply.error is ErrorCode.NONE:
            return None
        self.core.abandon(change)
        if reply.error in OVERTAKEN:
            self._on_lost(self)
        raise _refusal(reply)

    def _stored_later(self, stored: Answer) -> None:
        """If a change turns out to be lost, others may depend on it: start again from the stored state."""
        if stored.cancelled() or stored.result().error is not ErrorCode.NONE:
            self._on_lost(self)

    # --- waiting ---------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Wake the fetches that wait, because records may be available again."""
        for waiter in list(self.waiters):
            waiter.wake()

    def _names(self) -> dict[str, object]:
        return {
            "group": self.key.group_id,
            "topic": self.partition.topic,
            "partition": self.partition.index,
        }


def _refusal(reply: StateReply) -> ApiError:
    return ApiError(reply.error, reply.message or reply.error.name)


def as_fetch_error(error: ApiError) -> ApiError:
    """A refusal by the share coordinator, translated to an error that consumers understand."""
    if error.code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH):
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
    return error


def first_offset(partition: Partition, reset: str, now_ms: int) -> int:
    """The offset where a group starts in a partition that it has not read before (share.auto.offset.reset)."""
    if reset == "earliest":
        return partition.log_start_offset
    before_ms = duration_ms(reset)
    if before_ms is not None:
        hit = partition.offset_for_time(now_ms - before_ms)
        if hit is not None:
            return hit[1]
    return partition.high_watermark
