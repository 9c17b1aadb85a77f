"""Everything that a broker takes from the machine it runs on; a simulation replaces all of it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.runtime.clock import Clock, SystemClock
from barnabas.runtime.entropy import Entropy, SystemEntropy

READ_AHEAD_BYTES: Final = 1 << 20
"""How much a connection reads in advance."""


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[str, int, ssl.SSLContext | None], Awaitable[Streams]]
"""(host, port, TLS or None) -> a connection to another process. Raises OSError."""
AddressTowards = Callable[[str, int, bool], str | None]


async def _connect_tcp(host: str, port: int, tls: ssl.SSLContext | None) -> Streams:
    name = None if tls is None else host
    return await asyncio.open_connection(host, port, limit=READ_AHEAD_BYTES, ssl=tls, server_hostname=name)


def _address_towards(host: str, port: int, v6: bool) -> str | None:
    wanted = socket.AF_UNSPEC if v6 else socket.AF_INET
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, wanted, socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as sock:
            sock.connect(address)  # of a datagram socket: only chooses the route, sends nothing
            return str(sock.getsockname()[0])
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class Machine:
    """See the module."""

    clock: Clock = field(default_factory=SystemClock)
    entropy: Entropy = field(default_factory=SystemEntropy)
    new_pool: Callable[[int, str], Executor] = ThreadPoolExecutor
    """(maximum number of threads, their name) -> an executor, for work that the storage distributes over threads."""
    new_socket: Callable[[int, int], Any] = socket.socket
    """(family, kind) -> an unconnected socket to listen on."""
    connect: Connect = _connect_tcp
    dial: Connect | None = None
    """To brokers of other clusters; None for the client's own way, which says more about what fails."""
    address_towards: AddressTowards = _address_towards
    """(host, port, whether IPv6 is acceptable) -> this machine's address on the way to that host, or None."""
    open_tree: Callable[[], Awaitable[Any]] | None = None
    """Opens a session with a metadata tree (coordination.tree), in place of the configured one."""
