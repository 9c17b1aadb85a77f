"""socket.send.buffer.bytes and socket.receive.buffer.bytes hold for every client's socket, where they are set."""

from __future__ import annotations

import socket

import pytest

from barnabas.testing import Broker

# Linux doubles what is asked for, for its own bookkeeping.
FACTOR = 2


def buffers(broker: Broker) -> tuple[int, int]:
    """(SO_SNDBUF, SO_RCVBUF) of the broker's side of a new connection."""
    with socket.create_connection(("127.0.0.1", broker.port)):
        listeners = broker.inside.server.services.listeners
        while not (open_now := broker.inside.call(lambda: list(listeners.connections))):
            pass
        sock = open_now[0].transport._sock  # type: ignore[attr-defined]
        return (
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
        )


def unset() -> tuple[int, int]:
    """What the system gives a socket that an ordinary listener accepts."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()),
    ):
        accepted, _ = listening.accept()
        with accepted:
            return (
                accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
                accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
            )


def test_what_is_set_is_obeyed() -> None:
    options = {"socket.send.buffer.bytes": "20480", "socket.receive.buffer.bytes": "30720"}
    with Broker(options) as broker:
        assert buffers(broker) == (20480 * FACTOR, 30720 * FACTOR)


@pytest.mark.parametrize(
    "options", [{}, {"socket.send.buffer.bytes": "-1", "socket.receive.buffer.bytes": "-1"}]
)
def test_what_is_not_set_is_left_to_the_system(options: dict[str, str]) -> None:
    with Broker(options) as broker:
        assert buffers(broker) == unset()
