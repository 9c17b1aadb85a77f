"""An event loop whose time is simulated: when nothing is ready, it jumps to the next timer.

Everything runs in one thread: what is given to an executor runs on the loop as well, a while later, and takes a
while; both are drawn from the seed. So the same seed gives the same order of everything.

Every callback belongs to the process ("life") in whose context it was made. A process that is killed takes its
callbacks, tasks and timers with it, and those of all others go on: that is how several brokers share one loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

TURN_S: Final = 20e-6
"""What a turn of the loop takes at least, so that a loop that spins gets on in time."""
EXECUTOR_WAIT_S_MAX: Final = 0.002
TURNS_MAX: Final = 200_000


class Stuck(Exception):
    """Nothing is left that could ever happen, or the loop spins without an end."""


class Killed(BaseException):
    """Raised in the middle of a process that ends here; nothing after it may have an effect."""


class Life:
    """One run of a simulated process."""

    __slots__ = ("alive", "name", "pauses", "stopped", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.pauses = 0
        """How many reasons it has to stand still; see SimLoop.pause."""
        self.stopped: list[asyncio.Handle] = []
        """What it would have done meanwhile, in order."""


LIFE: Final[contextvars.ContextVar[Life | None]] = contextvars.ContextVar("life", default=None)
NOBODY: Final = contextvars.Context()
"""The context of what no process does: the network, faults."""


class Poller(Protocol):
    """What can be ready beside timers: the network."""

    def ready(self) -> list[asyncio.Handle]:
        """The callbacks of descriptors that can be read or written now."""

    def add_reader(self, fd: int, handle: asyncio.Handle) -> None: ...
    def add_writer(self, fd: int, handle: asyncio.Handle) -> None: ...
    def remove_reader(self, fd: int) -> bool: ...
    def remove_writer(self, fd: int) -> bool: ...


class SimLoop(asyncio.BaseEventLoop):
    """See the module. `poller` is set by the network that is made on the loop."""

    poller: Poller

    _ready: Any
    _scheduled: list[Any]

    def __init__(self, chance: random.Random, turns_max: int = TURNS_MAX) -> None:
        """turns_max: after so many turns the simulation is taken to go round in circles."""
        super().__init__()
        self._turns_max = turns_max
        self._chance = chance
        self._now_s = 0.0
        self.turns = 0
        self.in_executor = False
        """Whether what runs now runs in an executor's thread."""
        self._executor_s = 0.0
        self._clock_resolution = 1e-9
        self.paused = 0
        """How many pauses are under way."""
        self.failures: list[dict[str, Any]] = []
        """What reached the loop: exceptions that a callback or a forgotten task raised."""
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note_failure)

    # --- time ------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now_s

    def spend(self, seconds: float) -> None:
        """What runs now takes this long: the loop stands still meanwhile, or the executor's thread is busy."""
        if self.in_executor:
            self._executor_s += seconds
        else:
            self._now_s += seconds

    # --- turns -----------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        self.turns += 1
        if self.turns > self._turns_max:
            raise Stuck(f"{self._turns_max} turns of the loop, and no end")
        ready, scheduled = self._ready, self._scheduled
        ready.extend(self.poller.ready())
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        if not ready:
            if not scheduled:
                raise Stuck("nothing is left that could happen")
            self._now_s = max(self._now_s, scheduled[0]._when)
        while scheduled and scheduled[0]._when <= self._now_s:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            if not handle._cancelled:
                ready.append(handle)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            life = handle._context.get(LIFE)
            if life is None or (life.alive and not life.pauses):
                handle._run()
            elif life.alive:
                life.stopped.append(handle)
        self._now_s += TURN_S

    def _process_events(self, event_list: Any) -> None:
        raise AssertionError("the poller is asked instead")

    def _write_to_self(self) -> None:
        pass

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    # --- descriptors -----------------------------------------------------------------------------------

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., Any], *args: Any
    ) -> None:
        self.poller.add_reader(fd, asyncio.Handle(callback, args, self, None))

    def add_writer(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., Any], *args: Any
    ) -> None:
        self.poller.add_writer(fd, asyncio.Handle(callback, args, self, None))

    def remove_reader(self, fd: Any) -> bool:
        return self.poller.remove_reader(fd)

    def remove_writer(self, fd: Any) -> bool:
        return self.poller.remove_writer(fd)

    # --- executors -------------------------------------------------------------------------------------

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run `func` a while later, in one piece; its result arrives after the time that it spent."""
        future: asyncio.Future[T] = self.create_future()
        self.call_later(self._chance.random() * EXECUTOR_WAIT_S_MAX, self._run_work, future, func, args)
        return future

    def _run_work(self, future: asyncio.Future[T], func: Callable[..., T], args: Any) -> None:
        # As in a thread: no loop runs here.
        asyncio._set_running_loop(None)
        self.in_executor, self._executor_s = True, 0.0
        result: T
        error: BaseException | None = None
        try:
            result = func(*args)
        except Exception as raised:
            error = raised
        finally:
            self.in_executor = False
            asyncio._set_running_loop(self)

        def deliver() -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self._executor_s + self._chance.random() * EXECUTOR_WAIT_S_MAX, deliver)

    # --- processes -------------------------------------------------------------------------------------

    def spawn(self, life: Life | None, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task of the process `life`."""
        context = contextvars.copy_context()
        context.run(LIFE.set, life)
        return self.create_task(work, context=context)

    def end(self, life: Life) -> None:
        """End a process without letting it do anything more. Not to be called from within it."""
        life.alive = False
        for task in list(life.tasks):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine: Any = task.get_coro()
            try:
                coroutine.close()
            except BaseException:
                pass  # what it meets on its way out has no effect any more
        life.tasks.clear()

    def pause(self, life: Life, seconds: float) -> None:
        """The process stands still for so long, as after SIGSTOP, or when a disk keeps it waiting; what comes in waits."""
        life.pauses += 1
        self.paused += 1
        self.call_later(seconds, self._resume, life, context=NOBODY)

    def _resume(self, life: Life) -> None:
        life.pauses -= 1
        self.paused -= 1
        if not life.pauses:
            self._ready.extend(life.stopped)
            life.stopped.clear()

    def _make_task(self, loop: Any, work: Any, context: Any = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context)
        life = context.get(LIFE) if context is not None else LIFE.get()
        if life is not None:
            life.tasks[task] = None
            task.add_done_callback(lambda done: life.tasks.pop(done, None))
        return task

    def _note_failure(self, loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Killed | GeneratorExit):
            return
        self.failures.append(context)
