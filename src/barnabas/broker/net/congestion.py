"""Congestion control for connections from the broker's own machine, which need none.

A system whose default is BBR paces what it sends, on the loopback interface as well. One consumer on the broker's
machine got 1.2 to 1.4 GB/s with BBR and 1.8 to 2.7 GB/s with Reno, which sends as fast as the peer reads, and on
loopback meets no loss that would slow it down; CUBIC was slower than both.
"""

from __future__ import annotations

import socket
from typing import Final

TCP_CONGESTION: Final[int | None] = getattr(socket, "TCP_CONGESTION", None)
"""Not available on every platform."""
RENO: Final = b"reno"
"""Built into every Linux kernel, and allowed for every user."""
LOOPBACK_V6: Final = "::1"
LOOPBACKS_V4: Final = ("127.", "::ffff:127.")


def is_local(peer_host: str, local_host: str) -> bool:
    """Whether a peer runs on this machine: it connected by loopback, or its address is the one that it connected to."""
    return peer_host in (local_host, LOOPBACK_V6) or peer_host.startswith(LOOPBACKS_V4)


def spare_local_peer(sock: socket.socket) -> None:
    """Disable pacing on an accepted socket if its peer is on this machine; otherwise keep the system's choice.

    Raises OSError when the peer is already gone.
    """
    if TCP_CONGESTION is None or not is_local(sock.getpeername()[0], sock.getsockname()[0]):
        return
    try:
        sock.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, RENO)
    except OSError:
        pass  # the system does not allow it; the connection works, only more slowly
