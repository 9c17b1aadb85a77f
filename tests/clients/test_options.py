"""Options at work, as clients feel them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import TopicPartition as Place
from kafka.admin import ConfigResource as Resource
from kafka.admin import ConfigResourceType as Kind
from kafka.admin import KafkaAdminClient

from barnabas.testing import Broker
from tests.clients.cli_support import Cli
from tests.support.admin import admin, create_topic


def test_internal_offsets_may_be_compressed() -> None:
    """They are read again after a restart, in pieces of any size."""
    options = {"offsets.topic.compression.codec": "4", "offsets.load.buffer.size": "200"}
    with Broker(options) as broker:
        create_topic(broker.bootstrap, "t", 5)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        wanted = [TopicPartition("t", index, 10 + index, metadata="x" * 1000) for index in range(5)]
        for row in wanted:
            consumer.commit(offsets=[row], asynchronous=False)
        size_bytes = sum(path.stat().st_size for path in broker.data_dir.glob("__consumer_offsets-*/*.log"))
        assert size_bytes < 2500, "five texts of 1000 equal letters"
        broker.restart()
        committed = consumer.committed(wanted, timeout=120)
        assert [(item.partition, item.offset) for item in committed] == [
            (index, 10 + index) for index in range(5)
        ]
        consumer.close()


def test_levels_of_compression() -> None:
    """The same records at the lowest and at the highest level of zstd: the log shows the difference."""
    chosen = random.Random(7)
    words = [bytes(chosen.randrange(97, 123) for _ in range(6)) for _ in range(400)]
    value = b" ".join(chosen.choices(words, k=20_000))
    with Broker() as broker:
        sizes = []
        for name, level in (("quick", "-7"), ("thorough", "19")):
            config = {"compression.type": "zstd", "compression.zstd.level": level}
            create_topic(broker.bootstrap, name, config=config)
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            producer.produce(name, value)
            assert producer.flush(30) == 0
            sizes.append(sum(path.stat().st_size for path in broker.data_dir.glob(f"{name}-0/*.log")))
        assert sizes[1] < 0.9 * sizes[0]


def test_an_idle_producer_is_forgotten() -> None:
    with Broker({"producer.id.expiration.ms": "60000"}, manual_clock=True) as broker:
        create_topic(broker.bootstrap, "t")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})

        def known() -> list[Any]:
            client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
            try:
                (producers,) = client.describe_producers([Place("t", 0)]).values()
                return list(
                    producers.active_producers if hasattr(producers, "active_producers") else producers
                )
            finally:
                client.close()

        producer.produce("t", b"1")
        assert producer.flush(30) == 0
        broker.advance(59_000)
        assert len(known()) == 1
        broker.advance(2_000)
        assert known() == []
        producer.produce("t", b"2")  # it goes on where it was all the same
        assert producer.flush(30) == 0


@pytest.mark.parametrize(("asked", "pages"), [(2000, [3, 3, 1]), (2, [2, 2, 2, 1])])
def test_topics_come_in_pages(asked: int, pages: list[int]) -> None:
    with Broker({"max.request.partition.size.limit": "3"}) as broker:
        create_topic(broker.bootstrap, "a", 4)
        create_topic(broker.bootstrap, "b", 3)
        client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        topic_pages, cursor = [], None
        while True:
            page = client.describe_topic_partitions(["b", "a"], response_partition_limit=asked, cursor=cursor)
            topic_pages.append(page)
            cursor = page["next_cursor"]
            if cursor is None:
                break
        client.close()
        assert [sum(len(topic["partitions"]) for topic in page["topics"]) for page in topic_pages] == pages
        named = [
            (topic["name"], row["partition_index"])
            for page in topic_pages
            for topic in page["topics"]
            for row in topic["partitions"]
        ]
        assert named == [("a", index) for index in range(4)] + [("b", index) for index in range(3)]


def test_refused_values_say_what_is_allowed(broker: Any) -> None:
    create_topic(broker.bootstrap, "refused")
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    client = admin(broker.bootstrap)

    def refusal(kind: Any, name: str, option: str, value: str) -> str:
        entry = ConfigEntry(option, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(kind, name, incremental_configs=[entry])
        (answer,) = client.incremental_alter_configs([resource]).values()
        return str(answer.exception(30).args[0])

    topic = ConfigResource.Type.TOPIC
    assert "INVALID_CONFIG" in refusal(topic, "refused", "cleanup.policy", "sometimes")
    assert "delete, compact" in refusal(topic, "refused", "cleanup.policy", "sometimes")
    assert "retention.ms" in refusal(topic, "refused", "retention.ms", "-2")
    assert "at least -1" in refusal(topic, "refused", "retention.ms", "-2")
    assert "Unknown topic config name" in refusal(topic, "refused", "retention", "1")


def test_loggers_in_server_properties(own_broker: Any) -> None:
    broker = own_broker(
        **{"logger__barnabas__requests": "debug", "log4j__logger__barnabas__storage": "ERROR"}
    )
    cli = Cli(broker.bootstrap)

    def levels() -> dict[str, str]:
        return {row["name"]: row["value"] for row in cli.json("config", "describe", "logger", "1")}

    assert (levels()["barnabas.requests"], levels()["barnabas.storage"]) == ("DEBUG", "ERROR")
    cli("config", "set", "logger", "1", "barnabas.requests=WARN")
    assert levels()["barnabas.requests"] == "WARN"
    cli("config", "unset", "logger", "1", "barnabas.requests")
    assert levels()["barnabas.requests"] == "DEBUG", "what the file says"
    cli("config", "set", "logger", "1", "barnabas.requests=ERROR")
    broker.restart()
    assert levels()["barnabas.requests"] == "ERROR", "kept"
    cli("config", "unset", "logger", "1", "barnabas.requests")
    broker.restart()
    assert levels()["barnabas.requests"] == "DEBUG"


def test_loggers_are_changed_while_the_broker_runs(own_broker: Any) -> None:
    broker = own_broker()
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    cli = Cli(broker.bootstrap)

    def levels() -> dict[str, str]:
        configs = client.describe_configs([Resource(Kind.BROKER_LOGGER, "1")], config_filter="all")
        return {name: one["value"] for name, one in configs["broker_logger"]["1"].items()}

    before = levels()
    assert before["root"] == before["barnabas.storage"] == before["barnabas.requests"] == "INFO"
    cli("config", "set", "logger", "1", "barnabas.requests=DEBUG", "barnabas.storage=WARN")
    after = levels()
    assert (after["barnabas.requests"], after["barnabas.storage"]) == ("DEBUG", "WARN")
    assert after["barnabas.listeners"] == "INFO"
    create_topic(broker.bootstrap, "logged")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "seen"})
    for _ in range(3):
        producer.produce("logged", b"1")
        assert producer.flush(30) == 0
    cli("config", "unset", "logger", "1", "barnabas.requests")
    assert levels()["barnabas.requests"] == "INFO"
    lines = [line for line in broker.log().splitlines() if "api=Produce" in line and "client=seen" in line]
    assert len(lines) == 3, "also those that take the fast path when nobody looks"
    for change, says in (
        ("barnabas.storage=LOUD", "Valid log levels are FATAL, ERROR, WARN, INFO, DEBUG, TRACE"),
        ("kafka.server=INFO", "Logger kafka.server does not exist"),
    ):
        assert says in cli("config", "set", "logger", "1", change, code=1).stderr.decode()
    done = client.alter_configs([Resource(Kind.BROKER_LOGGER, "1", configs={"root": "ERROR"})])
    assert done is not None
    assert levels()["barnabas.listeners"] == "ERROR"
    client.close()
