"""The addresses of both ends of a connection, as its transport knows them."""

from __future__ import annotations

from barnabas.broker.net.transports import V4_IN_V6, Transport


class Ends:
    """The peer's and this broker's addresses."""

    __slots__ = ("transport",)

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def __str__(self) -> str:
        return f"connection of {self.peer}"

    @property
    def peer(self) -> str:
        """The peer's address and port."""
        return self.transport.peer

    @property
    def host(self) -> str:
        """The peer's address alone."""
        return self.transport.peer.rpartition(":")[0]

    @property
    def plain_host(self) -> str:
        """The peer's address as access rules name it: an IPv4 peer of a dual-stack socket without the ::ffff: prefix."""
        return self.host.removeprefix(V4_IN_V6)

    @property
    def local_host(self) -> str:
        """This broker's address, as the peer connected to it."""
        return self.transport.local_host

    @property
    def local_port(self) -> int:
        """The port that the peer connected to."""
        return self.transport.local_port
