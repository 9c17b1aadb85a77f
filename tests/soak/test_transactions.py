"""Topics copied in transactions while brokers and copiers are killed: the output is the input, once each, in order."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.soak.copier import copied
from tests.support.admin import create_topic
from tests.support.process import BrokerProcess

PARTITIONS = 4
SOAK_S = float(os.environ.get("BARNABAS_SOAK_S", "240"))
END_WAIT_S = 300

Rows = list[tuple[bytes, bytes]]
"""Key and value of the records of one partition, in order."""


class Feeder(threading.Thread):
    """Numbers each key's records in `in`, with transactions of its own that it aborts now and then."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.chance = random.Random(seed)
        self.over = threading.Event()
        self.next: dict[int, int] = defaultdict(int)
        self.acknowledged: set[bytes] = set()
        """Of transactions whose commit has returned."""

    def _producer(self) -> Any:
        from confluent_kafka import Producer

        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": "feeder",
                "linger.ms": 1,
                "metadata.recovery.strategy": "none",
            }
        )

    def run(self) -> None:
        from confluent_kafka import KafkaException

        producer = None
        while not self.over.is_set():
            try:
                if producer is None:
                    producer = self._producer()
                    producer.init_transactions(20)
                self._feed(producer)
            except KafkaException:
                producer = None
                self.over.wait(0.2)

    def _feed(self, producer: Any) -> None:
        """One transaction. Where its outcome is unknown its numbers are not used again: they may be there or not."""
        aborted = self.chance.random() < 0.2
        producer.begin_transaction()
        values = set()
        for _ in range(self.chance.randrange(1, 40)):
            key = self.chance.randrange(20)
            value = b"%d-%d%s" % (key, self.next[key], b"-aborted" if aborted else b"")
            self.next[key] += 1
            values.add(value)
            producer.produce("in", value, key=b"%d" % key, partition=key % PARTITIONS)
        if aborted:
            producer.flush(5)
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
            self.acknowledged |= values


class Copier:
    """One process that copies; started again whenever it has ended."""

    def __init__(self, bootstrap: str, name: str, client: str, log: Path) -> None:
        self.command = [sys.executable, "-m", "tests.soak.copier", bootstrap, name, client]
        self.log = log.open("ab")
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def ensure(self) -> None:
        if self.process is None or self.process.poll() is not None:
            self.starts += 1
            self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def read_all(bootstrap: str, topic: str) -> dict[int, Rows]:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    rows: dict[int, Rows] = {index: [] for index in range(PARTITIONS)}
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(60)
        assert message is not None, f"{topic} cannot be read to its end: {ended}"
        if message.error() is None:
            rows[message.partition()].append((message.key(), message.value()))
        elif message.error().code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    return rows


def total(rows: dict[int, Rows]) -> int:
    return sum(map(len, rows.values()))


def judge(sent: dict[int, Rows], copies: dict[int, Rows]) -> list[str]:
    """What is wrong with the copies."""
    faults = []
    for index in range(PARTITIONS):
        wanted = [(key, copied(value)) for key, value in sent[index]]
        if any(b"-aborted" in value for _, value in copies[index] + sent[index]):
            faults.append(f"partition {index}: aborted records were read")
        if copies[index] == wanted:
            continue
        seen, expected = set(copies[index]), set(wanted)
        if len(seen) != len(copies[index]):
            faults.append(f"partition {index}: {len(copies[index]) - len(seen)} records came twice")
        if expected - seen:
            faults.append(f"partition {index}: {len(expected - seen)} lost, {sorted(expected - seen)[:3]}")
        if seen - expected:
            faults.append(f"partition {index}: {len(seen - expected)} made up")
        if not faults:
            faults.append(f"partition {index}: order broken")
    return faults


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("clients", [("confluent", "confluent"), ("aiokafka",)], ids=lambda c: c[0])
def test_copies_are_exact_whatever_is_killed(
    clients: tuple[str, ...], own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    broker = own_broker(transaction__max__timeout__ms="60000", log__segment__bytes="200000")
    for topic in ("in", "out"):
        create_topic(broker.bootstrap, topic, PARTITIONS)
    feeder = Feeder(broker.bootstrap, seed)
    copiers = [
        Copier(broker.bootstrap, f"copier-{number}", client, tmp_path / f"copier-{number}.log")
        for number, client in enumerate(clients)
    ]
    feeder.start()
    end_s = time.monotonic() + SOAK_S
    broker_dies_s, kills = time.monotonic() + 10, 0
    try:
        while time.monotonic() < end_s:
            for copier in copiers:
                copier.ensure()
            time.sleep(chance.uniform(0.5, 3))
            if chance.random() < 0.3:
                chance.choice(copiers).kill()
            if time.monotonic() >= broker_dies_s:
                broker.kill()
                kills += 1
                broker.start()
                broker_dies_s = time.monotonic() + chance.uniform(4, 15)
        feeder.over.set()
        feeder.join(60)
        deadline = time.monotonic() + END_WAIT_S
        sent = read_all(broker.bootstrap, "in")
        while total(copies := read_all(broker.bootstrap, "out")) < total(sent):
            left = total(sent) - total(copies)
            assert time.monotonic() < deadline, f"seed {seed}: {left} records of `in` are not copied"
            for copier in copiers:
                copier.ensure()
            time.sleep(1)
    finally:
        feeder.over.set()
        for copier in copiers:
            copier.kill()
    sent, copies = read_all(broker.bootstrap, "in"), read_all(broker.bootstrap, "out")
    count = total(sent)
    starts = [copier.starts for copier in copiers]
    print(f"seed {seed}: {count} records, {kills} kills of the broker, copiers started {starts} times")
    assert count > 100
    assert judge(sent, copies) == []
    read = {value for rows in sent.values() for _, value in rows}
    assert not (feeder.acknowledged - read), "records of committed transactions are lost"
    assert "met a bug" not in broker.log()
    assert "Traceback" not in broker.log()
