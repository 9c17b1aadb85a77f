"""SQL on streams through Spark: statements, the records that go in, and the records that a foreign consumer reads."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer

from barnabas.client.blocking import BlockingClient, NewTopic
from barnabas.pipelines.fronts.sql import statements as s
from barnabas.pipelines.fronts.sql.catalog import Catalog, declared
from barnabas.pipelines.fronts.sql.grammar import read_statements
from barnabas.pipelines.fronts.sql.planning import Settings, plan
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.serving.run import run_pipeline
from tests.pipelines.readers import consumed
from tests.support.admin import KEPT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

Rows = list[tuple[object, object, int]]
BEGIN = 1_700_000_040_000
"""When the records begin, in milliseconds: at the start of a minute."""


class Lab:
    """Runs statements one after the other, each query until it has read what is there."""

    def __init__(self, bootstrap: str, folder: Path, prefix: str) -> None:
        self.bootstrap, self.folder, self.prefix = bootstrap, folder, prefix
        self.catalog = Catalog()

    def send(self, topic: str, rows: Rows) -> None:
        """Writes records of JSON with librdkafka."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for key, value, at_ms in rows:
            raw = None if value is None else value if isinstance(value, bytes) else json.dumps(value).encode()
            producer.produce(self.topic(topic), raw, None if key is None else key, timestamp=BEGIN + at_ms)
        assert producer.flush(60) == 0

    def topic(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def create(self, *names: str) -> None:
        with BlockingClient(self.bootstrap) as client:
            client.create_topics([NewTopic(self.topic(name), 1, configs=KEPT) for name in names])

    def run(self, text: str) -> None:
        for statement in read_statements(text.replace("$", self.prefix + "-")):
            if isinstance(statement, s.Create):
                self.catalog.add(declared(statement))
                continue
            assert isinstance(statement, s.CreateAs)
            query_id = self.topic(self.catalog.next_id("CSAS", statement.name))
            planned = plan(
                self.catalog,
                statement.select,
                query_id=query_id,
                name=statement.name,
                kind=statement.kind,
                properties={"KAFKA_TOPIC": self.topic(statement.name), **statement.properties},
                settings=Settings("earliest", 1),
            )
            self.catalog.add(planned.result)
            spec = parse_spec(yaml.safe_dump(planned.document, sort_keys=False), "statement")
            run_pipeline(spec, once=True, bootstrap=self.bootstrap, checkpoint_dir=self.folder)
            letters = (
                [r.headers for r in consumed(self.bootstrap, spec.dead_letters)]
                if self.has(spec.dead_letters)
                else []
            )
            assert not letters, letters

    def has(self, topic: str) -> bool:
        with BlockingClient(self.bootstrap) as client:
            return topic in client.topics()

    def read(self, topic: str) -> list[tuple[bytes | None, object]]:
        """Keys and values of a topic."""
        return [
            (record.key, None if record.value is None else json.loads(record.value))
            for record in consumed(self.bootstrap, self.topic(topic))
        ]


@pytest.fixture
def lab(spark, bootstrap: str, tmp_path: Path, new_topic: Callable[..., str]) -> Lab:
    return Lab(bootstrap, tmp_path, new_topic())


def test_a_stream_is_filtered_and_computed(lab: Lab) -> None:
    lab.create("views")
    lab.send("views", [
        ("alice", {"page": "home", "N": 5}, 1_000), ("bob", {"page": "cart", "N": 1}, 2_000),
        ("carl", {"PAGE": "help", "n": 7}, 3_000), (None, {"page": None, "n": 9}, 4_000),
    ])  # fmt: skip
    lab.run(
        "CREATE STREAM views (user_id VARCHAR KEY, page STRING, n INT) WITH (kafka_topic='$views', value_format='json');"
        "CREATE STREAM big AS SELECT user_id, UCASE(page) AS page, n * 2 AS twice, n / 2 AS half, rowtime AS at "
        "FROM views WHERE n > 3 EMIT CHANGES;"
    )
    assert lab.read("BIG") == [
        (b"alice", {"PAGE": "HOME", "TWICE": 10, "HALF": 2, "AT": BEGIN + 1_000}),
        (b"carl", {"PAGE": "HELP", "TWICE": 14, "HALF": 3, "AT": BEGIN + 3_000}),
        (None, {"PAGE": None, "TWICE": 18, "HALF": 4, "AT": BEGIN + 4_000}),
    ]


def test_totals_and_windows(lab: Lab) -> None:
    lab.create("views")
    minute = 60_000
    lab.send("views", [
        ("alice", {"n": 5}, 0), ("bob", {"n": 1}, 1_000), ("alice", {"n": 7}, 30_000), ("alice", {"n": 1}, minute),
    ])  # fmt: skip
    lab.run(
        "CREATE STREAM views (user_id VARCHAR KEY, n INT) WITH (kafka_topic='$views', value_format='json');"
        "CREATE TABLE totals AS SELECT user_id, COUNT(*) AS c, SUM(n) AS s, LATEST_BY_OFFSET(n) AS l FROM views "
        "GROUP BY user_id EMIT CHANGES;"
        "CREATE TABLE minutes AS SELECT user_id, COUNT(*) AS c FROM views WINDOW TUMBLING (SIZE 1 MINUTE) "
        "GROUP BY user_id;"
        "CREATE STREAM seen (user_id VARCHAR KEY, c BIGINT) WITH (kafka_topic='$TOTALS', value_format='json');"
    )
    assert dict(lab.read("TOTALS")) == {b"alice": {"C": 3, "S": 13, "L": 1}, b"bob": {"C": 1, "S": 1, "L": 1}}
    assert dict(lab.read("MINUTES")) == {
        b"alice" + BEGIN.to_bytes(8, "big"): {"C": 2},
        b"alice" + (BEGIN + minute).to_bytes(8, "big"): {"C": 1},
        b"bob" + BEGIN.to_bytes(8, "big"): {"C": 1},
    }


def test_a_stream_is_joined_with_a_table_and_keys_are_numbers(lab: Lab) -> None:
    lab.create("orders", "users")
    eight = (17).to_bytes(8, "big")
    lab.send(
        "users", [(eight, {"name": "Anna"}, 0), ((-2).to_bytes(8, "big", signed=True), {"name": "Ben"}, 0)]
    )
    lab.send(
        "orders",
        [
            ((1).to_bytes(4, "big"), {"user": 17}, 10),
            ((2).to_bytes(4, "big"), {"user": 5}, 20),
            ((-3).to_bytes(4, "big", signed=True), {"user": -2}, 30),
        ],
    )
    lab.run(
        "CREATE STREAM orders (id INT KEY, user BIGINT) WITH (kafka_topic='$orders', value_format='json');"
        "CREATE TABLE users (id BIGINT PRIMARY KEY, name STRING) WITH (kafka_topic='$users', value_format='json');"
        "CREATE STREAM named AS SELECT o.user AS uid, o.id AS order_id, u.name FROM orders o "
        "LEFT JOIN users u ON o.user = u.id EMIT CHANGES;"
        "CREATE TABLE loud AS SELECT id, UCASE(name) AS name FROM users WHERE name LIKE 'A%';"
    )
    assert sorted(lab.read("NAMED"), key=str) == sorted([
        (eight, {"ORDER_ID": 1, "NAME": "Anna"}),
        ((5).to_bytes(8, "big"), {"ORDER_ID": 2, "NAME": None}),
        ((-2).to_bytes(8, "big", signed=True), {"ORDER_ID": -3, "NAME": "Ben"}),
    ], key=str)  # fmt: skip
    assert lab.read("LOUD") == [(eight, {"NAME": "ANNA"})]


def test_two_streams_are_joined_within_a_time(lab: Lab) -> None:
    lab.create("a", "b")
    lab.send("a", [("k", {"x": 1}, 0), ("k", {"x": 2}, 100_000)])
    lab.send("b", [("k", {"y": 5}, 30_000), ("z", {"y": 6}, 30_000)])
    lab.run(
        "CREATE STREAM a (id VARCHAR KEY, x INT) WITH (kafka_topic='$a', value_format='json');"
        "CREATE STREAM b (id VARCHAR KEY, y INT) WITH (kafka_topic='$b', value_format='json');"
        "CREATE STREAM j AS SELECT * FROM a JOIN b WITHIN 1 MINUTE ON a.x = b.y - 4 EMIT CHANGES;"
    )
    assert lab.read("J") == [(b"\0\0\0\1", {"A_ID": "k", "B_ID": "k", "B_Y": 5})]


@pytest.mark.soak
def test_having_shows_and_hides_groups(lab: Lab) -> None:
    lab.create("orders")
    lab.send("orders", [("a", {"n": 60}, 0), ("b", {"n": 5}, 1), ("a", {"n": 50}, 2)])
    lab.run(
        "CREATE STREAM orders (who VARCHAR KEY, n INT) WITH (kafka_topic='$orders', value_format='json');"
        "CREATE TABLE large AS SELECT who, SUM(n) AS s FROM orders GROUP BY who HAVING SUM(n) > 100 EMIT CHANGES;"
    )
    assert dict(lab.read("LARGE")) == {b"a": {"S": 110}, b"b": None}


@pytest.mark.soak
def test_a_table_is_grouped_and_its_old_rows_are_taken_away(lab: Lab) -> None:
    lab.create("users")
    lab.send("users", [
        ("1", {"city": "Rome", "n": 1}, 0), ("2", {"city": "Rome", "n": 2}, 1), ("3", {"city": "Oslo", "n": 4}, 2),
    ])  # fmt: skip
    text = (
        "CREATE TABLE users (id VARCHAR PRIMARY KEY, city STRING, n INT) WITH (kafka_topic='$users', value_format='json');"
        "CREATE TABLE cities AS SELECT city, COUNT(*) AS c, SUM(n) AS s FROM users GROUP BY city EMIT CHANGES;"
    )
    lab.run(text)
    assert dict(lab.read("CITIES")) == {b"Rome": {"C": 2, "S": 3}, b"Oslo": {"C": 1, "S": 4}}


@pytest.mark.soak
def test_headers_nested_names_and_numbers_of_kafka(lab: Lab) -> None:
    lab.create("events", "numbers")
    producer = Producer({"bootstrap.servers": lab.bootstrap})
    value = json.dumps(
        {"who": {"First Name": "x", "cityName": "Rome", "AT": 1000}, "tags": [{"t": 1}, {"T": 2}]}
    )
    headers = [("trace", b"1"), ("trace", b"2"), ("other", b"\x00")]
    producer.produce(lab.topic("events"), value, "k", headers=headers, timestamp=BEGIN)
    producer.produce(lab.topic("numbers"), struct.pack(">d", 2.5), struct.pack(">d", -0.25), timestamp=BEGIN)
    assert producer.flush(60) == 0
    lab.run(
        "CREATE STREAM events (k VARCHAR KEY, who STRUCT<cityName STRING, at TIMESTAMP>, tags ARRAY<STRUCT<t INT>>, "
        "h ARRAY<STRUCT<key STRING, value BYTES>> HEADERS) WITH (kafka_topic='$events', value_format='json');"
        "CREATE STREAM traces (k VARCHAR KEY, trace BYTES HEADER('trace'), none BYTES HEADER('none')) "
        "WITH (kafka_topic='$events', value_format='json');"
        "CREATE STREAM a AS SELECT k, who, who->cityName AS city, tags, h[1]->key AS h1, h FROM events EMIT CHANGES;"
        "CREATE STREAM b AS SELECT k, FROM_BYTES(trace, 'utf8') AS trace, none FROM traces EMIT CHANGES;"
        "CREATE STREAM numbers (k DOUBLE KEY, v DOUBLE) WITH (kafka_topic='$numbers', value_format='KAFKA');"
        "CREATE STREAM c AS SELECT k * 2 AS k, v * 2 AS v FROM numbers PARTITION BY k * 2 EMIT CHANGES;"
        "CREATE STREAM d WITH (value_format='JSON', wrap_single_value=false) AS SELECT k, v FROM numbers EMIT CHANGES;"
    )
    ((_, a),) = lab.read("A")
    shown = [
        {"KEY": "trace", "VALUE": "MQ=="},
        {"KEY": "trace", "VALUE": "Mg=="},
        {"KEY": "other", "VALUE": "AA=="},
    ]
    who = {"CITYNAME": "Rome", "AT": 1000}
    assert a == {"WHO": who, "CITY": "Rome", "TAGS": [{"T": 1}, {"T": 2}], "H1": "trace", "H": shown}
    assert lab.read("B") == [(b"k", {"TRACE": "2", "NONE": None})]
    (record,) = consumed(lab.bootstrap, lab.topic("C"))
    assert (record.key, record.value) == (struct.pack(">d", -0.5), struct.pack(">d", 5.0))
    (record,) = consumed(lab.bootstrap, lab.topic("D"))
    assert (record.key, record.value) == (struct.pack(">d", -0.25), b"2.5")


def test_the_lesson_of_2018_as_it_is_printed(lab: Lab) -> None:
    lab.create("truck_position", "trucking_driver")
    lab.send("truck_position", [
        ("truck/13/position0", b"1522847870310,44,13,1390372503,Normal,41.71,-91.32,-24582", 0),
        ("truck/11/position0", b"1522847914240,54,11,1198242881,Lane Departure,40.86,-89.91,-24582", 1_000),
    ])  # fmt: skip
    lab.send("trucking_driver", [
        ("11", {"id": 11, "first_name": "Micky", "last_name": "Isaacson", "available": "Y"}, 0),
    ])  # fmt: skip
    lab.run(LESSON)
    assert lab.read("dangerous_driving_s") == [
        (b"truck/11/position0", {
            "TS": "1522847914240", "TRUCKID": "54", "DRIVERID": 11, "ROUTEID": 1198242881, "EVENTTYPE": "Lane Departure",
            "LATITUDE": 40.86, "LONGITUDE": -89.91, "CORRELATIONID": "-24582",
        }),
    ]  # fmt: skip
    joined = [value for _, value in lab.read("dangerous_driving_and_driver_s")]
    assert {
        "FIRST_NAME": None,
        "LAST_NAME": None,
        "TRUCKID": "44",
        "ROUTEID": 1390372503,
        "EVENTTYPE": "Normal",
    } in joined


LESSON = r"""
CREATE STREAM truck_position_s \
(ts VARCHAR, \
truckId VARCHAR, \
driverId BIGINT, \
routeId BIGINT, \
eventType VARCHAR, \
latitude DOUBLE, \
longitude DOUBLE, \
correlationId VARCHAR) \
WITH (kafka_topic='$truck_position', \
value_format='DELIMITED');
CREATE STREAM dangerous_driving_s \
    WITH (kafka_topic='$dangerous_driving_s', \
          value_format='JSON') \
AS SELECT * FROM truck_position_s \
WHERE eventtype != 'Normal';
CREATE TABLE driver_t \
  (id BIGINT,          \
  first_name VARCHAR, \
  last_name VARCHAR, \
  available VARCHAR) \
WITH (kafka_topic='$trucking_driver', \
      value_format='JSON', \
      key='id');
CREATE STREAM dangerous_driving_and_driver_s
      \ WITH
        (kafka_topic='$dangerous_driving_and_driver_s', \
         value_format='JSON') \
      AS SELECT driverId, first_name, last_name, truckId, routeId, eventtype \
      FROM truck_position_s \
      LEFT JOIN driver_t \
      ON dangerous_driving_and_driver_s.driverId = driver_t.id;
"""
"""The KSQL lesson, but for a quote that is missing there before dangerous_driving_s."""
