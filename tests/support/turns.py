"""How long the turns of a broker's loop are: goal 20 ms, however much one request or timer has to do.

    with Broker() as broker, measured(broker) as turns:
        ...
    assert turns.longest_cpu_ms < 20

The processor time of the loop's own thread is what counts: on a busy machine a turn may take any time by the clock.
What blocks (an fsync) shows in `longest_ms` only.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from barnabas.testing import Broker


class Turns:
    """Looks at the clock once in every turn of one loop; the loop does not sleep meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.longest_ms = 0.0
        self.longest_cpu_ms = 0.0
        self.count = 0
        self._loop = loop
        self._ends = False
        self._then_s = self._then_cpu_s = 0.0

    def start(self) -> None:
        """Begin; on the loop's thread."""
        self._then_s, self._then_cpu_s = time.monotonic(), time.thread_time()
        self._loop.call_soon(self._look)

    def stop(self) -> None:
        """End; on the loop's thread."""
        self._ends = True

    def _look(self) -> None:
        now_s, cpu_s = time.monotonic(), time.thread_time()
        self.longest_ms = max(self.longest_ms, (now_s - self._then_s) * 1000)
        self.longest_cpu_ms = max(self.longest_cpu_ms, (cpu_s - self._then_cpu_s) * 1000)
        self._then_s, self._then_cpu_s = now_s, cpu_s
        self.count += 1
        if not self._ends:
            self._loop.call_soon(self._look)


class LockHolds:
    """For how long other threads hold the interpreter's lock at a time, as the processor time of the one that held it.

    A thread wants the lock once a millisecond. While it waits, one thread at a time runs Python's code; the processor time
    that a thread has used until this one got the lock is what it held the lock for, and not less.
    """

    def __init__(self) -> None:
        self.longest_cpu_ms = 0.0
        self._ends = False
        self._thread = threading.Thread(target=self._look, name="lock holds")

    def _look(self) -> None:
        me = threading.get_ident()
        then: dict[int, float] = {}
        while not self._ends:
            now = {}
            for thread in threading.enumerate():
                if thread.ident is not None and thread.ident != me:
                    with suppress(OSError):  # it has just ended
                        now[thread.ident] = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
            for ident, cpu_s in now.items():
                held_ms = (cpu_s - then.get(ident, cpu_s)) * 1000
                self.longest_cpu_ms = max(self.longest_cpu_ms, held_ms)
            then = now
            time.sleep(0.001)

    def __enter__(self) -> LockHolds:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends = True
        self._thread.join()


@contextmanager
def measured(broker: Broker) -> Iterator[Turns]:
    """The turns of a broker of `barnabas.testing` while the block runs."""
    turns = Turns(broker.inside.loop)
    broker.inside.call(turns.start)
    try:
        yield turns
    finally:
        broker.inside.call(turns.stop)
