"""An event loop in a thread of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class LoopThread:
    """Runs coroutines for any thread. The loop starts with the first coroutine and ends with `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result, or its error. An interrupt of the caller cancels it."""
        future = self.start(coroutine)
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError("the admin was closed while a request was under way") from None
        except BaseException:
            future.cancel()
            raise

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """The coroutine's result to come; its errors are the future's."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._running())

    def close(self) -> None:
        """Stop the loop. What is still under way is cancelled."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                # A daemon: a program that forgets to close an admin still ends.
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name="barnabas-admin", daemon=True
                )
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(_cancel_others())
    finally:
        loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Family(Generic[A_co]):
    """The blocking side of one family: `blocking` methods that run those of `asynchronous` in the thread."""

    def __init__(self, thread: LoopThread, asynchronous: A_co) -> None:
        self.thread = thread
        self.asynchronous = asynchronous


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Family[A], P], T]:
    """The same method for callers without an event loop: it returns when the request is answered."""

    def run(self: Family[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.thread.run(method(self.asynchronous, *args, **kwargs))

    run.__name__, run.__doc__ = method.__name__, method.__doc__
    run.__wrapped__ = method  # type: ignore[attr-defined]  # for `help` and `inspect.signature`
    return run
