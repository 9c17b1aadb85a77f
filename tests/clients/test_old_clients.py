"""Clients older than 0.11 beside new ones on the same topics: each reads what each other wrote.

One topic for each family of codecs, because not every client reads all. All write first, then all read; what
librdkafka (a client of the 4.x era) reads is what the others must read too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.clients import foreign
from tests.clients.drivers import AioKafka, Confluent, Message
from tests.clients.old.programs import PROGRAMS, Program
from tests.support.admin import create_topic
from tests.support.process import BrokerProcess

# The first run fetches and builds them all.
pytestmark = pytest.mark.timeout(600)

TOPICS = {"old-plain": ("none", "gzip"), "old-snappy": ("snappy",), "old-lz4": ("lz4",)}
COUNT = 12
AT_ONCE = 3

Row = tuple[int, str | None, str | None]
by_name = pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)


class World:
    """The broker, the programs that could be had, what each wrote, and what librdkafka reads."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.bootstrap = broker.bootstrap
        self.commands: dict[str, list[str]] = {}
        self.missing: dict[str, str] = {}
        self.failed: dict[str, BaseException] = {}
        self.written: dict[str, list[tuple[str, str | None, str | None]]] = {topic: [] for topic in TOPICS}
        self.rows: dict[str, list[Row]] = {}
        self.times: dict[str, list[int]] = {}

    def command(self, program: Program) -> list[str]:
        if program.name in self.missing:
            pytest.skip(self.missing[program.name])
        if program.name in self.failed:
            raise AssertionError(f"{program.name} could not write") from self.failed[program.name]
        return self.commands[program.name]

    def prepare(self) -> None:
        with foreign.off_the_clock(), ThreadPoolExecutor(AT_ONCE) as pool:
            for program, done in [(row, pool.submit(row.command)) for row in PROGRAMS]:
                try:
                    self.commands[program.name] = done.result()
                except pytest.skip.Exception as reason:
                    self.missing[program.name] = str(reason)

    def write(self) -> None:
        for topic in TOPICS:
            create_topic(self.bootstrap, topic)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            writing = [
                pool.submit(self._write, program) for program in PROGRAMS if program.name in self.commands
            ]
            for program, done in zip([p for p in PROGRAMS if p.name in self.commands], writing, strict=True):
                if done.exception() is not None:
                    self.failed[program.name] = done.exception()  # type: ignore[assignment]
        for topic, codecs in TOPICS.items():
            for codec in codecs:
                self._write_new(topic, codec)

    def _write(self, program: Program) -> None:
        for topic, codecs in TOPICS.items():
            mine = [codec for codec in codecs if codec in program.codecs]
            if mine:
                words = ["write", topic, str(COUNT), ",".join(mine), *_versions(program.versions)]
                report = foreign.run(self.commands[program.name], self.bootstrap, *words)
                self.written[topic] += [(who, key, value) for who, key, value in report["written"]]

    def _write_new(self, topic: str, codec: str) -> None:
        who = f"confluent-kafka {codec}"
        sent = [
            Message(0, b"key-%d" % n, f"{who}/{n}".encode(), (("header", b"is dropped for old readers"),))
            for n in range(COUNT)
        ]
        assert Confluent().produce(self.bootstrap, topic, sent, codec=codec, acks=-1) == COUNT
        self.written[topic] += [(who, _text(message.key), _text(message.value)) for message in sent]

    def read(self) -> None:
        for topic, written in self.written.items():
            messages = Confluent().consume(self.bootstrap, topic, 1, len(written))
            self.rows[topic] = [_row(item) for item in messages]
            self.times[topic] = [item.timestamp_ms for item in messages]


def _versions(versions: tuple[str, ...]) -> list[str]:
    return [",".join(versions)] if versions else []


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _row(one: Message) -> Row:
    return one.offset, _text(one.key), _text(one.value)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    options = {"group.initial.rebalance.delay.ms": "0"}
    broker = BrokerProcess(tmp_path_factory.mktemp("old-clients") / "data", options=options).start()
    try:
        world = World(broker)
        world.prepare()
        world.write()
        world.read()
        yield world
    finally:
        broker.stop()


def test_new_clients_read_what_all_wrote(world: World) -> None:
    for topic, written in world.written.items():
        rows = world.rows[topic]
        assert [offset for offset, _, _ in rows] == list(range(len(written)))
        for who in {who for who, _, _ in written}:
            sent = [(key, value) for other, key, value in written if other == who]
            mine = [
                (key, value) for _, key, value in rows if value is not None and value.startswith(who + "/")
            ]
            assert mine == [row for row in sent if row[1] is not None], who
        nulls = sorted(key for _, key, value in rows if value is None)  # type: ignore[type-var]
        assert nulls == sorted(key for _, key, value in written if value is None)  # type: ignore[type-var]
        assert [_row(row) for row in AioKafka().consume(world.bootstrap, topic, 1, len(rows))] == rows


@by_name
def test_old_clients_read_what_all_wrote(world: World, program: Program) -> None:
    command = world.command(program)
    for topic, codecs in TOPICS.items():
        if not set(codecs) <= set(program.codecs):
            continue
        versions = program.versions_with_lz4 if "lz4" in codecs else program.versions
        rows = world.rows[topic]
        rows_by_version = foreign.run(
            command, world.bootstrap, "read", topic, str(len(rows)), *_versions(versions)
        )["found"]
        assert not versions or set(rows_by_version) == set(versions)
        for version, seen in rows_by_version.items():
            assert [(offset, key, value) for offset, _, key, value in seen] == rows, version
            times = [time for _, time, _, _ in seen]
            same = all(
                mine == time or (mine is None and time < 0)
                for mine, time in zip(times, world.times[topic], strict=True)
            )
            assert same or set(times) == {None}, version


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1"])
def test_librdkafka_that_takes_the_broker_for_an_old_one(world: World, version: str) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

    options = {
        "bootstrap.servers": world.bootstrap,
        "api.version.request": False,
        "broker.version.fallback": version,
        "log_level": 0,
    }
    topic = f"old-librdkafka-{version}"
    create_topic(world.bootstrap, topic)
    failed: list[Any] = []
    for codec in ("none", "gzip", "snappy", "lz4"):
        producer = Producer({**options, "compression.type": codec, "linger.ms": 5})
        for number in range(COUNT):
            producer.produce(
                topic, b"%d" % number * 50, partition=0, on_delivery=lambda error, _: failed.append(error)
            )
        assert producer.flush(30) == 0
    assert failed == [None] * 4 * COUNT
    consumer = Consumer({**options, "group.id": topic, "enable.auto.commit": False})
    rows = {**world.rows, topic: [(n, None, str(n % COUNT) * 50) for n in range(4 * COUNT)]}
    for name, wanted in rows.items():
        consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])
        rows_read: list[Row] = []
        deadline = time.monotonic() + 120
        while len(rows_read) < len(wanted) and time.monotonic() < deadline:
            rows_read += [
                (row.offset(), _text(row.key()), _text(row.value())) for row in consumer.consume(1000, 0.1)
            ]
        assert rows_read == wanted
    consumer.close()


@pytest.mark.parametrize("version", [(0, 10, 2), (1, 0)])
def test_a_client_that_takes_the_broker_for_one_without_zstd(
    broker: BrokerProcess, version: tuple[int, ...]
) -> None:
    """It is told why it gets nothing. (kafka-clients 2.0.1 and kafka-python 2.0.2 log it and try again.)"""
    from kafka import KafkaConsumer, TopicPartition
    from kafka.errors import UnsupportedCompressionTypeError

    topic = f"old-zstd-{version[0]}"
    create_topic(broker.bootstrap, topic, config={"compression.type": "zstd"})
    assert Confluent().produce(broker.bootstrap, topic, [Message(0, b"k", b"v")], codec="zstd", acks=-1) == 1
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, api_version=version, auto_offset_reset="earliest"
    )
    consumer.assign([TopicPartition(topic, 0)])
    with pytest.raises(UnsupportedCompressionTypeError):
        consumer.poll(timeout_ms=30_000)
    consumer.close()


@by_name
def test_old_clients_commit_and_go_on(world: World, program: Program) -> None:
    if not program.commits:
        pytest.skip("its reader is a member of a group already")
    command = world.command(program)
    count = len(world.rows["old-plain"])
    report: dict[str, Any] = foreign.run(
        command, world.bootstrap, "group", "old-plain", str(count), *_versions(program.versions)
    )["positions"]
    # sarama says -2 (the beginning) before the first commit; the others read to the end first.
    wanted = [-2, count] if program.name.startswith("sarama") else [[count, count], [count, count], count]
    assert report == dict.fromkeys(program.versions or report, wanted)
