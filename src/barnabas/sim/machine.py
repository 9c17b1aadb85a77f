"""Clock, randomness and threads of a simulated process."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, Final, TypeVar

from barnabas.sim.loop import SimLoop

T = TypeVar("T")

EPOCH_MS: Final = 1_700_000_000_000
"""The wall-clock time at the beginning of every simulation."""


class SimClock:
    """The clock of one host: it follows the loop's time, but its wall clock may be set to another time."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.wall_ahead_ms = 0

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._loop.time() * 1000) + self.wall_ahead_ms

    def monotonic_ms(self) -> float:
        return self._loop.time() * 1000


class SeededEntropy:
    """Ids that are reproduced by the same seed."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._chance.getrandbits(128), version=4)

    def below(self, limit: int) -> int:
        return self._chance.randrange(limit)

    def secret(self) -> bytes:
        return b"secret"  # no decision depends on it, so it need not consume the seed's random numbers


class SameThread(Executor):
    """A thread pool without threads: work has been done when `submit` returns."""

    def __init__(self, *_: Any) -> None:
        pass

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future

    def map(self, fn: Callable[..., T], *iterables: Iterable[Any], **_: Any) -> Iterator[T]:
        return iter([fn(*args) for args in zip(*iterables, strict=False)])
