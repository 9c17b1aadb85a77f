"""Answers that a connection owes: those of requests that wait, while the ones behind them are handled already.

A produce request with acks=all waits until its followers have fetched. If the next one began only then, a producer would
get one request done in the time that replication takes, and on a busy machine it would fall behind for good, since
librdkafka sends a request for each partition. So the next requests of the same kind are begun meanwhile. Their answers
leave in the order of the requests all the same: an answer waits here for those before it.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

T = TypeVar("T")

ANSWERS_OWED_MAX: Final = 256
"""With so many answers owed, the connection's next request waits."""


class Owed(Generic[T]):
    """One answer. parts: None until it is known."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[T] | None = None) -> None:
        self.parts = parts


class OwedAnswers(deque[Owed[T]], Generic[T]):
    """The answers in the order of their requests; while there are any, the first one is not known."""

    def owe(self) -> Owed[T]:
        """Reserve the place of the answer to the request just handled."""
        owed: Owed[T] = Owed()
        self.append(owed)
        return owed

    def pay(self, owed: Owed[T], parts: list[T]) -> list[T]:
        """The answer is known: what can be sent now, which is nothing while an earlier one is not known."""
        owed.parts = parts
        due: list[T] = []
        while self and (known := self[0].parts) is not None:
            due += known
            self.popleft()
        return due

    @property
    def is_full(self) -> bool:
        """Whether the next request has to wait."""
        return len(self) >= ANSWERS_OWED_MAX
