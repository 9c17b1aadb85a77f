"""Fetch sessions (KIP-227): what an incremental fetch leaves unsaid, remembered.

A session holds the partitions that a consumer follows, so that its next requests name only what changed
and its answers hold only what is new. Pure: the id of a new session and the time arrive as arguments.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final

from barnabas.wire.errors import ApiError, ErrorCode

FINAL_EPOCH: Final = -1
"""Session epoch of a request that wants no session, or ends the one it names."""
INITIAL_EPOCH: Final = 0
EPOCH_MAX: Final = (1 << 31) - 1
EVICTION_MS: Final = 120_000
"""A session used within this time is not thrown out for a new one."""

TopicRef = Hashable
"""A topic as the request names it: a str before version 13, a UUID from then on."""
Key = tuple[TopicRef, int]


@dataclass(slots=True)
class FetchPartition:
    """What a consumer asks of one partition, and what it was told last."""

    topic: TopicRef
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    told_high_watermark: int = -1
    told_log_start_offset: int = -1


@dataclass(slots=True)
class FetchSession:
    session_id: int
    epoch: int
    last_used_ms: int
    by_topic_id: bool
    partitions: dict[Key, FetchPartition] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class FetchPlan:
    """Which partitions one request reads, in order, and how it is answered."""

    partitions: tuple[FetchPartition, ...]
    session: FetchSession | None
    full: bool
    """A full answer names every partition; an incremental one only those that have something new."""


class SessionCache:
    """The sessions of one shard; at most `slots_max` of them."""

    def __init__(self, slots_max: int) -> None:
        self._slots_max = slots_max
        self._sessions: dict[int, FetchSession] = {}

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
    ) -> FetchPlan:
        """Resolve what a request means; `fresh_id` is a random positive int32 for a session made now.

        Raises ApiError FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
        FETCH_SESSION_TOPIC_ID_ERROR. Source: KIP-227, KIP-516.
        """
        if session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._sessions.pop(session_id, None)
            named = tuple(partitions)
            session = None
            if session_epoch == INITIAL_EPOCH and named:
                session = self._open(fresh_id, by_topic_id, now_ms)
            if session is not None:
                session.partitions = {(p.topic, p.partition): p for p in named}
            return FetchPlan(named, session, full=True)
        session = self._continue(session_id, session_epoch, by_topic_id, now_ms)
        self._merge(session, partitions, forgotten)
        return FetchPlan(tuple(session.partitions.values()), session, full=False)

    def _open(self, fresh_id: int, by_topic_id: bool, now_ms: int) -> FetchSession | None:
        if fresh_id in self._sessions:
            return None  # a clash of random ids: this consumer is served without a session
        if len(self._sessions) >= self._slots_max and not self._evict(now_ms):
            return None
        session = FetchSession(fresh_id, 1, now_ms, by_topic_id)
        self._sessions[fresh_id] = session
        return session

    def _evict(self, now_ms: int) -> bool:
        oldest = min(self._sessions.values(), key=lambda s: s.last_used_ms, default=None)
        if oldest is None or now_ms - oldest.last_used_ms < EVICTION_MS:
            return False
        del self._sessions[oldest.session_id]
        return True

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

    @staticmethod
    def _merge(session: FetchSession, named: Iterable[FetchPartition], forgotten: Iterable[Key]) -> None:
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


def served_last(session: FetchSession, served: Iterable[Key]) -> None:
    """Move partitions that got data to the end, so that under a byte limit each gets its turn."""
    for key in served:
        partition = session.partitions.pop(key, None)
        if partition is not None:
            session.partitions[key] = partition
