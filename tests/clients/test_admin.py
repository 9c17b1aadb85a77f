"""Administration through the admin clients of confluent-kafka and kafka-python."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, ConfigSource, OffsetSpec, ResourceType

from tests.support.admin import admin, create_topic

RECORDS = 10


def fresh(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def filled_topic(bootstrap: str, **config: str) -> str:
    """A topic of one partition that holds RECORDS records, each in a batch of its own."""
    topic = fresh("admin")
    create_topic(bootstrap, topic, config={name.replace("_", "."): text for name, text in config.items()})
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number)
        assert producer.flush(20) == 0
    return topic


def offsets(bootstrap: str, topic: str, spec: OffsetSpec) -> int:
    partition = TopicPartition(topic, 0)
    client = admin(bootstrap)
    offset: int = client.list_offsets({partition: spec})[partition].result(20).offset
    return offset


@pytest.fixture
def old_admin(bootstrap: str) -> Iterator[Any]:
    from kafka import KafkaAdminClient

    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def test_deleted_records_are_out_of_reach(bootstrap: str) -> None:
    topic = filled_topic(bootstrap)
    client = admin(bootstrap)
    asked = TopicPartition(topic, 0, 4)
    assert client.delete_records([asked])[asked].result(20).low_watermark == 4
    assert offsets(bootstrap, topic, OffsetSpec.earliest()) == 4
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": fresh("g"), "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(20)
    assert message is not None
    assert message.offset() == 4
    consumer.close()
    everything = TopicPartition(topic, 0, -1)
    assert client.delete_records([everything])[everything].result(20).low_watermark == RECORDS
    with pytest.raises(Exception, match=r"OFFSET_OUT_OF_RANGE|out of range"):
        client.delete_records([TopicPartition(topic, 0, 11)])[TopicPartition(topic, 0, 11)].result(20)


def test_deleted_records_stay_deleted_after_a_restart(own_broker: Callable[..., Any]) -> None:
    broker = own_broker()
    topic = filled_topic(broker.bootstrap)
    asked = TopicPartition(topic, 0, 7)
    client = admin(broker.bootstrap)
    client.delete_records([asked])[asked].result(20)
    broker.restart()
    assert offsets(broker.bootstrap, topic, OffsetSpec.earliest()) == 7


def test_kafka_python_deletes_records(bootstrap: str, old_admin: Any) -> None:
    import kafka

    topic = filled_topic(bootstrap)
    old_admin.delete_records({kafka.TopicPartition(topic, 0): 3})
    assert offsets(bootstrap, topic, OffsetSpec.earliest()) == 3


def test_records_of_a_compacted_topic_are_not_deleted(bootstrap: str) -> None:
    topic = fresh("compacted")
    create_topic(bootstrap, topic, config={"cleanup.policy": "compact"})
    asked = TopicPartition(topic, 0, -1)
    client = admin(bootstrap)
    with pytest.raises(Exception, match=r"(?i)policy"):
        client.delete_records([asked])[asked].result(20)


def own_configs(bootstrap: str, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    client = admin(bootstrap)
    entries = client.describe_configs([resource])[resource].result(20)
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: one.value for name, one in entries.items() if one.source == own}


def test_alter_configs_replaces_what_was_set(bootstrap: str) -> None:
    topic = fresh("configs")
    create_topic(bootstrap, topic, config={"retention.ms": "1000", "segment.bytes": "1048576"})
    client = admin(bootstrap)
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "2000"})
    client.alter_configs([resource], validate_only=True)[resource].result(20)
    assert own_configs(bootstrap, topic)["segment.bytes"] == "1048576"
    client.alter_configs([resource])[resource].result(20)
    assert own_configs(bootstrap, topic) == {"retention.ms": "2000"}
    bad = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "soon"})
    with pytest.raises(Exception, match=r"retention\.ms"):
        client.alter_configs([bad])[bad].result(20)
    assert own_configs(bootstrap, topic) == {"retention.ms": "2000"}


def test_log_dirs_show_sizes(bootstrap: str, old_admin: Any) -> None:
    topic = filled_topic(bootstrap)
    (broker,) = old_admin.describe_log_dirs()
    (log_dir,) = broker["log_dirs"]
    sizes = {row["name"]: row["partitions"][0]["partition_size"] for row in log_dir["topics"]}
    assert sizes[topic] > RECORDS * 61
    assert 0 < log_dir["usable_bytes"] <= log_dir["total_bytes"]
    (broker,) = old_admin.describe_log_dirs({topic: [0]})
    assert [row["name"] for row in broker["log_dirs"][0]["topics"]] == [topic]


def test_producers_of_a_partition_are_listed(bootstrap: str, old_admin: Any) -> None:
    import kafka

    partition = kafka.TopicPartition(filled_topic(bootstrap), 0)
    (producer,) = old_admin.describe_producers([partition])[partition].active_producers
    assert producer.producer_id >= 0
    assert producer.last_sequence == RECORDS - 1
    assert producer.current_transaction_start_offset == -1


def test_config_resources_are_listed(bootstrap: str, old_admin: Any) -> None:
    from kafka.admin import ConfigResource as OldResource
    from kafka.admin import ConfigResourceType

    topic, group = fresh("listed"), fresh("group")
    create_topic(bootstrap, topic)
    changed = OldResource(ConfigResourceType.GROUP, group, {"consumer.session.timeout.ms": "50000"})
    old_admin.alter_configs([changed])
    listed = old_admin.list_config_resources()
    assert topic in listed["topic"]
    assert group in listed["group"]
    assert listed["broker"] == ["1"]


def test_the_list_of_all_topics_follows_every_change(bootstrap: str) -> None:
    """The broker keeps such answers while nothing changes."""
    from confluent_kafka.admin import NewPartitions

    client, topic = admin(bootstrap), fresh("everything")

    def partitions() -> int | None:
        seen = {
            None if row is None else len(row.partitions)
            for row in (client.list_topics(timeout=120).topics.get(topic) for _ in range(3))
        }
        (count,) = seen
        return count

    assert partitions() is None
    create_topic(bootstrap, topic, 2)
    assert partitions() == 2
    client.create_partitions([NewPartitions(topic, 5)])[topic].result(30)
    assert partitions() == 5
    client.delete_topics([topic])[topic].result(30)
    assert partitions() is None
