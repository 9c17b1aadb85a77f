"""A running broker and its event loop, which has a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from barnabas.broker.main import loop_factory
from barnabas.broker.server import BrokerServer

T = TypeVar("T")

CALL_TIMEOUT_S: Final = 60


class Inside:
    """The parts of a running broker, for tests of Barnabas itself: other than `Broker`, they may change with any version.

    The broker's parts belong to its thread: look at them and change them by `call` and `wait_for` only.
    """

    def __init__(self, server: BrokerServer) -> None:
        """Start the server. Raises StartError."""
        self.server = server
        self.loop = (loop_factory() or asyncio.new_event_loop)()
        self._thread = threading.Thread(target=self.loop.run_forever, name="barnabas-broker", daemon=True)
        self._thread.start()
        try:
            self.wait_for(server.start())
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """Stop the server cleanly, and end the thread."""
        try:
            self.wait_for(self.server.stop())
        finally:
            self._end()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the broker's loop; returns what it returns."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(CALL_TIMEOUT_S)

    def call(self, work: Callable[[], T]) -> T:
        """Run `work` on the broker's thread, between two turns of its loop."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        return done.result(CALL_TIMEOUT_S)

    def _end(self) -> None:
        # On the broker's own thread, because the caller's thread may run a loop of its own.
        with contextlib.suppress(TimeoutError):
            self.wait_for(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(CALL_TIMEOUT_S)
        self.loop.close()
