"""MirrorMaker 2: ours between two clusters, and Java's client and Java's own MirrorMaker beside it."""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from barnabas.admin import Admin
from barnabas.admin import TopicPartition as Place
from barnabas.connect.files import read_config
from barnabas.connect.mirror.dedicated import MirrorMakerFile
from barnabas.connect.mirror.lagging import lags
from barnabas.testing import Broker
from tests.clients.mirror_maker import KEPT, javas, ours, properties, translated
from tests.support.cluster import DEADLINE_S, until
from tests.support.process import free_port


@pytest.fixture
def clusters() -> Iterator[tuple[str, str]]:
    with Broker() as east, Broker() as west:
        yield east.bootstrap, west.bootstrap


def make(bootstrap: str, name: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    named = {key.replace("__", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=named)])[name].result(60)


def send(bootstrap: str, name: str, values: list[str], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number, value in enumerate(values):
        producer.produce(
            name,
            value,
            key=f"k{value}",
            headers=[("h", value.encode()), ("none", None)],
            partition=partition,
            timestamp=1_700_000_000_000 + number,
        )
    assert producer.flush(60) == 0


def commit(bootstrap: str, group: str, places: dict[tuple[str, int], int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    rows = [TopicPartition(*place, offset) for place, offset in places.items()]
    consumer.commit(offsets=rows, asynchronous=False)
    consumer.close()


def read(
    bootstrap: str, name: str, count: int, partitions: int = 1, deadline_s: float = DEADLINE_S
) -> list[Any]:
    """At least `count` records, and all that are there then."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reads", "enable.partition.eof": True, "log_level": 0}
    )
    until(lambda: name in consumer.list_topics(timeout=10).topics, f"topic {name}")
    consumer.assign([TopicPartition(name, number, 0) for number in range(partitions)])
    messages: list[Any] = []
    ended: set[int] = set()

    def look() -> bool:
        for message in consumer.consume(500, 0.2):
            if message.error() is None:
                messages.append(message)
                ended.discard(message.partition())
            else:
                ended.add(message.partition())
        return len(messages) >= count and len(ended) == partitions

    until(look, f"{count} records of {name}", deadline_s)
    consumer.close()
    return messages


def committed(bootstrap: str, group: str) -> dict[str, int]:
    with Admin(bootstrap) as admin:
        rows = admin.groups.offsets([group]).done.get(group, {})
    return {f"{place.topic} {place.partition}": row.offset for place, row in rows.items()}


def lags_of(file: Path) -> dict[str, tuple[str, int, int, int | None]]:
    """By topic of the source: copy, partitions of which something was copied, lag in offsets and in milliseconds."""
    (flow, _) = MirrorMakerFile(read_config(file)).flows()
    return {row.topic: (row.copy, row.begun, row.lag, row.lag_ms) for row in lags(flow)}


def test_topics_groups_and_heartbeats_are_copied_in_both_directions(
    clusters: tuple[str, str], tmp_path: Path
) -> None:
    east, west = clusters
    make(east, "orders", 2, retention__ms=KEPT, min__insync__replicas="1")
    send(east, "orders", [str(number) for number in range(5)])
    send(west, "orders", ["here"])
    commit(east, "readers", {("orders", 0): 5})
    commit(east, "console-consumer-1", {("orders", 0): 5})
    file = properties(tmp_path, east, west, topics="orders", **{"west->east__enabled": "true"})
    with ours(file):
        copied = read(west, "east.orders", 5, 2)
        assert [(m.key(), m.value(), m.partition(), m.timestamp()[1]) for m in copied] == [
            (f"k{n}".encode(), str(n).encode(), 0, 1_700_000_000_000 + n) for n in range(5)
        ]
        assert copied[0].headers() == [("h", b"0"), ("none", None)]
        assert [m.value() for m in read(east, "west.orders", 1)] == [b"here"]
        until(lambda: committed(west, "readers") == {"east.orders 0": 5}, "the group is at the end there too")
        assert not committed(west, "console-consumer-1")
        there = AdminClient({"bootstrap.servers": west})
        options = there.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "east.orders")])
        (values,) = [future.result(30) for future in options.values()]
        assert values["retention.ms"].value == KEPT

        admin = AdminClient({"bootstrap.servers": east})
        change = ConfigResource(
            ConfigResource.Type.TOPIC,
            "orders",
            incremental_configs=[
                ConfigEntry("retention.ms", "630720000000", incremental_operation=AlterConfigOpType.SET)
            ],
        )
        [future.result(30) for future in admin.incremental_alter_configs([change]).values()]
        admin.create_partitions([NewPartitions("orders", 3)])["orders"].result(30)
        send(east, "orders", ["new"], 2)
        assert [m.value() for m in read(west, "east.orders", 6, 3) if m.partition() == 2] == [b"new"]

        until(lambda: lags_of(file).get("orders") == ("east.orders", 2, 0, 0), "nothing is behind")
        beat = read(west, "east.heartbeats", 1)[0]
        assert beat.key() == b"\0\4west\0\4east"
        topics = set(there.list_topics(timeout=10).topics)
    send(east, "orders", ["not copied", "either"], 2)
    copy, begun, lag, lag_ms = lags_of(file)["orders"]
    assert (copy, begun, lag, lag_ms is None) == ("east.orders", 2, 2, False)
    assert {"east.checkpoints.internal", "heartbeats", "mm2-offset-syncs.east.internal"} <= topics
    assert not {name for name in topics if name.startswith(("east.west.", "east.mm2", "east.east"))}


@pytest.mark.soak
def test_records_are_chosen_masked_renamed_and_rehashed_on_their_way(
    clusters: tuple[str, str], tmp_path: Path
) -> None:
    east, west = clusters
    make(east, "orders", 3)
    make(west, "sales.orders", 2)
    producer = Producer({"bootstrap.servers": east})
    for number in range(100):
        producer.produce(
            "orders",
            json.dumps({"n": number, "card": "4111", "amount": number % 10}),
            key=str(number),
            timestamp=1_700_000_000_000 + number * 1000,
        )
    assert producer.flush(60) == 0
    converter = "org.apache.kafka.connect.json.JsonConverter"
    options = {
        "source.value.converter": converter,
        "source.value.converter.schemas.enable": "false",
        "value.converter": converter,
        "value.converter.schemas.enable": "false",
        "transforms": "large, mask, name",
        "transforms.large.type": "Filter",
        "transforms.large.condition": "amount >= 5",
        "transforms.mask.type": "org.apache.kafka.connect.transforms.MaskField$Value",
        "transforms.mask.fields": "card",
        "transforms.name.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.name.regex": "east[.](.*)",
        "transforms.name.replacement": "sales.$1",
        "start.from": "1700000050000",
        "partitions": "hash",
    }
    with ours(properties(tmp_path, east, west, topics="orders", **options)):
        messages = read(west, "sales.orders", 25, 2)
    values = [json.loads(m.value()) for m in messages]
    assert sorted(row["n"] for row in values) == [n for n in range(50, 100) if n % 10 >= 5]
    assert {row["card"] for row in values} == {""}
    assert {m.partition() for m in messages} == {0, 1}


@pytest.mark.soak
def test_the_same_names_on_both_sides_do_not_make_a_loop(clusters: tuple[str, str], tmp_path: Path) -> None:
    east, west = clusters
    for where in clusters:
        make(where, "orders")
    send(east, "orders", ["east"])
    send(west, "orders", ["west"])
    options = {
        "west->east.enabled": "true",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "provenance.headers.enabled": "true",
        "emit.heartbeats.enabled": "false",
    }
    with ours(properties(tmp_path, east, west, topics="orders|more", **options)):
        for where in clusters:
            assert {m.value() for m in read(where, "orders", 2)} == {b"east", b"west"}
        send(east, "orders", ["last"])
        messages = read(west, "orders", 3)
        send(west, "orders", ["the last"])
        assert len(read(east, "orders", 4)) == 4
    assert len(read(west, "orders", 4)) == 4
    assert ("mirror.from", b"east/orders/0/2") in messages[-1].headers()


@pytest.mark.soak
def test_a_killed_mirror_goes_on_without_losing_or_doubling_a_record(
    clusters: tuple[str, str], tmp_path: Path
) -> None:
    east, west = clusters
    make(east, "orders", 2)
    file = properties(
        tmp_path,
        east,
        west,
        topics="orders",
        emit__heartbeats__enabled="false",
        exactly__once__source__support="enabled",
    )
    for turn in range(3):
        values = [f"{turn}.{number}" for number in range(20_000)]
        send(east, "orders", values[:10_000], 0)
        send(east, "orders", values[10_000:], 1)
        with ours(file) as process:
            read(west, "east.orders", 20_000 * turn + 1, 2)
            if turn < 2:
                process.send_signal(signal.SIGKILL)
    # The last one is still copying when it is ended: the next one does the rest.
    with ours(file):
        places = [(m.partition(), m.value().decode()) for m in read(west, "east.orders", 60_000, 2)]
    for partition in (0, 1):
        wanted = [f"{turn}.{n + 10_000 * partition}" for turn in range(3) for n in range(10_000)]
        assert [value for place, value in places if place == partition] == wanted


@pytest.mark.soak
def test_javas_client_translates_offsets_as_ours_does(clusters: tuple[str, str], tmp_path: Path) -> None:
    east, west = clusters
    make(east, "orders", 2)
    send(east, "orders", [str(number) for number in range(500)])
    send(east, "orders", [str(number) for number in range(70)], 1)
    commit(east, "readers", {("orders", 0): 500, ("orders", 1): 33})
    with ours(properties(tmp_path, east, west, topics="orders")):
        until(lambda: committed(west, "readers").get("east.orders 0") == 500, "the group is moved")
    translated_offsets = translated(west, "east", "readers")
    assert translated_offsets == committed(west, "readers")
    assert translated_offsets["east.orders 0"] == 500
    assert 0 < translated_offsets["east.orders 1"] <= 33


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_ours_goes_on_where_javas_was_and_javas_where_ours_was(
    clusters: tuple[str, str], tmp_path: Path
) -> None:
    east, west = clusters
    make(east, "orders", 2)
    file = properties(tmp_path, east, west, topics="orders", emit__heartbeats__enabled="false")
    wanted: list[str] = []

    def is_moved() -> bool:
        return committed(west, "readers").get("east.orders 0") == len(wanted)

    for turn, run in enumerate((javas, ours, javas, ours)):
        values = [f"{turn}.{number}" for number in range(300)]
        send(east, "orders", values)
        wanted += values
        commit(east, "readers", {("orders", 0): len(wanted)})
        with run(file):
            read(west, "east.orders", len(wanted), 2)
            if run is ours:
                until(is_moved, "the group is moved")
    assert [m.value().decode() for m in read(west, "east.orders", len(wanted), 2)] == wanted
    assert translated(west, "east", "readers") == {"east.orders 0": len(wanted)}


@pytest.mark.soak
def test_what_retention_has_removed_before_it_was_copied_is_named_and_a_new_topic_is_copied_too(
    clusters: tuple[str, str], tmp_path: Path
) -> None:
    east, west = clusters
    make(east, "orders")
    file = properties(tmp_path, east, west, topics="orders", emit__heartbeats__enabled="false")
    log = file.with_suffix(".ours.log")

    def values(count: int) -> list[int]:
        with ours(file):
            return [int(message.value()) for message in read(west, "east.orders", count)]

    send(east, "orders", [str(number) for number in range(10)])
    assert values(10) == list(range(10))
    send(east, "orders", [str(number) for number in range(10, 20)])
    with Admin(east) as admin:
        admin.records.delete({Place("orders", 0): 15}).require()
        assert values(15) == [*range(10), *range(15, 20)]
        assert "from=10 to=15 count=5" in log.read_text()

        admin.topics.delete(["orders"]).require()
        until(lambda: "orders" not in admin.topics.list(), "the topic is gone")
    make(east, "orders")
    send(east, "orders", ["100", "101"])
    assert values(17)[-2:] == [100, 101]
    assert "the topic was made again" in log.read_text()


def metrics(port: int) -> dict[str, float]:
    """By name and labels, as Prometheus reads them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[:1] != "#"}


@pytest.mark.soak
def test_a_running_mirror_names_what_retention_took_and_measures_how_far_it_is(
    clusters: tuple[str, str], tmp_path: Path
) -> None:
    east, west = clusters
    make(east, "orders", 2)
    port = free_port()
    listeners = {"listeners": f"http://127.0.0.1:{port}"}
    file = properties(tmp_path, east, west, topics="orders", emit__heartbeats__enabled="false", **listeners)
    commit(east, "readers", {("orders", 0): 5})
    send(east, "orders", [str(number) for number in range(10)])
    labels = '{partition="0",source="east",target="west",topic="east.orders"}'
    with ours(file) as process:
        assert [int(m.value()) for m in read(west, "east.orders", 10, 2)] == list(range(10))
        until(lambda: metrics(port)[f"barnabas_mirror_lag_records{labels}"] == 0, "nothing is left")
        process.send_signal(signal.SIGSTOP)
        time.sleep(1)  # the fetches that it has sent have been answered by then
        send(east, "orders", [str(number) for number in range(10, 20)])
        with Admin(east) as admin:
            admin.records.delete({Place("orders", 0): 15}).require()
        process.send_signal(signal.SIGCONT)
        messages = read(west, "east.orders", 15, 2)
        assert [int(message.value()) for message in messages] == [*range(10), *range(15, 20)]
        until(lambda: metrics(port)[f"barnabas_mirror_lag_records{labels}"] == 0, "nothing is left again")
        measured = metrics(port)
    assert "from=10 to=15 count=5" in file.with_suffix(".ours.log").read_text()
    source = "kafka_connect_mirror_mirrorsourceconnector_"
    assert measured[f"barnabas_mirror_missed_total{labels}"] == 5
    assert measured[f"{source}record_count{labels}"] == 15
    age_ms = measured[f"{source}record_age_ms{labels}"]
    assert (
        measured[f"{source}record_age_ms_min{labels}"]
        <= age_ms
        <= measured[f"{source}record_age_ms_max{labels}"]
    )
    assert measured[f"{source}replication_latency_ms{labels}"] >= age_ms > 1_000_000_000
    group = '{group="readers",partition="0",source="east",target="west",topic="east.orders"}'
    assert measured[f"kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms{group}"] >= 0
