"""Reading for fetches: what the partitions of a fetch plan hold now, and waiting until they hold enough.

A fetch that finds too little is parked on each partition that it reads. An append wakes the partition's waiters at the
end of the turn (net/turn.py), and each of them reads again, which costs an index look-up and copies no data.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, Generic, TypeVar

from barnabas.broker.partitions.partition import Partition, PartitionRead
from barnabas.broker.partitions.replica import Waiter
from barnabas.cores.fetch import FetchPartition, FetchPlan
from barnabas.wire.errors import ErrorCode

PIECE: Final = 500
"""A fetch of very many partitions lets other work run after reading this many."""

R = TypeVar("R")


class Limit(Enum):
    """How a throttle applies to a partition. HELD_BACK: the rate is exceeded, nothing is sent."""

    COUNTED = 1
    HELD_BACK = 2


Limits = Callable[[Partition], Limit | None]
Prefer = Callable[[Partition, FetchPartition], int]
"""Returns the id of the replica that a consumer should read from instead, -1 for this one."""


class Reading:
    """One fetch request being answered."""

    def __init__(
        self,
        plan: FetchPlan,
        find: Callable[[FetchPartition], tuple[Partition | None, ErrorCode]],
        *,
        min_bytes: int,
        max_bytes: int,
        read_committed: bool,
        by_replica: bool = False,
        from_follower: bool = False,
        prefer: Prefer | None = None,
        limits: Limits | None = None,
        tells_high_watermark: bool = False,
        last_reads: Sequence[PartitionRead | None] = (),
    ) -> None:
        """by_replica: a follower asks; it also gets records above the high watermark. from_follower: a follower may answer.
        prefer: chooses another replica for the consumer, if any. limits: the partitions that a throttle applies to (None: no
        throttle). tells_high_watermark: answer a follower as soon as the high watermark is above the one that it knows,
        because consumers read from it. last_reads: of each partition what the answer before was made of, if that is
        known to hold still."""
        self._last_reads = last_reads
        self._tells_high_watermark = tells_high_watermark
        self.by_replica = by_replica
        self._limits = limits
        self.limited_bytes = 0
        """Bytes read from partitions that a throttle applies to."""
        self._from_follower = from_follower
        self._prefer = prefer
        self.plan = plan
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.read_committed = read_committed
        self._find = find
        self.reads: Sequence[PartitionRead] = ()
        self.answerable = False

    def read(self) -> bool:
        """Read every partition; True when the fetch can be answered at once."""
        for _ in self._pieces():
            pass
        return self.answerable

    async def read_in_pieces(self) -> bool:
        """Like `read`, but other work runs after every PIECE partitions."""
        for _ in self._pieces():
            await asyncio.sleep(0)
        return self.answerable

    def _pieces(self) -> Iterator[None]:
        reads: list[PartitionRead] = []
        left_bytes = self.max_bytes
        total_bytes = limited_bytes = 0
        answer_now = False
        before = iter(self.reads or self._last_reads)
        self._last_reads = ()
        for number, asked in enumerate(self.plan.partitions, 1):
            if number % PIECE == 0:
                yield
            last = next(before, None)
            if last is not None and _nothing_since(last, self.by_replica) and not self._has_news(last):
                reads.append(last)
                continue
            partition, error = self._find(asked)
            if partition is None or error:
                reads.append(PartitionRead(asked, partition, error))
                answer_now = True
                continue
            preferred = -1 if self._prefer is None else self._prefer(partition, asked)
            if preferred >= 0:
                reads.append(_sent_on(asked, partition, preferred))
                answer_now = True
                continue
            limit = None if self._limits is None else self._limits(partition)
            if limit is Limit.HELD_BACK:
                reads.append(_without_records(asked, partition))
                continue
            read = partition.read(
                asked,
                min(left_bytes, asked.max_bytes),
                self.read_committed,
                at_least_one=total_bytes == 0,
                by_replica=self.by_replica,
                from_follower=self._from_follower,
            )
            reads.append(read)
            if read.records is not None:
                size_bytes = len(read.records) if isinstance(read.records, bytes) else read.records.size
                left_bytes = max(0, left_bytes - size_bytes)
                total_bytes += size_bytes
                limited_bytes += size_bytes if limit is Limit.COUNTED else 0
            if read.error or read.diverging is not None or self._has_news(read):
                answer_now = True
        self.reads = reads
        self.limited_bytes = limited_bytes
        self.answerable = answer_now or total_bytes >= self.min_bytes

    def _has_news(self, read: PartitionRead) -> bool:
        """Whether the follower should learn of deleted records or of a new high watermark at once."""
        partition = read.partition
        if partition is None or not self.by_replica:
            return False
        if partition.log_start_offset > read.asked.told_log_start_offset >= 0:
            return True
        return self._tells_high_watermark and partition.high_watermark > read.asked.told_high_watermark >= 0


def _sent_on(asked: FetchPartition, partition: Partition, preferred: int) -> PartitionRead:
    """The answer that sends the consumer to the preferred replica."""
    read = _without_records(asked, partition)
    read.preferred = preferred
    return read


def _without_records(asked: FetchPartition, partition: Partition) -> PartitionRead:
    read = PartitionRead(asked, partition)
    read.high_watermark = partition.high_watermark
    read.last_stable_offset = partition.last_stable_offset
    read.log_start_offset = partition.log_start_offset
    return read


def _nothing_since(last: PartitionRead, by_replica: bool) -> bool:
    """Whether a reader that was at the end still is. When one partition wakes a parked fetch, this is true for nearly all of
    its other partitions."""
    partition = last.partition
    if partition is None or partition.offline is not None or last.error or last.diverging is not None:
        return False
    if last.preferred >= 0:
        return False
    core = partition.log.core
    if by_replica:
        return (
            last.records is None
            and last.asked.fetch_offset == core.log_end_offset
            and last.log_start_offset == core.log_start_offset
            and last.leader_epoch == partition.leader_epoch
            and partition.is_leader
        )
    return (
        last.asked.fetch_offset == last.high_watermark == core.high_watermark
        and last.log_start_offset == core.log_start_offset
        and last.leader_epoch == partition.leader_epoch
    )


class ParkedFetch(Generic[R]):
    """A waiting fetch: answered when `look` finds enough, or after `last_look` when its time is up."""

    __slots__ = ("_last_look", "_look", "_parked_on", "_reading", "_timer", "future")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        reading: R,
        wait_ms: int,
        parked_on: Iterable[dict[Waiter, None]],
        look: Callable[[], bool],
        last_look: Callable[[], bool],
    ) -> None:
        self.future: asyncio.Future[R] = loop.create_future()
        self._reading = reading
        self._look = look
        self._last_look = last_look
        self._parked_on = list(parked_on)
        for waiters in self._parked_on:
            waiters[self] = None
        self._timer = loop.call_later(wait_ms / 1000, self._time_is_up)

    def wake(self) -> None:
        """Look again, and answer if that found enough."""
        if not self.future.done():
            self._look_with(self._look)

    def look_afresh(self) -> None:
        """Like `wake`, after the rights of the reader have changed."""
        self.wake()

    def _time_is_up(self) -> None:
        if not self.future.done():
            self._look_with(self._last_look)
            self._finish()

    def _look_with(self, look: Callable[[], bool]) -> None:
        """An error while looking affects only this fetch: it is answered with the error."""
        try:
            has_enough = look()
        except Exception as error:
            self._forget()
            if not self.future.done():
                self.future.set_exception(error)
        else:
            if has_enough:
                self._finish()

    def give_up(self) -> None:
        """The answer is no longer wanted."""
        self._forget()
        self.future.cancel()

    def _finish(self) -> None:
        self._forget()
        if not self.future.done():
            self.future.set_result(self._reading)

    def _forget(self) -> None:
        self._timer.cancel()
        for waiters in self._parked_on:
            waiters.pop(self, None)


class News:
    """Notes that some partition of a fetch has something new. For fetches that read so many partitions that they look again
    only when they get to run, in pieces. `forget` at the end."""

    __slots__ = ("_parked_on", "came")

    def __init__(self, reading: Reading) -> None:
        self.came = asyncio.Event()
        self._parked_on = [read.partition.waiters for read in reading.reads if read.partition is not None]
        for waiters in self._parked_on:
            waiters[self] = None

    def wake(self) -> None:
        """Called when a partition has something new."""
        self.came.set()

    def forget(self) -> None:
        """The fetch is answered."""
        for waiters in self._parked_on:
            waiters.pop(self, None)


class FetchWaiter(ParkedFetch[Reading]):
    """A parked fetch: waits on its partitions."""

    __slots__ = ()

    def __init__(self, loop: asyncio.AbstractEventLoop, reading: Reading, wait_ms: int) -> None:
        parked_on = [read.partition.waiters for read in reading.reads if read.partition is not None]
        super().__init__(loop, reading, wait_ms, parked_on, reading.read, reading.read)

    def look_afresh(self) -> None:
        self._reading.reads = ()  # or partitions without new records would not be looked at
        self.wake()
