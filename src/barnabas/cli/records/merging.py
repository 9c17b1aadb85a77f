"""Records of several partitions in the order of their times, while more come."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

HELD_MAX: Final = 20_000
"""Records of one partition that are held while another one is waited for; then it is read no further."""
HELD_FEW: Final = 5_000

Key = tuple[str, int]


@dataclass(slots=True)
class TimeMerge:
    """Holds a record back as long as a partition that has more might have an older one.

    Within a partition records keep their order, whatever their times. Partitions at their end hold nobody back: what comes
    late there comes when it comes.
    """

    _waiting: dict[Key, deque[Any]] = field(default_factory=dict)
    _heads: list[tuple[int, str, int]] = field(default_factory=list)
    _at_end: set[Key] = field(default_factory=set)

    def add(self, messages: Iterable[Any]) -> None:
        """Takes records as they were read."""
        for message in messages:
            key = (message.topic(), message.partition())
            queue = self._waiting.setdefault(key, deque())
            queue.append(message)
            self._at_end.discard(key)
            if len(queue) == 1:
                heapq.heappush(self._heads, (message.timestamp()[1], *key))

    def note_end(self, key: Key) -> None:
        """The partition has nothing more at present."""
        self._at_end.add(key)

    def ready(self, open_keys: Collection[Key], most: int) -> list[Any]:
        """The records, at most so many, that nothing older can come before. open_keys: the partitions that have more."""
        messages: list[Any] = []
        waiting = {key for key in open_keys if not self._waiting.get(key) and key not in self._at_end}
        while self._heads and not waiting and len(messages) < most:
            _, topic, partition = heapq.heappop(self._heads)
            key = (topic, partition)
            queue = self._waiting[key]
            messages.append(queue.popleft())
            if queue:
                heapq.heappush(self._heads, (queue[0].timestamp()[1], *key))
            elif key in open_keys and key not in self._at_end:
                waiting.add(key)
        return messages

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held."""
        return not self._heads

    def full(self) -> set[Key]:
        """The partitions that are to be read no further for a while."""
        return {key for key, queue in self._waiting.items() if len(queue) >= HELD_MAX}

    def few(self, paused: Iterable[Key]) -> set[Key]:
        """Those of them that may be read on."""
        return {key for key in paused if len(self._waiting.get(key, ())) < HELD_FEW}
