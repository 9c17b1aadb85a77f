"""Transactions in a linked topic, seen by Java's consumer and by librdkafka while the source's broker comes and goes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from barnabas.admin import Admin
from barnabas.cores.links import LinkSpec
from tests.clients import foreign
from tests.support.admin import create_topic
from tests.support.cluster import until
from tests.support.process import BrokerProcess

pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]
ISOLATIONS = ("read_committed", "read_uncommitted")


def write(bootstrap: str, numbers: range) -> list[str]:
    """Transactions of ten records, of which every third is aborted; the committed values."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer"})
    producer.init_transactions(60)
    committed = []
    for number in numbers:
        producer.begin_transaction()
        values = [f"{number}.{place}" for place in range(10)]
        for value in values:
            producer.produce("payments", value, partition=0)
        producer.flush(60)
        if number % 3:
            producer.commit_transaction(60)
            committed += values
        else:
            producer.abort_transaction(60)
    return committed


def by_java(bootstrap: str, isolation: str, count: int) -> list[str]:
    command = [foreign.need("java"), "-Xmx256m", "-cp", f"{foreign.kafka_jars()}/*"]
    words = [
        "--bootstrap-server",
        bootstrap,
        "--topic",
        "payments",
        "--from-beginning",
        "--timeout-ms",
        "20000",
    ]
    done = subprocess.run(
        [
            *command,
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *words,
            "--isolation-level",
            isolation,
            "--max-messages",
            str(count),
        ],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    return done.stdout.split()


def by_librdkafka(bootstrap: str, isolation: str) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checks",
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition("payments", 0, 0)])
    texts = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        texts.append(message.value().decode())
    consumer.close()
    return texts


def test_readers_of_a_copy_see_committed_records_once_and_in_order(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    source, target = own_broker(), own_broker()
    create_topic(source.bootstrap, "payments", 1)
    with Admin(target.bootstrap) as admin:
        admin.links.create(
            "seen",
            LinkSpec("seen", {"bootstrap.servers": source.bootstrap}, "payments", interval_ms=1000).texts(),
        )
        committed = write(source.bootstrap, range(30))
        source.restart()
        committed += write(source.bootstrap, range(30, 60))

        def is_copied() -> bool:
            (link,) = admin.links.describe(["seen"])
            return [(row.log_end, row.state) for row in link.partitions] == [(660, "in sync")]

        until(is_copied, "everything is copied")
        everything = [f"{number}.{place}" for number in range(60) for place in range(10)]
        for isolation, wanted in zip(ISOLATIONS, (committed, everything), strict=True):
            assert by_librdkafka(target.bootstrap, isolation) == wanted
            assert by_java(target.bootstrap, isolation, len(wanted)) == wanted

        with pytest.raises(KafkaException):
            write(target.bootstrap, range(60, 61))
        admin.links.promote("seen")
    # The writer moves to the copy, and goes on there.
    committed += write(target.bootstrap, range(60, 70))
    assert by_librdkafka(target.bootstrap, "read_committed") == committed
