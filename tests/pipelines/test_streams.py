"""Topologies on Spark, with a broker and a reader that others wrote. What they have to make is said by the test driver."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from barnabas.client.blocking import NewTopic
from barnabas.streams import App, StreamsBuilder, TopologyTestDriver, tumbling
from tests.pipelines.conftest import send
from tests.pipelines.readers import consumed
from tests.support.admin import KEPT
from tests.support.generated_streams import Lines, build, case, played

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def send_keyed(bootstrap: str, topic: str, records: list[tuple[bytes | None, bytes | None, int]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value, at in records:
        producer.produce(topic, key=key, value=value, timestamp=at, partition=0)
    assert producer.flush(60) == 0


def read_whole(bootstrap: str, topic: str) -> Lines:
    """Key, value and timestamp of the committed records of a topic with one partition."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    lines = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        parts = ("-" if part is None else part.decode() for part in (message.key(), message.value()))
        lines.append([*parts, str(message.timestamp()[1])])
    consumer.close()
    assert message is not None
    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
    return lines


def counted(builder: StreamsBuilder, topic: str) -> None:
    words = builder.stream(topic).flat_map_values(lambda line: line.lower().split())
    words.group_by(lambda k, v: v).count(name="counts").to_stream().to(f"{topic}-counts")
    lengths = words.map_values(lambda v: 10 // (len(v) - 1)).group_by_key()
    lengths.windowed_by(tumbling("1 day")).reduce(max).to_stream(lambda k, v: k.key).to(f"{topic}-largest")
    words.filter(lambda v: v.startswith("q")).to(lambda k, v: f"{topic}-{v[0]}")


def test_words_are_counted_once_through_restarts(spark, bootstrap, client, new_topic, tmp_path):
    t, parts = new_topic(), (["To be or not to be"] * 3, ["that is the question", "a letter", "be"])
    client.create_topics([NewTopic(f"{t}-q", 1, configs=KEPT)])
    app = App(t, tasks=1, cache=False)
    counted(app, t)
    with TopologyTestDriver(app.topology) as driver:
        for lines in parts:
            send(client, t, [line.encode() for line in lines])
            app.run(once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
            for line in lines:
                driver.pipe_input(t, None, line)
        wanted = {name: driver.read_output(f"{t}-{name}") for name in ("counts", "largest")}
        assert len(driver.dead_letters) == 1
    for name, records in wanted.items():
        pairs = [(r.key, r.value) for r in consumed(bootstrap, f"{t}-{name}")]
        assert sorted(pairs) == sorted((r.key and r.key.encode(), str(r.value).encode()) for r in records)
    letters = consumed(bootstrap, f"{t}-dead-letters")
    assert [letter.value for letter in letters] == [b"a letter"]
    assert letters[0].header("reason").startswith("ZeroDivisionError")
    assert [record.value for record in consumed(bootstrap, f"{t}-q")] == [b"question"]


def at_once(records: Lines) -> Lines:
    """Records of a history in the order in which a micro-batch with all of them takes them: by time, but none before an
    older one of its topic."""
    latest: dict[str, int] = {}
    placed = []
    for number, record in enumerate(records):
        topic, at = record[0], int(record[3])
        latest[topic] = max(at, latest.get(topic, at))
        placed.append((latest[topic], topic, number, record))
    return [one[-1] for one in sorted(placed)]


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(1000, 1060), marks=pytest.mark.soak)])
def test_spark_makes_of_random_topologies_what_the_driver_makes(
    seeds, spark, bootstrap, client, new_topic, tmp_path
):
    name = new_topic()
    app = App(name, tasks=1, cache=False)
    wanted = {}
    for seed in seeds:
        steps, records = case(seed)
        if any(step[1] == "count_calls" for step in steps):
            continue  # is called by the times of all records of a task, here those of other cases, too
        prefix = f"{name}-{seed}-"
        client.create_topics([NewTopic(prefix + topic, 1, configs=KEPT) for topic in "srtu"])
        build(steps, app, prefix)
        for topic in "srtu":
            mine = [
                (*(None if x == "-" else x.encode() for x in r[1:3]), int(r[3]))
                for r in records
                if r[0] == topic
            ]
            send_keyed(bootstrap, prefix + topic, mine)
        for topic, *rest in played(steps, at_once(records)):
            wanted.setdefault(prefix + topic, []).append(rest)
    app.run(once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
    letters = consumed(bootstrap, f"{name}-dead-letters")
    assert [letter.header("reason") for letter in letters] == []
    for topic, rows in wanted.items():
        assert read_whole(bootstrap, topic) == rows, topic
