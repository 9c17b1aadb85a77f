"""Changes at run time, and how DescribeConfigs shows the result."""

from __future__ import annotations

import pytest

from barnabas.config.describe import (
    Entry,
    Source,
    Synonym,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from barnabas.config.dynamic import (
    Change,
    Operation,
    TopicConfig,
    altered_broker_configs,
    altered_client_metrics,
    altered_group_configs,
    altered_topic_configs,
    new_broker_configs,
    new_topic_configs,
)
from barnabas.config.loader import BrokerConfig
from barnabas.config.topic_options import CLEANUP_POLICY, RETENTION_MS, SEGMENT_BYTES
from barnabas.wire.errors import ApiError, ErrorCode

SET, DELETE, APPEND, SUBTRACT = Operation.SET, Operation.DELETE, Operation.APPEND, Operation.SUBTRACT


def by_name(entries: list[Entry]) -> dict[str, Entry]:
    return {entry.name: entry for entry in entries}


def refused(code: ErrorCode, says: str):
    return pytest.raises(ApiError, match=says, check=lambda error: error.code == code)


def test_what_schema_registry_connect_and_streams_ask_is_accepted() -> None:
    asked = {
        "cleanup.policy": "compact",
        "segment.bytes": "52428800",
        "retention.ms": "-1",
        "message.timestamp.type": "CreateTime",
        "min.compaction.lag.ms": "0",
        "message.downconversion.enable": "false",
    }
    assert new_topic_configs(BrokerConfig(), asked) == asked


def test_new_topics_are_checked() -> None:
    broker = BrokerConfig()
    with refused(ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"):
        new_topic_configs(broker, {"nope": "1"})
    with refused(ErrorCode.INVALID_CONFIG, r"as a topic config it is called segment\.bytes"):
        new_topic_configs(broker, {"log.segment.bytes": "1000"})
    with refused(ErrorCode.INVALID_CONFIG, "batches are always kept in format 2"):
        new_topic_configs(broker, {"message.format.version": "2.0"})
    with refused(ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs: retention.ms"):
        new_topic_configs(broker, {"retention.ms": None})
    with refused(
        ErrorCode.INVALID_CONFIG, "Invalid value -2 for configuration retention.ms: Value must be at least -1"
    ):
        new_topic_configs(broker, {"retention.ms": "-2"})
    with refused(ErrorCode.INVALID_CONFIG, r"min.compaction.lag.ms \(9\) > max.compaction.lag.ms \(8\)"):
        new_topic_configs(broker, {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"})
    with refused(ErrorCode.INVALID_CONFIG, "Tiered Storage functionality is disabled"):
        new_topic_configs(broker, {"remote.storage.enable": "true"})
    with refused(ErrorCode.INVALID_CONFIG, "partition:broker"):
        new_topic_configs(broker, {"leader.replication.throttled.replicas": "0-1"})


def test_incremental_changes() -> None:
    broker = BrokerConfig()
    texts = altered_topic_configs(
        broker, {}, [Change("retention.ms", SET, "5"), Change("segment.bytes", SET, "1000")]
    )
    assert texts == {"retention.ms": "5", "segment.bytes": "1000"}
    texts = altered_topic_configs(broker, texts, [Change("retention.ms", DELETE, None)])
    assert texts == {"segment.bytes": "1000"}
    texts = altered_topic_configs(broker, texts, [Change("cleanup.policy", APPEND, "compact")])
    assert texts["cleanup.policy"] == "delete,compact"
    texts = altered_topic_configs(broker, texts, [Change("cleanup.policy", APPEND, "compact")])
    assert texts["cleanup.policy"] == "delete,compact"
    texts = altered_topic_configs(broker, texts, [Change("cleanup.policy", SUBTRACT, "delete")])
    assert texts["cleanup.policy"] == "compact"
    assert altered_topic_configs(broker, {}, [Change("no.longer.known", DELETE, None)]) == {}


def test_a_list_is_appended_to_what_the_broker_has_set() -> None:
    broker = BrokerConfig({"log.cleanup.policy": "compact"})
    texts = altered_topic_configs(broker, {}, [Change("cleanup.policy", APPEND, "delete")])
    assert texts == {"cleanup.policy": "compact,delete"}


def test_refused_incremental_changes() -> None:
    broker = BrokerConfig()
    with refused(ErrorCode.INVALID_CONFIG, "Can't APPEND to key retention.ms because its type is not LIST"):
        altered_topic_configs(broker, {}, [Change("retention.ms", APPEND, "5")])
    with refused(ErrorCode.INVALID_REQUEST, "duplicate config keys"):
        altered_topic_configs(
            broker, {}, [Change("retention.ms", SET, "5"), Change("retention.ms", DELETE, None)]
        )
    with refused(ErrorCode.INVALID_REQUEST, "Null value not supported for : retention.ms"):
        altered_topic_configs(broker, {}, [Change("retention.ms", SET, None)])
    with refused(ErrorCode.INVALID_REQUEST, "Unknown operation type 9"):
        altered_topic_configs(broker, {}, [Change("retention.ms", 9, "1")])
    with refused(ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"):
        altered_topic_configs(broker, {}, [Change("nope", SET, "1")])


def test_dynamic_broker_configs() -> None:
    broker = BrokerConfig()
    changes = [Change("log.segment.bytes", SET, "1000"), Change("log.cleanup.policy", APPEND, "compact")]
    assert altered_broker_configs(broker, {}, changes, whole_cluster=True) == {
        "log.segment.bytes": "1000",
        "log.cleanup.policy": "delete,compact",
    }
    assert new_broker_configs({"log.retention.ms": "9"}, whole_cluster=False) == {"log.retention.ms": "9"}
    own = [Change("listener.name.external.ssl.keystore.location", SET, "/k.pem")]
    assert altered_broker_configs(broker, {}, own, whole_cluster=False) == {own[0].name: "/k.pem"}
    with refused(ErrorCode.INVALID_REQUEST, r"Cannot update these configs dynamically: \[num.partitions\]"):
        altered_broker_configs(broker, {}, [Change("num.partitions", SET, "3")], whole_cluster=False)
    with refused(ErrorCode.INVALID_REQUEST, "broker id must be specified"):
        altered_broker_configs(broker, {}, own, whole_cluster=True)
    with refused(ErrorCode.INVALID_REQUEST, "using the listener prefix"):
        altered_broker_configs(broker, {}, [Change("ssl.keystore.location", SET, "/k")], whole_cluster=False)
    with refused(ErrorCode.INVALID_REQUEST, "Invalid value x for configuration log.segment.bytes"):
        altered_broker_configs(broker, {}, [Change("log.segment.bytes", SET, "x")], whole_cluster=False)
    assert altered_broker_configs(broker, {}, [Change("nope", SET, "x")], whole_cluster=True) == {"nope": "x"}
    assert new_broker_configs({"nope": "x"}, whole_cluster=False) == {"nope": "x"}
    with refused(ErrorCode.INVALID_CONFIG, "Can't APPEND to key nope because its type is not LIST"):
        altered_broker_configs(broker, {}, [Change("nope", APPEND, "x")], whole_cluster=False)


def test_group_configs_stay_within_the_broker_s_limits() -> None:
    broker = BrokerConfig()
    name = "consumer.session.timeout.ms"
    assert altered_group_configs(broker, {}, [Change(name, SET, "50000")]) == {name: "50000"}
    with refused(
        ErrorCode.INVALID_CONFIG, "must be greater than or equal to group.consumer.min.session.timeout.ms"
    ):
        altered_group_configs(broker, {}, [Change(name, SET, "1000")])
    with refused(
        ErrorCode.INVALID_CONFIG, "must be less than or equal to group.consumer.max.session.timeout.ms"
    ):
        altered_group_configs(broker, {}, [Change(name, SET, "99999999")])
    with refused(ErrorCode.INVALID_CONFIG, "Unknown group config name: nope"):
        altered_group_configs(broker, {}, [Change("nope", SET, "1")])
    for value in ("earliest", "latest", "by_duration:PT1H", "by_duration:P1DT2H3M4.5S"):
        altered_group_configs(broker, {}, [Change("share.auto.offset.reset", SET, value)])
    for value in ("none", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:1h"):
        with refused(ErrorCode.INVALID_CONFIG, "by_duration:PnDTnHnMnS"):
            altered_group_configs(broker, {}, [Change("share.auto.offset.reset", SET, value)])
    relaxed = BrokerConfig(
        {"group.consumer.min.session.timeout.ms": "100", "group.consumer.min.heartbeat.interval.ms": "10"}
    )
    with refused(
        ErrorCode.INVALID_CONFIG, "consumer.session.timeout.ms must be greater than consumer.heartbeat"
    ):
        altered_group_configs(relaxed, {}, [Change(name, SET, "4000")])


def test_client_metrics_subscriptions() -> None:
    texts = altered_client_metrics(
        {}, [Change("metrics", SET, "org.apache."), Change("match", SET, "client_id=a.*")]
    )
    shown = by_name(describe_client_metrics(texts))
    assert (shown["metrics"].value, shown["metrics"].source) == ("org.apache.", Source.CLIENT_METRICS)
    assert (shown["interval.ms"].value, shown["interval.ms"].source) == ("300000", Source.DEFAULT)
    for change in (
        Change("match", SET, "who=me"),
        Change("match", SET, "client_id=("),
        Change("interval.ms", SET, "1"),
    ):
        with refused(ErrorCode.INVALID_CONFIG, "Invalid value"):
            altered_client_metrics({}, [change])


def test_effective_topic_values() -> None:
    broker = BrokerConfig({"log.segment.bytes": "5000", "log.retention.minutes": "1"})
    topic = TopicConfig(broker, {"cleanup.policy": "compact", "message.format.version": "2.0"})
    assert topic.get(SEGMENT_BYTES) == 5000
    assert topic.get(RETENTION_MS) == 60_000
    assert topic.get(CLEANUP_POLICY) == ("compact",)
    assert topic.values()["segment.ms"] == 604_800_000


def test_topic_entries_name_source_and_synonyms_as_kafka_does() -> None:
    broker = BrokerConfig({"log.segment.bytes": "1000", "log.retention.hours": "24", "log.roll.ms": "77"})
    broker.set_dynamic(default={"log.segment.bytes": "2000"}, broker={"log.segment.bytes": "3000"})
    shown = by_name(describe_topic(broker, {"segment.bytes": " 4000", "cleanup.policy": "compact, delete"}))
    assert shown["segment.bytes"].value == "4000"
    assert shown["segment.bytes"].source == Source.TOPIC
    assert shown["segment.bytes"].synonyms == (
        Synonym("segment.bytes", "4000", 1),
        Synonym("log.segment.bytes", "3000", 2),
        Synonym("log.segment.bytes", "2000", 3),
        Synonym("log.segment.bytes", "1000", 4),
        Synonym("log.segment.bytes", "1073741824", 5),
    )
    assert shown["cleanup.policy"].value == "compact,delete"
    # Kafka shows no synonym of another name, though the value comes from there.
    assert (shown["retention.ms"].value, shown["retention.ms"].synonyms) == ("86400000", ())
    assert shown["segment.ms"].synonyms == (
        Synonym("log.roll.ms", "77", 4),
        Synonym("log.roll.hours", "168", 5),
    )
    assert shown["flush.ms"].value == "9223372036854775807"
    assert shown["flush.ms"].is_default
    assert not any(entry.read_only or entry.sensitive for entry in shown.values())


def test_broker_entries() -> None:
    broker = BrokerConfig(
        {
            "log.retention.hours": "24",
            "ssl.key.password": "hush",
            "listener.name.plaintext.ssl.client.auth": "required",
        }
    )
    broker.set_dynamic(default={"log.cleaner.threads": "2"})
    shown = by_name(describe_broker(broker))
    assert shown["log.retention.hours"].source == Source.STATIC_BROKER
    assert shown["log.retention.hours"].read_only
    assert shown["log.retention.ms"].value is None
    assert not shown["log.retention.ms"].read_only
    assert shown["log.cleaner.threads"].source == Source.DYNAMIC_DEFAULT_BROKER
    assert shown["ssl.key.password"].value is None
    assert shown["ssl.key.password"].sensitive
    assert all(synonym.value is None for synonym in shown["ssl.key.password"].synonyms)
    assert shown["listener.name.plaintext.ssl.client.auth"].value == "required"
    assert "unclean.leader.election.interval.ms" not in shown
    assert [entry.name for entry in describe_cluster_default(broker)] == ["log.cleaner.threads"]


def test_group_entries() -> None:
    broker = BrokerConfig({"group.consumer.session.timeout.ms": "46000"})
    shown = by_name(describe_group(broker, {"consumer.heartbeat.interval.ms": "6000"}))
    assert (shown["consumer.session.timeout.ms"].value, shown["consumer.session.timeout.ms"].source) == (
        "46000",
        4,
    )
    assert (
        shown["consumer.heartbeat.interval.ms"].value,
        shown["consumer.heartbeat.interval.ms"].source,
    ) == ("6000", 8)


def test_options_that_brokers_do_not_have_are_shown_without_their_values() -> None:
    """As in Kafka: what is plugged into a broker may have options of its own, and they may be secrets."""
    broker = BrokerConfig()
    broker.set_dynamic(default={"plugin.password": "x", "other": "y"}, broker={"plugin.password": "z"})
    rows = {row.name: row for row in describe_broker(broker)}
    assert [
        (row.value, row.source, row.sensitive, row.config_type) for row in (rows["plugin.password"],)
    ] == [(None, Source.DYNAMIC_BROKER, True, 0)]
    assert [synonym.source for synonym in rows["plugin.password"].synonyms] == [
        Source.DYNAMIC_BROKER, Source.DYNAMIC_DEFAULT_BROKER,
    ]  # fmt: skip
    assert {(row.name, row.value) for row in describe_cluster_default(broker)} == {
        ("plugin.password", None), ("other", None),
    }  # fmt: skip
