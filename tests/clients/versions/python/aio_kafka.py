"""aiokafka."""

import asyncio
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError
from common import PARTITIONS, Deadline, numbers, record, verify

CODECS = (None, "gzip", "snappy", "lz4", "zstd")


def version() -> str:
    return str(aiokafka.__version__)


async def records(bootstrap: str, prefix: str) -> None:
    topic = f"{prefix}-records"
    for index, codec in enumerate(CODECS):
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=codec, enable_idempotence=True, linger_ms=5
        ) as producer:
            sent = []
            for number in numbers(index):
                key, value, time_ms = record(number)
                partition = number % PARTITIONS
                sent.append(await producer.send(topic, value, key, partition, timestamp_ms=time_ms))
            for number, written in zip(numbers(index), await asyncio.gather(*sent), strict=True):
                assert written.offset == number // PARTITIONS
    total = len(CODECS) * len(numbers(0))
    rows: list[Any] = []
    deadline = Deadline("all records")
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
        partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        while len(rows) < total:
            deadline.check(len(rows))
            for batch in (await consumer.getmany(timeout_ms=200)).values():
                rows += [(one.partition, one.offset, (one.key, one.value, one.timestamp)) for one in batch]
    verify(rows, total)


async def _produce(bootstrap: str, topic: str, name: str) -> set[bytes]:
    values = {b"%s %d" % (name.encode(), number) for number in range(40)}
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for index, value in enumerate(sorted(values)):
            await producer.send_and_wait(topic, value, partition=index % PARTITIONS)
    return values


def _member(bootstrap: str, topic: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=f"{topic}-readers", auto_offset_reset="earliest",
        enable_auto_commit=False, heartbeat_interval_ms=300,
    )  # fmt: skip


async def groups(bootstrap: str, prefix: str) -> None:
    topic = f"{prefix}-group"
    wanted = await _produce(bootstrap, topic, "first")
    members = [_member(bootstrap, topic) for _ in range(2)]
    seen: set[bytes] = set()
    await asyncio.gather(*(member.start() for member in members))
    deadline = Deadline("two members share the partitions and read everything")
    while not (wanted <= seen and all(len(member.assignment()) == 1 for member in members)):
        deadline.check((len(seen), [member.assignment() for member in members]))
        for member in members:
            values = [one.value for rows in (await member.getmany(timeout_ms=100)).values() for one in rows]
            try:
                if values:
                    await member.commit()
                seen.update(values)
            except KafkaError:
                pass  # its partition has moved: the other member gets the records
    for member in members:
        await member.stop()
    more = await _produce(bootstrap, topic, "more")
    rest: list[bytes] = []
    deadline = Deadline("a third member goes on")
    async with _member(bootstrap, topic) as third:
        while len(rest) < len(more):
            deadline.check(rest)
            rest += [one.value for rows in (await third.getmany(timeout_ms=200)).values() for one in rows]
    assert sorted(rest) == sorted(more), rest


async def _create(bootstrap: str, topic: str) -> AIOKafkaAdminClient:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    return admin


async def transactions(bootstrap: str, prefix: str) -> None:
    topic = f"{prefix}-transactions"
    await (await _create(bootstrap, topic)).close()
    first = TopicPartition(topic, 0)
    async with (
        AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer,
        AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=f"{topic}-group", isolation_level="read_committed",
            enable_auto_commit=False, auto_offset_reset="earliest",
        ) as consumer,
    ):  # fmt: skip
        for number in range(1, 7):
            await producer.begin_transaction()
            await producer.send(topic, b"%d" % number, partition=0)
            await producer.send_offsets_to_transaction({first: number}, f"{topic}-group")
            if number % 2 == 0:
                await producer.commit_transaction()
            else:
                await producer.flush()
                await producer.abort_transaction()
            assert (await consumer.committed(first) or 0) == number - number % 2
        consumer.assign([first])
        await consumer.seek_to_beginning(first)
        values: list[bytes] = []
        deadline = Deadline("what was committed")
        while b"6" not in values:
            deadline.check(values)
            values += [
                one.value for rows in (await consumer.getmany(timeout_ms=200)).values() for one in rows
            ]
    assert values == [b"2", b"4", b"6"], values


async def admin(bootstrap: str, prefix: str) -> None:
    topic = f"{prefix}-admin"
    client = await _create(bootstrap, topic)
    assert topic in await client.list_topics()
    assert len(await client.describe_topics([topic])) == 1
    assert await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    await client.delete_topics([topic])
    deadline = Deadline("the topic is gone")
    while topic in await client.list_topics():
        deadline.check()
    await client.close()
