"""Implementations of the znode tree under one contract."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from barnabas.coordination.local import LocalStore
from barnabas.coordination.tree import ZnodeTree

T = TypeVar("T")

ZOOKEEPER_CONFIG = """
tickTime=500
dataDir={folder}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
"""
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


class ZooKeeperEnsemble:
    """A fresh chroot of a running server."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._hosts = f"{address}/test-{next(_chroots)}"
        self._open: list[ZnodeTree] = []

    async def session(self) -> ZnodeTree:
        from barnabas.coordination.zookeeper import ZooKeeperTree

        tree = await ZooKeeperTree.open(self._hosts, session_timeout_s=4)
        self._open.append(tree)
        return tree

    async def expire(self, tree: ZnodeTree) -> None:
        """Take the session over with its password, as ZooKeeper's documentation advises for tests, and end it."""
        from kazoo.client import KazooClient

        thief = KazooClient(self._address, client_id=tree._client.client_id)

        def steal() -> None:
            thief.start(10)
            thief.stop()
            thief.close()

        await asyncio.get_running_loop().run_in_executor(None, steal)

    async def close(self) -> None:
        await asyncio.gather(*(tree.close() for tree in self._open))


def zookeeper_jars() -> Path | None:
    """Where PySpark keeps its jars, among them a ZooKeeper server's."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None or shutil.which("java") is None or find_spec("kazoo") is None:
        return None
    jars = Path(spec.origin).parent / "jars"
    return jars if list(jars.glob("zookeeper-3*.jar")) else None


@pytest.fixture(scope="session")
def zookeeper_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a ZooKeeper server; skips where there is no Java or PySpark."""
    jars = zookeeper_jars()
    if jars is None:
        pytest.skip("needs java, pyspark and kazoo")
    folder = tmp_path_factory.mktemp("zookeeper")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "zoo.cfg").write_text(ZOOKEEPER_CONFIG.format(folder=folder / "data", port=port))
    command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(folder / "zoo.cfg")]
    with (folder / "out.log").open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        wait_for_port(server, port, folder / "out.log")
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def wait_for_port(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(300):
        assert server.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"ZooKeeper does not listen: {log.read_text()}")


Scenario = Callable[[Ensemble], Awaitable[T]]
Runner = Callable[[Scenario[T]], T]


@pytest.fixture(params=["memory", "file", "zookeeper"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Runner[object]:
    """Runs one scenario against an empty tree."""
    address = request.getfixturevalue("zookeeper_address") if request.param == "zookeeper" else ""

    async def body(scenario: Scenario[object]) -> object:
        ensemble: Ensemble
        if address:
            ensemble = ZooKeeperEnsemble(address)
        else:
            ensemble = LocalEnsemble(tmp_path / "metadata.db" if request.param == "file" else None)
        try:
            return await scenario(ensemble)
        finally:
            await ensemble.close()

    return lambda scenario: asyncio.run(body(scenario))
