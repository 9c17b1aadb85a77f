"""Answering a ShareFetch: reading what the session's queues have for the member, and waiting until there is something.

A fetch that finds too little waits on the partitions (for new records) and on their queues (for records that other members
release). Nothing is locked before the answer is due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.coordinators.shares.partition import as_fetch_error
from barnabas.broker.coordinators.shares.persister import NOT_NOW
from barnabas.broker.partitions.fetching import ParkedFetch
from barnabas.cores.group.share.partition import AcquireMode
from barnabas.cores.group.share.session import ShareSession, ShareTopicPartition
from barnabas.wire.errors import ApiError

if TYPE_CHECKING:
    import asyncio
    from uuid import UUID

    from barnabas.broker.coordinators.shares.manager import Shares
    from barnabas.broker.coordinators.shares.partition import SharePartition
    from barnabas.broker.coordinators.shares.reading import Readable, Taken


class Wanted(NamedTuple):
    """The limits of one request. `max_records` is a soft limit when whole batches are locked."""

    min_bytes: int
    max_bytes: int
    max_records: int
    mode: AcquireMode


class ShareReading:
    """One ShareFetch in progress. Once `read` has returned True, `taken` and `errors` are the answer."""

    def __init__(
        self,
        shares: Shares,
        session: ShareSession,
        wanted: Wanted,
        refusal: Callable[[UUID], ApiError | None] = lambda _: None,
    ) -> None:
        """refusal: why the member may not read a topic, by the topic's id; None if it may."""
        self.session = session
        self._refusal = refusal
        self.taken: dict[ShareTopicPartition, Taken] = {}
        self.errors: dict[ShareTopicPartition, ApiError] = {}
        self._shares = shares
        self._wanted = wanted

    def queues(self) -> Iterator[tuple[ShareTopicPartition, SharePartition]]:
        """The queues of the session's partitions; for partitions that cannot be served, the error is noted."""
        for partition in list(self.session.partitions):
            refusal = self._refusal(partition[0])
            if refusal is not None:
                self.errors[partition] = refusal
                continue
            try:
                yield partition, self._shares.open(self.session.key.group_id, *partition)
            except ApiError as error:
                self.errors[partition] = error.with_traceback(None)

    def read(self, *, time_is_up: bool = False) -> bool:
        """Take what is available if it is enough or time is up; True when the fetch is to be answered."""
        self.errors.clear()
        readables: list[tuple[ShareTopicPartition, SharePartition, Readable]] = []
        left_bytes = self._wanted.max_bytes
        for partition, queue in self.queues():
            try:
                readable = (
                    self._shares.run(queue, partial(queue.readable, left_bytes)) if left_bytes > 0 else None
                )
            except ApiError as error:
                self._note(partition, error)
                continue
            if readable is not None:
                readables.append((partition, queue, readable))
                left_bytes -= len(readable)
        has_enough = self._wanted.max_bytes - left_bytes >= self._wanted.min_bytes
        if readables and (has_enough or time_is_up):
            self._take(readables)
        return bool(self.taken or self.errors) or time_is_up

    def _take(self, readables: list[tuple[ShareTopicPartition, SharePartition, Readable]]) -> None:
        now_ms = self._shares.lock_now_ms()
        left_records = self._wanted.max_records
        for partition, queue, readable in readables:
            if left_records <= 0:
                break
            try:
                member_id, mode = self.session.key.member_id, self._wanted.mode
                act = partial(queue.acquire, now_ms, member_id, readable, left_records, mode)
                taken = self._shares.run(queue, act)
            except ApiError as error:
                self._note(partition, error)
                continue
            if taken is not None:
                self.taken[partition] = taken
                left_records -= sum(run.last - run.first + 1 for run in taken.acquired)
        self._shares.sessions.served_last(self.session, self.taken)

    def _note(self, partition: ShareTopicPartition, error: ApiError) -> None:
        """Note an error as consumers know it. They know only leaders: a moving share coordinator is no error for them."""
        if error.code not in NOT_NOW:
            self.errors[partition] = as_fetch_error(error)


class ShareWaiter(ParkedFetch[ShareReading]):
    """A parked share fetch: waits on its partitions and on their queues."""

    __slots__ = ()

    def __init__(self, loop: asyncio.AbstractEventLoop, reading: ShareReading, wait_ms: int) -> None:
        queues = [queue for _, queue in reading.queues()]
        parked_on = [waiters for queue in queues for waiters in (queue.waiters, queue.partition.waiters)]
        last_look = partial(reading.read, time_is_up=True)
        super().__init__(loop, reading, wait_ms, parked_on, reading.read, last_look)
