"""Rounds of faults of the network, of disks and of a ZooKeeper ensemble, under clients of many makes and transactions.

Three brokers and three ZooKeepers, each on a host of its own (`barnabas.testing.network`), each broker's data on a small
file system of its own. Besides what test_cluster.py does, brokers are cut off from each other, from ZooKeeper and from
everybody, disks fill up, and ZooKeepers die one at a time. Meanwhile franz-go, sarama, the Java client and kafka-python
write and read as well, and transactions are committed and aborted. Needs root.

    pytest tests/soak/test_cut_cluster.py -m soak --fault-rounds 50 --seed 7 -s
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from barnabas.testing.network import Network
from tests.clients import foreign
from tests.soak.test_cluster import BROKERS, PARTITIONS, Rounds, bring_faults, create_topic
from tests.support.cluster import Cluster, until
from tests.support.zookeeper import Ensemble, zookeeper_jars

FOREIGN = "foreign"
TRANSACTIONS = "transactions"
DISK_BYTES = 192 << 20
END_S = 300
ZOOKEEPERS = ("zk1", "zk2", "zk3")

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]


class CutRounds(Rounds):
    """The faults of test_cluster.py that concern brokers, and those that need hosts, disks and an ensemble."""

    def __init__(
        self,
        cluster: Cluster,
        ensemble: Ensemble,
        network: Network,
        disks: dict[int, Path],
        chance: random.Random,
    ) -> None:
        super().__init__(cluster, ensemble.servers[0], chance)
        self.ensemble = ensemble
        self.network = network
        self.disks = disks
        for name in ("kill ZooKeeper", "stop ZooKeeper for a while"):
            del self.faults[name]
        self.faults |= {
            "cut two brokers apart": self.cut_apart,
            "cut a broker off from ZooKeeper": self.cut_from_zookeeper,
            "cut a broker off from everybody": self.cut_off,
            "cut the controller off from everybody": self.cut_controller_off,
            "full disk": self.fill_disk,
            "empty disk": self.empty_disk,
            "kill one ZooKeeper of three": self.kill_one_zookeeper,
            "stop one ZooKeeper of three for a while": self.freeze_one_zookeeper,
        }

    def cut_apart(self) -> str:
        one, other = self.chance.sample(BROKERS, 2)
        self.network.part([f"b{one}"], [f"b{other}"])
        for_s = self._pause(12)
        self.network.mend([f"b{one}"], [f"b{other}"])
        return f"brokers {one} and {other} for {for_s:.1f} s"

    def cut_from_zookeeper(self) -> str:
        broker = self.chance.choice([*BROKERS, self.controller()])
        self.network.part([f"b{broker}"], ZOOKEEPERS)
        for_s = self._pause(12)
        self.network.mend([f"b{broker}"], ZOOKEEPERS)
        return f"broker {broker} for {for_s:.1f} s"

    def cut_off(self, broker: int | None = None) -> str:
        broker = broker or self.chance.choice(BROKERS)
        self.network.cut_zone(f"b{broker}")
        for_s = self._pause(12)
        self.network.join_zone(f"b{broker}")
        return f"broker {broker} for {for_s:.1f} s"

    def cut_controller_off(self) -> str:
        return self.cut_off(self.controller())

    def fill_disk(self) -> str:
        """No space is left for a while. A broker without a disk that works ends; one that still runs is started again."""
        broker = self.chance.choice(BROKERS)
        filler = self.disks[broker] / "filler"
        with filler.open("wb") as file, contextlib.suppress(OSError):
            while True:
                os.write(file.fileno(), bytes(1 << 16))
        full_s = 2 + self._pause(6)
        time.sleep(2)
        process = self.cluster.brokers[broker].process
        assert process is not None
        how = "still ran" if process.poll() is None else f"had ended with {process.poll()}"
        filler.unlink()
        self.cluster.brokers[broker].stop()
        self.cluster.brokers[broker].start()
        return f"broker {broker} for {full_s:.1f} s, {how}"

    def empty_disk(self) -> str:
        """A broker dies and comes back at once, with another disk."""
        broker = self.chance.choice(BROKERS)
        self.cluster.brokers[broker].kill()
        for entry in self.disks[broker].iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        self.cluster.brokers[broker].start()
        return f"broker {broker}"

    def kill_one_zookeeper(self) -> str:
        victim = self.chance.choice(self.ensemble.servers)
        victim.kill()
        away_s = self._pause(8)
        victim.start()
        return f"{victim.address}, back after {away_s:.1f} s"

    def freeze_one_zookeeper(self) -> str:
        victim = self.chance.choice(self.ensemble.servers)
        os.kill(victim.pid, signal.SIGSTOP)
        for_s = self._pause(10)
        os.kill(victim.pid, signal.SIGCONT)
        return f"{victim.address} for {for_s:.1f} s"


class Program:
    """A client in another language that writes and reads the topic until its input ends."""

    def __init__(self, name: str, command: list[str], bootstrap: str, log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [*command, bootstrap, f"{name}sustain", FOREIGN],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out,
            )  # fmt: skip

    def end(self) -> dict[str, Any]:
        """What it found."""
        out, _ = self.process.communicate(b"", timeout=END_S * 2)
        report: dict[str, Any] = json.loads(out.decode().strip().splitlines()[-1])
        assert report["ok"], f"{self.name}: {report.get('error')} {self.log.read_text()[-2000:]}"
        return report

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class KafkaPython(threading.Thread):
    """The same with kafka-python."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.ends = threading.Event()
        self.acknowledged: list[list[Any]] = []
        self.errors: list[str] = []
        servers = bootstrap.split(",")
        self._producer = KafkaProducer(
            bootstrap_servers=servers, acks="all", enable_idempotence=True, request_timeout_ms=15_000,
            delivery_timeout_ms=300_000, max_block_ms=120_000,
        )  # fmt: skip
        self._consumer = KafkaConsumer(
            FOREIGN, bootstrap_servers=servers, group_id="foreign-kafka-python", auto_offset_reset="earliest",
            session_timeout_ms=10_000,
        )  # fmt: skip
        self._seen: set[str] = set()

    def run(self) -> None:
        number = 0
        while not self.ends.is_set():
            value = f"kafka-python-{number}"
            sent = self._producer.send(FOREIGN, value.encode())
            sent.add_callback(lambda at, v=value: self.acknowledged.append([at.partition, at.offset, v]))
            sent.add_errback(lambda error: self.errors.append(repr(error)))
            number += 1
            self._read(50)
        self._producer.flush(END_S)
        deadline = time.monotonic() + END_S
        while self.unseen and time.monotonic() < deadline:
            self._read(500)
        self._consumer.close()
        self._producer.close()

    def _read(self, timeout_ms: int) -> None:
        # Where no coordinator is found, the next poll looks for it again.
        with contextlib.suppress(KafkaPythonError):
            for records in self._consumer.poll(timeout_ms).values():
                self._seen.update(record.value.decode() for record in records)

    @property
    def unseen(self) -> int:
        return sum(1 for row in list(self.acknowledged) if row[2] not in self._seen)

    def end(self) -> dict[str, Any]:
        self.ends.set()
        self.join(END_S * 3)
        assert not self.is_alive(), "kafka-python does not come to an end"
        return {"acknowledged": self.acknowledged, "errors": self.errors[:10], "unseen": self.unseen}


class Transactions(threading.Thread):
    """One transaction after the other, a fifth of them aborted. What became of some is not known: all of it or nothing.

    `errors`: what librdkafka raised, by the call. INVALID_TXN_STATE for an abort is Kafka's answer as well, when the request
    that adds the first partition was lost with its coordinator (docs/transactions.md); anywhere else it is a fault.
    """

    def __init__(self, bootstrap: str, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self.ends = threading.Event()
        self.committed: list[list[str]] = []
        self.unknown: list[list[str]] = []
        self.aborted: list[str] = []
        self.errors: Counter[str] = Counter()
        self.bootstrap = bootstrap
        self._chance = chance
        self._step = ""

    def run(self) -> None:
        producer, number = None, 0
        while not self.ends.is_set():
            number += 1
            values: list[str] = []
            try:
                if producer is None:
                    options = {
                        "bootstrap.servers": self.bootstrap,
                        "transactional.id": "soak",
                        "linger.ms": 1,
                    }
                    producer = Producer({**options, "socket.timeout.ms": 10_000, "log_level": 0})
                    self._step = "init"
                    producer.init_transactions(30)
                self._one(producer, number, values)
            except KafkaException as error:
                self.errors[f"{self._step}: {error.args[0].name()}"] += 1
                self.unknown.append(values)
                producer = None
            self.ends.wait(0.02)

    def _one(self, producer: Any, number: int, values: list[str]) -> None:
        aborts = self._chance.random() < 0.2
        self._step = "abort" if aborts else "commit"
        producer.begin_transaction()
        for index in range(self._chance.randint(1, 12)):
            values.append(f"{'aborted' if aborts else 'committed'}-{number}-{index}")
            producer.produce(TRANSACTIONS, values[-1].encode(), partition=index % PARTITIONS)
        if aborts:
            self.aborted += values
            producer.flush(5)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            self.committed.append(list(values))

    def judge(self, counts: Counter[str]) -> list[str]:
        """What is wrong with what a reader of committed records found."""
        faults = [f"{value} is there {count} times" for value, count in counts.items() if count > 1]
        faults += [f"{value} was aborted and read" for value in self.aborted if counts[value]]
        faults += [
            f"{v} was committed and is lost" for values in self.committed for v in values if not counts[v]
        ]
        if self.errors["commit: INVALID_TXN_STATE"]:
            faults.append("a commit was refused with INVALID_TXN_STATE")
        for values in self.unknown:
            if len({counts[value] for value in values}) > 1:
                faults.append(f"half of a transaction is there: {values}")
        return faults


def read_committed(bootstrap: str, topic: str) -> dict[tuple[int, int], str]:
    """Everything that is committed, by partition and offset."""
    options = {"bootstrap.servers": bootstrap, "group.id": "judge", "isolation.level": "read_committed"}
    consumer = Consumer({**options, "enable.partition.eof": True, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    values: dict[tuple[int, int], str] = {}
    ended: set[int] = set()
    try:
        while len(ended) < PARTITIONS:
            message = consumer.poll(60)
            assert message is not None, f"{topic} cannot be read to its end: {ended}"
            error, partition, offset = message.error(), message.partition(), message.offset()
            if partition is None or offset is None:  # a connection was lost
                assert error is not None
            elif error is None:
                values[partition, offset] = (message.value() or b"").decode()
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(partition)
    finally:
        consumer.close()
    return values


@pytest.fixture
def network() -> Iterator[Network]:
    if os.geteuid() != 0:
        pytest.skip("needs root: network namespaces and file systems of its own")
    with Network([f"b{broker}" for broker in BROKERS] + ["zk"]) as emulated:
        yield emulated


@pytest.fixture
def ensemble(network: Network, tmp_path: Path) -> Iterator[Ensemble]:
    jars = zookeeper_jars()
    if jars is None:
        pytest.skip("needs java, pyspark and kazoo")
    places = [(network.add_host(name, "zk"), network.command(name, [])) for name in ZOOKEEPERS]
    servers = Ensemble(jars, tmp_path, places)
    try:
        yield servers.start()
    finally:
        servers.kill()


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[dict[int, Path]]:
    """A file system for each broker's data."""
    folders = {broker: tmp_path / f"b{broker}" for broker in BROKERS}
    mounted: list[Path] = []
    try:
        for folder in folders.values():
            folder.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", folder], check=True)
            mounted.append(folder)
        yield folders
    finally:
        for folder in mounted:
            subprocess.run(["umount", "-l", folder], check=False)


@pytest.fixture
def cluster(
    network: Network, ensemble: Ensemble, disks: dict[int, Path], tmp_path: Path
) -> Iterator[Cluster]:
    places = {
        broker: (network.add_host(f"b{broker}", f"b{broker}"), network.command(f"b{broker}", []))
        for broker in disks
    }
    brokers = Cluster(tmp_path, ensemble, chroot="/soak", places=places)
    try:
        yield brokers.start()
    finally:
        brokers.close()


@pytest.fixture
def programs(cluster: Cluster, tmp_path: Path) -> Iterator[list[Program]]:
    go = [str(foreign.go_program("go", foreign.HERE / "go", "the Go modules"))]
    java = foreign.java_program()
    create_topic(cluster, FOREIGN)
    started = [
        Program(name, command, cluster.bootstrap, tmp_path / f"{name}client.log")
        for name, command in (("franz-", go), ("sarama-", go), ("", java))
    ]
    try:
        yield started
    finally:
        for program in started:
            program.kill()


def test_nothing_is_lost_whatever_is_cut_off_or_full(
    cluster: Cluster,
    ensemble: Ensemble,
    network: Network,
    disks: dict[int, Path],
    programs: list[Program],
    request: pytest.FixtureRequest,
) -> None:
    rounds: int = request.config.getoption("--fault-rounds")
    seed = request.config.getoption("--seed") or random.SystemRandom().randrange(1 << 30)
    print(f"\nseed {seed}, folder {cluster.folder}", flush=True)
    create_topic(cluster, "soak")
    create_topic(cluster, TRANSACTIONS)
    in_python = KafkaPython(cluster.bootstrap)
    transactions = Transactions(cluster.bootstrap, random.Random(seed + 1))
    in_python.start()
    transactions.start()
    try:
        bring_faults(cluster, CutRounds(cluster, ensemble, network, disks, random.Random(seed)), rounds)
    finally:
        transactions.ends.set()
        in_python.ends.set()
    transactions.join(END_S)
    clients = {program.name or "java-": program.end() for program in programs}
    clients["kafka-python-"] = in_python.end()
    stored = read_committed(cluster.bootstrap, FOREIGN)
    faults = [fault for name, report in clients.items() for fault in judge_client(name, report, stored)]
    counts = Counter(read_committed(cluster.bootstrap, TRANSACTIONS).values())
    print(
        f"{len(transactions.committed)} transactions committed, {len(transactions.unknown)} with an unknown end, "
        f"{len(transactions.aborted)} records aborted, errors: {dict(transactions.errors)}",
        flush=True,
    )
    faults += transactions.judge(counts)
    until(lambda: len(transactions.committed) > 0, "a transaction was committed", 1)
    assert not faults, faults[:10]


def judge_client(name: str, report: dict[str, Any], stored: dict[tuple[int, int], str]) -> list[str]:
    """What is wrong with what a client was told."""
    own = Counter(value for value in stored.values() if value.startswith(name))
    twice = [value for value, count in own.items() if count > 1]
    lost = [row for row in report["acknowledged"] if stored.get((row[0], row[1])) != row[2]]
    print(
        f"{name[:-1]}: {len(report['acknowledged'])} acknowledged, {len(lost)} lost, {len(twice)} twice, "
        f"{report['unseen']} not read, errors: {report['errors']}",
        flush=True,
    )
    faults = [f"{name[:-1]} heard that {row} was written; it is lost" for row in lost[:3]]
    faults += [f"{value} is there twice" for value in twice[:3]]
    faults += [f"{name[:-1]} did not read {report['unseen']} of its records"] if report["unseen"] else []
    return faults if report["acknowledged"] else [*faults, f"{name[:-1]} was never told of a record"]
