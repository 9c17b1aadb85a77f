"""A small data dir with something of everything, to be opened by later versions.

    python -m tests.support.data_dir SRC tests/data/NAME.tar.gz

starts the broker of the sources in SRC (another checkout's `src`, built), fills it, stops it, and packs its data dir with
`expected.json`, what clients read of it before. Do so for each release; tests/clients/test_older_data.py opens them all.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.records.batch import Record, build_batch
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.admin import create_topic, set_group_option
from tests.support.process import BrokerProcess
from tests.support.raw import Raw

PLAIN, COMPACTED, JOBS, ONCE = "plain", "compacted", "jobs", "once"
PARTITIONS = {PLAIN: 2, COMPACTED: 1, JOBS: 1, ONCE: 1}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
T0_MS = 1_600_000_000_000
KEYS, ROUNDS = 10, 30
OPTIONS = {
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "log.cleaner.backoff.ms": "100",
    "log.retention.ms": "-1",  # the records carry old times
}
Row = tuple[int, int, int, str | None, str, list[tuple[str, str]]]
"""Partition, offset, timestamp, key, value, headers."""


def fill(broker: BrokerProcess) -> dict[str, Any]:
    """Makes topics, groups and producers; what is to be found of them."""
    bootstrap = broker.bootstrap
    create_topic(bootstrap, PLAIN, PARTITIONS[PLAIN], {"retention.ms": "-1", "segment.bytes": "1500"})
    for number, codec in enumerate(CODECS):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 100})
        for i in range(10):
            producer.produce(
                PLAIN, f"{codec}-{i}", f"k{i}", partition=i % 2, timestamp=T0_MS + 10 * number + i,
                headers=[("codec", codec.encode())],
            )  # fmt: skip
        assert producer.flush(60) == 0
    compacted(broker)
    expected: dict[str, Any] = {"topics": {}, "retention.ms": "-1"}
    for group, protocol in (("readers", "classic"), ("modern", "consumer")):
        commit(bootstrap, group, protocol)
    if hasattr(confluent_kafka, "ShareConsumer"):
        expected["released"] = share(bootstrap)
    expected["producer"] = once(broker, PARTITIONS[ONCE])
    expected["topics"] = {topic: rows(bootstrap, topic) for topic in PARTITIONS}
    return expected


def compacted(broker: BrokerProcess) -> None:
    """A topic of which the cleaner has taken most away."""
    options = {"cleanup.policy": "compact", "segment.bytes": "1500", "min.cleanable.dirty.ratio": "0.01"}
    create_topic(broker.bootstrap, COMPACTED, 1, options)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 100})
    for round_number in range(ROUNDS):
        for key in range(KEYS):
            value = None if key == 9 and round_number == ROUNDS - 1 else f"r{round_number}"
            producer.produce(COMPACTED, value, f"k{key}", partition=0)
        assert producer.flush(60) == 0
    deadline_s = time.monotonic() + 60
    while len(rows(broker.bootstrap, COMPACTED)) > KEYS * ROUNDS // 2:
        assert time.monotonic() < deadline_s, "the cleaner has not run"
        time.sleep(0.2)


def commit(bootstrap: str, group: str, protocol: str) -> None:
    """A group that has read a part of the plain topic."""
    options = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "enable.auto.commit": False, **options})
    consumer.subscribe([PLAIN])
    assert len(consumer.consume(5, 60)) == 5
    offsets = [TopicPartition(PLAIN, 0, 3, metadata="at three"), TopicPartition(PLAIN, 1, 4)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def share(bootstrap: str) -> list[str]:
    """A share group that has accepted some jobs and released the others; those."""
    from confluent_kafka import AcknowledgeType

    create_topic(bootstrap, JOBS, PARTITIONS[JOBS])
    set_group_option(bootstrap, "workers", "share.auto.offset.reset", "earliest")
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(6):
        producer.produce(JOBS, str(number))
    assert producer.flush(60) == 0
    worker = confluent_kafka.ShareConsumer(
        {"bootstrap.servers": bootstrap, "group.id": "workers", "share.acknowledgement.mode": "explicit"}
    )
    worker.subscribe([JOBS])
    seen: set[bytes] = set()
    while len(seen) < 6:
        for message in worker.poll(0.2):
            seen.add(message.value())
            late = int(message.value()) >= 4
            worker.acknowledge(message, AcknowledgeType.RELEASE if late else AcknowledgeType.ACCEPT)
        worker.commit_sync(20)
    worker.close()
    return ["4", "5"]


def once(broker: BrokerProcess, partitions: int) -> dict[str, int]:
    """An idempotent producer that has written two records; its id and epoch."""
    create_topic(broker.bootstrap, ONCE, partitions)
    raw = Raw(broker)
    answer = raw.ask(
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), InitProducerIdResponse, 4
    )
    assert isinstance(answer, InitProducerIdResponse)
    raw.sock.close()
    produced = produce_once(broker, answer.producer_id, answer.producer_epoch, 0)
    return {"id": answer.producer_id, "epoch": answer.producer_epoch, "offset": produced}


def produce_once(broker: BrokerProcess, producer_id: int, epoch: int, sequence: int) -> int:
    """Writes (or repeats) two records of the idempotent producer; the base offset that the broker names."""
    written = [Record(i, T0_MS, b"once", b"%d" % (sequence + i)) for i in range(2)]
    batch = build_batch(written, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    data = [TopicProduceData(name=ONCE, partition_data=[PartitionProduceData(index=0, records=batch)])]
    raw = Raw(broker)
    answer = raw.ask(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=data), ProduceResponse, 9)
    raw.sock.close()
    assert isinstance(answer, ProduceResponse)
    row = answer.responses[0].partition_responses[0]
    assert row.error_code == 0, row
    return int(row.base_offset)


def rows(bootstrap: str, topic: str) -> list[Row]:
    """All records of a topic, as librdkafka reads them."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS[topic])])
    rows_read: list[Row] = []
    ended = 0
    while ended < PARTITIONS[topic]:
        message = consumer.poll(60)
        assert message is not None, f"{topic} does not end"
        if message.error():
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
            ended += 1
            continue
        key, value = message.key(), message.value()
        headers = [(name, data.decode()) for name, data in message.headers() or []]
        rows_read.append(
            (
                message.partition(), message.offset(), message.timestamp()[1], key.decode() if key else None,
                value.decode() if value is not None else "", headers,
            )
        )  # fmt: skip
    consumer.close()
    return sorted(rows_read)


def main(sources: str, archive: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        os.environ["PYTHONPATH"] = sources
        broker = BrokerProcess(data, options=OPTIONS)
        broker.start()
        try:
            expected = fill(broker)
        finally:
            assert broker.stop() == 0, broker.log()
        data.joinpath("expected.json").write_text(json.dumps(expected, indent=1))
        with tarfile.open(archive, "w:gz", compresslevel=9) as tar:
            tar.add(data, "data")
    print(archive, Path(archive).stat().st_size, "bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
