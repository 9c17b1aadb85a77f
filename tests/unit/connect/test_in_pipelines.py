"""Connectors as targets and sources of pipelines, without Spark."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("sqlalchemy")

from barnabas.connect.in_pipelines import deliver, sample
from barnabas.pipelines.compiler.queries import source_settings
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.kinds.targets.base import DOCUMENT, IDENTITY, DeliveryError, Task
from barnabas.pipelines.plan.errors import PipelineError, TargetAway
from barnabas.pipelines.spark.frame import DELETED, RECORD_COLUMNS

AT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def batch(
    offsets: list[int | None], fields: dict[str, Any], key: bytes | None = None, **more: Any
) -> pa.RecordBatch:
    """Rows of partition 3 of the topic `in`; an offset of None for a row that comes from no record."""
    count = len(offsets)
    record = dict.fromkeys([*RECORD_COLUMNS, "_error"], pa.nulls(count))
    record |= {
        "_topic": [None if o is None else "in" for o in offsets],
        "_partition": [3] * count,
        "_offset": pa.array(offsets, pa.int64()),
        "_key": pa.array([key] * count, pa.binary()),
        "_timestamp": pa.array([AT] * count),
    }
    documents = [
        json.dumps({name: str(column[row]) for name, column in fields.items()}) for row in range(count)
    ]
    identities = [None if o is None else f"in-3-{o}" for o in offsets]
    return pa.record_batch(record | {DOCUMENT: documents, IDENTITY: identities} | fields | more)


def delivered(config: dict[str, str], task: Task, *batches: pa.RecordBatch) -> list[tuple[int, str]]:
    return [(row.row, row.reason) for _, refused in deliver(config, task, iter(batches)) for row in refused]


def jdbc(path: Path, **more: str) -> dict[str, str]:
    return {
        "connector.class": "JdbcSinkConnector",
        "connection.url": f"jdbc:sqlite:{path}",
        "insert.mode": "upsert",
        "pk.mode": "kafka",
        "auto.create": "true",
        "topics": "t",
        **more,
    }


def rows(path: Path, what: str = "*", table: str = "t") -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as connection:
        return connection.execute(f"SELECT {what} FROM {table} ORDER BY 1, 2, 3").fetchall()


def test_a_repeated_micro_batch_is_stored_once_with_its_types(tmp_path: Path) -> None:
    fields = {
        "id": pa.array([1, 2], pa.int32()),
        "price": pa.array([1.5, None]),
        "at": pa.array([AT, AT], pa.timestamp("us", "UTC")),
    }
    config = jdbc(tmp_path / "a.db")
    for batch_id in (7, 7):
        assert delivered(config, Task("q", batch_id, 0, "x"), batch([10, 11], fields)) == []
    at = "2026-01-02 03:04:05"
    what = "id, price, at, __connect_topic, __connect_partition, __connect_offset"
    assert rows(tmp_path / "a.db", what) == [(1, 1.5, at, "t", 3, 10), (2, None, at, "t", 3, 11)]


def test_rows_of_one_record_and_of_none_have_places_of_their_own(tmp_path: Path) -> None:
    exploded = batch([5, 5, 6], {"n": [1, 2, 3]}).set_column(
        len(RECORD_COLUMNS) + 2, IDENTITY, pa.array(["in-3-5-0", "in-3-5-1", "in-3-6-0"])
    )
    config = jdbc(tmp_path / "a.db")
    for _ in range(2):
        delivered(config, Task("q", 1, 0), exploded)
        delivered(config, Task("q", 2, 4), batch([None, None], {"n": [8, 9]}))
    places = rows(tmp_path / "a.db", "n, __connect_partition, __connect_offset")
    assert places == [
        (1, 3, 5 << 20),
        (2, 3, (5 << 20) + 1),
        (3, 3, 6 << 20),
        (8, 4, 2 << 32),
        (9, 4, (2 << 32) + 1),
    ]


def test_deletes_keys_and_transforms(tmp_path: Path) -> None:
    config = jdbc(
        tmp_path / "a.db",
        **{
            "pk.mode": "record_key",
            "pk.fields": "id",
            "delete.enabled": "true",
            "transforms": "more",
            "transforms.more.type": "org.apache.kafka.connect.transforms.InsertField$Value",
            "transforms.more.static.field": "source",
            "transforms.more.static.value": "pipeline",
        },
    )
    delivered(config, Task("q", 0, 0), batch([1], {"n": [4]}, b"a"), batch([2], {"n": [5]}, b"b"))
    delivered(config, Task("q", 1, 0), batch([3], {"n": [4]}, b"a", **{DELETED: [True]}))
    assert rows(tmp_path / "a.db", "id, n, source") == [("b", 5, "pipeline")]


def test_a_row_that_the_target_refuses_is_named_and_the_others_are_stored(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER CHECK (n < 10))")
    config = jdbc(path, **{"pk.mode": "record_value", "pk.fields": "id", "auto.create": "false"})
    ((row, reason),) = delivered(
        config, Task("q", 0, 0), batch([1, 2, 3], {"id": [1, 2, 3], "n": [1, 99, 3]})
    )
    assert row == 1
    assert "CHECK constraint failed" in reason
    assert [fields[0] for fields in rows(path, "id, n, n")] == [1, 3]


def test_objects_and_lists_arrive_as_such(tmp_path: Path) -> None:
    rows_with_tags = batch([1], {"n": [1], "tags": ['["a"]']}).set_column(
        len(RECORD_COLUMNS) + 1, DOCUMENT, pa.array(['{"n": 1, "tags": ["a"]}'])
    )
    config = {"connector.class": "FileStreamSink", "file": str(tmp_path / "out")}
    delivered(config, Task("q", 0, 0, nested=frozenset({"tags"})), rows_with_tags)
    assert (tmp_path / "out").read_text() == "{n=1, tags=[a]}\n"


def test_types_that_connectors_do_not_have_are_named(tmp_path: Path) -> None:
    durations = batch([1], {"span": pa.array([dt.timedelta(seconds=1)])})
    with pytest.raises(DeliveryError, match="field span is duration"):
        delivered(jdbc(tmp_path / "a.db"), Task("q", 0, 0), durations)


PIPELINE = """
pipeline: p
source:
  topic: lines
  connector: {source}
steps: [parse: {{json: {{id: int}}}}]
outputs:
  - name: out
    connector: {target}
"""
FILE = "{connector.class: FileStreamSource, file: /tmp/in, topic: lines}"


@pytest.mark.parametrize(
    ("source", "target", "line", "reason"),
    [
        (FILE, "{connector.class: Jdbc}", 9, "connector: Failed to find any class"),
        (FILE, "{connector.class: JdbcSinkConector}", 9, "did you mean JdbcSinkConnector"),
        (FILE, "{topics: a}", 9, "connector.class is missing"),
        (FILE, "{connector.class: JdbcSource}", 9, "fills the topic of a source"),
        (FILE, "{connector.class: JdbcSink}", 9, "connection.url"),
        (
            FILE,
            "{connector.class: FileStreamSink, topics: 'a,b'}",
            9,
            "the one topic that the connector sees",
        ),
        (FILE, "{connector.class: FileStreamSink, topics.regex: a.*}", 9, "topics names the topic"),
        (FILE, "{connector.class: FileStreamSink, value.converter: x}", 9, "values are the fields"),
        (
            FILE,
            "{connector.class: S3Sink, s3.bucket.name: b, format.class: JsonFormat, flush.size: 3}",
            9,
            "files",
        ),
        (FILE, "{connector.class: FileStreamSink, transforms: a}", 9, "transforms.a.type"),
        ("{connector.class: FileStreamSink}", "{connector.class: FileStreamSink}", 5, "target of an output"),
        ("{connector.class: FileStreamSource}", "{connector.class: FileStreamSink}", 5, "topic"),
        (FILE.replace("}", ", tasks.max: x}"), "{connector.class: FileStreamSink}", 5, "tasks.max"),
    ],
)
def test_mistakes_are_told_with_their_line(source: str, target: str, line: int, reason: str) -> None:
    with pytest.raises(PipelineError) as raised:
        parse_spec(PIPELINE.format(source=source, target=target), "p.yaml")
    assert str(raised.value).startswith(f"p.yaml:{line}")
    assert reason in str(raised.value)


def test_pipelines_read_committed_records_unless_they_say_otherwise() -> None:
    text = PIPELINE.format(source=FILE, target="{connector.class: FileStreamSink}")
    chosen = text.replace(
        "  topic: lines\n", "  topic: lines\n  options: {kafka.isolation.level: read_uncommitted}\n"
    )
    for pipeline, isolation in ((text, "read_committed"), (chosen, "read_uncommitted")):
        spec = parse_spec(pipeline, "p.yaml")
        (query,) = spec.queries()
        settings = source_settings(spec, query, "localhost:1")
        assert settings["kafka.isolation.level"] == isolation


def test_passwords_in_a_connector_are_hidden() -> None:
    target = "{connector.class: JdbcSink, connection.url: 'jdbc:postgresql://h/d', connection.password: open-sesame}"
    spec = parse_spec(PIPELINE.format(source=FILE, target=target), "p.yaml")
    assert "open-sesame" in spec.secrets


def test_a_target_that_does_not_answer_is_waited_for() -> None:
    from barnabas.pipelines.kinds.targets.connector import CONNECTOR

    config = {
        "connector.class": "JdbcSink",
        "connection.url": "jdbc:postgresql://127.0.0.1:1/d?user=u",
        "topics": "t",
    }
    with pytest.raises(TargetAway, match=r"connector: connection\.url"):
        CONNECTOR.reach({"config": config})


def test_a_sample_commits_nothing_and_is_not_taken_from_what_it_would_change(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a\nb\nc\n")
    config = {
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "in"),
        "topic": "lines",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    }
    for _ in range(2):
        assert [row.value for row in sample(config, ["lines"], 2)] == [b"a", b"b"]
    mqtt = {
        "connector.class": "io.lenses.streamreactor.connect.mqtt.source.MqttSourceConnector",
        "connect.mqtt.hosts": "tcp://127.0.0.1:1",
        "connect.mqtt.kcql": "INSERT INTO t SELECT * FROM x",
    }
    with pytest.raises(PipelineError, match="run the pipeline"):
        sample(mqtt, ["t"], 2)
