"""The addresses of brokers as clients should use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.config import broker_identity
from barnabas.cores.znode_layout import Endpoint as RegisteredEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.broker.net.connection import Connection
    from barnabas.config.loader import BrokerConfig
    from barnabas.cores.znode_layout import Broker


class Endpoint(NamedTuple):
    """A broker's address for one connection."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Endpoints:
    """Which address of a broker a peer receives."""

    def __init__(
        self, config: BrokerConfig, node_id: int, brokers: Callable[[], Mapping[int, Broker]]
    ) -> None:
        """brokers: those that are alive, by id."""
        self._config = config
        self._brokers = brokers
        self._node_id = node_id
        self._rack = config.get(broker_identity.BROKER_RACK)
        self._advertised = {listener.name: listener for listener in config.advertised_listeners}

    def own(self, connection: Connection) -> Endpoint:
        """This broker's address for one peer: what is advertised, else the address that it connected to."""
        advertised = self._advertised.get(connection.listener)
        if advertised is not None:
            return Endpoint(self._node_id, advertised.host, advertised.port, self._rack)
        return Endpoint(self._node_id, connection.local_host, connection.local_port, self._rack)

    def of(self, broker_id: int, connection: Connection) -> Endpoint | None:
        """A broker's address for one peer, on the listener that it uses here; None for one that is not alive."""
        if broker_id == self._node_id:
            return self.own(connection)
        broker = self._brokers().get(broker_id)
        found = None if broker is None else broker.endpoint(connection.listener)
        if broker is None or found is None:
            return None
        return Endpoint(broker_id, found.host, found.port, broker.rack)

    def all(self, connection: Connection) -> list[Endpoint]:
        """Every live broker of the cluster, with its address for one peer."""
        ids = sorted({self._node_id, *self._brokers()})
        return [endpoint for broker in ids if (endpoint := self.of(broker, connection)) is not None]

    def between_brokers(self, broker_id: int) -> tuple[str, int] | None:
        """Where another broker listens for brokers; None for one that is not alive."""
        broker = self._brokers().get(broker_id)
        if broker is None:
            return None
        name = self._config.get(broker_identity.INTER_BROKER_LISTENER_NAME)
        protocol = self._config.get(broker_identity.SECURITY_INTER_BROKER_PROTOCOL)
        for endpoint in broker.endpoints:
            if endpoint.listener == name.upper() if name else endpoint.security_protocol == protocol:
                return endpoint.host, endpoint.port
        return None

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
