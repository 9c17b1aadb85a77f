"""Records that a target will never take, and topics that are deleted or made again under a query."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.client.blocking import NewTopic
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.run import run_pipeline
from barnabas.pipelines.spark.topics.refusing import Gate, Letter
from barnabas.records.compression import Codec
from tests.pipelines.conftest import send
from tests.pipelines.readers import consumed
from tests.support.admin import KEPT

spark_test = pytest.mark.spark


@spark_test
def test_one_poison_record_costs_no_neighbour_anything(spark, bootstrap, client, new_topic, tmp_path):
    topic = new_topic(1, retention_ms="-1", max_message_bytes="4000000")
    out, dead, keyed = f"{topic}-out", f"{topic}-dead-letters", f"{topic}-keyed"
    client.create_topics(
        [
            NewTopic(out, 1, configs={**KEPT, "max.message.bytes": "20000"}),
            NewTopic(dead, 1, configs={**KEPT, "max.message.bytes": "10000"}),
            NewTopic(keyed, 1, configs={"cleanup.policy": "compact"}),
        ]
    )
    large = b'{"to": "' + out.encode() + b'", "pad": "' + b"x" * 30_000 + b'"}'
    unreadable = b"y" * 15_000
    odd = {
        f'{{"to": "{name}", "pad": "p"}}'.encode(): reason
        for name, reason in {
            "no/name": "'no/name' is not a legal name of a topic",
            f"{topic}-missing": f"topic {topic}-missing does not exist",
            "__consumer_offsets": "topic __consumer_offsets belongs to the brokers",
            keyed: f"topic {keyed} is compacted and accepts no records without a key",
            topic: f"the pipeline would read topic {topic}, which it writes itself, in an endless loop",
        }.items()
    }
    good = [f'{{"to": "{out}", "pad": "{i}"}}'.encode() for i in range(4)]
    send(client, topic, [good[0], large, good[1], *odd, good[2], unreadable, good[3]])
    spec = parse_spec(
        f"pipeline: {topic}\nsource: {{topic: {topic}}}\nsteps: [parse: {{json: {{to: string, pad: string}}}}]\n"
        f"outputs: [{{topic: {out}, route: {{by: to}}, value: pad}}]\n"
    )
    for _ in range(2):
        run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
    assert [record.value for record in consumed(bootstrap, out)] == [b"0", b"1", b"2", b"3"]
    assert consumed(bootstrap, keyed) == []
    letters = consumed(bootstrap, dead)
    assert len(letters) == len(odd) + 2
    by_value = {record.value: record for record in letters}
    for value, reason in odd.items():
        assert reason in by_value[value].header("reason")
        assert by_value[value].header("topic") == topic
    (cut,) = [r for r in letters if r.value and r.value != large and large.startswith(r.value)]
    assert cut.header("reason").startswith("the record needs 301")
    assert cut.header("offset") == "1"
    assert cut.header("cut") == f"value of {len(large)} bytes to {len(cut.value)}"
    (other,) = [r for r in letters if r.value and r.value.startswith(b"yy")]
    assert other.header("cut") == f"value of 15000 bytes to {len(other.value)}"
    assert other.header("reason").startswith("not a JSON object")


@spark_test
def test_a_topic_made_again_with_fewer_partitions(spark, bootstrap, client, new_topic, tmp_path):
    topic = new_topic(3, retention_ms="-1")
    spec = parse_spec(
        f"pipeline: {topic}\nsource: {{topic: {topic}, options: {{onDataLoss: earliest}}}}\n"
        f"outputs: [{{topic: {topic}-out, partitions: 1}}]\n"
    )

    def run():
        run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
        return sorted(record.value for record in consumed(bootstrap, f"{topic}-out"))

    for partition in range(3):
        send(client, topic, [b"old-%d" % partition], partition)
    assert len(run()) == 3
    client.delete_topics([topic])
    client.create_topics([NewTopic(topic, 1, configs=KEPT)])
    send(client, topic, [b"new"])
    assert run() == [b"new", b"old-0", b"old-1", b"old-2"]
    send(client, topic, [b"newer"])
    assert run() == [b"new", b"newer", b"old-0", b"old-1", b"old-2"]


@spark_test
def test_a_topic_of_a_pattern_that_is_gone(spark, bootstrap, client, new_topic, tmp_path):
    topic = new_topic(1, retention_ms="-1")
    client.create_topics([NewTopic(f"{topic}-in-{n}", 1, configs=KEPT) for n in "ab"])

    def run(policy):
        spec = parse_spec(
            f"pipeline: {topic}\nsource: {{pattern: '{topic}-in-.*', options: {{onDataLoss: {policy}}}}}\n"
            f"outputs: [{{topic: {topic}, partitions: 1}}]\n"
        )
        run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
        return sorted(record.value for record in consumed(bootstrap, topic))

    for n in "ab":
        send(client, f"{topic}-in-{n}", [n.encode()])
    assert run("stop") == [b"a", b"b"]
    send(client, f"{topic}-in-b", [b"unread"])
    client.delete_topics([f"{topic}-in-b"])
    with pytest.raises(
        PipelineError,
        match=f"topic {topic}-in-b was deleted, and with it possibly unread records of partition 0",
    ):
        run("stop")
    send(client, f"{topic}-in-a", [b"more"])
    assert run("earliest") == [b"a", b"b", b"more"]
    assert run("stop") == [b"a", b"b", b"more"]


@spark_test
def test_going_on_at_the_end_in_small_steps(spark, bootstrap, client, new_topic, tmp_path):
    topic = new_topic(1, retention_ms="-1")
    spec = parse_spec(
        f"pipeline: {topic}\nsource: {{topic: {topic}, options: {{onDataLoss: latest, maxOffsetsPerTrigger: 10}}}}\n"
        f"outputs: [{{topic: {topic}-out}}]\n"
    )

    def run():
        run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
        return [record.value for record in consumed(bootstrap, f"{topic}-out")]

    send(client, topic, [b"first"])
    assert run() == [b"first"]
    send(client, topic, [b"%d" % i for i in range(50)])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 30)]).values():
        future.result(30)
    assert run() == [b"first"]
    send(client, topic, [b"last"])
    assert run() == [b"first", b"last"]


def test_what_a_gate_lets_through():
    now = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    now_ms = int(now.timestamp() * 1000)
    rows = pa.record_batch(
        {
            "value": pa.array([b"x" * n for n in (10, 900, 5000, 10)], pa.binary()),
            "key": pa.array([b"k", b"k", None, None], pa.binary()),
            "timestamp": pa.array([now, None, now, now + dt.timedelta(days=1)], pa.timestamp("us", tz="UTC")),
        }
    )

    def rows_refused(gate, codec=Codec.NONE):
        return [(r.row, r.reason.split(":")[0].split(",")[0]) for r in gate.refusals(rows, now_ms, codec)]

    assert rows_refused(Gate("t")) == []
    assert rows_refused(Gate("t", 1000)) == [
        (1, "the record needs 1002 bytes"),
        (2, "the record needs 5101 bytes"),
    ]
    assert rows_refused(Gate("t", 1000), Codec.ZSTD) == []
    assert [row for row, _ in rows_refused(Gate("t", needs_key=True))] == [2, 3]
    assert rows_refused(Gate("t", after_ms=3_600_000)) == [(3, "topic t rejects this timestamp")]
    assert {row for row, _ in rows_refused(Gate("t", 1000, True, 0, 0))} == {1, 2, 3}


def test_letters_are_cut_to_fit():
    gate = Gate("t", 1000)
    own = [{"key": "trace", "value": b"t" * 600}, {"key": "barnabas.reason", "value": b"r"}]
    small = Letter(b"k", b"v", own)
    assert small.fitted(gate) is small
    cut = Letter(b"k", b"v" * 2000, own).fitted(gate)
    assert cut.key == b"k"
    assert cut.headers[-1]["value"].startswith(b"value of 2000 bytes to ")
    long = Letter(b"k" * 5000, b"v", [{"key": "x", "value": b"x" * 5000}, own[1]]).fitted(gate)
    assert [h["key"] for h in long.headers] == ["barnabas.reason", "barnabas.cut"]
    assert long.headers[-1]["value"].startswith(b"key of 5000 bytes to ")
    assert long.headers[-1]["value"].endswith(b"; 1 headers of the record left out")
