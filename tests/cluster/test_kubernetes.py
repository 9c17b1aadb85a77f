"""The commands of packaging/kubernetes-cluster.yaml, run here: three brokers that the manifest's shell starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from tests.support.admin import admin
from tests.support.process import free_port
from tests.support.zookeeper import ZooKeeperServer, zookeeper_jars

ROOT = Path(__file__).parents[2]
SERVERS = "zookeeper-0.zookeeper:2181,zookeeper-1.zookeeper:2181,zookeeper-2.zookeeper:2181"


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[str]:
    jars = zookeeper_jars()
    if jars is None:
        pytest.skip("needs Java, PySpark and kazoo")
    folder = tmp_path / "zookeeper"
    folder.mkdir()
    server = ZooKeeperServer(jars, folder).start()
    yield server.address
    server.kill()


def start(
    number: int, port: int, folder: Path, zookeeper: str, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """The pod with this number: its files below `folder`, and names that only Kubernetes resolves replaced."""
    yaml = pytest.importorskip("yaml")
    manifests: list[Any] = list(
        yaml.safe_load_all((ROOT / "packaging" / "kubernetes-cluster.yaml").read_text())
    )
    (properties,) = (m["data"]["server.properties"] for m in manifests if m["kind"] == "ConfigMap")
    (container,) = (
        m["spec"]["template"]["spec"]["containers"][0]
        for m in manifests
        if m["kind"] == "StatefulSet" and m["metadata"]["name"] == "barnabas"
    )
    assert SERVERS in properties
    here = folder / f"broker-{number}"
    (here / "etc").mkdir(parents=True)
    replaced = {
        SERVERS: zookeeper,
        "/var/lib/barnabas": str(here),
        "/etc/barnabas": str(here / "etc"),
        "${HOSTNAME}.barnabas:9092": f"127.0.0.1:{port}",
        ":9092": f"127.0.0.1:{port}",
    }
    texts = [properties, *container["command"]]
    for old, new in replaced.items():
        texts = [text.replace(old, new) for text in texts]
    (here / "etc" / "server.properties").write_text(texts[0])
    with (here / "log").open("wb") as log:
        return subprocess.Popen(
            texts[1:],
            env={**environment, "HOSTNAME": f"barnabas-{number}"},
            stdout=subprocess.PIPE,
            stderr=log,
        )


def test_three_pods_are_a_cluster(tmp_path: Path, zookeeper: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ports = [free_port() for _ in range(3)]
    pods = [
        start(number, port, tmp_path, zookeeper, {**os.environ, "PATH": path})
        for number, port in enumerate(ports)
    ]
    try:
        for number, pod in enumerate(pods):
            assert pod.stdout is not None
            assert pod.stdout.readline().startswith(b"ready"), (
                tmp_path / f"broker-{number}" / "log"
            ).read_text()
        bootstrap = f"127.0.0.1:{ports[0]}"
        client = admin(bootstrap)
        client.create_topics([NewTopic("orders", 3)])["orders"].result(60)
        metadata = client.list_topics(timeout=60)
        while "orders" not in metadata.topics:  # another broker has created it
            metadata = client.list_topics(timeout=60)
        assert {broker.id: broker.port for broker in metadata.brokers.values()} == dict(enumerate(ports))
        assert all(
            len(partition.replicas) == 3 for partition in metadata.topics["orders"].partitions.values()
        )
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        for number in range(30):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(60) == 0
    finally:
        for pod in reversed(pods):
            pod.terminate()
        codes = [pod.wait(60) for pod in reversed(pods)]
        for pod in pods:
            assert pod.stdout is not None
            pod.stdout.close()
    assert codes == [0, 0, 0]
