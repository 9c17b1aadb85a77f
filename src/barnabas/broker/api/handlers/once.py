"""Topics and partitions that a request names more than once are answered only once, as in Kafka."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final, TypeVar

from barnabas.runtime.pace import Pace

TOPIC_TWICE: Final = "the request names this topic more than once"
"""Error text when a change names a topic twice."""
OFFSETS_PER_STEP: Final = 400
"""With how many offsets a group is asked at once; a core takes 15 microseconds to store one. What a request says about more
is stored, or read, in several steps, between which others are served."""

T = TypeVar("T")
P = TypeVar("P")


def once(rows: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    """The rows without duplicates: the last row of each key, at the place of the first."""
    return list({key(row): row for row in rows}.values())


def by_topic(
    topics: Iterable[T],
    key: Callable[[T], Hashable],
    partitions: Callable[[T], Iterable[P]],
    index: Callable[[P], Hashable],
) -> list[tuple[T, list[P]]]:
    """Each topic once, with all partitions that its rows name, each of them once."""
    by_key: dict[Hashable, tuple[T, list[P]]] = {}
    for topic in topics:
        by_key.setdefault(key(topic), (topic, []))[1].extend(partitions(topic))
    return [(topic, once(rows, index)) for topic, rows in by_key.values()]


async def by_topic_in_turns(
    pace: Pace,
    topics: Iterable[T],
    key: Callable[[T], Hashable],
    partitions: Callable[[T], Iterable[P]],
    index: Callable[[P], Hashable],
) -> list[tuple[T, list[P]]]:
    """The same, with rests in between."""
    by_key: dict[Hashable, tuple[T, dict[Hashable, P]]] = {}
    for topic in topics:
        _, rows = by_key.setdefault(key(topic), (topic, {}))
        async for piece in pace.pieces(partitions(topic)):
            rows.update((index(row), row) for row in piece)
    return [(topic, list(rows.values())) for topic, rows in by_key.values()]
