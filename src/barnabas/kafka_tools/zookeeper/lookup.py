"""Where the brokers are of which tools of the ZooKeeper era know the ZooKeeper only (`--zookeeper HOST:PORT`).

Where no ZooKeeper answers, a single broker may be running without one: it is then looked for on port 9092 of the same
host, as in the examples of books.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Final

from barnabas.cores.znode_layout import BROKER_IDS, BadPayload, Broker, decode_broker
from barnabas.kafka_tools.failures import ToolError
from barnabas.kafka_tools.zookeeper.nodes import Refusal, Tree
from barnabas.kafka_tools.zookeeper.trees import open_tree

BROKER_PORT: Final = 9092
ZOOKEEPER_PORT: Final = 2181
CONTACT_SECONDS: Final = 1.0


def addresses_of(zookeeper: str) -> list[tuple[str, int]]:
    """Hosts and ports of `host:port,host:port/chroot`; ZooKeeper's usual port where one has none."""
    addresses = []
    for item in zookeeper.partition("/")[0].split(","):
        host, colon, port = item.strip().rpartition(":")
        addresses.append((host, int(port)) if colon and port.isdigit() else (item.strip(), ZOOKEEPER_PORT))
    return addresses


def is_there(zookeeper: str) -> bool:
    """Whether anything listens at one of the addresses, and the client for ZooKeeper is installed."""
    if find_spec("kazoo") is None:
        return False
    for address in addresses_of(zookeeper):
        try:
            socket.create_connection(address, CONTACT_SECONDS).close()
        except OSError:
            continue
        return True
    return False


def servers_at(zookeeper: str, protocol: str, tls_file: str | None = None) -> str:
    """The brokers that are registered in a ZooKeeper, as bootstrap servers for clients that speak `protocol`.

    Raises ToolError when none is registered, or none speaks this protocol.
    """
    if not is_there(zookeeper):
        return f"{addresses_of(zookeeper)[0][0]}:{BROKER_PORT}"
    tree = open_tree(zookeeper, tls_file)
    try:
        brokers = list(registered(tree))
    finally:
        tree.close()
    if not brokers:
        raise ToolError(
            f"no broker is registered in the ZooKeeper at {zookeeper}: start one whose server.properties has "
            f"zookeeper.connect={zookeeper}"
        )
    endpoints = [endpoint for broker in brokers for endpoint in broker.endpoints]
    mine = [
        f"{endpoint.host}:{endpoint.port}" for endpoint in endpoints if endpoint.security_protocol == protocol
    ]
    if not mine:
        others = sorted({endpoint.security_protocol for endpoint in endpoints})
        raise ToolError(
            f"the brokers in the ZooKeeper at {zookeeper} have no listener for {protocol}, but for "
            f"{', '.join(others)} ({', '.join(f'{e.host}:{e.port}' for e in endpoints)}): give what a client needs in a "
            "file, --command-config FILE (security.protocol, ssl.truststore.location, sasl.jaas.config, ...)"
        )
    return ",".join(mine)


def registered(tree: Tree) -> Iterator[Broker]:
    """The live brokers. Raises ToolError."""
    try:
        names = tree.children(BROKER_IDS)
    except Refusal:
        return  # no broker has ever started over this tree
    for name in names:
        try:
            data, _ = tree.get(f"{BROKER_IDS}/{name}")
            yield decode_broker(int(name), data or b"")
        except Refusal:
            continue  # it has gone since
        except (BadPayload, ValueError) as error:
            raise ToolError(f"{BROKER_IDS}/{name} describes no broker: {error}") from None
