"""Accepting connections, with bounds on how many there are: of one address, of all, and of TLS handshakes under way.

asyncio's own server bounds neither: a peer that connects and says nothing costs a socket, and some 50 KiB where the
service speaks TLS. A handshake counts as a connection of its address from the first moment. What a connection may cost
once it is made is `LimitedConnection`'s matter.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

log = logging.getLogger("barnabas.http")

HANDSHAKE_S: Final = 15.0
HANDSHAKES_FAIR: Final = 500
"""Above which unfinished handshakes are cut after HANDSHAKE_S_FAIR."""
HANDSHAKE_S_FAIR: Final = 2.0
ACCEPTS_PER_TURN: Final = 64
REST_S: Final = 1.0
"""How long nobody is accepted after the system has refused it; also the least time between two lines about one matter."""


FILES_SHARE: Final = 8
"""Connections of one service take at most this part of the files that the process may open: others need some as well."""
CONNECTIONS_MIN: Final = 64


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections a service has at a time: altogether, and of one address."""

    connections: int = 5_000
    per_address: int = 1_000

    def within(self, files_max: int) -> ConnectionLimits:
        """The same where a process may open so many files."""
        room = max(files_max // FILES_SHARE, CONNECTIONS_MIN)
        return ConnectionLimits(min(self.connections, room), min(self.per_address, room))


class _Handshake(NamedTuple):
    """A connection that is being made. sock: ours as long as it is. release: gives its place to another."""

    sock: socket.socket
    address: str
    begun_s: float
    release: Callable[[], None]


class Acceptor:
    """The connections of one socket that listens. make: (called when the connection has ended) -> its protocol.

    Has what uvicorn asks of a server: `close`, `wait_closed`.
    """

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[Callable[[], None]], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        limits: ConnectionLimits,
    ) -> None:
        self._listener = listener
        self._make = make
        self._tls = tls
        self._limits = limits.within(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._loop = asyncio.get_running_loop()
        self._counts: Counter[str] = Counter()
        """By address: connections and handshakes."""
        self._handshakes: dict[asyncio.Task[None], _Handshake] = {}
        """Of TLS, in the order in which they began."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._said_s: dict[str, float] = {}
        listener.setblocking(False)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Accept nobody any more, and drop those who are not in yet."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for handshake in self._handshakes.values():
            _cut(handshake.sock)

    async def wait_closed(self) -> None:
        """Returns once nobody is being let in any more."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    # --- accepting -------------------------------------------------------------------------------------

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error(
                    "no connection can be accepted for now; raise the limit of open files (ulimit -n) if this goes on",
                    extra={"reason": str(error), "connections": self._counts.total()},
                )
                self._loop.remove_reader(self._listener)
                self._loop.call_later(REST_S, self._accept_again)
                return
            if not self._has_room(peer[0]):
                sock.close()
                continue
            sock.setblocking(False)
            self._begin(sock, peer[0])

    def _accept_again(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener, self._accept)

    def _has_room(self, address: str) -> bool:
        """Whether one more may come. The oldest handshake makes room where there is none."""
        if self._counts[address] >= self._limits.per_address:
            self._say(
                "connection refused: its address has too many",
                {"peer": address, "connections": self._counts[address]},
            )
            return False
        now_s = self._loop.time()
        while self._handshakes:
            oldest = next(iter(self._handshakes))
            is_full = self._counts.total() >= self._limits.connections
            is_late = now_s - self._handshakes[oldest].begun_s > HANDSHAKE_S_FAIR
            if not is_full and not (is_late and len(self._handshakes) >= HANDSHAKES_FAIR):
                return True
            self._say(
                "a TLS handshake was cut: it is the oldest, and many others are unfinished",
                {"peer": self._handshakes[oldest].address, "handshakes": len(self._handshakes)},
            )
            self._drop(oldest)
        if self._counts.total() < self._limits.connections:
            return True
        self._say(
            "connection refused: there are too many", {"peer": address, "connections": self._counts.total()}
        )
        return False

    def _say(self, text: str, fields: dict[str, object]) -> None:
        """A line of the log; in a flood one each second."""
        now_s = self._loop.time()
        if now_s - self._said_s.get(text, -REST_S) >= REST_S:
            self._said_s[text] = now_s
            log.warning(text, extra=fields)

    # --- one connection --------------------------------------------------------------------------------

    def _begin(self, sock: socket.socket, address: str) -> None:
        self._counts[address] += 1
        release = partial(self._release, address, [])
        task = self._loop.create_task(self._let_in(sock, address, release))
        self._tasks.add(task)
        if self._tls is not None:
            self._handshakes[task] = _Handshake(sock, address, self._loop.time(), release)
        task.add_done_callback(self._end)

    async def _let_in(self, sock: socket.socket, address: str, release: Callable[[], None]) -> None:
        """Make a connection of an accepted socket. Only TLS takes time."""
        try:
            await self._loop.connect_accepted_socket(
                partial(self._make, release),
                sock,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_S,
            )
        except BaseException as error:
            release()
            sock.close()
            if not isinstance(error, OSError):  # ssl.SSLError and TimeoutError are some
                raise
            log.debug("no TLS with a client", extra={"peer": address, "reason": str(error)})

    def _release(self, address: str, done: list[bool]) -> None:
        """A connection has ended, or was not made. It may be said twice; done: not empty then."""
        if done:
            return
        done.append(True)
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]

    def _drop(self, task: asyncio.Task[None]) -> None:
        """End a handshake; it counts no more from now on."""
        handshake = self._handshakes.pop(task)
        handshake.release()
        _cut(handshake.sock)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._handshakes.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            log.error("a connection met a bug", exc_info=task.exception())


def _cut(sock: socket.socket) -> None:
    """The loop sees the end of the stream, and closes what it has made of the socket."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
