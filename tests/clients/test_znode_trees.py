"""A broker keeps the same promises whether its metadata lies in SQLite or in a ZooKeeper."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from kafka import KafkaConsumer, KafkaProducer

from tests.support.process import BrokerProcess, free_port
from tests.support.zookeeper import ZooKeeperServer

SESSION_MS = 3000


class Tree:
    """Makes brokers whose metadata lies in one place."""

    def __init__(self, folder: Path, zookeeper: str | None) -> None:
        self._folder = folder
        self._started: list[BrokerProcess] = []
        self.options: dict[str, str] = {}
        if zookeeper is not None:
            self.options["zookeeper.connect"] = f"{zookeeper}/{uuid.uuid4()}"
            self.options["zookeeper.session.timeout.ms"] = str(SESSION_MS)
            self.options["zookeeper.connection.timeout.ms"] = "60000"

    def broker(self) -> BrokerProcess:
        process = BrokerProcess(self._folder / f"data{len(self._started)}", options=self.options)
        self._started.append(process)
        return process.start()

    def kill(self) -> None:
        for process in self._started:
            process.kill()


@pytest.fixture(params=["sqlite", "zookeeper"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tree]:
    zookeeper = request.getfixturevalue("zookeeper_address") if request.param == "zookeeper" else None
    started = Tree(tmp_path, zookeeper)
    yield started
    started.kill()


@pytest.fixture
def znodes(zookeeper_address: str, tmp_path: Path) -> Iterator[tuple[Tree, Any]]:
    """A broker's ZooKeeper tree, and kazoo to look at it from outside."""
    kazoo_client = pytest.importorskip("kazoo.client")
    started = Tree(tmp_path, zookeeper_address)
    client = kazoo_client.KazooClient(started.options["zookeeper.connect"])
    client.start(20)
    client.ensure_path("/")
    yield started, client
    client.stop()
    client.close()
    started.kill()


def until(holds: Callable[[], object]) -> Any:
    """Its first true answer; fails when none comes for long."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        outcome = holds()
        if outcome:
            return outcome
        time.sleep(0.05)
    raise AssertionError("it did not come true")


def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def create(broker: BrokerProcess, name: str, partitions: int = 1, **configs: str) -> None:
    config = {key.replace("_", "."): text for key, text in configs.items()}
    client = admin(broker)
    client.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(30)


def partitions(broker: BrokerProcess) -> dict[str, int]:
    client = admin(broker)
    topics = client.list_topics(timeout=120).topics
    return {name: len(topic.partitions) for name, topic in topics.items() if not name.startswith("__")}


def option(broker: BrokerProcess, topic: str, name: str) -> str:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    client = admin(broker)
    value = client.describe_configs([resource])[resource].result(30)[name].value
    assert isinstance(value, str)
    return value


def produce(broker: BrokerProcess, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


def consume(broker: BrokerProcess, topic: str, group: str, count: int) -> list[str]:
    """The next `count` values for a group, which commits what it has read."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values = []
    deadline = time.monotonic() + 120
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            values.append(message.value().decode())
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def test_topics_and_options_are_made_changed_and_deleted(tree: Tree) -> None:
    broker = tree.broker()
    create(broker, "t", 3, retention_ms="60000")
    with pytest.raises(KafkaException, match="already exists"):
        create(broker, "t")
    client = admin(broker)
    client.create_partitions([NewPartitions("t", 5)])["t"].result(30)
    assert partitions(broker) == {"t": 5}
    assert option(broker, "t", "retention.ms") == "60000"
    entry = ConfigEntry("retention.ms", "70000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=[entry])
    client = admin(broker)
    client.incremental_alter_configs([resource])[resource].result(30)
    assert option(broker, "t", "retention.ms") == "70000"
    client = admin(broker)
    client.delete_topics(["t"])["t"].result(30)
    assert partitions(broker) == {}
    create(broker, "t")
    assert partitions(broker) == {"t": 1}
    assert option(broker, "t", "retention.ms") == "604800000"


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_everything_is_there_after_a_restart(tree: Tree, end: str) -> None:
    """After kill -9 the old session is still registered for a while; the broker waits for that to end."""
    broker = tree.broker()
    create(broker, "t", 2, retention_ms="60000000")
    create(broker, "gone")
    client = admin(broker)
    client.delete_topics(["gone"])["gone"].result(30)
    values = [f"v{number}" for number in range(100)]
    produce(broker, "t", values)
    assert consume(broker, "t", "g", 40)[:40] == values[:40]
    getattr(broker, end)()
    broker.start()
    assert partitions(broker) == {"t": 2}
    assert option(broker, "t", "retention.ms") == "60000000"
    create(broker, "more")
    produce(broker, "t", ["last"])
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    (committed,) = reader.committed([TopicPartition("t", 0)], timeout=120)
    reader.close()
    assert committed.offset >= 40
    assert consume(broker, "t", "fresh", 101) == [*values, "last"]


def test_other_clients_produce_and_consume(tree: Tree) -> None:
    broker = tree.broker()
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(50):
        producer.send("auto", b"k%d" % number)
    producer.flush(60)
    producer.close()

    async def with_aiokafka() -> list[bytes]:
        writer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
        await writer.start()
        for number in range(50):
            await writer.send_and_wait("auto", b"a%d" % number, partition=0)
        await writer.stop()
        reader = AIOKafkaConsumer(
            "auto", bootstrap_servers=broker.bootstrap, group_id="a", auto_offset_reset="earliest"
        )
        await reader.start()
        payloads = [message.value async for message, _ in _limited(reader, 100)]
        await reader.stop()
        return payloads

    values = asyncio.run(asyncio.wait_for(with_aiokafka(), 100))
    assert sorted(values) == sorted(b"%s%d" % (kind, number) for kind in (b"k", b"a") for number in range(50))
    old = KafkaConsumer(
        "auto", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    read = [next(old).value for _ in range(100)]
    old.close()
    assert read == values


async def _limited(reader: AIOKafkaConsumer, count: int) -> Any:
    for number in range(count):
        yield await reader.getone(), number


def test_producer_ids_are_never_given_twice(tree: Tree) -> None:
    broker = tree.broker()
    create(broker, "t")
    produce(broker, "t", ["one"])
    broker.kill()
    broker.start()
    # Were the id the same, its sequence would begin anew, and the batch be dropped as a duplicate.
    produce(broker, "t", ["two"])
    assert consume(broker, "t", "g", 2) == ["one", "two"]


# --- what only ZooKeeper has ----------------------------------------------------------------------------


def test_the_nodes_are_kafka_s(znodes: tuple[Tree, Any]) -> None:
    tree, zookeeper = znodes
    broker = tree.broker()
    create(broker, "t", 2, retention_ms="1000")

    def read(path: str) -> dict[str, Any]:
        node: dict[str, Any] = json.loads(zookeeper.get(path)[0])
        return node

    registered = read("/brokers/ids/1")
    assert registered["version"] == 5
    assert (registered["host"], registered["port"]) == ("127.0.0.1", broker.port)
    assert registered["endpoints"] == [f"PLAINTEXT://127.0.0.1:{broker.port}"]
    assert registered["listener_security_protocol_map"] == {"PLAINTEXT": "PLAINTEXT"}
    assert zookeeper.get("/brokers/ids/1")[1].ephemeralOwner != 0
    assert (read("/controller")["brokerid"], zookeeper.get("/controller_epoch")[0]) == (1, b"1")
    topic = read("/brokers/topics/t")
    assert (topic["version"], topic["partitions"]) == (3, {"0": [1], "1": [1]})
    state = read("/brokers/topics/t/partitions/1/state")
    assert state == {"controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 0, "isr": [1]}
    assert read("/config/topics/t") == {"version": 1, "config": {"retention.ms": "1000"}}
    broker.stop()
    assert zookeeper.exists("/brokers/ids/1") is None
    assert zookeeper.exists("/controller") is None


def test_topics_that_older_tools_write_into_zookeeper(znodes: tuple[Tree, Any]) -> None:
    tree, zookeeper = znodes
    broker = tree.broker()
    zookeeper.create("/config/topics/old", b'{"version":1,"config":{"retention.ms":"5000"}}')
    zookeeper.create("/brokers/topics/old", b'{"version":1,"partitions":{"0":[1],"1":[1]}}')
    until(lambda: partitions(broker) == {"old": 2})
    assert option(broker, "old", "retention.ms") == "5000"
    produce(broker, "old", ["value"])
    zookeeper.set("/config/topics/old", b'{"version":1,"config":{"retention.ms":"6000"}}')
    until(lambda: option(broker, "old", "retention.ms") == "6000")
    zookeeper.create("/admin/delete_topics/old")
    until(lambda: partitions(broker) == {})
    until(lambda: zookeeper.exists("/brokers/topics/old") is None)


def test_a_session_that_ends_costs_no_record(znodes: tuple[Tree, Any]) -> None:

    tree, zookeeper = znodes
    broker = tree.broker()
    create(broker, "t")
    owner = zookeeper.get("/brokers/ids/1")[1].ephemeralOwner
    os.kill(broker.pid, signal.SIGSTOP)
    until(lambda: zookeeper.exists("/brokers/ids/1") is None)
    os.kill(broker.pid, signal.SIGCONT)
    until(lambda: (stat := zookeeper.exists("/brokers/ids/1")) is not None and stat.ephemeralOwner != owner)
    until(lambda: zookeeper.exists("/controller"))
    create(broker, "after")
    produce(broker, "t", ["value"])
    assert consume(broker, "t", "g", 1) == ["value"]


def test_zookeeper_is_away_for_a_while(own_zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """Records flow without it; metadata is refused with an error that can be tried again, and then goes on."""
    tree = Tree(tmp_path, own_zookeeper.address)
    try:
        broker = tree.broker()
        create(broker, "t")
        produce(broker, "t", ["before"])
        own_zookeeper.kill()
        until(lambda: "does not answer" in broker.log())
        produce(broker, "t", ["meanwhile"])
        with pytest.raises(KafkaException, match="metadata tree does not answer"):
            create(broker, "u")
        own_zookeeper.start()
        until(lambda: _created(broker, "v"))
        assert consume(broker, "t", "g", 2) == ["before", "meanwhile"]
    finally:
        tree.kill()


def _created(broker: BrokerProcess, name: str) -> bool:
    try:
        create(broker, name)
    except KafkaException as error:
        return "already exists" in str(error)
    return True


def start(folder: Path, **options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "barnabas", "start", "--listen", f"127.0.0.1:{free_port()}"]
    command += ["--data", str(folder)]
    for name, value in options.items():
        command += ["-o", f"{name.replace('_', '.')}={value}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_start_without_zookeeper_waits_for_it_until_it_is_told_to_end(tmp_path: Path, number: int) -> None:
    pytest.importorskip("kazoo")
    address, stderr_file = f"127.0.0.1:{free_port()}", tmp_path / "said"
    options = ["-o", f"zookeeper.connect={address}", "-o", "zookeeper.connection.timeout.ms=300"]
    command = [sys.executable, "-m", "barnabas", "start", "--data", str(tmp_path / "data"), *options]
    with stderr_file.open("wb") as stderr:
        process = subprocess.Popen([*command, "--listen", f"127.0.0.1:{free_port()}"], stderr=stderr)
    try:
        until(lambda: stderr_file.read_text().count("the broker waits for it") > 1)
        process.send_signal(number)
        assert process.wait(60) == 0
    finally:
        process.kill()
    assert (
        f"{address}: no ZooKeeper server answered within 0.3 s; check zookeeper.connect"
        in stderr_file.read_text()
    )
    assert "Traceback" not in stderr_file.read_text()


def test_a_broker_that_waits_for_zookeeper_serves_once_it_is_there(
    own_zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    own_zookeeper.kill()
    options = {"zookeeper.connect": own_zookeeper.address, "zookeeper.connection.timeout.ms": "1000"}
    broker = BrokerProcess(tmp_path / "data", options=options)
    starting = threading.Thread(target=broker.start)
    starting.start()
    try:
        until(lambda: "the broker waits for it" in broker.log())
        own_zookeeper.start()
        starting.join()
        create(broker, "t")
    finally:
        starting.join()
        broker.kill()


def test_a_broker_that_stops_while_zookeeper_is_away_says_so_in_a_line(
    own_zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    options = {"zookeeper.connect": own_zookeeper.address, "zookeeper.session.timeout.ms": str(SESSION_MS)}
    brokers = [
        BrokerProcess(tmp_path / f"b{number}", options={**options, "node.id": str(number)}).start()
        for number in (1, 2)
    ]
    try:
        admin = AdminClient({"bootstrap.servers": brokers[0].bootstrap})
        until(lambda: len(admin.list_topics(timeout=10).brokers) == 2)
        admin.create_topics([NewTopic("t", 4, 2)])["t"].result(30)
        own_zookeeper.kill()
        until(lambda: "the metadata tree does not answer" in brokers[0].log())
        assert brokers[0].stop() == 0
        assert "leadership was not handed over" in brokers[0].log()
        assert "Traceback" not in brokers[0].log()
    finally:
        for broker in brokers:
            broker.kill()


def test_the_data_of_another_cluster_is_refused_with_one_line(zookeeper_address: str, tmp_path: Path) -> None:
    (
        tmp_path / "t-0"
    ).mkdir()  # without a log it would be taken for a dir that was formatted for this cluster
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=theirs\nnode.id=1\n")
    ended = start(tmp_path, zookeeper_connect=f"{zookeeper_address}/{tmp_path.name}")
    assert ended.returncode == 1
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("barnabas:")]
    assert re.fullmatch(
        rf"barnabas: {tmp_path} belongs to cluster theirs, not to \S+; choose another log dir", line
    )
    assert "Traceback" not in ended.stderr


def test_a_second_broker_of_the_same_id_is_refused_with_one_line(
    zookeeper_address: str, tmp_path: Path
) -> None:
    tree = Tree(tmp_path, zookeeper_address)
    # On a busy machine, the first broker must not lose its session meanwhile: then the second one would take its place.
    tree.options["zookeeper.session.timeout.ms"] = "60000"
    try:
        broker = tree.broker()
        where = tree.options["zookeeper.connect"]
        # The second one waits for a little longer than its own session, which must be long enough to get there.
        times = {"zookeeper_session_timeout_ms": "3000", "zookeeper_connection_timeout_ms": "60000"}
        same = start(tmp_path / "same", zookeeper_connect=where, **times)
        assert same.returncode == 1
        assert "barnabas: a broker with node.id=1 is registered already: /brokers/ids/1" in same.stderr
        assert "Traceback" not in same.stderr
        create(broker, "t")
    finally:
        tree.kill()
