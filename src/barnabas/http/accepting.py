"""Accepts connections, with limits on their number: of one address, of all, and of TLS handshakes in progress.

asyncio's own server limits none of these: a peer that connects and sends nothing costs a socket, and with TLS some 50 KiB.
A handshake counts as a connection of its address from the first moment. When all places of the service, or of one address
(which may be a balancer's, for many clients), are taken, connections that have not sent a request make room. What an
established connection may cost is limited by `LimitedConnection`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from barnabas.open_files import files_allowed

log = logging.getLogger("barnabas.http")

HANDSHAKE_S: Final = 15.0
HANDSHAKES_FAIR: Final = 500
"""When there are more unfinished handshakes, each is cut after HANDSHAKE_S_FAIR."""
HANDSHAKE_S_FAIR: Final = 2.0
SILENCE_S_FAIR: Final = 2.0
"""How long a connection without a request keeps its place if others need it."""
ACCEPTS_PER_TURN: Final = 64
REST_S: Final = 1.0
"""How long to wait after the system has refused to accept a connection; also the least time between two equal log lines."""


FILES_SHARE: Final = 8
"""The connections of one service take at most one in this many of the files that the process may open."""
CONNECTIONS_MIN: Final = 64


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections a service may have at a time: altogether, and from one address."""

    connections: int = 5_000
    per_address: int = 1_000

    def within(self, files_max: int) -> ConnectionLimits:
        """The limits in a process that may open `files_max` files; if these are too few, one address gets at most half."""
        room = max(files_max // FILES_SHARE, CONNECTIONS_MIN)
        if room >= self.connections:
            return self
        return ConnectionLimits(room, min(self.per_address, room // 2))


class Place:
    """The place of one connection, from its handshake on. since_s: when the handshake began, or the connection was made."""

    __slots__ = ("_acceptor", "address", "is_free", "is_kept", "since_s", "sock")

    def __init__(self, acceptor: Acceptor, sock: socket.socket, address: str, since_s: float) -> None:
        self._acceptor = acceptor
        self.sock = sock
        self.address = address
        self.since_s = since_s
        self.is_free = False
        self.is_kept = False

    def keep(self) -> None:
        """A request has arrived: the place will not be given to another connection."""
        if not self.is_kept:
            self.is_kept = True
            self._acceptor.forget(self)

    def release(self) -> None:
        """The connection has ended, or was not made. May be called twice."""
        if not self.is_free:
            self.is_free = True
            self._acceptor.uncount(self)

    def cut(self) -> None:
        """Give the place to another connection. The loop sees the end of the stream, and closes the transport."""
        self.release()
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


class Acceptor:
    """Accepts the connections of one listening socket. make: (place) -> the protocol, which keeps and releases the place.

    Has the methods that uvicorn expects of a server: `close`, `wait_closed`.
    """

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[Place], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        limits: ConnectionLimits,
    ) -> None:
        self._listener = listener
        self._make = make
        self._tls = tls
        self._limits = limits.within(files_allowed())
        if self._limits != limits:
            log.log(
                logging.INFO if limits == ConnectionLimits() else logging.WARNING,
                "fewer connections are accepted than the options allow, since the process may open few files; raise the "
                "limit (ulimit -n)",
                extra={
                    "files": files_allowed(),
                    "connections": self._limits.connections,
                    "of_one_address": self._limits.per_address,
                },
            )
        self._loop = asyncio.get_running_loop()
        self._counts: Counter[str] = Counter()
        """Connections and handshakes, by address."""
        self._handshakes: dict[Place, None] = {}
        """TLS handshakes in progress, in the order in which they began."""
        self._silent: dict[Place, None] = {}
        """Connections without a request so far, in the order in which they were made."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._said_s: dict[str, float] = {}
        listener.setblocking(False)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Stop accepting connections, and cut the unfinished handshakes."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for place in list(self._handshakes):
            place.cut()

    async def wait_closed(self) -> None:
        """Wait until no connection is being established any more."""
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
        """Whether one more connection may be made; if necessary, one without a request is closed for it."""
        self._cut_stalled()
        if self._counts[address] >= self._limits.per_address and not self._make_room(address):
            self._say(
                "connection refused: its address has too many (--max-connections-per-ip)",
                {"peer": address, "connections": self._counts[address]},
            )
            return False
        if self._counts.total() >= self._limits.connections and not self._make_room(None):
            self._say(
                "connection refused: there are too many (--max-connections)",
                {"peer": address, "connections": self._counts.total()},
            )
            return False
        return True

    def _cut_stalled(self) -> None:
        """If many handshakes are unfinished, cut those that have taken too long."""
        until_s = self._loop.time() - HANDSHAKE_S_FAIR
        while len(self._handshakes) >= HANDSHAKES_FAIR:
            oldest = next(iter(self._handshakes))
            if oldest.since_s >= until_s:
                return
            self._cut(oldest)

    def _make_room(self, address: str | None) -> bool:
        """Close the oldest handshake, or else the oldest connection without a request; True if there was one.

        address: only connections from this one; None for all.
        """
        oldest = next((place for place in self._handshakes if address in (None, place.address)), None)
        if oldest is None:
            until_s = self._loop.time() - SILENCE_S_FAIR
            late = itertools.takewhile(lambda place: place.since_s < until_s, self._silent)
            oldest = next((place for place in late if address in (None, place.address)), None)
        if oldest is None:
            return False
        self._cut(oldest)
        return True

    def _cut(self, place: Place) -> None:
        what = "a TLS handshake" if place in self._handshakes else "a connection without a request"
        self._say(
            f"{what} was cut: it is the oldest, and others need its place",
            {"peer": place.address, "handshakes": len(self._handshakes)},
        )
        place.cut()

    def _say(self, text: str, fields: dict[str, object]) -> None:
        """Log a warning; at most one per second with the same text."""
        now_s = self._loop.time()
        if now_s - self._said_s.get(text, -REST_S) >= REST_S:
            self._said_s[text] = now_s
            log.warning(text, extra=fields)

    # --- one connection --------------------------------------------------------------------------------

    def _begin(self, sock: socket.socket, address: str) -> None:
        self._counts[address] += 1
        place = Place(self, sock, address, self._loop.time())
        if self._tls is not None:
            self._handshakes[place] = None
        task = self._loop.create_task(self._let_in(place))
        self._tasks.add(task)
        task.add_done_callback(self._end)

    async def _let_in(self, place: Place) -> None:
        """Establish a connection on an accepted socket. Only TLS takes time."""
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make(place),
                place.sock,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_S,
            )
        except BaseException as error:
            place.release()
            place.sock.close()
            if not isinstance(error, OSError):  # includes ssl.SSLError and TimeoutError
                raise
            log.debug(
                "the TLS handshake with a client failed", extra={"peer": place.address, "reason": str(error)}
            )
        else:
            self._handshakes.pop(place, None)
            if not place.is_free and not place.is_kept:
                place.since_s = self._loop.time()
                self._silent[place] = None

    def forget(self, place: Place) -> None:
        """The place is kept, or free: stop watching its connection."""
        self._handshakes.pop(place, None)
        self._silent.pop(place, None)

    def uncount(self, place: Place) -> None:
        """The place is free: stop counting it."""
        self.forget(place)
        self._counts[place.address] -= 1
        if not self._counts[place.address]:
            del self._counts[place.address]

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a connection met a bug", exc_info=task.exception())
