"""Connections of an in-process broker that a test talks to by calling its parts."""

from __future__ import annotations

import socket

from barnabas.broker.net.connection import Connection
from barnabas.broker.server import BrokerServer


def admitted(broker: BrokerServer, accepted: socket.socket) -> Connection:
    """`accepted` as a connection of the broker's first listener; the broker closes it."""
    connection = broker.services.listeners.admit(accepted, "PLAINTEXT")
    assert connection is not None
    return connection
