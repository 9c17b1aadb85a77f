"""What only the tree in ZooKeeper must do: live with a server that is not there, or goes away."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from barnabas.coordination.tree import (
    ConnectionLost,
    Event,
    EventKind,
    NotAllowed,
    SessionExpired,
    TooLarge,
)
from tests.support.examples import one_in
from tests.support.zookeeper import ZooKeeperServer, zookeeper_jars

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
            for _ in range(6_000):
                if event in heard:
                    return
                await asyncio.sleep(0.01)
            raise AssertionError(f"{event} did not come; heard {heard}")

        await tree.create("/me", ephemeral=True)
        await tree.watch("/", heard.append)
        tree.client._connection._socket.shutdown(socket.SHUT_RDWR)
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


def test_a_server_of_another_kind_is_no_zookeeper() -> None:
    """A web server's port in zookeeper.connect, for instance: it answers, and hangs up."""
    from barnabas.coordination.zookeeper import ZooKeeperTree

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        answers = threading.Thread(target=_answer_as_a_web_server, args=(other,), daemon=True)
        answers.start()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ConnectionLost, match="no ZooKeeper server answered"):
            asyncio.run(ZooKeeperTree.open(address, connect_timeout_s=1))
        other.shutdown(socket.SHUT_RDWR)
    answers.join(60)


def _answer_as_a_web_server(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(1024)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def test_a_chroot_of_several_steps_is_made(zookeeper_address: str) -> None:
    from barnabas.coordination.zookeeper import ZooKeeperTree

    async def scenario() -> None:
        tree = await ZooKeeperTree.open(f"{zookeeper_address}/deep/er/down/")
        await tree.create("/here", b"")
        await tree.close()
        whole = await ZooKeeperTree.open(zookeeper_address)
        assert await whole.exists("/deep/er/down/here") is not None
        await whole.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("chroot", ["kafka", "kafka-acl", "c", "brokers"])
def test_a_chroot_that_a_path_begins_with_is_removed_once(zookeeper_address: str, chroot: str) -> None:
    """`/kafka` is the usual chroot, and `/kafka-acl` where the access rules are."""
    from barnabas.coordination.zookeeper import ZooKeeperTree
    from barnabas.cores.znode_ops import Create

    paths = ["/kafka", "/kafka-acl", "/controller", "/c", "/brokers"]

    async def scenario() -> None:
        tree = await ZooKeeperTree.open(f"{zookeeper_address}/{chroot}")
        heard: asyncio.Queue[Event] = asyncio.Queue()
        await tree.watch("/", heard.put_nowait)
        assert await tree.multi([Create(path) for path in paths]) == paths
        assert [(await heard.get()).path for _ in paths] == paths
        assert await tree.create("/kafka-acl/Topic") == "/kafka-acl/Topic"
        await tree.close()
        whole = await ZooKeeperTree.open(zookeeper_address)
        await whole.delete(f"/{chroot}", recursive=True)
        await whole.close()

    asyncio.run(scenario())


def test_a_server_that_stands_still_holds_no_call_up(own_zookeeper: ZooKeeperServer) -> None:
    """Its socket stays open, so only deadlines help. The holder hears of it while its session still lives, and not
    only when it makes a call; when the server goes on, an ended session is not used again.
    """
    from barnabas.coordination.zookeeper import ZooKeeperTree

    async def scenario() -> None:
        tree = await ZooKeeperTree.open(own_zookeeper.address, session_timeout_s=6)
        heard: asyncio.Queue[tuple[EventKind, float]] = asyncio.Queue()
        await tree.watch("/", lambda event: heard.put_nowait((event.kind, time.monotonic())))
        await tree.create("/me", ephemeral=True)
        assert (await heard.get())[0] == EventKind.CREATED
        os.kill(own_zookeeper.pid, signal.SIGSTOP)
        try:
            stopped_s, safe_until_s = time.monotonic(), tree.safe_until_s
            assert stopped_s < safe_until_s <= stopped_s + 6
            kind, at_s = await heard.get()
            assert kind == EventKind.DISCONNECTED
            assert at_s < tree.safe_until_s < stopped_s + 6.5  # an answer may have been under way
            for call in (tree.get("/me"), tree.subtree("/"), tree.create("/x"), tree.watch("/y", print)):
                began_s = time.monotonic()
                with pytest.raises(ConnectionLost):
                    await call
                assert time.monotonic() - began_s < 6
            assert time.monotonic() > tree.safe_until_s  # 16 s later: nobody may act for this session now
        finally:
            os.kill(own_zookeeper.pid, signal.SIGCONT)
        # Back within the session's time or not: the holder hears which of the two.
        kind = (await heard.get())[0]
        while kind == EventKind.DISCONNECTED:
            kind = (await heard.get())[0]
        assert kind in (EventKind.RECONNECTED, EventKind.EXPIRED)
        if kind == EventKind.EXPIRED:
            with pytest.raises(SessionExpired):
                await tree.get("/me")
        else:
            assert time.monotonic() < tree.safe_until_s
            assert await tree.exists("/me") is not None
        await tree.close()

    asyncio.run(scenario())


def test_a_session_is_safe_as_long_as_beats_are_answered(zookeeper_address: str) -> None:
    """The time that the server grants counts, and not the one that was asked for."""
    from barnabas.coordination.zookeeper import ZooKeeperTree

    async def scenario() -> None:
        asked_s = time.monotonic()
        tree = await ZooKeeperTree.open(f"{zookeeper_address}/safe", session_timeout_s=0.1)
        granted_s = tree.session_timeout_s
        assert granted_s == 1.0  # two ticks of the test's server
        first_s = tree.safe_until_s
        assert asked_s < first_s < time.monotonic() + granted_s
        async with asyncio.timeout(30):
            while tree.safe_until_s < first_s + 2 * granted_s:
                assert tree.safe_until_s < time.monotonic() + granted_s
                await asyncio.sleep(0.01)
        await tree.close()

    asyncio.run(scenario())


def test_large_trees_are_read_and_removed(zookeeper_address: str) -> None:
    from barnabas.coordination.zookeeper import ZooKeeperTree
    from barnabas.cores.znode_ops import Create, chunks

    async def scenario() -> None:
        tree = await ZooKeeperTree.open(f"{zookeeper_address}/large", session_timeout_s=30)
        await tree.create("/many")
        for chunk in chunks(Create(f"/many/{number:05}", b"x" * 50) for number in range(30_000)):
            await tree.multi(chunk)
        neighbours = [asyncio.ensure_future(tree.exists("/many")) for _ in range(50)]
        below = await tree.subtree("/many")
        assert len(below) == 30_001
        assert below["/many/29999"][0] == b"x" * 50
        await tree.delete("/many", recursive=True)
        assert await tree.children("/") == []
        assert all(await asyncio.gather(*neighbours))
        await tree.close()

    asyncio.run(scenario())


def test_a_chroot_counts_in_the_size_of_changes(zookeeper_address: str) -> None:
    from barnabas.coordination.zookeeper import ZooKeeperTree
    from barnabas.cores.znode_ops import Create, chunks

    async def scenario() -> None:
        tree = await ZooKeeperTree.open(f"{zookeeper_address}/{'long' * 100}", session_timeout_s=30)
        ops = [Create(f"/{number}") for number in range(5000)]
        with pytest.raises(TooLarge, match="5000 changes of"):
            await tree.multi(ops)
        for chunk in chunks(ops):
            await tree.multi(chunk)
        assert len(await tree.children("/")) == 5000
        await tree.close()

    asyncio.run(scenario())


def test_nodes_belong_to_the_digest_login_that_made_them(zookeeper_address: str) -> None:
    from kazoo.client import KazooClient

    from barnabas.coordination.zookeeper import ZooKeeperTree
    from barnabas.coordination.zookeeper_access import Access

    async def scenario() -> None:
        hosts = f"{zookeeper_address}/digest"
        owner = await ZooKeeperTree.open(hosts, access=Access(digest="broker:secret", protect=True))
        await owner.create("/brokers/ids/1", b"{}", ephemeral=True, make_parents=True)
        await owner.create("/config/users/alice", b"scram", make_parents=True)
        await owner.create("/cluster/secret", b"random", make_parents=True)
        for access in (Access(), Access(digest="broker:guessed")):
            stranger = await ZooKeeperTree.open(hosts, access=access)
            assert (await stranger.get("/brokers/ids/1"))[0] == b"{}"
            for call in (
                stranger.set("/brokers/ids", b"x"),
                stranger.create("/brokers/ids/2"),
                stranger.delete("/brokers/ids/1"),
                stranger.get("/config/users/alice"),
                stranger.get("/cluster/secret"),
                stranger.subtree("/config"),
            ):
                with pytest.raises(NotAllowed, match="its ACL in ZooKeeper does not let this broker"):
                    await call
            await stranger.close()
        again = await ZooKeeperTree.open(hosts, access=Access(digest="broker:secret"))
        await again.set("/config/users/alice", b"changed")
        await again.close()
        await owner.close()

    asyncio.run(scenario())
    theirs = KazooClient(
        f"{zookeeper_address}/digest"
    )  # another program sees the ACLs that Kafka's tools expect
    theirs.start()
    try:
        acls, _ = theirs.get_acls("/brokers/ids")
        assert sorted((acl.id.scheme, acl.perms) for acl in acls) == [("digest", 31), ("world", 1)]
    finally:
        theirs.stop()
        theirs.close()


def test_an_acl_without_a_login_is_refused(zookeeper_address: str) -> None:
    from barnabas.coordination.zookeeper import ZooKeeperTree
    from barnabas.coordination.zookeeper_access import Access

    with pytest.raises(NotAllowed, match="takes no ACL from a session without a login"):
        asyncio.run(ZooKeeperTree.open(f"{zookeeper_address}/nobody", access=Access(protect=True)))


JAAS = """Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="kafka-123";
};
"""


@pytest.fixture
def sasl_zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A server whose users are in a JAAS file, and which serves nobody else."""
    jars = zookeeper_jars()
    if jars is None or find_spec("puresasl") is None:
        pytest.skip("needs java, pyspark, kazoo and pure-sasl")
    (tmp_path / "jaas.conf").write_text(JAAS)
    server = ZooKeeperServer(
        jars,
        tmp_path,
        "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\nsessionRequireClientSASLAuth=true\n",
        (f"-Djava.security.auth.login.config={tmp_path / 'jaas.conf'}",),
    )
    try:
        yield server.start()
    finally:
        server.kill()


def test_sasl_as_brokers_are_given_it(sasl_zookeeper: ZooKeeperServer, tmp_path: Path, monkeypatch) -> None:
    """By a JAAS file in KAFKA_OPTS, with zookeeper.set.acl, as Kafka's documentation says."""
    from barnabas.broker.cluster.trees import tree_opener
    from barnabas.config.loader import load
    from barnabas.coordination.zookeeper import ZooKeeperTree
    from barnabas.runtime.machine import Machine

    login = tmp_path / "client.conf"
    monkeypatch.setenv("KAFKA_OPTS", f"-Xmx1g -Djava.security.auth.login.config={login}")
    settings = {
        "zookeeper.connect": f"{sasl_zookeeper.address}/sasl",
        "zookeeper.set.acl": "true",
        "zookeeper.connection.timeout.ms": "60000",  # on a busy machine
        "log.dirs": str(tmp_path / "log"),
    }

    def opened(password: str) -> Any:
        login.write_text(
            "Client { org.apache.zookeeper.server.auth.DigestLoginModule required\n"
            f'  username="kafka" password="{password}"; }};\n'
        )
        return tree_opener(load(overrides=settings), Machine())[0]()

    async def scenario() -> None:
        tree = await opened("kafka-123")
        await tree.create("/brokers")
        acls, _ = tree.client.get_acls("/brokers")
        assert sorted((acl.id.scheme, acl.id.id) for acl in acls) == [("sasl", "kafka"), ("world", "anyone")]
        await tree.close()
        with pytest.raises(NotAllowed, match="ZooKeeper refused the login; check user and password"):
            await opened("guessed")
        with pytest.raises(NotAllowed, match="serves nobody without a SASL login"):
            await ZooKeeperTree.open(sasl_zookeeper.address)

    asyncio.run(scenario())


@pytest.mark.parametrize("attempt", one_in(3, range(3)))
def test_a_server_without_logins_refuses_ours(tmp_path: Path, attempt: int) -> None:
    """It hangs up instead of saying so; that is told as a refused login, not as a server that does not answer."""
    from barnabas.coordination.zookeeper import ZooKeeperTree
    from barnabas.coordination.zookeeper_access import Access, SaslLogin

    jars = zookeeper_jars()
    if jars is None or find_spec("puresasl") is None:
        pytest.skip("needs java, pyspark, kazoo and pure-sasl")
    server = ZooKeeperServer(jars, tmp_path)
    login = SaslLogin("DIGEST-MD5", username=f"user-{attempt}", password="x")
    try:
        server.start()
        with pytest.raises(
            NotAllowed, match="ZooKeeper refused the login; check user and password in the Client section"
        ):
            asyncio.run(ZooKeeperTree.open(server.address, access=Access(sasl=login), connect_timeout_s=60.0))
    finally:
        server.kill()
