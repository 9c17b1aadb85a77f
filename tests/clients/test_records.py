"""Records through clients nobody here wrote: what went in comes out, whole, in order, whichever client reads."""

from __future__ import annotations

import itertools
import uuid
from collections import defaultdict

import pytest

from tests.clients.drivers import DRIVERS, Driver, Message
from tests.support.admin import create_topic
from tests.support.examples import one_in
from tests.support.process import BrokerProcess

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BY_NAME = {driver.name: driver for driver in DRIVERS}
PARTITIONS = 3


def mixed(count: int) -> list[Message]:
    """Keys, headers, empty and null values, in rotation over the partitions."""
    messages = []
    for number in range(count):
        key = (
            None
            if number % 7 == 0 and number % 13
            else b""
            if number % 11 == 0
            else b"key-%d" % (number % 100)
        )
        value = (
            None
            if number % 13 == 0
            else b""
            if number % 17 == 0
            else b"value-%d-" % number + b"x" * (number % 50)
        )
        headers = (("n", str(number).encode()), ("empty", b"")) if number % 5 == 0 else ()
        messages.append(Message(number % PARTITIONS, key, value, headers))
    return messages


def by_partition(
    messages: list[Message],
) -> dict[int, list[tuple[bytes | None, bytes | None, tuple[object, ...]]]]:
    """Contents in order of arrival, by partition."""
    rows = defaultdict(list)
    for message in messages:
        rows[message.partition].append((message.key, message.value, message.headers))
    return dict(rows)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda d: d.name)
def test_every_codec_of_every_client_reads_back_in_every_client(
    broker: BrokerProcess, driver: Driver, codec: str
) -> None:
    topic = f"codec-{driver.name}-{codec}-{uuid.uuid4().hex[:8]}"
    create_topic(broker.bootstrap, topic, PARTITIONS)
    sent = mixed(3_000)
    assert driver.produce(broker.bootstrap, topic, sent, codec=codec, acks=-1) == len(sent)
    for reader in DRIVERS:
        messages = reader.consume(broker.bootstrap, topic, PARTITIONS, len(sent))
        assert len(messages) == len(sent), reader.name
        assert by_partition(messages) == by_partition(sent), reader.name


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda d: d.name)
def test_every_acks(broker: BrokerProcess, driver: Driver, acks: int) -> None:
    topic = f"acks-{driver.name}-{acks}-{uuid.uuid4().hex[:8]}"
    create_topic(broker.bootstrap, topic, PARTITIONS)
    sent = mixed(1_000)
    assert driver.produce(broker.bootstrap, topic, sent, codec="none", acks=acks) == len(sent)
    messages = driver.consume(broker.bootstrap, topic, PARTITIONS, len(sent))
    assert by_partition(messages) == by_partition(sent)


@pytest.mark.parametrize(
    ("name", "codec"),
    one_in(
        3, [*(("confluent-kafka", codec) for codec in CODECS), ("kafka-python", "gzip"), ("aiokafka", "lz4")]
    ),
)
def test_a_hundred_thousand_records(broker: BrokerProcess, name: str, codec: str) -> None:
    driver = BY_NAME[name]
    topic = f"many-{driver.name}-{uuid.uuid4().hex[:8]}"
    create_topic(broker.bootstrap, topic, PARTITIONS)
    sent = mixed(100_000)
    assert driver.produce(broker.bootstrap, topic, sent, codec=codec, acks=-1) == len(sent)
    messages = BY_NAME["confluent-kafka"].consume(broker.bootstrap, topic, PARTITIONS, len(sent))
    assert by_partition(messages) == by_partition(sent)
    for index, rows in itertools.groupby(
        sorted(messages, key=lambda m: (m.partition, m.offset)), lambda m: m.partition
    ):
        offsets = [row.offset for row in rows]
        assert offsets == list(range(len(offsets))), f"partition {index} has gaps"


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda d: d.name)
def test_records_outlive_a_restart(own_broker, driver: Driver) -> None:  # type: ignore[no-untyped-def]
    broker = own_broker()
    create_topic(broker.bootstrap, "kept", PARTITIONS)
    before, after = mixed(500), mixed(700)
    driver.produce(broker.bootstrap, "kept", before, codec="none", acks=-1)
    assert broker.stop() == 0
    broker.start()
    driver.produce(broker.bootstrap, "kept", after, codec="gzip", acks=-1)
    messages = driver.consume(broker.bootstrap, "kept", PARTITIONS, len(before) + len(after))
    assert by_partition(messages) == {
        index: by_partition(before)[index] + by_partition(after)[index] for index in range(PARTITIONS)
    }
