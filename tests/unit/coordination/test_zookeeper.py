"""What only the tree in ZooKeeper must do: live with a server that is not there, or goes away."""

from __future__ import annotations

import asyncio
import socket

import pytest

from barnabas.coordination.tree import ConnectionLost, Event, EventKind

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
