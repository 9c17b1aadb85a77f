"""confluent-kafka, whose wheels hold the librdkafka of the same number."""

import asyncio
from typing import Any

import confluent_kafka
from common import PARTITIONS, Deadline, numbers, record, verify
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def version() -> str:
    return str(confluent_kafka.__version__)


def records(bootstrap: str, prefix: str) -> None:
    topic = f"{prefix}-records"
    for index, codec in enumerate(CODECS):
        failed: list[Any] = []
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True}
        )
        for number in numbers(index):
            key, value, time_ms = record(number)
            producer.produce(
                topic, value, key, number % PARTITIONS, timestamp=time_ms,
                on_delivery=lambda error, _, failed=failed: failed.append(error) if error else None,
            )  # fmt: skip
        assert producer.flush(30) == 0
        assert not failed, failed[:3]
    total = len(CODECS) * len(numbers(0))
    consumer = _consumer(bootstrap, f"{topic}-reader")
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    rows: list[Any] = []
    deadline = Deadline("all records")
    while len(rows) < total:
        deadline.check(len(rows))
        for one in consumer.consume(1000, 0.2):
            rows.append((one.partition(), one.offset(), (one.key(), one.value(), one.timestamp()[1])))
    consumer.close()
    verify(rows, total)


def _consumer(bootstrap: str, group: str, **options: Any) -> Consumer:
    basic = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    newer = {name.replace("_", "."): value for name, value in options.items()}
    return Consumer({**basic, "auto.offset.reset": "earliest", "fetch.queue.backoff.ms": 5, **newer})


def _produce(bootstrap: str, topic: str, name: str) -> set[bytes]:
    producer = Producer({"bootstrap.servers": bootstrap})
    values = {b"%s %d" % (name.encode(), number) for number in range(40)}
    for index, value in enumerate(sorted(values)):
        producer.produce(topic, value, partition=index % PARTITIONS)
    assert producer.flush(30) == 0
    return values


def groups(bootstrap: str, prefix: str) -> None:
    _groups(bootstrap, prefix, "classic")


def new_groups(bootstrap: str, prefix: str) -> None:
    _groups(bootstrap, prefix, "consumer")


def _groups(bootstrap: str, prefix: str, protocol: str) -> None:
    topic = f"{prefix}-group"
    group = f"{topic}-{protocol}"
    options = {} if protocol == "classic" else {"group_protocol": protocol}
    wanted = _produce(bootstrap, topic, protocol)
    members = [_consumer(bootstrap, group, **options) for _ in range(2)]
    seen: set[bytes] = set()
    for member in members:
        member.subscribe([topic])
    deadline = Deadline("two members share the partitions and read everything")
    while not (wanted <= seen and all(len(member.assignment()) == 1 for member in members)):
        deadline.check((len(seen), [member.assignment() for member in members]))
        for member in members:
            messages = member.consume(100, 0.1)
            try:
                if messages:
                    member.commit(asynchronous=False)
                seen.update(one.value() for one in messages)
            except KafkaException:
                pass  # its partition has moved: the other member gets the records
    for member in members:
        member.close()
    more = _produce(bootstrap, topic, f"{protocol} more")
    third = _consumer(bootstrap, group, **options)
    third.subscribe([topic])
    rest: list[bytes] = []
    deadline = Deadline("a third member goes on")
    while len(rest) < len(more):
        deadline.check(rest)
        rest += [one.value() for one in third.consume(100, 0.2)]
    third.close()
    assert sorted(rest) == sorted(more), rest


def _create(bootstrap: str, topic: str, partitions: int = 1) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    return admin


def transactions(bootstrap: str, prefix: str) -> None:
    topic = f"{prefix}-transactions"
    _create(bootstrap, topic)
    consumer = _consumer(bootstrap, f"{topic}-group")
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for number in range(1, 7):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        offsets = [TopicPartition(topic, 0, number)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        if number % 2 == 0:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)
        committed = consumer.committed([TopicPartition(topic, 0)], 30)[0].offset
        assert max(committed, 0) == number - number % 2, committed
    heir = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    heir.init_transactions(30)
    heir.begin_transaction()
    heir.produce(topic, b"heir", partition=0)
    heir.commit_transaction(30)
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = Deadline("what was committed")
    while b"heir" not in values:
        deadline.check(values)
        values += [one.value() for one in consumer.consume(100, 0.2)]
    consumer.close()
    assert values == [b"2", b"4", b"6", b"heir"], values


def admin(bootstrap: str, prefix: str) -> None:
    topic = f"{prefix}-admin"
    client = _create(bootstrap, topic)
    client.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    assert len(client.list_topics(topic, timeout=30).topics[topic].partitions) == 3
    resource = ConfigResource(ResourceType.TOPIC, topic, {"retention.ms": "3600000"})
    client.alter_configs([resource])[resource].result(30)
    options = client.describe_configs([resource])[resource].result(30)
    assert options["retention.ms"].value == "3600000"
    assert client.list_groups(timeout=30) is not None
    client.delete_topics([topic])[topic].result(30)
    deadline = Deadline("the topic is gone")
    while topic in client.list_topics(timeout=30).topics:
        deadline.check()


async def asynchronous(bootstrap: str, prefix: str) -> None:
    """The client for asyncio: a group reads what was committed, and what was aborted is not read."""
    from confluent_kafka.aio import AIOConsumer, AIOProducer

    topic = f"{prefix}-asynchronous"
    _create(bootstrap, topic, PARTITIONS)
    producer = AIOProducer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    await producer.init_transactions(30)
    wanted = {b"%d" % number for number in range(50)}
    for values in (wanted, {b"aborted"}):
        await producer.begin_transaction()
        sent = [await producer.produce(topic, value=value) for value in values]
        await producer.flush()
        for message in await asyncio.gather(*sent):
            assert message.error() is None
        await (producer.commit_transaction() if values is wanted else producer.abort_transaction())
    await producer.close()
    members = [AIOConsumer(_options(bootstrap, topic)) for _ in range(2)]
    seen: list[bytes] = []
    deadline = Deadline("both members read")
    for member in members:
        await member.subscribe([topic])
    while len(seen) < len(wanted):
        deadline.check(len(seen))
        for messages in await asyncio.gather(
            *(member.consume(num_messages=100, timeout=0.2) for member in members)
        ):
            seen += [one.value() for one in messages]
    await members[0].commit()
    for member in members:
        await member.close()
    assert set(seen) == wanted, seen


def _options(bootstrap: str, group: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False}  # fmt: skip


def shares(bootstrap: str, prefix: str) -> None:
    """Two members of a share group read each record once."""
    from confluent_kafka import ShareConsumer
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry

    topic = f"{prefix}-shares"
    client = _create(bootstrap, topic, PARTITIONS)
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, topic, incremental_configs=[earliest])
    client.incremental_alter_configs([group])[group].result(30)
    wanted = _produce(bootstrap, topic, "shared")
    members = [ShareConsumer({"bootstrap.servers": bootstrap, "group.id": topic}) for _ in range(2)]
    for member in members:
        member.subscribe([topic])
    seen: list[bytes] = []
    deadline = Deadline("everything is read")
    while len(seen) < len(wanted):
        deadline.check(len(seen))
        for member in members:
            seen += [one.value() for one in member.poll(0.2) or ()]
    for member in members:
        member.close()
    assert sorted(seen) == sorted(wanted), seen
