"""Transactions of the small blocking client, as librdkafka's reader of committed records sees them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from barnabas.client.blocking import BlockingClient, NewTopic
from barnabas.client.producing import ProduceStream
from barnabas.client.transactions import Joined, TransactionLost, Transactions, TxnProducer
from barnabas.records.columnar_encoder import BatchEncoder

TIMEOUT_MS = 60_000


@pytest.fixture
def client(broker) -> Iterator[BlockingClient]:
    with BlockingClient(broker.bootstrap) as client:
        yield client


@pytest.fixture
def topic(client: BlockingClient) -> str:
    name = f"txn-{uuid.uuid4().hex[:8]}"
    client.create_topics([NewTopic(name, 2)])
    return name


def write(client: BlockingClient, producer: TxnProducer, topic: str, *values: bytes) -> ProduceStream:
    encoder = BatchEncoder(
        2, producer_id=producer.producer_id, producer_epoch=producer.epoch, transactional=True
    )
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    column = (b"".join(o.to_bytes(4, "little") for o in offsets), b"".join(values), None, 0, 4)
    encoder.append(len(values), column, column, now_ms=1_700_000_000_000)
    stream = ProduceStream(client.cluster, joined=Joined(Transactions(client), producer))
    stream.send(topic, encoder.flush())
    stream.flush()
    return stream


def committed(broker, topic: str) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    values, ends = [], 0
    while ends < 2:
        message = consumer.poll(60)
        assert message is not None
        if message.error() is None:
            values.append(message.value())
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            ends += 1
    consumer.close()
    return sorted(values)


def test_committed_and_aborted(broker, client, topic) -> None:
    transactions = Transactions(client)
    group = f"{topic}-group"
    for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
        producer = transactions.begin(topic, TIMEOUT_MS)
        stream = write(client, producer, topic, value)
        ((place, end),) = stream.ends.items()
        transactions.add_offset(producer, group, place, end, value.decode())
        assert transactions.open_ids(topic) == [topic]
        transactions.end(producer, commit=commit)
        transactions.end(producer, commit=commit)  # an answer may get lost
    assert transactions.open_ids(topic) == []
    assert committed(broker, topic) == [b"a", b"c"]
    assert set(transactions.notes(group)) <= {"a", "c"}
    assert "c" in transactions.notes(group)


def test_another_connection_ends_many(broker, client, topic) -> None:
    transactions = Transactions(client)
    producers = [transactions.begin(f"{topic}-{number}", TIMEOUT_MS) for number in range(5)]
    for number, producer in enumerate(producers):
        write(client, producer, topic, b"%d" % number)
    fenced = transactions.begin(f"{topic}-3", TIMEOUT_MS)
    with BlockingClient(broker.bootstrap) as other:
        lost = Transactions(other).end_all(producers, commit=True)
    assert [error.transactional_id for error in lost] == [f"{topic}-3"]
    assert committed(broker, topic) == [b"0", b"1", b"2", b"4"]
    with pytest.raises(TransactionLost, match="another producer has begun"):
        write(client, producers[3], topic, b"late")
    write(client, fenced, topic, b"in time")
    transactions.end(fenced, commit=True)
    assert b"in time" in committed(broker, topic)
