"""Implementations of the znode tree under one contract."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from barnabas.coordination.local import LocalStore
from barnabas.coordination.served import ServedTree, TreeServer
from barnabas.coordination.tree import ZnodeTree

T = TypeVar("T")

_chroots = itertools.count()


class Ensemble(Protocol):
    """A place with trees: sessions can be opened and made to expire."""

    async def session(self) -> ZnodeTree: ...

    async def expire(self, tree: ZnodeTree) -> None: ...

    async def close(self) -> None: ...


class LocalEnsemble:
    def __init__(self, path: Path | None) -> None:
        self._store = LocalStore(path)

    async def session(self) -> ZnodeTree:
        return self._store.session()

    async def expire(self, tree: ZnodeTree) -> None:
        self._store.expire(tree.session_id)

    async def close(self) -> None:
        self._store.close()


class ServedEnsemble:
    """The embedded tree, served to other processes; each session is that of another process."""

    def __init__(self, folder: Path) -> None:
        self._store = LocalStore(None)
        self._path = folder / "znodes.sock"
        self._server: TreeServer | None = None
        self._open: list[ZnodeTree] = []

    async def session(self) -> ZnodeTree:
        if self._server is None:
            self._server = TreeServer(self._store, self._path)
            await self._server.start()
        tree = await ServedTree.open(self._path)
        self._open.append(tree)
        return tree

    async def expire(self, tree: ZnodeTree) -> None:
        self._store.expire(tree.session_id)

    async def close(self) -> None:
        for tree in self._open:
            await tree.close()
        if self._server is not None:
            await self._server.close()
        self._store.close()


class ZooKeeperEnsemble:
    """A fresh chroot of a running server."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._hosts = f"{address}/test-{next(_chroots)}"
        self._open: list[ZnodeTree] = []

    async def session(self) -> ZnodeTree:
        from barnabas.coordination.zookeeper import ZooKeeperTree

        tree = await ZooKeeperTree.open(self._hosts, session_timeout_s=30)
        self._open.append(tree)
        return tree

    async def expire(self, tree: Any) -> None:
        """Take the session over with its password, as ZooKeeper's documentation advises for tests, and end it."""
        from kazoo.client import KazooClient

        thief = KazooClient(self._address, client_id=tree.client.client_id)

        def steal() -> None:
            thief.start(10)
            thief.stop()
            thief.close()

        await asyncio.get_running_loop().run_in_executor(None, steal)

    async def close(self) -> None:
        await asyncio.gather(*(tree.close() for tree in self._open))


Scenario = Callable[[Ensemble], Awaitable[T]]
Runner = Callable[[Scenario[T]], T]


@pytest.fixture(params=["memory", "file", "served", "zookeeper"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Runner[object]:
    """Runs one scenario against an empty tree."""
    address = request.getfixturevalue("zookeeper_address") if request.param == "zookeeper" else ""

    async def body(scenario: Scenario[object]) -> object:
        ensemble: Ensemble
        if address:
            ensemble = ZooKeeperEnsemble(address)
        elif request.param == "served":
            ensemble = ServedEnsemble(tmp_path)
        else:
            ensemble = LocalEnsemble(tmp_path / "metadata.db" if request.param == "file" else None)
        try:
            return await scenario(ensemble)
        finally:
            await ensemble.close()

    return lambda scenario: asyncio.run(body(scenario))
