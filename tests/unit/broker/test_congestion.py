"""Connections from the broker's own machine are not paced; what others get is the system's choice."""

from __future__ import annotations

import socket

import pytest

from barnabas.broker.net import congestion
from barnabas.testing import Broker

pytestmark = pytest.mark.skipif(congestion.TCP_CONGESTION is None, reason="the platform lets nobody choose")


def algorithm(sock: socket.socket) -> bytes:
    assert congestion.TCP_CONGESTION is not None
    return sock.getsockopt(socket.IPPROTO_TCP, congestion.TCP_CONGESTION, 16).rstrip(b"\0")


def test_a_local_client_is_not_paced() -> None:
    with Broker() as broker, socket.create_connection(("127.0.0.1", broker.port)):
        listeners = broker.inside.server.services.listeners
        while not (open_now := broker.inside.call(lambda: list(listeners.connections))):
            pass
        assert algorithm(open_now[0].transport._sock) == congestion.RENO  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("peer", "local", "is_local"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.1.1", True),
        ("::1", "::1", True),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", True),
        ("10.0.0.7", "10.0.0.7", True),
        ("10.0.0.8", "10.0.0.7", False),
        ("::1234", "fd00::7", False),
    ],
)
def test_who_is_local(peer: str, local: str, is_local: bool) -> None:
    assert congestion.is_local(peer, local) is is_local


def test_a_system_that_does_not_allow_it_keeps_its_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(congestion, "RENO", b"no-such-one")
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        before = algorithm(accepted)
        congestion.spare_local_peer(accepted)
        assert algorithm(accepted) == before
