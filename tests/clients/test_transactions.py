"""Transactions with the Python clients that others wrote: committed, aborted, fenced, and offsets within them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol

import pytest

from tests.support.admin import create_topic
from tests.support.process import BrokerProcess

WAIT_S = 60

Row = tuple[int, bytes]
"""Partition and value of a record."""


class Fenced(Exception):
    """A newer producer of the same transactional id has begun."""


class Transactional(Protocol):
    """A producer with a transactional id that has called its client's initTransactions."""

    def begin(self) -> None: ...
    def send(self, topic: str, partition: int, value: bytes) -> None: ...
    def send_offsets(self, offsets: Mapping[tuple[str, int], int], group: str) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Confluent:
    """librdkafka."""

    def __init__(self, bootstrap: str, transactional_id: str, **config: Any) -> None:
        from confluent_kafka import Producer

        self._bootstrap = bootstrap
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0, **config}
        )
        self._producer.init_transactions(WAIT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.produce(topic, value, partition=partition)

    def send_offsets(self, offsets: Mapping[tuple[str, int], int], group: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        rows = [TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
        self._producer.send_offsets_to_transaction(rows, consumer.consumer_group_metadata(), WAIT_S)
        consumer.close()

    def commit(self) -> None:
        from confluent_kafka import KafkaException

        try:
            self._producer.commit_transaction(WAIT_S)
        except KafkaException as error:
            if error.args[0].fatal():
                raise Fenced(str(error)) from error
            raise

    def abort(self) -> None:
        self._producer.abort_transaction(WAIT_S)

    def close(self) -> None:
        self._producer.purge()


class KafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap: str, transactional_id: str, **config: Any) -> None:
        from kafka import KafkaProducer

        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, **config
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.send(topic, value, partition=partition)

    def send_offsets(self, offsets: Mapping[tuple[str, int], int], group: str) -> None:
        from kafka.structs import OffsetAndMetadata, TopicPartition

        rows = {
            TopicPartition(*where): OffsetAndMetadata(offset, "", -1) for where, offset in offsets.items()
        }
        self._producer.send_offsets_to_transaction(rows, group)

    def commit(self) -> None:
        from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError

        try:
            self._producer.commit_transaction()
        except (ProducerFencedError, InvalidProducerEpochError) as error:
            raise Fenced(str(error)) from error
        except KafkaError as error:
            if "Fenced" in repr(error) or "InvalidProducerEpoch" in repr(error):
                raise Fenced(str(error)) from error
            raise

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        with suppress(Exception):  # a fenced producer says so again
            self._producer.close(timeout=1)


class Aiokafka:
    """aiokafka, on a loop of its own."""

    def __init__(self, bootstrap: str, transactional_id: str, **config: Any) -> None:
        from aiokafka import AIOKafkaProducer

        self._runner = asyncio.Runner()

        async def start() -> Any:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap, transactional_id=transactional_id, **config
            )
            await producer.start()
            return producer

        self._producer = self._runner.run(start())

    def begin(self) -> None:
        self._runner.run(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._runner.run(self._producer.send(topic, value, partition=partition))

    def send_offsets(self, offsets: Mapping[tuple[str, int], int], group: str) -> None:
        from aiokafka import TopicPartition

        rows = {TopicPartition(*where): offset for where, offset in offsets.items()}
        self._runner.run(self._producer.send_offsets_to_transaction(rows, group))

    def commit(self) -> None:
        from aiokafka.errors import ProducerFenced

        try:
            self._runner.run(self._producer.commit_transaction())
        except ProducerFenced as error:
            raise Fenced(str(error)) from error

    def abort(self) -> None:
        self._runner.run(self._producer.abort_transaction())

    def close(self) -> None:
        with suppress(Exception):
            self._runner.run(asyncio.wait_for(self._producer.stop(), 5))
        self._runner.close()


Make = Callable[..., Transactional]
CLIENTS: list[Make] = [Confluent, KafkaPython, Aiokafka]


@pytest.fixture
def made() -> Iterator[Callable[..., Transactional]]:
    """Makes producers that are closed after the test."""
    producers: list[Transactional] = []

    def make(client: Make, bootstrap: str, transactional_id: str, **config: Any) -> Transactional:
        producer = client(bootstrap, transactional_id, **config)
        producers.append(producer)
        return producer

    yield make
    for producer in producers:
        producer.close()


def read(bootstrap: str, topic: str, *, committed: bool = True, partitions: int = 2) -> list[Row]:
    """All records of a topic with librdkafka, in order per partition."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    rows: list[Row] = []
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"{topic} ends nowhere"
        if message.error() is None:
            rows.append((message.partition(), message.value()))
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
    consumer.close()
    return sorted(rows)


def committed_offset(bootstrap: str, group: str, topic: str, index: int = 0) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    (row,) = consumer.committed([TopicPartition(topic, index)], WAIT_S)
    consumer.close()
    offset: int = row.offset
    return offset


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"txn-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, name, 2)
    return name


@pytest.mark.parametrize("client", CLIENTS)
def test_all_of_a_transaction_is_visible_or_nothing(
    client: Make, bootstrap: str, topic: str, made: Callable[..., Transactional]
) -> None:
    producer = made(client, bootstrap, topic)
    for number, end in enumerate(("commit", "abort", "commit")):
        producer.begin()
        for index in (0, 1):
            producer.send(topic, index, b"%d" % number)
        producer.commit() if end == "commit" else producer.abort()
    assert read(bootstrap, topic) == [(0, b"0"), (0, b"2"), (1, b"0"), (1, b"2")]
    # A client may drop what it has not sent yet when it aborts.
    assert set(read(bootstrap, topic)) <= set(read(bootstrap, topic, committed=False))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_zombie_is_fenced(
    client: Make, bootstrap: str, topic: str, made: Callable[..., Transactional]
) -> None:
    zombie = made(client, bootstrap, topic)
    zombie.begin()
    zombie.send(topic, 0, b"zombie")
    heir = made(client, bootstrap, topic)
    heir.begin()
    heir.send(topic, 0, b"heir")
    heir.commit()
    with pytest.raises(Fenced):
        zombie.commit()
    assert read(bootstrap, topic) == [(0, b"heir")]


@pytest.mark.parametrize("client", CLIENTS)
def test_offsets_count_when_their_transaction_does(
    client: Make, bootstrap: str, topic: str, made: Callable[..., Transactional]
) -> None:
    producer = made(client, bootstrap, topic)
    for offset, end in ((3, "abort"), (5, "commit"), (7, "abort")):
        producer.begin()
        producer.send(topic, 0, b"%d" % offset)
        producer.send_offsets({(topic, 0): offset}, topic)
        producer.commit() if end == "commit" else producer.abort()
        assert committed_offset(bootstrap, topic, topic) == (-1001 if offset == 3 else 5)
    assert read(bootstrap, topic) == [(0, b"5")]


def test_what_was_decided_survives_kill_9(
    own_broker: Callable[..., BrokerProcess], made: Callable[..., Transactional]
) -> None:
    broker = own_broker()
    create_topic(broker.bootstrap, "t", 2)
    # Having bootstrapped again, librdkafka 2.15 waits for a group coordinator that it has given up.
    stays = {"metadata.recovery.strategy": "none"}
    producer = made(Confluent, broker.bootstrap, "survivor", **stays)
    open_one = made(Confluent, broker.bootstrap, "open", **stays)
    open_one.begin()
    open_one.send("t", 1, b"never")
    for number in range(3):
        producer.begin()
        producer.send("t", 0, b"%d" % number)
        producer.send_offsets({("t", 0): number}, "g")
        producer.commit()
        broker.kill()
        broker.start()
    assert committed_offset(broker.bootstrap, "g", "t") == 2
    made(Confluent, broker.bootstrap, "open")  # aborts what its forerunner left
    assert read(broker.bootstrap, "t") == [(0, b"0"), (0, b"1"), (0, b"2")]
