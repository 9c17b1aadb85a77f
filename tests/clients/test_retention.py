"""Retention while clients read: segments go, files go later, readers go on where the log begins."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.records.batch import batches, check_batch
from barnabas.testing import Broker
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.clients.drivers import Confluent, Message
from tests.clients.test_old_versions import Peer
from tests.support.admin import admin, create_topic
from tests.support.process import BrokerProcess


def produce(bootstrap: str, topic: str, count: int, size: int = 1000, first: int = 0) -> None:
    sent = [Message(0, None, (b"%09d" % (first + number)).ljust(size, b".")) for number in range(count)]
    assert Confluent().produce(bootstrap, topic, sent, codec="none", acks=-1) == count


def bounds(bootstrap: str, topic: str) -> tuple[int, int]:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    client = admin(bootstrap)
    part = TopicPartition(topic, 0)
    offsets = [
        client.list_offsets({part: spec})[part].result(20).offset
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    ]
    return offsets[0], offsets[1]


def awaited(check: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def logs(broker: BrokerProcess, topic: str, suffix: str = ".log") -> list[Path]:
    return sorted((broker.data_dir / f"{topic}-0").glob(f"*{suffix}"))


def test_retention_by_size_while_consumers_read(own_broker: Callable[..., BrokerProcess]) -> None:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    broker = own_broker(log__retention__check__interval__ms="200")
    options = {"segment.bytes": "1000000", "retention.bytes": "-1", "file.delete.delay.ms": "500"}
    create_topic(broker.bootstrap, "sized", config=options)
    produce(broker.bootstrap, "sized", 10_000)
    common = {"bootstrap.servers": broker.bootstrap, "group.id": "sized", "log_level": 0}
    # Both stand at the beginning, with little fetched ahead, when the beginning goes.
    small = {"queued.min.messages": 1, "fetch.message.max.bytes": 2000, "queued.max.messages.kbytes": 16}
    goes_on = Consumer({**common, **small, "auto.offset.reset": "earliest"})
    stops = Consumer({**common, **small, "auto.offset.reset": "error"})
    for row in (goes_on, stops):
        row.assign([TopicPartition("sized", 0, 0)])
        first = row.poll(20)
        assert first is not None
        assert first.offset() == 0
    alter(broker.bootstrap, "sized", "retention.bytes", "3000000")
    awaited(lambda: bounds(broker.bootstrap, "sized")[0] > 0, "nothing was deleted")
    start, end = bounds(broker.bootstrap, "sized")
    assert end == 10_000
    assert f"{start:020d}.log" in [path.name for path in logs(broker, "sized")]
    assert 3_000_000 <= sum(path.stat().st_size for path in logs(broker, "sized")) < 4_200_000
    awaited(lambda: not logs(broker, "sized", ".deleted"), "files outlive file.delete.delay.ms")

    offsets = [0]
    while offsets[-1] < end - 1:
        message = goes_on.poll(20)
        assert message is not None
        assert message.error() is None
        offsets.append(message.offset())
    beyond = next(offset for offset in offsets if offset >= start)
    assert beyond == start
    assert offsets[offsets.index(start) :] == list(range(start, end))
    while (message := stops.poll(20)) is not None and message.error() is None:
        assert message.offset() < start, "a deleted record was served"
    assert message is not None
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
    for item in (goes_on, stops):
        item.close()
    broker.kill()
    broker.start()
    assert bounds(broker.bootstrap, "sized") == (start, end)


def alter(bootstrap: str, topic: str, name: str, value: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    client = admin(bootstrap)  # held: a client that is collected drops what it was asked
    for done in client.incremental_alter_configs([resource]).values():
        done.result(20)


def test_a_segment_that_is_deleted_while_it_is_being_sent(own_broker: Callable[..., BrokerProcess]) -> None:
    """The peer reads slowly: most of the answer is still in the file when the file is removed."""
    broker = own_broker(log__retention__check__interval__ms="100")
    create_topic(broker.bootstrap, "sent", config={"segment.bytes": "20000000", "file.delete.delay.ms": "0"})
    produce(broker.bootstrap, "sent", 15_000)
    with Peer(broker) as peer:
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 26)
        topic = FetchTopic(topic="sent", partitions=[asked])
        peer.send(
            FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 26, topics=[topic]), 11
        )
        peer.sock.recv(1)  # the answer has begun
        before = logs(broker, "sent")[0]
        produce(broker.bootstrap, "sent", 6000)
        alter(broker.bootstrap, "sent", "retention.ms", "1")
        awaited(
            lambda: not before.exists() and not logs(broker, "sent", ".deleted"), "the file is still there"
        )
        # Of the four bytes of the size the first is read, and it is 0.
        frame = peer._take(int.from_bytes(b"\0" + peer._take(3), "big"))
        answer = FetchResponse.decode(memoryview(frame), 11, 4)
    (part,) = answer.responses[0].partitions
    assert part.error_code == 0
    whole = memoryview(bytes(part.records or b""))
    offsets = 0
    for position, header in batches(whole):
        check_batch(whole[position : position + header.size_bytes])
        assert header.base_offset == offsets
        offsets = header.next_offset
    assert offsets == 15_000


@pytest.mark.parametrize(
    "options",
    [
        {"log.retention.minutes": "90"},
        {"log.retention.hours": "1", "log.retention.ms": "5400000"},
        {"log.retention.hours": "24", "log.retention.minutes": "90"},
    ],
    ids=lambda options: ",".join(options),
)
def test_retention_by_the_brokers_time(options: dict[str, str]) -> None:
    """Milliseconds win over minutes, minutes over hours."""
    hour_ms = 3_600_000
    with Broker(options, manual_clock=True) as broker:
        create_topic(broker.bootstrap, "aged")
        produce(broker.bootstrap, "aged", 3)
        broker.advance(hour_ms)
        assert bounds(broker.bootstrap, "aged") == (0, 3)
        broker.advance(hour_ms)
        assert bounds(broker.bootstrap, "aged") == (3, 3)


def test_compact_and_delete_does_both() -> None:
    options = {"log.cleaner.backoff.ms": "50"}
    with Broker(options, manual_clock=True) as broker:
        config = {
            "cleanup.policy": "compact,delete",
            "segment.bytes": "10000",
            "retention.ms": "3600000",
            "min.cleanable.dirty.ratio": "0.01",
        }
        create_topic(broker.bootstrap, "both", config=config)
        for turn in range(4):
            sent = [Message(0, b"k%d" % (n % 5), b"%d-%d" % (turn, n) + b"." * 150) for n in range(50)]
            assert Confluent().produce(broker.bootstrap, "both", sent, codec="none", acks=-1) == 50

        def kept() -> list[Message]:
            return Confluent().read_to_end(broker.bootstrap, "both")

        awaited(lambda: len(kept()) < 100, "nothing was compacted")
        messages = kept()
        assert [item.offset for item in messages] == sorted(item.offset for item in messages)
        newest = {item.key: item.value for item in messages}
        assert newest == {b"k%d" % n: b"3-%d" % (45 + n) + b"." * 150 for n in range(5)}
        broker.advance(2 * 3_600_000)
        assert bounds(broker.bootstrap, "both") == (200, 200)
