"""Runs the log cleaner: `log.cleaner.threads` passes at a time, each over the log that needs it most.

A pass is a sequence of steps. A step's work (reading, copying) runs in a thread; its commit (swapping segments) runs
on the loop, which owns the logs.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from barnabas.config import broker_log

if TYPE_CHECKING:
    from barnabas.config.loader import BrokerConfig
    from barnabas.runtime.clock import Clock
    from barnabas.storage.dirs.log_manager import LogManager

log = logging.getLogger("barnabas.cleaner")

T = TypeVar("T")


class Cleaning:
    """The cleaner threads of one broker."""

    def __init__(self, config: BrokerConfig, logs: LogManager, clock: Clock) -> None:
        self._clock = clock
        self._backoff_s = config.get(broker_log.LOG_CLEANER_BACKOFF_MS) / 1000
        self._threads = config.get(broker_log.LOG_CLEANER_THREADS)
        self._enabled = config.get(broker_log.LOG_CLEANER_ENABLE)
        self.cleaner = logs.new_cleaner(
            dedupe_buffer_bytes=config.get(broker_log.LOG_CLEANER_DEDUPE_BUFFER_SIZE)
            // max(self._threads, 1),
            load_factor=config["log.cleaner.io.buffer.load.factor"],
            io_bytes_per_second=config["log.cleaner.io.max.bytes.per.second"],
        )
        self._pool: ThreadPoolExecutor | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start cleaning, unless `log.cleaner.enable` is false."""
        if not self._enabled or not self._threads:
            return
        self._pool = ThreadPoolExecutor(self._threads, "cleaner")
        self._tasks = [asyncio.ensure_future(self._keep_cleaning()) for _ in range(self._threads)]

    async def stop(self) -> None:
        """Stop between two steps: copied segments that have not been swapped in are dropped."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._pool is not None:
            self._pool.shutdown()

    async def _keep_cleaning(self) -> None:
        while True:
            try:
                if await self.clean_once():
                    continue
            except Exception:
                log.exception("compaction met a bug; it is tried again")
            await asyncio.sleep(self._backoff_s)

    async def clean_once(self) -> bool:
        """Make one pass over the log that needs it most; False when none is due."""
        loop = asyncio.get_running_loop()
        steps = self.cleaner.steps(self._clock.now_ms())
        ran = False
        try:
            for step in steps:
                ran = True
                # Shielded: a step that has begun must end before its files are removed.
                await finished(loop.run_in_executor(self._pool, step.work))
                step.commit()
        finally:
            steps.close()
        return ran


async def finished(work: asyncio.Future[T]) -> None:
    """Wait until `work` has ended, even if this task is cancelled meanwhile."""
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
