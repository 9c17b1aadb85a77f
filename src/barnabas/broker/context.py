"""What a handler is given besides the request."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.broker.connection import Connection
    from barnabas.broker.server import BrokerServer


class Context:
    """One request's surroundings: who asks, on which connection, in which version."""

    __slots__ = (
        "begun_s", "broker", "client_id", "connection", "correlation_id", "throttle_ms", "version",
    )  # fmt: skip

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
        self.begun_s = 0.0
        """Since when the broker's thread works on it; 0 while it does not, and where nobody counts."""
        self.throttle_ms = 0
        """How long the connection is left unread after the answer."""

    @property
    def client_host(self) -> str:
        """The peer's address as Kafka shows it in group descriptions: "/127.0.0.1"."""
        return "/" + self.connection.host
