"""Topics and partitions that a request names more than once are answered only once, as in Kafka."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final, TypeVar

TOPIC_TWICE: Final = "the request names this topic more than once"
"""Error text when a change names a topic twice."""

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
