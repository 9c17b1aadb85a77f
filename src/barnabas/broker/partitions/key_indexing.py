"""Builds key indexes (`barnabas.key.index`) in the background: of closed segments wholly, of active ones as they grow.

Reading and hashing run in a thread, one segment at a time and a few megabytes per step, with pauses as long as the work;
what was built is added to the file on the loop, which owns the logs.
"""

from __future__ import annotations

import asyncio
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from barnabas.broker.partitions.cleaning import finished
from barnabas.runtime.pace import Pace
from barnabas.storage.logs.log import Log
from barnabas.storage.segments.key_index import SECRET_BYTES, STRETCH_BYTES, Builder, Built
from barnabas.storage.segments.segment import Segment

if TYPE_CHECKING:
    from barnabas.runtime.clock import Clock
    from barnabas.storage.dirs.log_manager import LogManager

log = logging.getLogger("barnabas.key_index")

PAUSE_S: Final = 2.0
STEP_BYTES: Final = 4 * STRETCH_BYTES


class KeyIndexing:
    """The task of one broker."""

    def __init__(self, logs: LogManager, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock
        self._pool: ThreadPoolExecutor | None = None
        self._task: asyncio.Task[None] | None = None
        self._failed: set[str] = set()

    def start(self) -> None:
        """Begin; the thread is started when it is needed."""
        self._pool = ThreadPoolExecutor(1, "key-index")
        self._task = asyncio.ensure_future(self._keep_building())

    async def stop(self) -> None:
        """Stop between two steps."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._pool is not None:
            self._pool.shutdown()

    async def _keep_building(self) -> None:
        while True:
            try:
                worked = await self.build_once()
            except Exception:
                log.exception("building key indexes met a bug; it is tried again")
                worked = False
            await asyncio.sleep(0 if worked else PAUSE_S)

    async def build_once(self) -> bool:
        """One step for each segment that needs one; False if none did."""
        worked = False
        async for piece in Pace(self._clock).pieces(list(self._logs.logs.values())):
            for indexed in piece:
                if indexed.config.barnabas_key_index:
                    worked = await self._build(indexed) or worked
        return worked

    async def _build(self, indexed: Log) -> bool:
        """One step for each segment of a log that needs one; False if none did."""
        worked = False
        segments = indexed.segments
        for segment, is_active in [(segment, segment is segments[-1]) for segment in segments]:
            if not _is_due(segment, is_active) or segment not in indexed.segments:
                continue
            try:
                worked = await self._step(segment, is_active) or worked
                self._failed.discard(indexed.folder)
            except FileNotFoundError:
                pass  # retention, compaction or a deletion has taken it meanwhile
            except OSError as error:
                if indexed.folder not in self._failed:
                    self._failed.add(indexed.folder)
                    log.error(
                        "key index cannot be built, and is tried again",
                        extra={"log": indexed.name, "reason": str(error)},
                    )
        return worked

    async def _step(self, segment: Segment, is_active: bool) -> bool:
        """Build and add some stretches of a segment; False if there was nothing to add. Raises OSError."""
        loop = asyncio.get_running_loop()
        index, size = segment.key_index, segment.size_bytes
        generation, began_s = index.generation, loop.time()
        work = loop.run_in_executor(self._pool, _build, segment, size, not is_active)
        await finished(work)
        secret, built, is_stuck = work.result()
        index.append(built, generation, secret)
        if is_stuck and generation == index.generation:
            index.stuck_at = index.covered
        await asyncio.sleep(loop.time() - began_s)
        return bool(built)


def _is_due(segment: Segment, is_active: bool) -> bool:
    """Whether there is a stretch to build; of an active segment only whole ones are built."""
    index = segment.key_index
    left = segment.size_bytes - index.covered
    return left > (STRETCH_BYTES if is_active else 0) and index.stuck_at != index.covered


def _build(segment: Segment, size: int, whole: bool) -> tuple[bytes, list[Built], bool]:
    """(secret of the file, stretches, whether the log cannot be read further). Called in the thread. Raises OSError."""
    index = segment.key_index
    index.load(size)
    start = index.covered
    secret = index.secret or os.urandom(SECRET_BYTES)
    if start >= size:
        return secret, [], False
    end = min(start + STEP_BYTES, size)
    builder = Builder(segment.open(), start, end, secret)
    built = builder.build(whole=whole and end == size)
    if not built and end < size:
        # One batch is larger than a step.
        builder = Builder(segment.open(), start, size, secret)
        built = builder.build(whole=whole)
    return secret, built, builder.is_stuck or (whole and not built)
