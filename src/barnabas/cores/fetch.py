"""Fetch sessions (KIP-227): what the broker remembers so that incremental fetches can omit it.

A session holds the partitions that a consumer reads, so that its following requests name only what changed and the
answers contain only what is new. Pure: the id of a new session and the time are passed as arguments.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.wire.errors import ApiError, ErrorCode

FINAL_EPOCH: Final = -1
"""Session epoch of a request that uses no session, or that ends the session which it names."""
INITIAL_EPOCH: Final = 0
EPOCH_MAX: Final = (1 << 31) - 1
EVICTION_MS: Final = 120_000
"""A session used within this time is not evicted for a new one."""
PARTITIONS_MAX: Final = 400_000
"""Limit for all sessions together: each partition takes about 300 bytes."""
PARTITIONS_PER_OWNER_MAX: Final = 100_000
LONG_AGO_MS: Final = -(1 << 62)

TopicRef = Hashable
"""A topic as the request names it: a str before version 13, a UUID from then on."""
Key = tuple[TopicRef, int]


@dataclass(slots=True)
class FetchPartition:
    """What a consumer requests of one partition, and what the last answer contained."""

    topic: TopicRef
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    told_high_watermark: int = -1
    told_log_start_offset: int = -1
    log_start_offset: int = -1
    """A follower's own log start offset; -1 from consumers."""
    last_read: Any = None
    """In a follower's session: what the broker read for the last answer, if that had no records. None once the follower
    names the partition again."""


@dataclass(slots=True)
class FetchSession:
    """One session. epoch: expected in the next request. last_used_ms: of a clock that never goes back."""

    session_id: int
    epoch: int
    last_used_ms: int
    by_topic_id: bool
    owner: Hashable = None
    partitions: dict[Key, FetchPartition] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class FetchPlan:
    """The partitions that one request reads, in order, and the form of its answer."""

    partitions: tuple[FetchPartition, ...]
    session: FetchSession | None
    full: bool
    """True: the answer contains every partition. False: only partitions that have something new."""


class SessionCache:
    """The sessions of a broker: at most `slots_max`, with limits on the partitions of all sessions and of each owner.

    An owner is the connection that used a session last. A fetch that would exceed the limits is served without a session, as
    in Kafka when its cache is full: the client then names all its partitions in every request.
    """

    def __init__(
        self,
        slots_max: int,
        partitions_max: int = PARTITIONS_MAX,
        partitions_per_owner_max: int = PARTITIONS_PER_OWNER_MAX,
    ) -> None:
        self._slots_max = slots_max
        self._partitions_max = partitions_max
        self._partitions_per_owner_max = partitions_per_owner_max
        self._sessions: dict[int, FetchSession] = {}
        self.partition_count = 0
        """Partitions in all sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(
        self,
        session_id: int,
        session_epoch: int,
        partitions: Iterable[FetchPartition],
        forgotten: Iterable[Key],
        *,
        by_topic_id: bool,
        fresh_id: int,
        now_ms: int,
        owner: Hashable = None,
    ) -> FetchPlan:
        """Resolve which partitions a request reads; `fresh_id` is a random positive int32 for a session created now.

        now_ms: of a clock that never goes back. owner: the connection.

        Raises ApiError FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
        FETCH_SESSION_TOPIC_ID_ERROR. Source: KIP-227, KIP-516.
        """
        if session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._drop(session_id)
            named = tuple({(p.topic, p.partition): p for p in partitions}.values())
            session = None
            if session_epoch == INITIAL_EPOCH:
                session = self._open(fresh_id, by_topic_id, now_ms, owner, len(named))
            if session is not None:
                session.partitions = {(p.topic, p.partition): p for p in named}
                self.partition_count += len(session.partitions)
            return FetchPlan(named, session, full=True)
        session = self._continue(session_id, session_epoch, by_topic_id, now_ms)
        session.owner = owner
        self._merge(session, partitions, forgotten, now_ms)
        return FetchPlan(tuple(session.partitions.values()), session, full=False)

    def owner_gone(self, owner: Hashable) -> None:
        """A connection has closed. Its sessions are kept until their space is needed; the client may continue them."""
        for session in self._sessions.values():
            if session.owner == owner:
                session.last_used_ms = LONG_AGO_MS

    def _open(
        self, fresh_id: int, by_topic_id: bool, now_ms: int, owner: Hashable, count: int
    ) -> FetchSession | None:
        if fresh_id in self._sessions:
            return None  # a collision of random ids: serve this consumer without a session
        if not self._make_room_of_owner(owner, count):
            return None
        while len(self._sessions) >= self._slots_max or self.partition_count + count > self._partitions_max:
            if not self._evict(now_ms):
                return None
        session = FetchSession(fresh_id, 1, now_ms, by_topic_id, owner)
        self._sessions[fresh_id] = session
        return session

    def _make_room_of_owner(self, owner: Hashable, count: int) -> bool:
        """Drop a connection's oldest sessions to stay within its limit; False if even that is not enough."""
        own = sorted((s for s in self._sessions.values() if s.owner == owner), key=lambda s: s.last_used_ms)
        partitions = sum(len(session.partitions) for session in own)
        for session in own:
            if partitions + count <= self._partitions_per_owner_max:
                break
            partitions -= len(session.partitions)
            self._drop(session.session_id)
        return partitions + count <= self._partitions_per_owner_max

    def _evict(self, now_ms: int) -> bool:
        oldest = min(self._sessions.values(), key=lambda s: s.last_used_ms, default=None)
        if oldest is None or now_ms - oldest.last_used_ms < EVICTION_MS:
            return False
        self._drop(oldest.session_id)
        return True

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.partitions)

    def _continue(self, session_id: int, epoch: int, by_topic_id: bool, now_ms: int) -> FetchSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {session_id}")
        if session.epoch != epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session_id} is at epoch {session.epoch}, the request at {epoch}",
            )
        if session.by_topic_id != by_topic_id:
            raise ApiError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"fetch session {session_id} was opened {'with' if session.by_topic_id else 'without'} topic ids",
            )
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.last_used_ms = now_ms
        return session

    def _merge(
        self, session: FetchSession, named: Iterable[FetchPartition], forgotten: Iterable[Key], now_ms: int
    ) -> None:
        before = len(session.partitions)
        _update(session, named, forgotten)
        self.partition_count += len(session.partitions) - before
        fits = len(session.partitions) <= self._partitions_per_owner_max
        while fits and self.partition_count > self._partitions_max:
            fits = self._evict(now_ms) and session.session_id in self._sessions
        if not fits:
            self._drop(session.session_id)
            raise ApiError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"fetch session {session.session_id} has grown past what the broker keeps; fetch without one",
            )


def _update(session: FetchSession, named: Iterable[FetchPartition], forgotten: Iterable[Key]) -> None:
    for key in forgotten:
        session.partitions.pop(key, None)
    for update in named:
        known = session.partitions.get((update.topic, update.partition))
        if known is None:
            session.partitions[(update.topic, update.partition)] = update
            continue
        known.fetch_offset = update.fetch_offset
        known.max_bytes = update.max_bytes
        known.current_leader_epoch = update.current_leader_epoch
        known.last_fetched_epoch = update.last_fetched_epoch
        known.log_start_offset = update.log_start_offset
        known.last_read = None


def served_last(session: FetchSession, served: Iterable[Key]) -> None:
    """Move partitions that returned data to the end, so that under a byte limit each gets its turn."""
    for key in served:
        partition = session.partitions.pop(key, None)
        if partition is not None:
            session.partitions[key] = partition
