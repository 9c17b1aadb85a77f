"""One partition as a queue for one share group, at the partition's leader: the core with log, state and timers.

What a request or a lock's end changes is stored by the share coordinator before anybody is answered; a change that
cannot be stored is taken back. Records that are given up go to the group's dead-letter topic before they
are marked as such, so that a crash in between writes them there twice rather than never.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.shares.options import ShareOptions, duration_ms
from barnabas.broker.coordinators.shares.reading import Readable, readable
from barnabas.broker.coordinators.shares.states import require
from barnabas.cores.group.share.partition import (
    AckBatch,
    AcquireMode,
    ShareChange,
    SharePartitionCore,
)
from barnabas.cores.group.share.state import NO_START_OFFSET, ShareKey, ShareState
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.coordinators.shares.reading import Taken
    from barnabas.broker.coordinators.shares.states import ShareStates
    from barnabas.broker.partitions.partition import Partition, Waiter
    from barnabas.cores.group.share.state import StateReply

log = logging.getLogger("barnabas.shares")

RETRY_MS = 1_000
"""When locks are looked at again after their end could not be stored."""

OnDeadLetters = Callable[["SharePartition", ShareChange], None]


class SharePartition:
    """See the module. Raises ApiError UNKNOWN_TOPIC_OR_PARTITION when the group does not read the partition.

    Locks are measured by the monotonic clock (`Shares.lock_now_ms`); only the `now_ms` that begins a state is wall time.
    """

    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        states: ShareStates,
        options: ShareOptions,
        now_ms: int,
        *,
        set_timer: Callable[[ShareKey, int], None],
        on_dead_letters: OnDeadLetters,
        on_lost: Callable[[SharePartition], None],
    ) -> None:
        self.key = key
        self.partition = partition
        self.options = options
        self.waiters: dict[Waiter, None] = {}
        self._states = states
        self._set_timer = set_timer
        self._on_dead_letters = on_dead_letters
        self._on_lost = on_lost
        self._armed_for_ms: int | None = None
        if states.find(key) is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"share group {key.group_id!r} does not read {partition.topic}-{partition.index} (yet)",
            )
        self.state = self._read()
        if self.state.start_offset == NO_START_OFFSET:
            # Stored at once: whatever is produced from now on is the group's, also after a crash.
            _settled(states.write(key, self.state, first_offset(partition, options.reset, now_ms), (), 0))
            self.state = self._read()
        self.core = SharePartitionCore(options.limits, self.state.start_offset, self.state.batches)

    def _read(self) -> ShareState:
        state = _settled(self._states.read(self.key, self.partition.leader_epoch))
        if state is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no share state of {self.key}")
        return state

    def configure(self, options: ShareOptions) -> None:
        """New options hold for what happens from now on; locks that are held keep their end."""
        self.options = options
        self.core.limits = options.limits

    # --- fetching --------------------------------------------------------------------------------------

    def readable(self, max_bytes: int) -> Readable | None:
        """What could be handed out now; None when there is nothing. Raises ApiError."""
        if self.core.start < self.partition.log_start_offset:
            self._store(self.core.log_start_moved(self.partition.log_start_offset))
        offset = self.core.next_fetch_offset()
        if offset is None:
            return None
        return readable(self.partition, offset, max_bytes, self.options.read_committed)

    def acquire(
        self, now_ms: int, member_id: str, found: Readable, max_records: int, mode: AcquireMode
    ) -> Taken | None:
        """Lock records of what was found for a member; None when none of them was to be had. Raises ApiError."""
        core = self.core
        readable: Readable | None = found
        while readable is not None:
            ranges, read_to = readable.ranges(max_records + core.end - core.start)
            change = core.acquire(now_ms, member_id, readable.offset, ranges, max_records, mode, read_to)
            self._store(change)
            if change.acquired:
                self._arm(now_ms + core.limits.record_lock_duration_ms)
                return readable.taken(change.acquired)
            # Nothing for consumers lies here (markers, aborted records): look behind it, as long as that leads on.
            offset = core.next_fetch_offset()
            if offset is None or offset <= readable.offset:
                return None
            readable = self.readable(readable.max_bytes)
        return None

    @property
    def is_idle(self) -> bool:
        """Nobody waits and nothing is locked: what is stored says it all."""
        return not self.waiters and self.core.next_lock_end_ms() is None

    # --- acknowledging ---------------------------------------------------------------------------------

    def acknowledge(
        self, now_ms: int, member_id: str, batches: Sequence[AckBatch]
    ) -> asyncio.Future[StateReply] | None:
        """All of it or, with ApiError, nothing. The future, if any, is done when it is stored: answer then."""
        pending = self._store(self.core.acknowledge(now_ms, member_id, batches))
        self.wake()
        return pending

    def release_member(self, member_id: str) -> None:
        """The member's session ended: what it held goes to others. Raises ApiError."""
        self._store(self.core.release_member(member_id))
        self.wake()

    def on_timer(self, now_ms: int) -> None:
        """Give back what was locked for too long."""
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
        """One timer at most: it fires at the first lock's end or before, and is then set to the next one."""
        if self._armed_for_ms is None or deadline_ms < self._armed_for_ms:
            self._armed_for_ms = deadline_ms
            self._set_timer(self.key, deadline_ms)

    def _store(self, change: ShareChange) -> asyncio.Future[StateReply] | None:
        """Raises ApiError with the change taken back; the future ends when what cannot be known at once is known."""
        if change.dead_letters:
            self._on_dead_letters(self, change)
        if not change.must_store:
            return None
        try:
            stored = self._states.write(
                self.key, self.state, change.start_offset, change.writes, self.core.done_in_window()
            )
        except ApiError:
            self.core.abandon(change)
            raise
        if stored.done():
            return None
        stored.add_done_callback(self._stored_later)
        return stored

    def _stored_later(self, stored: asyncio.Future[StateReply]) -> None:
        """Others may have built on a change that now turns out to be lost: begin anew with what is stored."""
        if stored.cancelled() or stored.result().error is not ErrorCode.NONE:
            self._on_lost(self)

    # --- waiting ---------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something may be available again for the fetches that wait."""
        for waiter in list(self.waiters):
            waiter.wake()

    def _names(self) -> dict[str, object]:
        return {
            "group": self.key.group_id,
            "topic": self.partition.topic,
            "partition": self.partition.index,
        }


def _settled(reply: asyncio.Future[StateReply]) -> ShareState | None:
    """The state of an answer that is there. Raises ApiError."""
    if not reply.done():
        raise ApiError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, "the share coordinator is still storing: try again"
        )
    return require(reply.result())


def first_offset(partition: Partition, reset: str, now_ms: int) -> int:
    """Where a group begins in a partition that it has not read before (share.auto.offset.reset)."""
    if reset == "earliest":
        return partition.log_start_offset
    before_ms = duration_ms(reset)
    if before_ms is not None:
        found = partition.offset_for_time(now_ms - before_ms)
        if found is not None:
            return found[1]
    return partition.high_watermark
