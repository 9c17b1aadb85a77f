"""What a handler is given besides the request."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.broker.connection import Connection
    from barnabas.broker.server import BrokerServer


class Context:
    """One request's surroundings: who asks, on which connection, in which version."""

    __slots__ = ("broker", "client_id", "connection", "correlation_id", "version")

    def __init__(
        self,
        broker: BrokerServer,
        connection: Connection,
        version: int,
        correlation_id: int,
        client_id: str | None,
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id

    @property
    def client_host(self) -> str:
        """The peer's address as Kafka shows it in group descriptions: "/127.0.0.1"."""
        return "/" + self.connection.host
