"""Runs the moves of partitions between this broker's log dirs (AlterReplicaLogDirs).

A move is a sequence of steps: reading and copying run in a thread; changes of a log run on the loop, which owns
the logs. All moves together keep to `replica.alter.log.dirs.io.max.bytes.per.second`.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from barnabas.broker.partitions.cleaning import finished
from barnabas.config import broker_network, broker_replication
from barnabas.storage.throttle import Throttle

if TYPE_CHECKING:
    from barnabas.config.loader import BrokerConfig
    from barnabas.runtime.clock import Clock
    from barnabas.storage.checkpoints import TopicPartition
    from barnabas.storage.dirs.log_manager import LogManager
    from barnabas.storage.dirs.moving import Move

log = logging.getLogger("barnabas.moving")

PAUSE_S_MAX: Final = 0.2


class Moving:
    """The moves of one broker."""

    def __init__(self, config: BrokerConfig, logs: LogManager, clock: Clock) -> None:
        self._config = config
        self._logs = logs
        self._clock = clock
        self._throttle = Throttle(self._rate())
        threads = config.get(broker_network.NUM_REPLICA_ALTER_LOG_DIRS_THREADS) or len(logs.dirs)
        self._pool = ThreadPoolExecutor(threads, "moving")
        self._tasks: set[asyncio.Task[None]] = set()

    def _rate(self) -> float:
        return max(self._config.get(broker_replication.REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND), 1)

    def _ahead_s(self) -> float:
        rate = self._rate()
        if rate != self._throttle.bytes_per_second:
            self._throttle.set_rate(rate)
        return self._throttle.ahead_s()

    def start(self) -> None:
        """Continue the moves that the last stop has interrupted."""
        for move in list(self._logs.moving.running.values()):
            self._run(move)

    def begin(self, name: TopicPartition, log_dir: str) -> None:
        """Begin to move a partition, and return. Raises StorageError, see Moves.begin."""
        running = self._logs.moving.running.get(name)
        move = self._logs.moving.begin(name, log_dir, self._clock.now_ms())
        if move is not None and move is not running:
            self._run(move)

    def _run(self, move: Move) -> None:
        task = asyncio.ensure_future(self._carry_out(move))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Stop between two steps; the next start continues the moves."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._pool.shutdown()

    async def _carry_out(self, move: Move) -> None:
        loop = asyncio.get_running_loop()
        copied_bytes = 0
        try:
            for step in move.steps(self._clock.now_ms()):
                # Shielded: a step that has begun must end before the logs are closed.
                await finished(loop.run_in_executor(self._pool, step.work))
                step.commit()
                self._throttle.note(move.copied_bytes - copied_bytes)
                copied_bytes = move.copied_bytes
                # Sleep in small steps, to notice a new rate or a cancelled move.
                while (wait_s := self._ahead_s()) > 0 and not (move.cancelled or move.done):  # noqa: ASYNC110
                    await asyncio.sleep(min(wait_s, PAUSE_S_MAX))
        except Exception:
            log.exception("a move met a bug and is called off", extra={"partition": str(move.name)})
            self._logs.moving.cancel(move.name)
