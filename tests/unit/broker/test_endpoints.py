"""The addresses that clients are told: brokers of one cluster say the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.api.endpoints import Endpoints, host_of_this_machine
from barnabas.config.loader import load
from barnabas.cores.znode_layout import Broker

Told = list[tuple[int, str, int]]


class Cluster:
    """Brokers that register what they announce; `tell` is what one of them answers a client."""

    def __init__(self) -> None:
        self.alive: dict[int, Broker] = {}
        self._endpoints: dict[int, Endpoints] = {}

    def start(self, node: int, listener: str, *, towards: str | None = "127.0.0.1", **options: str) -> None:
        texts = {name.replace("_", "."): text for name, text in options.items()}
        config = load(overrides={"node.id": str(node), "listeners": listener, "log.dirs": "x", **texts})
        endpoints = Endpoints(config, node, lambda: self.alive)
        registered = endpoints.to_register({"PLAINTEXT": 9090 + node}, lambda _host, _port, _v6: towards)
        self.alive[node] = Broker(node, tuple(registered))
        self._endpoints[node] = endpoints

    def tell(self, node: int, reached_at: str) -> Told:
        connection: Any = SimpleNamespace(listener="PLAINTEXT", local_host=reached_at, local_port=9090 + node)
        return [
            (endpoint.node_id, endpoint.host, endpoint.port)
            for endpoint in self._endpoints[node].all(connection)
        ]


def test_a_broker_alone_tells_the_address_that_was_used() -> None:
    cluster = Cluster()
    cluster.start(1, "PLAINTEXT://localhost:9091", zookeeper_connect="zoo:2181")
    assert cluster.tell(1, "127.0.0.1") == [(1, "127.0.0.1", 9091)]
    assert cluster.tell(1, "::1") == [(1, "::1", 9091)]


@pytest.mark.parametrize("reached_at", ["127.0.0.1", "::1"])
def test_brokers_of_one_cluster_tell_the_same(reached_at: str) -> None:
    cluster = Cluster()
    for node in (1, 2, 3):
        cluster.start(node, f"PLAINTEXT://localhost:{9090 + node}", zookeeper_connect="localhost:2181")
    answers = [cluster.tell(node, reached_at) for node in (1, 2, 3)]
    assert answers == [[(1, "localhost", 9091), (2, "localhost", 9092), (3, "localhost", 9093)]] * 3


def test_the_last_one_alive_tells_what_it_told_before() -> None:
    cluster = Cluster()
    for node in (1, 2):
        cluster.start(node, f"PLAINTEXT://localhost:{9090 + node}", zookeeper_connect="localhost:2181")
    cluster.tell(2, "127.0.0.1")
    del cluster.alive[1]
    assert cluster.tell(2, "127.0.0.1") == [(2, "localhost", 9092)]


def test_brokers_on_all_addresses_of_one_machine_are_all_reached_where_one_was() -> None:
    cluster = Cluster()
    for node in (1, 2):
        cluster.start(node, "PLAINTEXT://:0")
    assert cluster.tell(1, "10.0.0.7") == cluster.tell(2, "10.0.0.7")
    assert cluster.tell(1, "10.0.0.7") == [(1, "10.0.0.7", 9091), (2, "10.0.0.7", 9092)]


def test_brokers_on_all_addresses_of_several_machines_are_named_by_their_own() -> None:
    cluster = Cluster()
    cluster.start(1, "PLAINTEXT://0.0.0.0:0", zookeeper_connect="zoo:2181", towards="10.0.0.1")
    cluster.start(2, "PLAINTEXT://[::]:0", zookeeper_connect="zoo:2181", towards="10.0.0.2")
    endpoints = [(1, "10.0.0.1", 9091), (2, "10.0.0.2", 9092)]
    assert cluster.tell(1, "192.168.0.9") == cluster.tell(2, "192.168.0.10") == endpoints


def test_addresses_stay_when_the_other_machine_dies_or_the_own_session_ends() -> None:
    cluster = Cluster()
    cluster.start(1, "PLAINTEXT://:0", zookeeper_connect="zoo:2181", towards="10.0.0.1")
    cluster.start(2, "PLAINTEXT://:0", zookeeper_connect="zoo:2181", towards="10.0.0.2")
    cluster.tell(1, "127.0.0.1")
    second = cluster.alive.pop(2)
    assert cluster.tell(1, "127.0.0.1") == [(1, "10.0.0.1", 9091)]
    cluster.alive = {2: second}  # broker 1 registers again soon
    assert cluster.tell(1, "127.0.0.1") == [(1, "10.0.0.1", 9091), (2, "10.0.0.2", 9092)]


def test_what_is_advertised_is_told_also_while_the_own_session_is_lost() -> None:
    cluster = Cluster()
    cluster.start(1, "PLAINTEXT://:0", advertised_listeners="PLAINTEXT://kafka1.example:9090")
    cluster.alive.clear()
    assert cluster.tell(1, "172.17.0.2") == [(1, "kafka1.example", 9090)]


def test_the_first_server_of_an_ensemble_may_be_on_this_machine() -> None:
    addresses = {"zoo1": "127.0.1.1", "zoo2": "10.0.0.1"}
    config = load(
        overrides={"node.id": "1", "log.dirs": "x", "zookeeper.connect": "zoo1:2181,zoo2:2181/kafka"}
    )
    assert host_of_this_machine(config, lambda host, _port, _v6: addresses[host]) == "10.0.0.1"


def test_what_is_advertised_goes_before_everything_else() -> None:
    cluster = Cluster()
    for node in (1, 2):
        cluster.start(node, "PLAINTEXT://:0", advertised_listeners=f"PLAINTEXT://kafka{node}.example:9090")
    endpoints = [(1, "kafka1.example", 9090), (2, "kafka2.example", 9090)]
    assert cluster.tell(1, "10.0.0.7") == cluster.tell(2, "10.0.0.8") == endpoints


@pytest.mark.parametrize(
    ("connect", "asked"),
    [
        ("zoo1:2182,zoo2:2182/chroot", ("zoo1", 2182)),
        ("zoo1/chroot", ("zoo1", 2181)),
    ],
)
def test_the_own_address_is_that_towards_zookeeper(connect: str, asked: tuple[str, int]) -> None:
    seen = []

    def towards(host: str, port: int, _v6: bool) -> str:
        seen.append((host, port))
        return "fd00::9"

    config = load(overrides={"node.id": "1", "log.dirs": "x", "zookeeper.connect": connect})
    assert host_of_this_machine(config, towards) == "fd00::9"
    assert seen == [asked]
    assert host_of_this_machine(config, lambda _host, _port, _v6: None) == "localhost"
    assert host_of_this_machine(config, lambda _host, _port, _v6: "127.0.1.1") == "localhost"
