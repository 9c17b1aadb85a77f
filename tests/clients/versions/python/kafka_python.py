"""kafka-python, pure Python."""

from typing import Any

import kafka
from common import PARTITIONS, Deadline, numbers, record, verify
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import CommitFailedError
from kafka.structs import OffsetAndMetadata

CODECS = (None, "gzip", "snappy", "lz4", "zstd")


def version() -> str:
    return str(kafka.__version__)


def records(bootstrap: str, prefix: str) -> None:
    topic = f"{prefix}-records"
    for index, codec in enumerate(CODECS):
        producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, acks="all", linger_ms=5)
        sent = []
        for number in numbers(index):
            key, value, time_ms = record(number)
            partition = number % PARTITIONS
            sent.append(producer.send(topic, value, key, partition=partition, timestamp_ms=time_ms))
        for number, future in zip(numbers(index), sent, strict=True):
            assert future.get(30).offset == number // PARTITIONS
        producer.close()
    total = len(CODECS) * len(numbers(0))
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    rows: list[Any] = []
    deadline = Deadline("all records")
    while len(rows) < total:
        deadline.check(len(rows))
        for batch in consumer.poll(timeout_ms=200).values():
            rows += [(one.partition, one.offset, (one.key, one.value, one.timestamp)) for one in batch]
    consumer.close()
    verify(rows, total)


def _produce(bootstrap: str, topic: str, name: str) -> set[bytes]:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    values = {b"%s %d" % (name.encode(), number) for number in range(40)}
    for index, value in enumerate(sorted(values)):
        producer.send(topic, value, partition=index % PARTITIONS)
    producer.flush(30)
    producer.close()
    return values


def _member(bootstrap: str, topic: str) -> KafkaConsumer:
    return KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=f"{topic}-readers", auto_offset_reset="earliest",
        enable_auto_commit=False, heartbeat_interval_ms=300,
    )  # fmt: skip


def groups(bootstrap: str, prefix: str) -> None:
    topic = f"{prefix}-group"
    wanted = _produce(bootstrap, topic, "first")
    members = [_member(bootstrap, topic) for _ in range(2)]
    seen: set[bytes] = set()
    deadline = Deadline("two members share the partitions and read everything")
    while not (wanted <= seen and all(len(member.assignment()) == 1 for member in members)):
        deadline.check((len(seen), [member.assignment() for member in members]))
        for member in members:
            values = [one.value for rows in member.poll(timeout_ms=100).values() for one in rows]
            try:
                if values:
                    member.commit()
                seen.update(values)
            except CommitFailedError:
                pass  # its partition has moved: the other member gets the records
    for member in members:
        member.close()
    more = _produce(bootstrap, topic, "more")
    third = _member(bootstrap, topic)
    rest: list[bytes] = []
    deadline = Deadline("a third member goes on")
    while len(rest) < len(more):
        deadline.check(rest)
        rest += [one.value for rows in third.poll(timeout_ms=200).values() for one in rows]
    third.close()
    assert sorted(rest) == sorted(more), rest


def _create(bootstrap: str, topic: str) -> KafkaAdminClient:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, 1, 1)])
    return admin


def transactions(bootstrap: str, prefix: str) -> None:
    topic = f"{prefix}-transactions"
    _create(bootstrap, topic).close()
    first = TopicPartition(topic, 0)
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    producer.init_transactions()
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=f"{topic}-group", isolation_level="read_committed",
        enable_auto_commit=False, auto_offset_reset="earliest",
    )  # fmt: skip
    for number in range(1, 7):
        producer.begin_transaction()
        producer.send(topic, b"%d" % number, partition=0)
        producer.send_offsets_to_transaction({first: OffsetAndMetadata(number, "", -1)}, f"{topic}-group")
        if number % 2 == 0:
            producer.commit_transaction()
        else:
            producer.flush()
            producer.abort_transaction()
        assert (consumer.committed(first) or 0) == number - number % 2
    producer.close()
    consumer.assign([first])
    consumer.seek_to_beginning(first)
    values: list[bytes] = []
    deadline = Deadline("what was committed")
    while b"6" not in values:
        deadline.check(values)
        values += [one.value for rows in consumer.poll(timeout_ms=200).values() for one in rows]
    consumer.close()
    assert values == [b"2", b"4", b"6"], values


def admin(bootstrap: str, prefix: str) -> None:
    topic = f"{prefix}-admin"
    client = _create(bootstrap, topic)
    assert topic in client.list_topics()
    assert len(client.describe_topics([topic])) == 1
    assert client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    assert client.describe_cluster()
    client.delete_topics([topic])
    deadline = Deadline("the topic is gone")
    while topic in client.list_topics():
        deadline.check()
    client.close()
