"""Writes what looks at clusters have seen into the history, once a minute, in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from barnabas.monitor.history.series import values_of
from barnabas.monitor.history.store import TICK_S, History, HistoryError, Point, Series
from barnabas.monitor.snapshot import Snapshot

log = logging.getLogger("barnabas.monitor")

T = TypeVar("T")
WAITING_MAX: Final = 60
"""Minutes that are kept in memory while the file cannot be written."""
TIDY_EVERY_S: Final = 600


class Recorder:
    """Belongs to one event loop. trouble: why the last minute was not written; None if it was."""

    def __init__(self, folder: Path, size_max_bytes: int) -> None:
        self.trouble: str | None = None
        self._folder = folder
        self._size_max = size_max_bytes
        self._thread = ThreadPoolExecutor(1, "history")
        self._history: History | None = None
        self._last: dict[str, Snapshot] = {}
        self._minute: dict[str, Snapshot] = {}
        self._waiting: deque[tuple[int, dict[Series, float]]] = deque(maxlen=WAITING_MAX)
        self._writing: asyncio.Task[None] | None = None
        self._tidied_s = 0

    async def start(self) -> None:
        """Open the file. Raises HistoryError."""
        self._history = await self._in_thread(lambda: History(self._folder, self._size_max))

    async def stop(self) -> None:
        """Write what waits, and close the file."""
        if self._writing is not None:
            await self._writing
        history, self._history = self._history, None
        if history is not None:
            await self._in_thread(history.close)
        self._thread.shutdown()

    def note(self, cluster: str, seen: Snapshot) -> None:
        """A look at a cluster. The first of each minute is kept."""
        before = self._minute.get(cluster)
        at_s = seen.now_ms // 1000
        if before is not None and at_s // TICK_S == before.now_ms // 1000 // TICK_S:
            return
        self._minute[cluster] = seen
        self._add(at_s - at_s % TICK_S, values_of(cluster, seen, self._last.get(cluster)))
        if seen.brokers:
            self._last[cluster] = seen
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(at_s))

    def _add(self, at_s: int, values: dict[Series, float]) -> None:
        """Values of several clusters in one minute are one entry."""
        if self._waiting and self._waiting[-1][0] == at_s:
            self._waiting[-1][1].update(values)
        else:
            self._waiting.append((at_s, values))

    async def _write(self, now_s: int) -> None:
        history = self._history
        if history is None:
            return
        try:
            while len(self._waiting) > 1 or (self._waiting and self._waiting[0][0] < now_s - TICK_S):
                await self._in_thread(lambda: history.write(*self._waiting[0]))
                self._waiting.popleft()
            if self._waiting:
                # The present minute may get more values of other clusters: it is written now and again with those.
                at_s, values = self._waiting[0]
                whole = dict(values)
                await self._in_thread(lambda: history.write(at_s, whole))
                if self._waiting and len(self._waiting[0][1]) > len(whole):
                    await self._in_thread(lambda: history.write(*self._waiting[0]))
            if now_s - self._tidied_s >= TIDY_EVERY_S:
                self._tidied_s = now_s
                await self._in_thread(lambda: history.tidy(now_s))
        except HistoryError as error:
            if self.trouble is None:
                log.error("the history is not written", extra={"reason": str(error)})
            self.trouble = str(error)
        else:
            self.trouble = None

    async def names(self) -> list[Series]:
        """All series. Raises HistoryError."""
        return await self._with_history(lambda history: history.names())

    async def read(self, wanted: list[Series], since_s: int, until_s: int) -> list[list[Point]]:
        """The values of each series. Raises HistoryError."""
        return await self._with_history(
            lambda history: [history.read(series, since_s, until_s) for series in wanted]
        )

    async def _with_history(self, ask: Callable[[History], T]) -> T:
        history = self._history
        if history is None:
            raise HistoryError("the history is not open")
        return await self._in_thread(lambda: ask(history))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
