"""Records that are made where their lines are read are those that Spark's expressions make, byte for byte and in order."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from barnabas.pipelines.compiler import queries
from barnabas.pipelines.direct.planning import direct_program
from barnabas.pipelines.formats.columns import ARROW_TYPES, append_batch
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.serving import engine
from barnabas.pipelines.serving.run import run_pipeline
from barnabas.records.columnar_encoder import BatchEncoder
from tests.pipelines.conftest import pass_once, records_of
from tests.unit.pipelines.test_direct import LINE

pytestmark = pytest.mark.spark

TEXT = """
pipeline: {name}
source: {{topic: {topic}}}
steps:
  - parse: {{pattern: combined-log}}
  - convert: {{status: int, body_bytes_sent: long}}
  - time: {{field: time, format: "dd/MMM/yyyy:HH:mm:ss Z", to: at, zone: Europe/Berlin}}
  - unescape: [user_agent]
  - rename: {{path: where}}
  - drop: [ident]
outputs:
  - topic: {name}-all
    key: status
    headers: {{status: status, agent: user_agent, fixed: "'x'"}}
  - topic: {name}-paths
    value: "concat_ws(', ', method, referer, body_bytes_sent, `where`)"
"""

OWN_STEPS = """
pipeline: {name}
source: {{topic: {topic}}}
steps:
  - parse: {{pattern: combined-log}}
  - convert: {{status: int}}
outputs:
  - topic: {name}-all
    steps:
      - filter: "status = 200"
      - convert: {{body_bytes_sent: long}}
      - upper: [remote_addr]
  - topic: {name}-paths
    steps: [convert: {{body_bytes_sent: int}}]
    value: "concat_ws(', ', method, body_bytes_sent)"
"""


def variants() -> list[bytes | None]:
    """Lines that are nearly as others are."""
    changes = [
        (b"200", b"007"),
        (b" 200 ", b" 2000 "),
        (b" 203023 ", b" - "),
        (b" 203023 ", b" 00 "),
        (b" 203023 ", b" 999999999999999999 "),
        (b" 203023 ", b" 9223372036854775807 "),
        (b" 203023 ", b" 9223372036854775808 "),
        (b'"http://x.org/\\"a\\""', b'"-"'),
        (b'"http://x.org/\\"a\\""', b'""'),
        (b'"http://x.org/\\"a\\""', b'"-a"'),
        (b'"http://x.org/\\"a\\""', b'"a \\\\"'),
        (b"\\\\x", b"x"),
        (b"\\\\x", b"</script>\x7f"),
        (b"\\\\x", b"tab\there"),
        (b"\\\\x", b"\x01"),
        (b"\\\\x", "é\u2028\U0001f600".encode()),
        (b"\\\\x", b"\xe9"),
        (b"frank", b"-"),
        (b"17/May/2015:23:05:03 -0230", b"29/Feb/2024:00:00:00 +0100"),
        (b"17/May/2015:23:05:03 -0230", b"29/Feb/2023:00:00:00 +0100"),
        (b"17/May/2015:23:05:03 -0230", b"31/Dec/1999:23:59:59 -0001"),
        (b"17/May/2015:23:05:03 -0230", b"01/Jan/1900:00:00:00 +1759"),
        (b"17/May/2015:23:05:03 -0230", b"31/dec/1999:23:59:59 +0000"),
        (b"17/May/2015:23:05:03 -0230", b"31/Dec/1999:24:00:00 +0000"),
        (b"17/May/2015:23:05:03 -0230", b"31/Dec/1999:23:59:60 +0000"),
        (b"17/May/2015:23:05:03 -0230", b"31/Dec/1999:23:59:59 -0000"),
        (b"17/May/2015:23:05:03 -0230", b"31/Dec/1999:23:59:59 +1800"),
        (b"17/May/2015:23:05:03 -0230", b"31/Dec/0999:23:59:59 +0000"),
        (b"17/May/2015:23:05:03 -0230", b"yesterday"),
        (b" HTTP/1.1", b""),
        (b"HTTP/1.1", b"HTTP/"),
        (b"GET", b"get"),
        (b"/a?b", b'/a"b'),
        (b"83.149", b"  83"),
    ]
    return [
        LINE,
        *[LINE.replace(*change) for change in changes],
        *[LINE + tail for tail in (b" ", b"  \t", b"\n", b"\r\n", b"x", b' "')],
        LINE[:40],
        b" " + LINE,
        b"",
        None,
        b"{}",
        LINE * 2,
    ]


def sent(client, topic: str, lines: list[bytes | None], *, header_every: int = 0) -> None:
    """Writes lines; some of them with a header."""
    encoder = BatchEncoder(1)
    headers = [
        [{"key": "trace", "value": b"%d" % i}] if header_every and i % header_every == 0 else None
        for i in range(len(lines))
    ]
    rows = {
        "key": pa.array([None if i % 3 else b"%d" % i for i in range(len(lines))], pa.binary()),
        "value": pa.array(lines, pa.binary()),
        "headers": pa.array(headers, ARROW_TYPES["headers"]),
        "timestamp": pa.array([1_700_000_000_000 + i for i in range(len(lines))], pa.int64()),
    }
    append_batch(encoder, pa.record_batch(rows), 0)
    for batch in encoder.flush():
        client.produce_raw(topic, 0, batch.data)


def left_by(client, name: str) -> list[list[tuple]]:
    """What a pipeline wrote, without its name."""
    columns = ("key", "value", "timestamp", "headers")
    rows_left = []
    for topic in (f"{name}-all", f"{name}-paths", f"{name}-dead-letters"):
        rows = [
            tuple(row[column] for column in columns)
            for row in sorted(records_of(client, topic), key=lambda row: row["offset"])
        ]
        rows_left.append([repr(row).replace(name, "NAME") for row in rows])
    return rows_left


@pytest.mark.parametrize("text", [TEXT, OWN_STEPS], ids=["one query", "steps of outputs"])
def test_the_same_as_by_sparks_expressions(spark, bootstrap, client, new_topic, monkeypatch, text):
    topic = new_topic(1)
    lines = variants()
    sent(client, topic, [*lines, *[LINE] * 50, *lines], header_every=7)
    direct = parse_spec(text.format(name=f"{topic}-direct", topic=topic))
    assert all(queries.session_program(spark, direct, query) for query in direct.queries())
    pass_once(spark, direct, bootstrap)
    monkeypatch.setattr(queries, "direct_program", lambda spec, query: None)
    pass_once(spark, parse_spec(text.format(name=f"{topic}-spark", topic=topic)), bootstrap)
    direct_rows, expected = left_by(client, f"{topic}-direct"), left_by(client, f"{topic}-spark")
    assert all(len(rows) > 20 for rows in expected)
    for ours, theirs in zip(direct_rows, expected, strict=True):
        assert ours == theirs


def test_a_session_with_another_zone_leaves_lines_to_spark(spark, bootstrap, client, new_topic):
    topic = new_topic(1)
    sent(client, topic, [LINE])
    spec = parse_spec(TEXT.format(name=topic, topic=topic))
    zone = "spark.sql.session.timeZone"
    spark.conf.set(zone, "Europe/Berlin")
    try:
        assert queries.session_program(spark, spec, spec.queries()[0]) is None
        pass_once(spark, spec, bootstrap)
    finally:
        spark.conf.set(zone, "UTC")
    (record,) = records_of(client, f"{topic}-all")
    assert b'"at":"2015-05-18T03:35:03.000+02:00"' in record["value"]


def test_a_stream_counts_lines_and_writes_each_once(
    spark, bootstrap, client, new_topic, tmp_path, monkeypatch
):
    topic = new_topic(2, retention_ms="-1")
    spec = parse_spec(
        f"pipeline: {topic}\nsource: {{topic: {topic}}}\nsteps: [parse: {{pattern: combined-log}}]\n"
        f"outputs: [{{topic: {topic}-all, key: path, value: path}}]\n"
    )
    assert direct_program(spec, spec.queries()[0]) is not None
    streams = []

    def seen(stream, report):
        streams.append(stream)
        return queries.take_progress(stream, report)

    monkeypatch.setattr(engine, "take_progress", seen)
    for number in range(2):
        sent(client, topic, [*[LINE] * 1500, b"bad", *[LINE] * 10])
        report = run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
        assert (report.rows, report.queries[0].failed) == (1511, 1), number
        progress = [json.loads(one.json) for one in streams[-1].recentProgress]
        (facts,) = [raw for raw in progress if raw["numInputRows"]]
        seconds = facts["durationMs"]["triggerExecution"] / 1000
        assert queries.records_per_second(facts) == pytest.approx(1511 / seconds, rel=0.01)
    assert [row["value"] for row in records_of(client, f"{topic}-all")] == [b"/a?b=%20c"] * 3020
    (dead, again) = records_of(client, f"{topic}-dead-letters")
    assert (dead["value"], again["value"]) == (b"bad", b"bad")
    facts = {header["key"]: header["value"] for header in again["headers"]}
    assert facts["barnabas.offset"] == b"3011"
