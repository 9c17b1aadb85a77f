"""Threads that send large slices of the log, so that the loop can continue and more than one CPU core sends.

`sendfile` of a megabyte takes a few hundred microseconds, during which a loop that called it could serve nobody else; and
much longer if the disk has to be read. With two cores or fewer, the loop sends what is in memory itself, up to a limit.
A sender thread makes only this system call, without the interpreter's lock, until the slice is sent or the socket is full,
and then reports to the loop. It touches nothing else of a connection, and a connection whose slice is being sent keeps its
socket open until the report (docs/INVARIANTS.md, "a socket outlives its sender").
"""

from __future__ import annotations

import asyncio
import os
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.storage.files import FileSlice

if TYPE_CHECKING:
    from collections.abc import Callable

SENDERS_MAX: Final = 4
FEW_CORES: Final = 2
"""With so few cores, a sender thread takes its time from the clients or from the loop: handing slices over and back costs a
tenth to a quarter of the CPU time per byte, and gains nothing."""
LOOP_SENDS_BYTES: Final = 8 << 20
"""How much the loop then sends itself in one turn, which takes it 2 to 8 ms; the rest goes to the threads."""


class Job(NamedTuple):
    """`report(bytes sent, error)` is called on the loop; BlockingIOError means that the socket is full."""

    fd: int
    slice: FileSlice
    report: Callable[[int, Exception | None], None]


class Senders:
    """A few threads, started when first needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._last_fd = -1
        self._of_loop_bytes = LOOP_SENDS_BYTES if (os.cpu_count() or 1) <= FEW_CORES else 0

    def note_large_slice(self, fd: int, item: FileSlice, turn_bytes: int) -> bool:
        """Note that a large slice goes to `fd`, in a turn in which the loop has sent `turn_bytes` of such slices; returns
        whether a thread should send it.

        The loop itself serves a single reader fastest; threads pay off when several connections receive large slices.
        """
        last_fd, self._last_fd = self._last_fd, fd
        if last_fd in (fd, -1):
            return False
        return turn_bytes >= self._of_loop_bytes or not item.is_cached()

    def send(self, job: Job) -> None:
        """Send `job` in one of the threads. Called on the loop."""
        if not self._threads:
            self._start()
        self._jobs.put(job)

    def _start(self) -> None:
        for number in range(min(os.cpu_count() or 1, SENDERS_MAX)):
            thread = threading.Thread(target=self._run, name=f"sender-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            sent, error = send_slice(job.fd, job.slice)
            try:
                self._loop.call_soon_threadsafe(job.report, sent, error)
            except RuntimeError:  # the loop has ended, and the connection as well
                return

    def close(self) -> None:
        """End the threads; slices being sent are finished first."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()


def send_slice(fd: int, item: FileSlice) -> tuple[int, Exception | None]:
    """Send to a non-blocking socket until everything is sent or it accepts no more: (bytes sent, error).

    Every exception goes into the report, so that the thread survives and the connection is not left waiting.
    """
    sent = 0
    try:
        while sent < item.size:
            sent += item.send_to(fd, sent)
    except Exception as error:
        return sent, error
    return sent, None
