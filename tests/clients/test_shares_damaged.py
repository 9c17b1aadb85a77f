"""A batch that nobody can read, between others, and a share group: its neighbours' records are delivered and settled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from barnabas.records.compression import Codec
from barnabas.testing import Broker
from tests.clients.test_door import produce, unreadable
from tests.support.admin import create_topic, set_group_option
from tests.support.raw import Raw

pytestmark = pytest.mark.skipif(
    not hasattr(confluent_kafka, "ShareConsumer"), reason="this confluent-kafka has no share consumer"
)

POLLS_MAX = 300
BEFORE, AFTER = ("0", "1", "2"), ("4", "5", "6")


@contextmanager
def member(broker: Broker, group: str) -> Iterator[Any]:
    options = {
        "bootstrap.servers": broker.bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit",
    }  # fmt: skip
    consumer = confluent_kafka.ShareConsumer(options)
    try:
        consumer.subscribe(["t"])
        yield consumer
    finally:
        consumer.close()


def write(broker: Broker, values: tuple[str, ...]) -> None:
    """One batch, by a real producer."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 100})
    for value in values:
        producer.produce("t", value)
    assert producer.flush(60) == 0


def settle(broker: Broker, group: str, wanted: tuple[str, ...], rejected: str = "") -> list[str]:
    """What a share consumer gets until it has all that is wanted; it accepts all but one."""
    from confluent_kafka import AcknowledgeType

    got: list[str] = []
    with member(broker, group) as consumer:
        for _ in range(POLLS_MAX):
            for message in consumer.poll(0.2) or ():
                if message.error() is not None:
                    continue
                value = message.value().decode()
                got.append(value)
                kind = AcknowledgeType.REJECT if value == rejected else AcknowledgeType.ACCEPT
                consumer.acknowledge(message, kind)
            if got:
                consumer.commit_sync(60)
            if {*wanted} <= {*got}:
                return got
    raise AssertionError(f"not all records were delivered: {got}")


def unsettled(broker: Broker, group: str) -> list[int]:
    """The offsets of what is locked or waits to be delivered again."""
    services = broker.inside.server.services
    topic_id = services.partitions.id_of("t")
    assert topic_id is not None
    queue = broker.inside.call(lambda: services.shares.open(group, topic_id, 0))
    return sorted(queue.core.records)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path / "data") as started:
        create_topic(started.bootstrap, "t", 1)
        create_topic(started.bootstrap, "dlq.t", 1, {"errors.deadletterqueue.group.enable": "true"})
        for group in ("first", "second"):
            set_group_option(started.bootstrap, group, "share.auto.offset.reset", "earliest")
        write(started, BEFORE)
        yield started


def test_a_batch_whose_checksum_does_not_hold(broker: Broker, tmp_path: Path) -> None:
    write(broker, ("spoilt",))
    write(broker, AFTER)
    broker.stop()
    path = tmp_path / "data" / "t-0" / f"{0:020d}.log"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"spoilt", b"spoilT"))
    broker.start()
    assert sorted(settle(broker, "first", (*BEFORE, *AFTER))) == [*BEFORE, *AFTER]
    assert unsettled(broker, "first") == []


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_batch_that_holds_no_records(broker: Broker, codec: Codec) -> None:
    """The rejected record's copy is found beside it. (librdkafka acknowledges what follows such a batch as gaps.)"""
    raw = Raw(broker)  # type: ignore[arg-type]
    (answer,) = produce(raw, "t", unreadable(codec))
    raw.sock.close()
    assert answer.error_code == 0  # nothing looks into the batches of a plain topic
    set_group_option(broker.bootstrap, "second", "errors.deadletterqueue.topic.name", "dlq.t")
    set_group_option(broker.bootstrap, "second", "errors.deadletterqueue.copy.record.enable", "true")
    assert settle(broker, "second", BEFORE, rejected="1") == [*BEFORE]
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "letters", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["dlq.t"])
    letter = next(message for _ in range(POLLS_MAX) if (message := consumer.poll(0.2)) is not None)
    consumer.close()
    assert letter.value() == b"1"
