"""Sockets between simulated hosts: bytes arrive in pieces, late, or not at all.

Both ends are `SimSocket`s with the part of socket.socket that the broker and its clients use, watched by the loop's
readers and writers. As in TCP, a stream keeps its order and loses nothing. The seed determines how it is divided, how
long each piece takes, when a connection is reset, and which hosts cannot reach each other for a while.
"""

from __future__ import annotations

import asyncio
import errno
import random
import socket
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.sim.loop import LIFE, NOBODY, Life

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.sim.loop import SimLoop

Address = tuple[str, int]
Buffer = bytes | bytearray | memoryview

FIRST_FD: Final = 1_000_000
FIRST_PORT: Final = 40_000


@dataclass(slots=True)
class Weather:
    """The current behaviour of the network."""

    latency_s: float = 0.0005
    jitter_s: float = 0.001
    stall_chance: float = 0.0
    """Probability that a piece takes `stall_s` longer."""
    stall_s: float = 0.5
    cut_chance: float = 0.0
    """Probability that sent data is divided in two pieces."""
    reset_chance: float = 0.0
    """Probability that a connection breaks when something is sent."""
    window_bytes: int = 65536
    """How much one side may send before the other reads."""


class SimNetwork:
    """All sockets of one simulation. `on_event(what, data)` is called for everything that is sent and that arrives."""

    def __init__(self, loop: SimLoop, chance: random.Random) -> None:
        self.loop = loop
        self.weather = Weather()
        self.on_event: Callable[[str, bytes], None] = lambda text, data: None
        self._chance = chance
        self._sockets: dict[int, SimSocket] = {}
        self._listening: dict[Address, SimSocket] = {}
        self._readers: dict[int, asyncio.Handle] = {}
        self._writers: dict[int, asyncio.Handle] = {}
        self._readable: dict[int, None] = {}
        self._next_fd = FIRST_FD
        self._next_port = FIRST_PORT
        self._apart: dict[frozenset[str], None] = {}
        loop.poller = self

    # --- what programs ask -----------------------------------------------------------------------------

    def new_socket(self, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> SimSocket:
        """An unconnected socket, in place of socket.socket."""
        self._next_fd += 1
        sock = SimSocket(self, self._next_fd)
        self._sockets[sock.fd] = sock
        return sock

    def connect(self, host: str, address: Address) -> SimSocket:
        """A connection from `host` to a listening address. Raises ConnectionRefusedError."""
        listening = self._listening.get(address)
        if listening is None or not self.hears(host, address[0]):
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens there")
        self._next_port += 1
        ours, theirs = self.new_socket(), self.new_socket()
        ours.local, ours.remote = (host, self._next_port), address
        theirs.local, theirs.remote = address, ours.local
        ours.peer, theirs.peer = theirs, ours
        theirs.life = listening.life
        self.loop.call_later(self._delay_s(), self._arrive, listening, theirs)
        return ours

    def _arrive(self, listening: SimSocket, arriving: SimSocket) -> None:
        if listening.closed or arriving.closed:
            arriving.reset()
            return
        listening.backlog.append(arriving)
        self._readable[listening.fd] = None

    def listens(self, address: Address) -> bool:
        return address in self._listening

    # --- faults ----------------------------------------------------------------------------------------

    def part(self, one: str, other: str) -> None:
        """Two hosts cannot reach each other from now on; what they send waits, as with TCP's retransmissions."""
        self._apart[frozenset((one, other))] = None

    def heal(self) -> None:
        """All hosts can reach each other again."""
        self._apart.clear()
        for sock in list(self._sockets.values()):
            sock.deliver_held()

    def join(self, one: str, other: str) -> None:
        """Two hosts hear each other again."""
        self._apart.pop(frozenset((one, other)), None)
        for sock in list(self._sockets.values()):
            if {sock.local[0], sock.remote[0]} == {one, other}:
                sock.deliver_held()

    def hears(self, one: str, other: str) -> bool:
        return frozenset((one, other)) not in self._apart

    def abandon(self, life: Life, *, silent: bool = False) -> None:
        """A process has ended: close its sockets. silent: its host has lost power, and no peer is notified."""
        for sock in [s for s in self._sockets.values() if s.life is life]:
            if silent and sock.peer is not None:
                sock.peer.peer = None
                sock.peer.lost = True
            else:
                sock.reset()
            for waiting in sock.backlog:
                waiting.reset()
            sock.forget()

    def connections(self) -> list[SimSocket]:
        """The accepting ends of all open connections."""
        return [s for s in self._sockets.values() if s.life is not None and s.peer is not None]

    # --- the loop's side -------------------------------------------------------------------------------

    def ready(self) -> list[asyncio.Handle]:
        handles = []
        if self._readable:
            readers = self._readers
            handles = [readers[fd] for fd in self._readable if fd in readers]
            if self.loop.paused:
                handles = [handle for handle in handles if not _stands_still(handle)]
        if self._writers:
            handles += [
                handle
                for fd, handle in self._writers.items()
                if self._sockets[fd].takes_bytes and not _stands_still(handle)
            ]
        if len(handles) > 1:
            self._chance.shuffle(handles)
        return handles

    def add_reader(self, fd: int, handle: asyncio.Handle) -> None:
        assert fd in self._sockets, f"descriptor {fd} is not open"
        self._readers[fd] = handle

    def add_writer(self, fd: int, handle: asyncio.Handle) -> None:
        assert fd in self._sockets, f"descriptor {fd} is not open"
        self._writers[fd] = handle

    def remove_reader(self, fd: int) -> bool:
        return self._readers.pop(fd, None) is not None

    def remove_writer(self, fd: int) -> bool:
        return self._writers.pop(fd, None) is not None

    # --- the sockets' side -----------------------------------------------------------------------------

    def _delay_s(self) -> float:
        weather = self.weather
        delay_s = weather.latency_s + self._chance.random() * weather.jitter_s
        if weather.stall_chance and self._chance.random() < weather.stall_chance:
            delay_s += self._chance.random() * weather.stall_s
        return delay_s

    def carry(self, source: SimSocket, data: bytes) -> None:
        """Carry `data` (b"" is the end of the stream) to the other end of `source`, divided according to the weather."""
        weather = self.weather
        if weather.reset_chance and self._chance.random() < weather.reset_chance:
            self.on_event(f"reset {source.local[0]} {source.remote[0]}", b"")
            source.reset()
            return
        target = source.peer
        if target is None:
            return
        self.on_event(f"{source.local[0]} > {source.remote[0]}", data)
        pieces = [data]
        if len(data) > 1 and weather.cut_chance and self._chance.random() < weather.cut_chance:
            at = self._chance.randrange(1, len(data))
            pieces = [data[:at], data[at:]]
        for piece in pieces:
            # Strictly later than what was sent before, because timers of the same time have no order.
            target.due_s = max(target.due_s + 1e-7, self.loop.time() + self._delay_s())
            # What is on its way arrives, whatever becomes of its sender.
            self.loop.call_at(target.due_s, self._deliver, target, piece, context=NOBODY)

    def _deliver(self, target: SimSocket, piece: bytes) -> None:
        if target.delayed or not self.hears(target.local[0], target.remote[0]):
            target.delayed.append(piece)
        else:
            target.receive(piece)

    def note_readable(self, fd: int) -> None:
        self._readable[fd] = None

    def note_empty(self, fd: int) -> None:
        self._readable.pop(fd, None)

    def listen_at(self, address: Address, sock: SimSocket) -> Address:
        """Register a listening socket. Raises OSError EADDRINUSE."""
        if address in self._listening:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        self._listening[address] = sock
        return address

    def drop(self, sock: SimSocket) -> None:
        """Forget a closed socket."""
        self._sockets.pop(sock.fd, None)
        self._readable.pop(sock.fd, None)
        self._readers.pop(sock.fd, None)
        self._writers.pop(sock.fd, None)
        if self._listening.get(sock.local) is sock:
            del self._listening[sock.local]


def _stands_still(handle: Any) -> bool:
    life = handle._context.get(LIFE)
    return life is not None and life.pauses > 0


class SimSocket:
    """One end of a connection, or a listening socket. Never blocks."""

    def __init__(self, network: SimNetwork, fd: int) -> None:
        self.fd = fd
        self.life = LIFE.get()
        self.local: Address = ("0.0.0.0", 0)
        self.remote: Address = ("0.0.0.0", 0)
        self.peer: SimSocket | None = None
        self.closed = False
        self.lost = False
        """The other host has lost power: data sent there is lost."""
        self.due_s = 0.0
        self.backlog: deque[SimSocket] = deque()
        self.delayed: list[bytes] = []
        self.under_way_bytes = 0
        self._network = network
        self._inbox = bytearray()
        self._ended = False
        self._was_reset = False
        self._shut = False

    # --- arriving --------------------------------------------------------------------------------------

    def receive(self, piece: bytes) -> None:
        """A piece of the stream has arrived."""
        if self.closed or self._was_reset:
            return
        self._network.on_event(f"{self.local[0]} < {self.remote[0]} {len(piece)}", b"")
        if piece:
            self._inbox += piece
        else:
            self._ended = True
        self._network.note_readable(self.fd)

    def deliver_held(self) -> None:
        """The hosts can reach each other again."""
        pieces, self.delayed = self.delayed, []
        for piece in pieces:
            self.receive(piece)

    def reset(self) -> None:
        """Break the connection: data in flight is lost, and both ends notice."""
        peer, self.peer = self.peer, None
        self._break()
        if peer is not None:
            peer.peer = None
            peer._break()

    def _break(self) -> None:
        self._was_reset = True
        self._inbox.clear()
        self._network.note_readable(self.fd)

    def forget(self) -> None:
        """The host is gone: nobody is notified."""
        self.closed = True
        self.peer = None
        self._network.drop(self)

    # --- socket.socket's methods -----------------------------------------------------------------------

    def fileno(self) -> int:
        return -1 if self.closed else self.fd

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def setsockopt(self, *args: Any) -> None:
        pass

    def getsockopt(self, *args: Any) -> int:
        return 0

    def getpeername(self) -> Address:
        if self._was_reset:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")
        return self.remote

    def getsockname(self) -> Address:
        return self.local

    def bind(self, address: Address) -> None:
        self.local = address

    def listen(self, backlog: int = 0) -> None:
        self._network.listen_at(self.local, self)

    def accept(self) -> tuple[SimSocket, Address]:
        if not self.backlog:
            self._network.note_empty(self.fd)
            raise BlockingIOError(errno.EAGAIN, "nobody is there")
        accepted = self.backlog.popleft()
        if not self.backlog:
            self._network.note_empty(self.fd)
        return accepted, accepted.remote

    def recv(self, count: int) -> bytes:
        if not self._inbox:
            if self._was_reset:
                raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
            if self._ended:
                return b""
            raise BlockingIOError(errno.EAGAIN, "nothing is there")
        data = bytes(self._inbox[:count])
        del self._inbox[:count]
        if self.peer is not None:
            self.peer.under_way_bytes -= len(data)
        if not self._inbox and not self._ended and not self._was_reset:
            self._network.note_empty(self.fd)
        return data

    def recv_into(self, buffer: memoryview, count: int = 0) -> int:
        data = self.recv(count or len(buffer))
        buffer[: len(data)] = data
        return len(data)

    @property
    def takes_bytes(self) -> bool:
        return (
            self._was_reset or self.peer is None or self.under_way_bytes < self._network.weather.window_bytes
        )

    def send(self, data: Buffer, flags: int = 0) -> int:
        if self._was_reset:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        if self.lost:
            if self._network.listens(self.remote):  # the host is back, and does not know this connection
                self._network.loop.call_later(self._network.weather.latency_s, self.reset)
            return len(data)
        if self.peer is None or self._shut or self.closed:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        room_bytes = self._network.weather.window_bytes - self.under_way_bytes
        if room_bytes <= 0:
            raise BlockingIOError(errno.EAGAIN, "the window is full")
        piece = bytes(data[:room_bytes])
        self.under_way_bytes += len(piece)
        self._network.carry(self, piece)
        return len(piece)

    def shutdown(self, how: int) -> None:
        if not self._shut:
            self._shut = True
            self._network.carry(self, b"")

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        peer = self.peer
        for waiting in self.backlog:
            waiting.reset()
        if peer is not None:
            self.peer = None
            peer.peer = None
            if self._inbox:
                peer._break()  # unread data was left: the kernel answers with a reset
            else:
                self._network.loop.call_at(
                    max(peer.due_s + 1e-7, self._network.loop.time()), self._network._deliver, peer, b""
                )
        self._network.drop(self)
