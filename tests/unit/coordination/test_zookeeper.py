"""What only the tree in ZooKeeper must do: live with a server that is not there, or goes away."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket

import pytest

from barnabas.coordination.tree import ConnectionLost, Event, EventKind, SessionExpired
from tests.support.zookeeper import ZooKeeperServer

pytest.importorskip("kazoo")


def test_a_server_that_is_not_there_is_named() -> None:
    from barnabas.coordination.zookeeper import ZooKeeperTree

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(
        ConnectionLost, match=r"no ZooKeeper server answered within 0\.3 s; check zookeeper\.connect"
    ):
        asyncio.run(ZooKeeperTree.open(address, connect_timeout_s=0.3))


def test_a_lost_connection_is_told_and_watches_go_on(zookeeper_address: str) -> None:
    from barnabas.coordination.zookeeper import ZooKeeperTree

    async def scenario() -> list[Event]:
        tree = await ZooKeeperTree.open(f"{zookeeper_address}/lost", session_timeout_s=10)
        heard: list[Event] = []

        async def until(event: Event) -> None:
            for _ in range(1000):
                if event in heard:
                    return
                await asyncio.sleep(0.01)
            raise AssertionError(f"{event} did not come; heard {heard}")

        await tree.create("/me", ephemeral=True)
        await tree.watch("/", heard.append)
        tree._client._connection._socket.shutdown(socket.SHUT_RDWR)
        await until(Event(EventKind.RECONNECTED))
        await tree.create("/after")
        await until(Event(EventKind.CREATED, "/after"))
        assert await tree.exists("/me") is not None
        await tree.close()
        return heard

    assert Event(EventKind.EXPIRED) not in asyncio.run(scenario())


def test_a_port_that_accepts_and_is_silent_is_no_zookeeper_either() -> None:
    from barnabas.coordination.zookeeper import ZooKeeperTree

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}/chroot"
        with pytest.raises(ConnectionLost, match="no ZooKeeper server answered"):
            asyncio.run(ZooKeeperTree.open(address, connect_timeout_s=0.5))


def test_a_server_that_stands_still_holds_no_call_up(own_zookeeper: ZooKeeperServer) -> None:
    """Its socket stays open, so only deadlines help. When it goes on, the session has ended and is not used again."""
    from barnabas.coordination.zookeeper import ZooKeeperTree

    async def scenario() -> None:
        tree = await ZooKeeperTree.open(own_zookeeper.address, session_timeout_s=2)
        heard: asyncio.Queue[EventKind] = asyncio.Queue()
        await tree.watch("/", lambda event: heard.put_nowait(event.kind))
        await tree.create("/me", ephemeral=True)
        assert await heard.get() == EventKind.CREATED
        os.kill(own_zookeeper.pid, signal.SIGSTOP)
        try:
            with contextlib.suppress(ConnectionLost):
                while True:  # a call or two may still be answered
                    await tree.get("/me")
            with pytest.raises(ConnectionLost):
                await tree.get("/me")
            with pytest.raises(ConnectionLost):
                await tree.subtree("/")
            assert await heard.get() == EventKind.DISCONNECTED
        finally:
            os.kill(own_zookeeper.pid, signal.SIGCONT)
        # Back within the session's time or not: the holder hears which of the two.
        kind = await heard.get()
        while kind == EventKind.DISCONNECTED:
            kind = await heard.get()
        assert kind in (EventKind.RECONNECTED, EventKind.EXPIRED)
        if kind == EventKind.EXPIRED:
            with pytest.raises(SessionExpired):
                await tree.get("/me")
        else:
            await tree.get("/")
        await tree.close()

    asyncio.run(scenario())
