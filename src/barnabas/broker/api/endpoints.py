"""The broker addresses that clients receive.

Advertised addresses take precedence. Without one, a broker that stands alone gives each client the address that the client
connected to, which is right behind port forwarding, in containers and on laptops. Brokers of one cluster must give the same
addresses for each other: a client that receives `localhost` from one broker and `127.0.0.1` from another believes that a
broker has moved, drops its connection and resends the requests in flight.
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
"""Hosts that make a listener accept connections on every address of its machine."""


class Endpoint(NamedTuple):
    """A broker's address, as given to one connection."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Endpoints:
    """Chooses the broker addresses that a peer receives."""

    def __init__(
        self, config: BrokerConfig, node_id: int, brokers: Callable[[], Mapping[int, Broker]]
    ) -> None:
        """brokers: returns the live brokers, by id."""
        self._config = config
        self._brokers = brokers
        self._node_id = node_id
        self._rack = config.get(broker_identity.BROKER_RACK)
        self._advertised = {listener.name: listener for listener in config.advertised_listeners}
        self._on_all_addresses = {
            listener.name for listener in config.listeners if listener.host in ALL_ADDRESSES
        }
        self._announced: dict[str, RegisteredEndpoint] = {}
        """By listener: what this broker last registered. Still used while its session is lost."""
        self._others: dict[str, set[str]] = {listener.name: set() for listener in config.listeners}
        """By listener: hosts of all other brokers ever seen. Dead brokers stay in the set, so that the addresses given to
        clients do not change when a broker dies."""

    def own(self, connection: Connection) -> Endpoint:
        """This broker's address for one peer."""
        return self._own(connection, self._tells_address_used(connection.listener))

    def _own(self, connection: Connection, tells_address_used: bool) -> Endpoint:
        announced = self._announced.get(connection.listener)
        if announced is None or tells_address_used:
            return Endpoint(self._node_id, connection.local_host, connection.local_port, self._rack)
        return Endpoint(self._node_id, announced.host, announced.port, self._rack)

    def of(self, broker_id: int, connection: Connection) -> Endpoint | None:
        """A broker's address for one peer, on the listener that the peer uses here; None for a broker that is not alive."""
        return self._of(broker_id, connection, self._tells_address_used(connection.listener))

    def _of(self, broker_id: int, connection: Connection, tells_address_used: bool) -> Endpoint | None:
        if broker_id == self._node_id:
            return self._own(connection, tells_address_used)
        broker = self._brokers().get(broker_id)
        registered = None if broker is None else broker.endpoint(connection.listener)
        if broker is None or registered is None:
            return None
        host = connection.local_host if tells_address_used else registered.host
        return Endpoint(broker_id, host, registered.port, broker.rack)

    def _tells_address_used(self, listener: str) -> bool:
        """Whether peers receive, for every broker of the cluster, the host that they connected to."""
        others = self._others.setdefault(listener, set())
        for broker_id, broker in self._brokers().items():
            endpoint = broker.endpoint(listener)
            if broker_id != self._node_id and endpoint is not None:
                others.add(endpoint.host)
        if listener in self._advertised:
            return False
        if not others:
            return True
        # All brokers run on one machine and listen on all of its addresses, so any of these reaches every broker.
        own = self._announced.get(listener)
        return own is not None and listener in self._on_all_addresses and others == {own.host}

    def all(self, connection: Connection) -> list[Endpoint]:
        """Every live broker of the cluster, with its address for one peer."""
        used = self._tells_address_used(connection.listener)
        ids = sorted({self._node_id, *self._brokers()})
        return [endpoint for broker in ids if (endpoint := self._of(broker, connection, used)) is not None]

    def between_brokers(self, broker_id: int) -> tuple[str, int] | None:
        """The (host, port) on which another broker accepts brokers; None when it is not alive."""
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
        """The endpoints that this broker registers. ports: by listener name; towards: see runtime.machine."""
        for listener in self._config.listeners:
            announced = self._advertised.get(listener.name)
            if announced is None:
                host = listener.host
                if listener.name in self._on_all_addresses:
                    host = host_of_this_machine(self._config, towards, v6=host == "::")
                announced = listener._replace(host=host, port=ports[listener.name])
            self._announced[listener.name] = RegisteredEndpoint(
                listener.name, announced.host, announced.port, listener.security_protocol
            )
        return list(self._announced.values())


def host_of_this_machine(config: BrokerConfig, towards: AddressTowards, *, v6: bool = False) -> str:
    """The host by which other brokers and clients reach this machine when no option sets one: the address from which this
    machine reaches ZooKeeper, since the other brokers reach ZooKeeper as well; localhost when everything is on one machine.

    v6: whether an IPv6 address is acceptable.
    """
    servers = (config.get(broker_zookeeper.ZOOKEEPER_CONNECT) or "").partition("/")[0]
    for server in servers.split(",") if servers else ():
        host, _, port = server.strip().partition(":")
        address = towards(host, int(port or ZOOKEEPER_PORT), v6)
        if address is not None and not ipaddress.ip_address(address).is_loopback:
            return address
    return "localhost"
