"""Source connectors that fill the topics of pipelines, against a broker."""

from __future__ import annotations

import json
import sqlite3
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from barnabas.connect.in_pipelines import feed
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import BrokerAway, PipelineError
from barnabas.pipelines.serving.preview import preview
from barnabas.pipelines.serving.run import run_pipeline
from barnabas.testing import Broker
from tests.support.admin import create_topic
from tests.support.cluster import until


def values(bootstrap: str, topic: str, count: int) -> list[str]:
    """All committed values of a topic's only partition; at least `count`, else it fails."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": "read_committed"}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values_read: list[str] = []

        def read() -> bool:
            values_read.extend(message.value().decode() for message in consumer.consume(1000, 0.5))
            return len(values_read) >= count

        until(read, f"{count} records in {topic}")
        return values_read
    finally:
        consumer.close()


class Case:
    """A file and the connector that reads it into a topic."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap, self.file, self.topic = bootstrap, folder / "in", f"fed-{uuid.uuid4().hex[:8]}"
        self.name = f"p.{self.topic}"
        self.told: list[str] = []
        self.config = {
            "connector.class": "FileStreamSource",
            "file": str(self.file),
            "topic": self.topic,
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "poll.interval.ms": "20",
        }

    def feed(self, *, compacted: bool = False, **more: str):
        def tell(level: str, text: str) -> None:
            self.told.append(f"{level} {text}")

        client = {"bootstrap.servers": self.bootstrap}
        return feed(self.name, {**self.config, **more}, client, [self.topic], compacted=compacted, tell=tell)

    def add(self, *lines: str) -> None:
        with self.file.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)


@pytest.fixture
def case(bootstrap: str, tmp_path: Path) -> Case:
    return Case(bootstrap, tmp_path)


def test_each_record_is_written_once_by_whatever_runs_the_connector(case: Case) -> None:
    case.add("a", "b")
    case.feed().drain()
    case.add("c")
    case.feed().drain()
    running = case.feed()
    running.start()
    try:
        case.add("d", "e")
        assert values(case.bootstrap, case.topic, 5) == ["a", "b", "c", "d", "e"]
        assert running.trouble() is None
    finally:
        running.stop()


def test_the_topic_of_a_table_is_created_compacted(case: Case) -> None:
    case.add()
    case.feed(compacted=True).drain()
    resource = ConfigResource(ResourceType.TOPIC, case.topic)
    admin = AdminClient({"bootstrap.servers": case.bootstrap})
    configs = admin.describe_configs([resource])[resource].result()
    assert configs["cleanup.policy"].value == "compact"


def test_a_connector_that_fails_is_named_and_goes_on(case: Case, tmp_path: Path) -> None:
    place = tmp_path / "d.db"
    sqlite3.connect(place).close()
    case.config = {
        "connector.class": "JdbcSource",
        "connection.url": f"jdbc:sqlite:{place}",
        "mode": "bulk",
        "query": "SELECT 1 AS n FROM t",
        "topic.prefix": case.topic,
        "poll.interval.ms": "60000",
    }
    running = case.feed()
    running.start()
    try:
        until(lambda: running.trouble() is not None, "the failure is known")
        assert "no such table: t" in (running.trouble() or "")
        with sqlite3.connect(place) as connection:
            connection.execute("CREATE TABLE t (n)")
            connection.execute("INSERT INTO t VALUES (1)")
        assert values(case.bootstrap, case.topic, 1) == ['{"n":1}']
        until(lambda: running.trouble() is None, "the failure is forgotten")
    finally:
        running.stop()


def test_what_cannot_begin_says_why(case: Case) -> None:
    with pytest.raises(PipelineError, match=r"connector p\.fed-.*file:/nothing is not a folder"):
        case.feed(
            **{
                "connector.class": "com.github.jcustenborder.kafka.connect.spooldir.SpoolDirLineDelimitedSourceConnector",
                "input.path": "file:///nothing",
                "input.file.pattern": ".*",
                "finished.path": "/nothing",
                "error.path": "/nothing",
            }
        ).drain()
    case.bootstrap = "127.0.0.1:1"
    with pytest.raises(BrokerAway):
        case.feed().start()


def test_records_for_another_topic_than_the_source_reads_are_reported(case: Case) -> None:
    case.add("a")
    case.feed(topic=f"{case.topic}-other").drain()
    assert any("but the source reads" in line for line in case.told)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_pipeline_from_a_connector_to_a_connector(spark, case: Case, tmp_path: Path) -> None:
    text = f"""
pipeline: {case.topic}
source:
  topic: {case.topic}
  connector: {{connector.class: FileStreamSource, file: {case.file}, topic: {case.topic},
    value.converter: org.apache.kafka.connect.storage.StringConverter}}
steps: [parse: {{json: {{id: int, name: string}}}}]
outputs:
  - name: out
    connector: {{connector.class: JdbcSink, connection.url: 'jdbc:sqlite:{tmp_path}/out.db', auto.create: true,
      insert.mode: upsert, pk.mode: kafka, topics: people}}
"""
    spec = parse_spec(text, "p.yaml")
    case.add('{"id": 1, "name": "a"}', "no JSON")
    seen = preview(spark, spec, case.bootstrap, count=5)
    assert [(r.value, bool(r.steps[0].reason)) for r in seen] == [
        ('{"id": 1, "name": "a"}', False),
        ("no JSON", True),
    ]
    for lines in ((), ('{"id": 2, "name": "b"}',)):
        case.add(*lines)
        report = run_pipeline(spec, once=True, bootstrap=case.bootstrap, checkpoint_dir=tmp_path / "cp")
        assert report.failed == (1 if not lines else 0)
    with sqlite3.connect(tmp_path / "out.db") as connection:
        assert connection.execute("SELECT id, name FROM people ORDER BY id").fetchall() == [
            (1, "a"),
            (2, "b"),
        ]


SALES = """\
pipeline: {name}
source:
  topic: east.{topic}
  connector:
    connector.class: MirrorSourceConnector
    source.cluster.alias: east
    source.cluster.bootstrap.servers: {east}
    target.cluster.alias: west
    target.cluster.bootstrap.servers: {west}
    topics: {topic}
    replication.factor: 1
    offset-syncs.topic.replication.factor: 1
steps:
  - parse: {{json: {{id: int, amount: int, card: string}}}}
  - filter: amount >= 100
  - mask: {{fields: [card], right: 4}}
  - rename: {{amount: total}}
outputs:
  - topic: {name}-out
"""


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_topic_of_another_cluster_is_copied_and_spark_chooses_masks_and_renames(
    spark, bootstrap: str, tmp_path: Path
) -> None:
    topic = f"sold-{uuid.uuid4().hex[:8]}"
    with Broker() as east:
        create_topic(east.bootstrap, topic, 3, config={"retention.ms": "-1"})
        text = SALES.format(name=topic, topic=topic, east=east.bootstrap, west=bootstrap)
        spec = parse_spec(text)
        for begin in (0, 20):
            producer = Producer({"bootstrap.servers": east.bootstrap})
            for number in range(begin, begin + 20):
                row = {"id": number, "amount": number * 10, "card": f"4111{number:04}"}
                producer.produce(topic, json.dumps(row), key=f"k{number}", partition=number % 3)
            assert producer.flush(60) == 0
            report = run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path / "cp")
            assert report.failed == 0
    found = [json.loads(value) for value in values(bootstrap, f"{topic}-out", 30)]
    assert sorted((row["id"], row["total"], row["card"]) for row in found) == [
        (number, number * 10, f"****{number:04}") for number in range(10, 40)
    ]
