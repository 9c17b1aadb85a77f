"""Requests that took long, with the parts of their time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

SLOW_US: Final = 100_000
"""Requests that take at least so long, apart from what they were asked to wait, are kept as slow."""
WAITING_APIS: Final = frozenset(
    {"FetchConsumer", "FetchFollower", "JoinGroup", "SyncGroup", "ShareFetch", "ConsumerGroupHeartbeat"}
)
"""Requests that may wait as long as their sender wants (for records, for other members): that does not make them slow."""
TOPICS_MAX: Final = 5


class SlowRequest(NamedTuple):
    """One slow request. when_s: the end of it, since the epoch. The parts are those of Kafka's RequestMetrics, in ms."""

    when_s: float
    request: str
    client_id: str
    peer: str
    topics: tuple[str, ...]
    total_ms: float
    queue_ms: float
    local_ms: float
    remote_ms: float
    throttle_ms: float
    response_queue_ms: float
    response_send_ms: float

    @classmethod
    def of(cls, request: str, connection: Any, about: Any, *parts_us: int) -> SlowRequest:
        """connection: of its sender. about: the request, or the names of its topics."""
        topics = about if isinstance(about, tuple) else topics_of(about)
        client = connection.client_id or ""
        return cls(time.time(), request, client, connection.peer, topics, *(us / 1000 for us in parts_us))


def topics_of(request: Any) -> tuple[str, ...]:
    """The first topics that a request names; ids of topics where it has no names."""
    rows: Sequence[Any] = ()
    for name in ("topic_data", "topics"):
        rows = getattr(request, name, None) or rows
    names = []
    for row in rows[:TOPICS_MAX]:
        if isinstance(row, str):
            names.append(row)
            continue
        about = getattr(row, "name", None) or getattr(row, "topic", None) or getattr(row, "topic_id", None)
        if about is not None:
            names.append(str(about))
    return tuple(names)
