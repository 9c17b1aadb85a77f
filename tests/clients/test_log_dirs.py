"""Several log dirs: partitions that move between them while they are used."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clients import foreign
from tests.clients.cli_support import Cli
from tests.clients.drivers import Confluent, Message
from tests.clients.test_java import probe
from tests.support.admin import create_topic
from tests.support.process import BrokerProcess

__all__ = ["probe"]

PARTITIONS = 2
SLOW = "replica.alter.log.dirs.io.max.bytes.per.second"


class Load:
    """An idempotent producer and a consumer that keep at it; every value is a number that grows by one."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Consumer, Producer, TopicPartition

        self._topic = topic
        common = {"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200}
        self._producer = Producer(
            common
            | {
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 100,
                "retry.backoff.ms": 20,
                "message.timeout.ms": 60_000,
            }
        )
        self._consumer = Consumer(common | {"group.id": "load", "auto.offset.reset": "earliest"})
        self._consumer.assign([TopicPartition(topic, part, 0) for part in range(PARTITIONS)])
        self._stop = threading.Event()
        self.sent = 0
        self.acknowledged = 0
        self.read: dict[int, list[int]] = {part: [] for part in range(PARTITIONS)}
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]

    def _report(self, error: Any, _: Any) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(str(error))

    def _produce(self) -> None:
        while not self._stop.is_set():
            try:
                value = (b"%09d" % self.sent).ljust(500, b".")
                self._producer.produce(
                    self._topic, value, partition=self.sent % PARTITIONS, on_delivery=self._report
                )
            except BufferError:
                self._producer.poll(0.05)
                continue
            self.sent += 1
            self._producer.poll(0)
            if self.sent % 100 == 0:
                time.sleep(0.005)
        self._producer.flush(60)

    def _consume(self) -> None:
        while self._threads[0].is_alive() or len(self.read[0]) + len(self.read[1]) < self.acknowledged:
            for message in self._consumer.consume(500, 0.2):
                if message.error() is None:
                    self.read[message.partition()].append(int(message.value()[:9]))
        self._consumer.close()

    @contextmanager
    def running(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for row in self._threads:
                row.join(60)

    def await_acknowledged(self, more: int) -> None:
        reached = self.acknowledged + more
        deadline = time.monotonic() + 120
        while self.acknowledged < reached and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.acknowledged >= reached, "the producer does not get on"

    def check(self) -> None:
        """Nothing failed, and all was read once and in order."""
        assert self.failures == []
        assert self.acknowledged == self.sent
        for part in range(PARTITIONS):
            assert self.read[part] == list(range(part, self.sent, PARTITIONS)), (
                "lost, repeated or out of order"
            )


def filled(bootstrap: str, topic: str, *, partitions: int, megabytes: int) -> list[Message]:
    """A topic with that much in each partition."""
    create_topic(bootstrap, topic, partitions, {"segment.bytes": "1000000"})
    rows = [
        Message(part, b"%d" % number, (b"%09d" % number).ljust(1000, b"."))
        for number in range(megabytes * 1000)
        for part in range(partitions)
    ]
    assert Confluent().produce(bootstrap, topic, rows, codec="none", acks=-1) == len(rows)
    return rows


def two_dirs(tmp_path: Path, make: Callable[..., BrokerProcess], **options: str) -> BrokerProcess:
    return make(log__dirs=f"{tmp_path / 'one'},{tmp_path / 'two'}", **options)


def other_dir(tmp_path: Path, dir_: str) -> str:
    return str(tmp_path / ("two" if dir_ == str(tmp_path / "one") else "one"))


@pytest.mark.java
def test_the_java_admin_client_moves_a_partition(
    probe: list[str], tmp_path: Path, own_broker: Callable[..., BrokerProcess]
) -> None:
    broker = two_dirs(tmp_path, own_broker, **{SLOW.replace(".", "__"): "50000"})
    rows = filled(broker.bootstrap, "moved", partitions=1, megabytes=5)
    report = foreign.run(probe, broker.bootstrap, "move-log-dir", "moved")
    assert (Path(report["to"]) / "moved-0").is_dir()
    # It goes when the new one is on the disk.
    deadline = time.monotonic() + 120
    while (Path(report["from"]) / "moved-0").exists():
        assert time.monotonic() < deadline, "the old folder stays"
        time.sleep(0.05)
    read = Confluent().consume(broker.bootstrap, "moved", 1, len(rows))
    assert [item.value for item in read] == [row.value for row in rows]


def test_partitions_move_to_and_fro_under_load(
    tmp_path: Path, own_broker: Callable[..., BrokerProcess]
) -> None:
    from kafka.admin import KafkaAdminClient

    broker = two_dirs(tmp_path, own_broker)
    create_topic(broker.bootstrap, "busy", PARTITIONS, {"segment.bytes": "1000000"})
    cli = Cli(broker.bootstrap)
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    load = Load(broker.bootstrap, "busy")
    with load.running():
        for _ in range(3):
            load.await_acknowledged(3000)
            where = {row["partition"]: row["dir"] for row in cli.json("log", "dirs", "busy")}
            wanted = {
                f"busy-{part}": other_dir(tmp_path, where[f"busy-{part}"]) for part in range(PARTITIONS)
            }
            admin.alter_replica_log_dirs(
                {("busy", part, 1): wanted[f"busy-{part}"] for part in range(PARTITIONS)}
            )
            deadline = time.monotonic() + 120
            while {row["partition"]: row["dir"] for row in cli.json("log", "dirs", "busy")} != wanted:
                assert time.monotonic() < deadline, broker.log()[-2000:]
        load.await_acknowledged(1000)
    admin.close()
    load.check()
    assert "Traceback" not in broker.log()


def test_a_move_survives_kill_nine(tmp_path: Path, own_broker: Callable[..., BrokerProcess]) -> None:
    """Killed in the middle of copying, with a producer and a consumer that do not care."""
    broker = two_dirs(tmp_path, own_broker, **{SLOW.replace(".", "__"): "50000"})
    create_topic(broker.bootstrap, "killed", PARTITIONS, {"segment.bytes": "1000000"})
    cli = Cli(broker.bootstrap)
    load = Load(broker.bootstrap, "killed")
    with load.running():
        load.await_acknowledged(6000)
        from_dir = cli.json("log", "dirs", "killed:0")[0]["dir"]
        target = other_dir(tmp_path, from_dir)
        moved = cli.json("log", "move", "killed:0", target)
        assert moved == [{"broker": 1, "partition": "killed-0", "dir": target, "result": "moving"}]
        deadline = time.monotonic() + 120
        while not any(row["moving"] and row["bytes"] > 100_000 for row in cli.json("log", "dirs", "killed")):
            assert time.monotonic() < deadline
        broker.kill()
        assert any((Path(target)).glob("killed-0.*-future"))
        broker.options[SLOW] = "1000000000"
        broker.start()
        load.await_acknowledged(2000)
        cli("log", "move", "killed:0", target, "--wait")
        assert [row["dir"] for row in cli.json("log", "dirs", "killed:0")] == [target]
        load.await_acknowledged(1000)
    load.check()
    assert "goes on moving" in broker.log()
    broker.restart()
    assert len(Confluent().consume(broker.bootstrap, "killed", PARTITIONS, load.sent)) == load.sent
