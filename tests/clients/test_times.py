"""Timestamps and keys as topics ask for them, and offsets by time."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from barnabas.records.batch import Record, build_batch
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.clients.drivers import Confluent
from tests.clients.test_old_versions import Peer
from tests.support.admin import create_topic
from tests.support.process import BrokerProcess

HOUR_MS = 3_600_000


def new_topic(broker: BrokerProcess, **config: str) -> str:
    topic = f"times-{uuid.uuid4().hex[:12]}"
    create_topic(
        broker.bootstrap, topic, config={name.replace("__", "."): text for name, text in config.items()}
    )
    return topic


def outcome(
    broker: BrokerProcess, topic: str, *rows: tuple[bytes | None, int], codec: str = "none"
) -> list[int]:
    """Produces (key, timestamp) rows as one batch; the error code of each."""
    from confluent_kafka import Producer

    codes: list[int] = []

    def report(error: Any, _: Any) -> None:
        codes.append(0 if error is None else error.code())

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "linger.ms": 300,
            "retries": 0,
            "compression.type": codec,
            "log_level": 0,
        }
    )
    producer.list_topics(topic, timeout=120)
    for key, timestamp_ms in rows:
        producer.produce(topic, b"v", key=key, timestamp=timestamp_ms, partition=0, on_delivery=report)
    while len(producer):
        producer.poll(0.1)  # a flush would send what it finds at once
    return codes


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_records_that_are_too_old_or_too_far_ahead(broker: BrokerProcess, codec: str) -> None:
    from confluent_kafka import KafkaError

    topic = new_topic(
        broker,
        message__timestamp__before__max__ms=str(HOUR_MS),
        message__timestamp__after__max__ms=str(HOUR_MS),
    )
    now_ms = int(time.time() * 1000)
    assert outcome(broker, topic, (None, now_ms), (None, now_ms - HOUR_MS // 2), codec=codec) == [0, 0]
    old = outcome(broker, topic, (None, now_ms), (None, now_ms - 2 * HOUR_MS), (None, now_ms), codec=codec)
    assert old == [KafkaError.INVALID_TIMESTAMP] * 3
    ahead = outcome(broker, topic, (None, now_ms), (None, now_ms + 2 * HOUR_MS), codec=codec)
    assert ahead == [KafkaError.INVALID_TIMESTAMP] * 2
    assert len(Confluent().read_to_end(broker.bootstrap, topic)) == 2


def test_the_brokers_time_knows_no_limits(broker: BrokerProcess) -> None:
    from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, TopicPartition

    topic = new_topic(
        broker,
        message__timestamp__type="LogAppendTime",
        message__timestamp__before__max__ms="1000",
        message__timestamp__after__max__ms="1000",
    )
    before_ms = int(time.time() * 1000)
    assert outcome(broker, topic, (None, 1), (None, before_ms + 10 * HOUR_MS)) == [0, 0]
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    for _ in range(2):
        message = consumer.poll(20)
        assert message is not None
        kind, at_ms = message.timestamp()
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        assert before_ms <= at_ms <= int(time.time() * 1000)
    consumer.close()


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_takes_no_record_without_a_key(broker: BrokerProcess, policy: str) -> None:
    from confluent_kafka import KafkaError

    topic = new_topic(broker, cleanup__policy=policy)
    now_ms = int(time.time() * 1000)
    assert outcome(broker, topic, (b"a", now_ms), (b"", now_ms)) == [0, 0]
    refused = outcome(broker, topic, (b"a", now_ms), (None, now_ms))
    assert refused == [KafkaError.INVALID_RECORD] * 2
    # The record that is to blame is named, from version 8 on.
    rows = [Record(n, now_ms, key, b"v") for n, key in enumerate((b"a", None, b"b", None))]
    with Peer(broker) as peer:
        for version in (7, 8, 9):
            answer = peer.produce(topic, build_batch(rows), version)
            assert answer.error_code == ErrorCode.INVALID_RECORD
            named = [error.batch_index for error in answer.record_errors]
            assert named == ([1, 3] if version >= 8 else [])
    assert len(Confluent().read_to_end(broker.bootstrap, topic)) == 2


def test_the_special_times(broker: BrokerProcess) -> None:
    """-1 latest, -2 earliest, -3 greatest timestamp, -4 earliest local, -5 latest tiered, -6 earliest pending upload."""
    topic = new_topic(broker)
    now_ms = int(time.time() * 1000)
    for at_ms in (now_ms, now_ms + 500, now_ms + 100):
        assert outcome(broker, topic, (b"k", at_ms)) == [0]
    known = {
        now_ms - 1: (0, now_ms),
        now_ms + 50: (1, now_ms + 500),
        now_ms + 200: (1, now_ms + 500),
        now_ms + 600: (-1, -1),
        -1: (3, -1),
        -2: (0, -1),
        -3: (1, now_ms + 500),
        -4: (0, -1),
        -5: (-1, -1),
        -6: (-1, -1),
    }
    since = {-3: 7, -4: 8, -5: 9, -6: 11}
    with Peer(broker) as peer:
        for version in range(1, 12):
            for asked, (offset, timestamp_ms) in known.items():
                request = ListOffsetsRequest(
                    replica_id=-1,
                    topics=[
                        ListOffsetsTopic(
                            name=topic,
                            partitions=[ListOffsetsPartition(partition_index=0, timestamp=asked)],
                        )
                    ],
                )
                (part,) = peer.ask(request, ListOffsetsResponse, version).topics[0].partitions
                if version < since.get(asked, 0):
                    assert part.error_code == ErrorCode.UNSUPPORTED_VERSION
                else:
                    assert (part.error_code, part.offset, part.timestamp) == (0, offset, timestamp_ms)
