"""The other processes of `barnabas start --workers N`: the first process starts them, and restarts those that end.

A worker ends when its standard input is closed, so that none outlives the first process, whatever happens to that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

log = logging.getLogger("barnabas.workers")

RESTART_PAUSE_S: Final = 1.0
STOP_TIMEOUT_S: Final = 60.0
READY: Final = b"ready"


class WorkerFailed(Exception):
    """A worker ended before it was ready; the reason is on standard error."""


class _Worker:
    def __init__(self, number: int, command: Sequence[str]) -> None:
        self.number = number
        self.process: asyncio.subprocess.Process | None = None
        self._command = command

    async def begin(self) -> None:
        """Start it and wait until it is ready. Raises WorkerFailed, OSError."""
        self.process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C goes only to the first process, which stops the others
        )
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if not line.startswith(READY):
            raise WorkerFailed(f"worker {self.number} ended with exit code {await self.process.wait()}")

    async def keep(self) -> None:
        """Restart it whenever it ends."""
        while True:
            assert self.process is not None
            code = await self.process.wait()
            log.error(
                "a worker has ended; it is started again", extra={"worker": self.number, "exit_code": code}
            )
            await asyncio.sleep(RESTART_PAUSE_S)
            with contextlib.suppress(WorkerFailed, OSError):
                await self.begin()
                log.info("the worker serves again", extra={"worker": self.number})

    async def end(self) -> None:
        if self.process is None or self.process.returncode is not None:
            return
        self.process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self.process.wait()
        except TimeoutError:
            log.error("a worker does not stop and is killed", extra={"worker": self.number})
            self.process.kill()
            await self.process.wait()


class Workers:
    """Call `start`, and `stop` at the end."""

    def __init__(self, commands: Sequence[Sequence[str]]) -> None:
        """commands: the command lines of workers 2, 3 and so on."""
        self._workers = [_Worker(number, command) for number, command in enumerate(commands, 2)]
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def count(self) -> int:
        """How many there are besides this process."""
        return len(self._workers)

    async def start(self) -> None:
        """Start all and wait until they are ready. Raises WorkerFailed, OSError; then none is left running."""
        try:
            await asyncio.gather(*(worker.begin() for worker in self._workers))
        except BaseException:
            await self.stop()
            raise
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(worker.keep()) for worker in self._workers]

    async def stop(self) -> None:
        """Stop all at the same time: they need not hand over their partitions, since all of them stop."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(worker.end() for worker in self._workers))


def call_when_input_ends(function: Callable[[], None]) -> None:
    """For a worker: call `function` once when the first process is gone."""
    loop = asyncio.get_running_loop()

    def look() -> None:
        with contextlib.suppress(BlockingIOError, InterruptedError):
            try:
                ended = not open_input.read(4096)
            except OSError:
                ended = True
            if ended:
                loop.remove_reader(0)
                function()

    open_input = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115  # open as long as the process
    loop.add_reader(0, look)
