"""MirrorMaker 2 without clusters: names, records of internal topics, offset syncs, mm2.properties."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from barnabas.connect.connectors import SourceContext
from barnabas.connect.errors import ConnectError, OptionError, RetriableError
from barnabas.connect.mirror.dedicated import MirrorMakerFile
from barnabas.connect.mirror.flow import Flow
from barnabas.connect.mirror.formats import Checkpoint, Heartbeat, OffsetSync
from barnabas.connect.mirror.measures import AGES, BYTES, COUNT, LAG, LAG_S, MISSED, Copied
from barnabas.connect.mirror.naming import IdentityPolicy, Policy
from barnabas.connect.mirror.options import start_ms
from barnabas.connect.mirror.source import MirrorSource
from barnabas.connect.mirror.syncs import SYNCS_MAX, TOO_OLD, SyncRule, SyncStore, is_newer
from barnabas.connect.worker.formats import TaskId
from barnabas.connect.worker.planning import PARTITIONS, load
from barnabas.connect.worker.services import Services
from barnabas.connect.worker.source import SourceTask

TWO = {
    "clusters": "east, west",
    "east.bootstrap.servers": "e:9092",
    "west.bootstrap.servers": "w:9092",
    "east->west.enabled": "true",
}


def flow_of(**more: str) -> Flow:
    """The flow east->west of a file with these properties besides."""
    (flow,) = MirrorMakerFile(TWO | {"emit.heartbeats.enabled": "false"} | more).flows()
    return Flow(load(flow.worker, flow.worker.first["MirrorSourceConnector"]).config)


def test_internal_records_have_the_bytes_that_kafka_gives_them() -> None:
    sync = OffsetSync("orders", 3, 70, 42)
    assert sync.key() == b"\0\6orders" + bytes.fromhex("00000003")
    assert sync.value() == bytes.fromhex("0000000000000046 000000000000002a")
    assert OffsetSync.read(sync.key(), sync.value()) == sync
    point = Checkpoint("g", "east.t", 1, 70, 42, "m")
    assert point.key() == b"\0\1g\0\6east.t" + bytes.fromhex("00000001")
    assert point.value() == bytes.fromhex("0000 0000000000000046 000000000000002a") + b"\0\1m"
    assert Checkpoint.read(point.key(), point.value()) == point
    beat = Heartbeat("east", "west", 1234)
    assert beat.value() == bytes.fromhex("0000 00000000000004d2")
    assert Heartbeat.read(beat.key(), beat.value()) == beat


@pytest.mark.parametrize("key", [b"", b"\0\x09or", b"\xff\xff", b"\0\1\xff\0\0\0\0"])
def test_foreign_records_in_internal_topics_are_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match="not an offset sync"):
        OffsetSync.read(key, bytes(16))


def test_copies_are_named_after_their_source_and_never_return() -> None:
    policy = Policy()
    assert policy.remote("east", "orders") == "east.orders"
    assert policy.source_of("east.orders") == "east"
    assert policy.upstream("west.east.orders") == "east.orders"
    assert policy.is_cycle("west.orders", "west")
    assert policy.is_cycle("mid.west.orders", "west")
    assert not policy.is_cycle("mid.orders", "west")
    assert policy.renamed("west.orders", "east", "west") == "orders"
    assert policy.is_heartbeats("east.heartbeats")
    own = Policy("__", "__")
    assert own.remote("east", "a.b") == "east__a.b"
    assert own.syncs_topic("west") == "mm2-offset-syncs__west__internal"
    assert own.is_internal("east__checkpoints__internal")


def test_with_the_identity_policy_only_heartbeats_are_renamed() -> None:
    policy = IdentityPolicy()
    assert policy.remote("east", "orders") == "orders"
    assert policy.remote("east", "heartbeats") == "east.heartbeats"
    assert not policy.is_cycle("west.orders", "west")
    assert policy.is_cycle("west.heartbeats", "west")


def test_what_is_copied() -> None:
    flow = flow_of(topics="orders.*, \\Qa.b\\E")
    assert [flow.takes(name) for name in ("orders", "orders-2", "a.b", "axb", "heartbeats")] == [
        True,
        True,
        True,
        False,
        True,
    ]
    everything = flow_of()
    internal = (
        "__consumer_offsets",
        "mm2-offsets.west.internal",
        "connect-internal",
        "west.orders",
        "x.replica",
    )
    assert not any(map(everything.takes, internal))
    assert flow_of(**{"topics.blacklist": "pay.*"}).takes("orders")
    assert not flow_of(**{"topics.blacklist": "pay.*"}).takes("payments")


def test_syncs_are_due_at_gaps_after_many_records_and_at_rest() -> None:
    rule = SyncRule(10)
    assert rule.note(100, 0)
    assert not any(rule.note(100 + n, n) for n in range(1, 11))
    assert rule.note(111, 11)
    assert rule.note(120, 12), "the source has a gap"
    assert rule.note(121, 3), "the copy was made again"
    assert rule.due_at_rest() is None
    assert not rule.note(122, 4)
    assert rule.due_at_rest() == (122, 4)


def test_offsets_are_translated_to_no_record_that_was_not_read() -> None:
    store = SyncStore()
    assert store.translate("t", 0, 5) is None
    for upstream, downstream in ((10, 0), (15, 5), (40, 7)):
        store.add(OffsetSync("t", 0, upstream, downstream))
    translated = [store.translate("t", 0, offset) for offset in (9, 10, 11, 15, 39, 40, 41, 99)]
    assert translated == [TOO_OLD, 0, 1, 5, 6, 7, 8, 8]


def test_syncs_of_a_topic_that_was_made_again_replace_the_old_ones() -> None:
    store = SyncStore()
    for upstream, downstream in ((10, 100), (20, 110), (0, 111), (5, 116)):
        store.add(OffsetSync("t", 0, upstream, downstream))
    assert [store.translate("t", 0, offset) for offset in (0, 5, 20)] == [111, 116, 117]
    store.add(OffsetSync("t", 0, 6, 0))  # the copy was made again
    assert [store.translate("t", 0, offset) for offset in (5, 6)] == [TOO_OLD, 0]


def test_few_of_many_syncs_are_kept_and_still_translate_safely() -> None:
    store = SyncStore()
    for number in range(3 * SYNCS_MAX):
        store.add(OffsetSync("t", 0, 2 * number, number))
    newest = 3 * SYNCS_MAX - 1
    assert store.translate("t", 0, 2 * newest) == newest
    for offset in (0, 1, 777, newest):
        translated = store.translate("t", 0, offset)
        assert translated is not None
        assert 0 <= translated <= (offset + 1) // 2


def test_groups_move_back_in_the_target_only_if_they_did_in_the_source() -> None:
    def at(upstream: int, downstream: int) -> Checkpoint:
        return Checkpoint("g", "t", 0, upstream, downstream)

    assert is_newer(None, at(5, 5))
    assert is_newer(at(5, 5), at(6, 6))
    assert not is_newer(at(5, 5), at(6, 4))
    assert is_newer(at(5, 5), at(4, 4))
    assert not is_newer(at(5, 5), at(5, 5))


def test_a_file_gives_each_flow_a_worker_with_kafkas_topics() -> None:
    flows = MirrorMakerFile(TWO | {"west.offset.storage.replication.factor": "1", "tasks.max": "4"}).flows()
    assert [(str(flow), flow.enabled) for flow in flows] == [("east->west", True), ("west->east", False)]
    worker = flows[0].worker
    assert worker.client["bootstrap.servers"] == "w:9092"
    assert (worker.group, worker.config_topic) == ("east-mm2", "mm2-configs.east.internal")
    assert (worker.offset_topic, worker.status_topic) == (
        "mm2-offsets.east.internal",
        "mm2-status.east.internal",
    )
    assert worker["offset.storage.replication.factor"] == 1
    source = worker.first["MirrorSourceConnector"]
    assert (source["tasks.max"], source["enabled"]) == ("4", "true")
    assert source["source.cluster.bootstrap.servers"] == "e:9092"
    assert flows[1].worker.first["MirrorSourceConnector"]["enabled"] == "false"
    assert [str(flow) for flow in MirrorMakerFile(TWO).flows(["east"])] == ["west->east"]


def test_properties_of_a_cluster_reach_the_clients_that_they_are_for() -> None:
    more = {
        "security.protocol": "SASL_SSL",
        "east.security.protocol": "PLAINTEXT",
        "east.consumer.fetch.min.bytes": "5",
        "east->west.consumer.fetch.min.bytes": "7",
        "west.producer.linger.ms": "50",
    }
    flow = flow_of(**more)
    assert flow.properties("source", "consumer")["fetch.min.bytes"] == "5"
    assert flow.properties("source", "consumer")["security.protocol"] == "PLAINTEXT"
    assert flow.properties("target", "producer") == {
        "bootstrap.servers": "w:9092",
        "security.protocol": "SASL_SSL",
        "linger.ms": "50",
    }


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"clusters": "east"}, "fewer than two clusters"),
        ({"west.bootstrap.servers": " "}, "west.bootstrap.servers is not set"),
        ({"east->wset.enabled": "true"}, "no such pair of the clusters east, west"),
        ({"east->west.enabled": "false"}, "no flow is enabled"),
    ],
)
def test_mistakes_in_a_file_are_named(change: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        MirrorMakerFile(TWO | change).flows()


def test_unknown_options_of_a_file_are_noted_with_what_is_near() -> None:
    texts = TWO | {"east->west.emit.hearbeats.enabled": "true", "tasks.max": "3", "metrics.num.samples": "2"}
    (line,) = MirrorMakerFile(texts).unknown()
    assert "did you mean east->west.emit.heartbeats.enabled?" in line


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"topics": "a("}, "not a regular expression"),
        ({"replication.policy.class": "com.example.Own"}, "classes of Java cannot be loaded"),
        ({"offset-syncs.topic.location": "moon"}, "one of: source, target"),
    ],
)
def test_wrong_values_are_refused(change: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        flow_of(**change)


def test_a_converter_that_is_not_there_is_refused() -> None:
    (flow,) = MirrorMakerFile(
        TWO | {"emit.heartbeats.enabled": "false", "source.value.converter": "no.Such"}
    ).flows()
    config = load(flow.worker, flow.worker.first["MirrorSourceConnector"]).config
    (wrong,) = MirrorSource.check(config).items()
    assert wrong[0] == "source.value.converter"
    assert wrong[1].startswith("Class no.Such could not be found; there are AvroConverter, ")


def test_a_task_that_cannot_start_says_why() -> None:
    (flow,) = MirrorMakerFile(
        TWO | {"emit.heartbeats.enabled": "false", "source.value.converter": "no.Such"}
    ).flows()
    place = {"cluster": "east", "topic": "orders", "partition": 0}
    texts = {**flow.worker.first["MirrorSourceConnector"], PARTITIONS: json.dumps([place])}
    logs = SimpleNamespace(read_to_end=lambda topics: None)
    services = SimpleNamespace(options=flow.worker, counts={}, measured={}, logs=logs, admin=None)
    task = SourceTask(
        cast(Services, services), TaskId("copies", 0), load(flow.worker, texts), threading.Event()
    )
    with pytest.raises(OptionError, match="could not be found; there are"):
        task.run(lambda: None)


def test_offsets_that_a_user_sets_are_those_of_a_partition() -> None:
    place = {"cluster": "east", "topic": "t", "partition": 0}
    MirrorSource.check_offsets({}, [(place, {"offset": 3}), (place, None)])
    wrong: list[tuple[Any, Any]] = [
        ({"topic": "t"}, {"offset": 3}),
        (place, {"offset": -1}),
        (place, {"offset": True}),
    ]
    for pair in wrong:
        with pytest.raises(ConnectError):
            MirrorSource.check_offsets({}, [pair])


def test_converters_and_transforms_are_of_copied_records_alone() -> None:
    converter = "org.apache.kafka.connect.json.JsonConverter"
    texts = TWO | {
        "value.converter": converter,
        "east->west.source.value.converter": converter,
        "east->west.source.value.converter.schemas.enable": "false",
        "transforms": "mask",
    }
    (flow, _) = MirrorMakerFile(texts).flows()
    source, beats, points = flow.worker.first.values()
    assert source["source.value.converter"] == source["value.converter"] == converter
    assert (source["source.value.converter.schemas.enable"], source["transforms"]) == ("false", "mask")
    assert not {"value.converter", "transforms", "source.value.converter"} & ({*beats} | {*points})
    assert MirrorMakerFile(texts).unknown() == []


def test_a_start_is_a_time_or_an_age() -> None:
    day_ms = 86_400_000
    assert start_ms("1700000000000", 0) == 1_700_000_000_000
    assert start_ms("1970-01-02", 0) == day_ms
    assert start_ms("1970-01-02T00:00:00+01:00", 0) == day_ms - 3_600_000
    assert start_ms("2d", 5 * day_ms) == 3 * day_ms
    assert [start_ms(text, 0) for text in ("", "d", "soon", "5y")] == [None] * 4
    with pytest.raises(OptionError, match="Not a time"):
        flow_of(**{"start.from": "soon"})


def test_a_partition_measures_its_lag_and_the_ages_of_a_minute() -> None:
    copied = Copied(("east", "west", "east.orders", "0"))
    assert {sample.metric.name for sample in copied.samples(0)} == {COUNT.name, BYTES.name, MISSED.name}
    copied.position, copied.end, copied.reached_ms = 7, 10, 1_000
    for window, ages in enumerate(([5], [50, 10], [30, 20])):
        copied.turn(window * 31.0)
        for age in ages:
            copied.ages.note(age)
    samples = {sample.metric: sample.value for sample in copied.samples(5_000)}
    assert (samples[LAG], samples[LAG_S]) == (3, 4.0)
    assert [samples[metric] for metric in AGES] == [20, 10, 50, 27.5]
    copied.position = 10
    assert {sample.metric: sample.value for sample in copied.samples(5_000)}[LAG_S] == 0
    assert AGES[1].name == "kafka_connect_mirror_mirrorsourceconnector_record_age_ms_min"


class Message:
    """As confluent_kafka gives them."""

    def __init__(self, offset: int, error: KafkaError | None = None) -> None:
        self._offset, self._error = offset, error

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"%d" % self._offset

    def headers(self) -> None:
        return None


class Fetched:
    """A consumer that has fetched these messages."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages

    def poll(self, timeout_s: float) -> Message | None:
        return self._messages.pop(0) if self._messages else None

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        messages, self._messages = self._messages, []
        return messages

    def get_watermark_offsets(self, place: Any, cached: bool) -> tuple[int, int]:
        return 0, 3

    def assign(self, rows: Any) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize("at", [0, 1, 2])
def test_no_record_is_left_out_when_an_error_comes_between_others(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [Message(offset) for offset in range(3)]
    messages.insert(at, Message(-1, KafkaError(KafkaError._ALL_BROKERS_DOWN)))
    monkeypatch.setattr(Flow, "consumer", lambda *_: Fetched(messages))
    place = {"cluster": "east", "topic": "orders", "partition": 0}
    (flow,) = MirrorMakerFile(TWO | {"emit.heartbeats.enabled": "false"}).flows()
    texts = flow.worker.first["MirrorSourceConnector"] | {"emit.offset-syncs.enabled": "false"}
    source = MirrorSource()
    context = SourceContext(
        "copies", 0, threading.Event(), lambda: None, Path(), lambda rows: [None], [place]
    )
    source.start(load(flow.worker, texts).config, context)
    values: list[Any] = []
    errors = 0
    for _ in range(4):
        try:
            values += [record.value for record in source.poll({}, None)]
        except RetriableError:
            errors += 1
    source.stop()
    assert values == [b"0", b"1", b"2"]
    assert errors == (at == 0)  # behind records it is the next poll that says so, if the error is still there
