"""Sessions with one znode tree over a network: calls take a while, answers are lost, events come late.

The tree itself is an embedded one in memory (coordination/local.py). What is simulated is the way to it: a session can be
cut off, and then nobody knows of a change under way whether it was made; when it is joined again, it is told that it
may have missed events, or that it has ended meanwhile.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from barnabas.coordination.local import LocalStore, LocalTree
from barnabas.coordination.tree import ConnectionLost, Event, EventKind, Result, SessionExpired, Stat
from barnabas.cores.znode_ops import Op
from barnabas.sim.loop import LIFE, Life, SimLoop

T = TypeVar("T")

CALL_S_MAX: Final = 0.002
EVENT_S_MAX: Final = 0.02
SILENCE_S: Final = 0.1
"""After which a call without an answer is given up."""
LATE_ANSWER_CHANCE: Final = 0.2


class SimTree(LocalTree):
    """See the module. Made by `SimTree.begin`, in the place of LocalStore.session."""

    def __init__(
        self, store: LocalStore, session_id: int, loop: SimLoop, life: Life | None, chance: random.Random
    ) -> None:
        super().__init__(store, session_id)
        self.is_cut = False
        self._sim = loop
        self._chance = chance
        self._due_s = 0.0
        self._context = contextvars.Context()
        self._context.run(LIFE.set, life)

    @classmethod
    def begin(cls, store: LocalStore, loop: SimLoop, life: Life | None, chance: random.Random) -> SimTree:
        """A new session of the process `life`."""
        return store.adopt(lambda session_id: cls(store, session_id, loop, life, chance))

    # --- faults ----------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Nothing comes through any more; the session's holder notices a while later."""
        self.is_cut = True
        self._tell(Event(EventKind.DISCONNECTED))

    def join(self) -> None:
        """The tree can be reached again: it says whether the session still lives."""
        self.is_cut = False
        self._tell(Event(EventKind.RECONNECTED if self._lives() else EventKind.EXPIRED))

    @property
    def safe_until_s(self) -> float:
        """A simulated session ends only by a fault; until then it is safe, which is all that a real one promises."""
        return math.inf if self._lives() else -math.inf

    def _lives(self) -> bool:
        try:
            self._store.require_session(self.session_id)
        except SessionExpired:
            return False
        return True

    # --- events ----------------------------------------------------------------------------------------

    def deliver(self, events: Sequence[Event]) -> None:
        if not self.is_cut:
            self._tell(*events)

    def _tell(self, *events: Event) -> None:
        """Later, in the order in which it happened, in the holder's own process."""
        self._due_s = max(self._due_s + 1e-7, self._sim.time() + self._chance.random() * EVENT_S_MAX)
        self._sim.call_at(self._due_s, self._hand_over, events, context=self._context)

    # --- calls -----------------------------------------------------------------------------------------

    async def _ask(self, path: str, call: Callable[[], Awaitable[T]]) -> T:
        """The answer to one call. Raises ConnectionLost; whether what was asked was done is not known then."""
        await asyncio.sleep(self._chance.random() * CALL_S_MAX)
        if not self.is_cut:
            answer = await call()
            if self._chance.random() < LATE_ANSWER_CHANCE:
                await asyncio.sleep(self._chance.random() * EVENT_S_MAX)
            if not self.is_cut:
                return answer
        await asyncio.sleep(SILENCE_S)
        raise ConnectionLost(path, "no answer came")

    async def get(self, path: str) -> tuple[bytes, Stat]:
        return await self._ask(path, lambda: super(SimTree, self).get(path))

    async def exists(self, path: str) -> Stat | None:
        return await self._ask(path, lambda: super(SimTree, self).exists(path))

    async def children(self, path: str) -> list[str]:
        return await self._ask(path, lambda: super(SimTree, self).children(path))

    async def subtree(self, path: str) -> dict[str, tuple[bytes, Stat]]:
        return await self._ask(path, lambda: super(SimTree, self).subtree(path))

    async def multi(self, ops: Sequence[Op]) -> list[Result]:
        return await self._ask("multi", lambda: super(SimTree, self).multi(ops))

    async def close(self) -> None:
        """A session that is cut off lives on until its time is over."""
        if self.is_cut:
            self._watchers.clear()
        else:
            await super().close()
