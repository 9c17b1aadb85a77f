"""How a connection's bytes travel: a transport is a non-blocking socket, plain or with TLS (net/tls.py).

A transport raises BlockingIOError when the socket has no data or accepts none, and other OSErrors when the connection
is lost; a TLS transport converts its own errors to these.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Final, Protocol

from barnabas.storage.files import FileSlice

V4_IN_V6: Final = "::ffff:"
MORE: Final = socket.MSG_MORE
"""Flag of `send`: more follows at once, so a half-full packet may wait for it."""

ANSWERS_QUEUED_MAX: Final = 64
"""How many answers of a connection may wait for the end of the turn before no further request of it is begun."""

Buffer = bytes | bytearray | memoryview

TRAFFIC: Final = struct.Struct("=QQ")
TRAFFIC_AT: Final = 120
TCP_INFO_BYTES: Final = TRAFFIC_AT + TRAFFIC.size
"""tcpi_bytes_acked and tcpi_bytes_received of linux/tcp.h."""


class Transport(Protocol):
    """One accepted socket. `fd` is what the loop watches."""

    fd: int
    peer: str
    """The peer's address, "host:port"."""
    local_host: str
    local_port: int

    @property
    def recv_into(self) -> Callable[[memoryview], int]:
        """Receive into a buffer; 0 at the peer's end."""

    @property
    def send(self) -> Callable[[Buffer, int], int]:
        """Send (data, flags); returns how many bytes were accepted."""

    sends_files: bool
    """Whether `send_file` works, so that records need not pass through this process."""

    @property
    def has_pending(self) -> bool:
        """Whether the transport may hold received bytes for which the socket does not become readable."""

    def send_file(self, part: FileSlice) -> int:
        """Send the beginning of a slice straight from its file; returns how many bytes were sent."""

    def traffic(self) -> tuple[int, int]:
        """How many bytes have been received and sent so far; -1 where the kernel does not count them. Never raises."""

    def close(self) -> None:
        """Close the socket. Never raises."""


def traffic_of(sock: socket.socket) -> tuple[int, int]:
    """See Transport: Linux counts for each TCP socket the bytes that it has received, and those that the peer has
    acknowledged (`struct tcp_info`), so that the broker need not count them."""
    try:
        counted = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        acknowledged, received = TRAFFIC.unpack_from(counted, TRAFFIC_AT)
    except (AttributeError, OSError, struct.error):
        return -1, -1
    return received, acknowledged


class PlainTransport:
    """A TCP socket without encryption. The socket's own methods serve as the transport's, so calls have no overhead."""

    __slots__ = (
        "_sock", "fd", "has_pending", "local_host", "local_port", "peer", "recv_into", "send", "sends_files",
    )  # fmt: skip

    def __init__(self, sock: socket.socket) -> None:
        """Takes over `sock`. Raises OSError when the peer is already gone."""
        peer, local = sock.getpeername(), sock.getsockname()
        self._sock = sock
        self.fd = sock.fileno()
        self.peer = f"{peer[0]}:{peer[1]}"
        # On a dual-stack socket an IPv4 peer appears as ::ffff:a.b.c.d, but it knows this broker as a.b.c.d.
        self.local_host: str = local[0].removeprefix(V4_IN_V6)
        self.local_port: int = local[1]
        self.recv_into: Callable[[memoryview], int] = sock.recv_into
        self.send: Callable[[Buffer, int], int] = sock.send
        self.sends_files = True
        self.has_pending = False

    def send_file(self, part: FileSlice) -> int:
        """See Transport."""
        return part.send_to(self.fd)

    def traffic(self) -> tuple[int, int]:
        """See Transport."""
        return traffic_of(self._sock)

    def close(self) -> None:
        """See Transport."""
        try:
            self._sock.close()
        except OSError:
            pass  # the descriptor is closed all the same
