"""The addresses of brokers as clients should use them.

What is advertised goes before everything else. Without it a broker that stands alone tells each client the address that the
client has connected to, which is right behind port forwarding, in containers and on laptops. Brokers of one cluster
must agree on each other's addresses: a client that hears `localhost` of one and `127.0.0.1` of another takes that for a
broker that has moved, drops its connection and sends again what was under way on it.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.config import broker_identity, broker_zookeeper
from barnabas.cores.znode_layout import Endpoint as RegisteredEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.broker.net.connection import Connection
    from barnabas.config.loader import BrokerConfig
    from barnabas.cores.znode_layout import Broker
    from barnabas.runtime.machine import AddressTowards


ZOOKEEPER_PORT: Final = 2181
ALL_ADDRESSES: Final = frozenset(("", "0.0.0.0", "::"))
"""Hosts of a listener that takes connections on every address of its machine."""


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
        self._on_all_addresses = {
            listener.name for listener in config.listeners if listener.host in ALL_ADDRESSES
        }
        self._announced: dict[str, RegisteredEndpoint] = {}
        """By listener: what this broker has registered, also while its session is lost and the cluster lacks it."""
        self._others: dict[str, set[str]] = {listener.name: set() for listener in config.listeners}
        """By listener: hosts of other brokers that were ever seen. They stay in mind when those die, so that what clients
        are told does not change with it."""

    def own(self, connection: Connection) -> Endpoint:
        """This broker's address for one peer."""
        return self._own(connection, self._tells_address_used(connection.listener))

    def _own(self, connection: Connection, tells_address_used: bool) -> Endpoint:
        announced = self._announced.get(connection.listener)
        if announced is None or tells_address_used:
            return Endpoint(self._node_id, connection.local_host, connection.local_port, self._rack)
        return Endpoint(self._node_id, announced.host, announced.port, self._rack)

    def of(self, broker_id: int, connection: Connection) -> Endpoint | None:
        """A broker's address for one peer, on the listener that it uses here; None for one that is not alive."""
        return self._of(broker_id, connection, self._tells_address_used(connection.listener))

    def _of(self, broker_id: int, connection: Connection, tells_address_used: bool) -> Endpoint | None:
        if broker_id == self._node_id:
            return self._own(connection, tells_address_used)
        broker = self._brokers().get(broker_id)
        found = None if broker is None else broker.endpoint(connection.listener)
        if broker is None or found is None:
            return None
        host = connection.local_host if tells_address_used else found.host
        return Endpoint(broker_id, host, found.port, broker.rack)

    def _tells_address_used(self, listener: str) -> bool:
        """Whether a peer is told the host that it has connected to, for every broker of the cluster."""
        others = self._others.setdefault(listener, set())
        for broker_id, broker in self._brokers().items():
            endpoint = broker.endpoint(listener)
            if broker_id != self._node_id and endpoint is not None:
                others.add(endpoint.host)
        if listener in self._advertised:
            return False
        if not others:
            return True
        # All on one machine, on all of its addresses: each of them leads to each broker.
        own = self._announced.get(listener)
        return own is not None and listener in self._on_all_addresses and others == {own.host}

    def all(self, connection: Connection) -> list[Endpoint]:
        """Every live broker of the cluster, with its address for one peer."""
        used = self._tells_address_used(connection.listener)
        ids = sorted({self._node_id, *self._brokers()})
        return [endpoint for broker in ids if (endpoint := self._of(broker, connection, used)) is not None]

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

    def to_register(self, ports: Mapping[str, int], towards: AddressTowards) -> list[RegisteredEndpoint]:
        """What this broker announces to the cluster. ports: of its listeners; towards: see runtime.machine."""
        for listener in self._config.listeners:
            told = self._advertised.get(listener.name)
            if told is None:
                host = listener.host
                if listener.name in self._on_all_addresses:
                    host = host_of_this_machine(self._config, towards, v6=host == "::")
                told = listener._replace(host=host, port=ports[listener.name])
            self._announced[listener.name] = RegisteredEndpoint(
                listener.name, told.host, told.port, listener.security_protocol
            )
        return list(self._announced.values())


def host_of_this_machine(config: BrokerConfig, towards: AddressTowards, *, v6: bool = False) -> str:
    """What other brokers and clients call this machine where no option says it: the address from which it reaches
    ZooKeeper, which the other brokers reach as well. localhost where everything is on one machine.

    v6: whether an address of IPv6 will do.
    """
    servers = (config.get(broker_zookeeper.ZOOKEEPER_CONNECT) or "").partition("/")[0]
    for server in servers.split(",") if servers else ():
        host, _, port = server.strip().partition(":")
        found = towards(host, int(port or ZOOKEEPER_PORT), v6)
        if found is not None and not ipaddress.ip_address(found).is_loopback:
            return found
    return "localhost"
