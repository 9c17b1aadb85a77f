"""What all receivers have in common: a thread with an event loop, addresses, waiting for room in the spool."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from barnabas.agent.spool import Spool, SpoolFull
from barnabas.terminal.errors import CliError
from barnabas.terminal.output import note

Event = dict[str, Any]
FULL_SECONDS: Final = 0.5
AGAIN_SECONDS: Final = 5.0
CONNECTIONS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM. authority: senders must have a certificate that it has signed; empty: anybody may send."""

    certificate: str
    key: str
    authority: str = ""

    def context(self) -> ssl.SSLContext:
        """For a listener. Raises CliError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key)
            if self.authority:
                context.load_verify_locations(self.authority)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError) as error:
            raise CliError(f"cannot read {self.certificate} and {self.key}: {error}") from None
        return context


@dataclass(slots=True, eq=False)
class Receiver(ABC):
    """Receives in a thread of its own, and begins again after a failure."""

    spool: Spool
    who: str
    trouble: str = ""
    ended: bool = False
    """Nothing more will come: the end of standard input."""
    senders: set[asyncio.Task[None]] = field(default_factory=set)
    """What serves the connections of senders."""
    _loop: asyncio.AbstractEventLoop | None = None
    _task: asyncio.Task[None] | None = None
    _thread: threading.Thread | None = None
    _stopped: threading.Event = field(default_factory=threading.Event)

    @abstractmethod
    async def receive(self) -> None:
        """Receive until cancelled. Raises OSError, CliError."""

    def start(self) -> None:
        """Begin to receive."""
        self.spool.open()
        self._thread = threading.Thread(target=self._work, name=f"receiver {self.who}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Receive no more."""
        self._stopped.set()
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)
        if self._thread is not None:
            self._thread.join(10)
        self.spool.close()

    def _work(self) -> None:
        while not self._stopped.is_set() and not self.ended:
            try:
                asyncio.run(self._once(self.receive()))
                self.trouble = ""
            except (OSError, CliError) as error:
                reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
                if reason != self.trouble:
                    note(f"{self.who}: {reason}; trying again")
                self.trouble = reason
                self._stopped.wait(AGAIN_SECONDS)

    async def _once(self, receiving: Coroutine[Any, Any, None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(receiving)
        if self._stopped.is_set():
            self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def serve(
        self,
        serve_one: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]],
        where: str,
        tls: Tls | None,
    ) -> asyncio.Server:
        """Listen at HOST:PORT; senders beyond CONNECTIONS_MAX are sent away. Raises OSError, CliError."""
        senders: set[asyncio.Task[None]] = self.senders

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await serve_one(reader, writer)
            finally:
                writer.close()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(senders) >= CONNECTIONS_MAX:
                writer.close()
                return
            task = asyncio.get_running_loop().create_task(connected(reader, writer))
            senders.add(task)
            task.add_done_callback(senders.discard)

        host, port = address(where)
        context = None if tls is None else tls.context()
        return await asyncio.start_server(accept, host, port, ssl=context)

    async def keep(self, events: list[Event]) -> None:
        """Write events to the spool, as soon as there is room."""
        await self._when_there_is_room(lambda: self.spool.write(events))

    async def keep_lines(self, lines: list[bytes]) -> None:
        """Write lines to the spool, as they are, as soon as there is room."""
        await self._when_there_is_room(lambda: self.spool.write_lines(lines))

    async def _when_there_is_room(self, write: Callable[[], None]) -> None:
        while True:
            try:
                await asyncio.to_thread(write)
            except SpoolFull:
                if not self.trouble:
                    self.trouble = "the spool is full; senders wait"
                    note(f"{self.who}: {self.trouble}")
                await asyncio.sleep(FULL_SECONDS)
            else:
                self.trouble = ""
                return


def now_text() -> str:
    """The time now, as events have it."""
    return time_text(datetime.now(UTC))


def time_text(time: datetime) -> str:
    """A time in UTC as events have it."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def address(text: str) -> tuple[str, int]:
    """HOST:PORT. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535:
        raise ValueError(text)
    return host.strip("[]") or "0.0.0.0", int(port)
