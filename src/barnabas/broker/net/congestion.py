"""Congestion control of connections from the broker's own machine: there is nothing to control.

A system whose default is BBR paces what it sends, on the loopback interface as well. One consumer on the broker's
own machine got 1.2 to 1.4 GB/s that way and 1.8 to 2.7 GB/s with Reno, which sends as fast as the peer reads and meets
no loss here to slow down for; CUBIC came out behind both.
"""

from __future__ import annotations

import socket
from typing import Final

TCP_CONGESTION: Final[int | None] = getattr(socket, "TCP_CONGESTION", None)
"""Not every platform lets a program choose."""
RENO: Final = b"reno"
"""Built into every Linux kernel, and allowed to every user."""
LOOPBACK_V6: Final = "::1"
LOOPBACKS_V4: Final = ("127.", "::ffff:127.")


def is_local(peer_host: str, local_host: str) -> bool:
    """Whether the peer of a connection runs on this machine: it came from the address that it reached, or by loopback."""
    return peer_host in (local_host, LOOPBACK_V6) or peer_host.startswith(LOOPBACKS_V4)


def spare_local_peer(sock: socket.socket) -> None:
    """Do without pacing on an accepted socket whose peer is on this machine; else the system's choice stays.

    Raises OSError when the peer is gone already.
    """
    if TCP_CONGESTION is None or not is_local(sock.getpeername()[0], sock.getsockname()[0]):
        return
    try:
        sock.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, RENO)
    except OSError:
        pass  # the system does not allow it; the connection works as well, only more slowly
