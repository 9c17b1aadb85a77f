"""The addresses of brokers as clients should use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.config import broker_identity
from barnabas.cores.znode_layout import Endpoint as RegisteredEndpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.broker.net.connection import Connection
    from barnabas.config.loader import BrokerConfig


class Endpoint(NamedTuple):
    """A broker's address for one connection."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Endpoints:
    """Which address of a broker a peer receives."""

    def __init__(self, config: BrokerConfig, node_id: int) -> None:
        self._config = config
        self._node_id = node_id
        self._rack = config.get(broker_identity.BROKER_RACK)
        self._advertised = {listener.name: listener for listener in config.advertised_listeners}

    def own(self, connection: Connection) -> Endpoint:
        """This broker's address for one peer: what is advertised, else the address that it connected to."""
        advertised = self._advertised.get(connection.listener)
        if advertised is not None:
            return Endpoint(self._node_id, advertised.host, advertised.port, self._rack)
        return Endpoint(self._node_id, connection.local_host, connection.local_port, self._rack)

    def all(self, connection: Connection) -> list[Endpoint]:
        """Every broker of the cluster, with its address for one peer."""
        return [self.own(connection)]

    def to_register(self, ports: Mapping[str, int]) -> list[RegisteredEndpoint]:
        """What this broker announces to the cluster. ports: what its listeners are bound to."""
        found = []
        for listener in self._config.listeners:
            advertised = self._advertised.get(listener.name)
            if advertised is not None:
                host, port = advertised.host, advertised.port
            else:
                host, port = listener.host, ports[listener.name]
            found.append(
                RegisteredEndpoint(listener.name, host or "localhost", port, listener.security_protocol)
            )
        return found
