"""TLS to ZooKeeper as zookeeper.ssl.* asks for it, against a real server that wants a certificate of its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.cluster.trees import tree_opener
from barnabas.config.loader import load
from barnabas.coordination.tree import ConnectionLost, NotAllowed, TreeError
from barnabas.runtime.machine import Machine
from tests.security.certificates import PASSWORD, Certificates
from tests.support.process import free_port
from tests.support.zookeeper import ZooKeeperServer, zookeeper_jars

CONFIG = """
secureClientPort={port}
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider
ssl.keyStore.location={folder}/server-store.pem
ssl.keyStore.type=PEM
ssl.trustStore.location={folder}/ca.pem
ssl.trustStore.type=PEM
"""


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Certificates]]:
    jars = zookeeper_jars()
    if jars is None:
        pytest.skip("needs java, pyspark and kazoo")
    folder = tmp_path_factory.mktemp("secure-zookeeper")
    certificates, port = Certificates(folder / "certificates"), free_port()
    server = ZooKeeperServer(jars, folder, CONFIG.format(port=port, folder=certificates.folder))
    try:
        server.start()
        yield port, certificates
    finally:
        server.kill()


def opened(port: int, folder: Path, **settings: str) -> Any:
    options = {
        "zookeeper.connect": f"localhost:{port}/secure",
        "zookeeper.connection.timeout.ms": "20000",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "log.dirs": str(folder / "log"),
    }
    for name, value in settings.items():
        options[f"zookeeper.{name.replace('_', '.')}"] = value
    return tree_opener(load(overrides=options), Machine())[0]()


def test_nodes_belong_to_the_certificate(secure: tuple[int, Certificates], tmp_path: Path) -> None:
    port, certificates = secure

    async def scenario() -> None:
        tree = await opened(
            port,
            tmp_path,
            ssl_keystore_location=certificates.pkcs12("client"),
            ssl_keystore_password=PASSWORD,
            ssl_truststore_location=certificates.file("ca.pem"),
            set_acl="true",
        )
        await tree.create("/brokers", b"x" * 300_000)
        assert len((await tree.get("/brokers"))[0]) == 300_000
        acls, _ = tree.client.get_acls("/brokers")
        assert sorted((acl.id.scheme, acl.id.id) for acl in acls) == [
            ("world", "anyone"),
            ("x509", "CN=client"),
        ]
        await tree.close()

    asyncio.run(scenario())


def test_what_is_wrong_with_certificates_is_said(secure: tuple[int, Certificates], tmp_path: Path) -> None:
    port, certificates = secure

    async def refused(**settings: str) -> str:
        with pytest.raises((TreeError, OSError)) as error:
            await opened(port, tmp_path, connection_timeout_ms="3000", **settings)
        return str(error.value)

    async def scenario() -> None:
        stranger = await refused(ssl_truststore_location=certificates.file("stranger-ca.pem"))
        assert "zookeeper.ssl.*, since TLS failed: " in stranger
        assert "certificate" in stranger
        missing = await refused(ssl_truststore_location=str(tmp_path / "none.pem"))
        assert missing.startswith("zookeeper.ssl.truststore.location: cannot read")
        reason = "since TLS failed: the server said: .*certificate"
        with pytest.raises(
            (ConnectionLost, NotAllowed), match=reason
        ):  # the server wants a certificate and gets none
            await opened(
                port,
                tmp_path,
                connection_timeout_ms="3000",
                ssl_truststore_location=certificates.file("ca.pem"),
            )

    asyncio.run(scenario())
