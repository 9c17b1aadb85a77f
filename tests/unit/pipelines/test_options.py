"""Options of the Spark source and sink, and offsets of a stream, without Spark or a broker."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from barnabas.pipelines.compiler.queries import begun_at
from barnabas.pipelines.plan.sources import Source
from barnabas.pipelines.spark.topics.offsets import (
    ROWS_SHARED_MAX,
    Range,
    build_offset,
    gather,
    parse_offset,
    split,
)
from barnabas.pipelines.spark.topics.options import OptionError, sink_options, source_options
from barnabas.pipelines.spark.topics.source import StreamReader
from barnabas.records.compression import Codec

BASE = {"kafka.bootstrap.servers": "h1,[::1]:9095", "subscribe": "a, b"}


def test_names_are_those_of_sparks_own_source():
    options = source_options(
        {
            **BASE,
            "startingOffsets": '{"a": {"0": 5, "1": -2}}',
            "maxOffsetsPerTrigger": "100",
            "includeHeaders": "true",
            "failOnDataLoss": "false",
            "kafka.isolation.level": "read_committed",
        }
    )
    assert options.client.bootstrap == (("h1", 9092), ("::1", 9095))
    assert options.topics == ("a", "b")
    assert options.starting.offsets == {("a", 0): 5, ("a", 1): -2}
    assert options.rows_per_trigger_max == 100
    assert options.headers
    assert options.data_loss == "earliest"
    assert options.read_committed


def test_tls_and_sasl_go_to_the_client():
    options = source_options(
        {
            **BASE,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": "/ca.pem",
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.jaas.config": 'x required username="ann" password="s3;cr=et";',
        }
    ).client
    assert options.tls is not None
    assert dict(options.tls.pairs) == {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"}
    assert hash(options) == hash(replace(options)), "tasks share a client by its options"
    assert options.sasl is not None
    assert (options.sasl.username, options.sasl.password) == ("ann", "s3;cr=et")
    assert "s3" not in repr(options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kafka.bootstrap.servers": ""}, "bootstrap.servers is not set"),
        (
            {"kafka.bootstrap.servers": "h:99999"},
            "'h:99999' in bootstrap.servers: the port must be from 1 to 65535",
        ),
        ({"subscribePattern": "x"}, "one of subscribe, subscribePattern and assign is needed"),
        ({"startingOffsets": "erliest"}, "startingOffsets=erliest is not earliest, latest or JSON"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "a-0: -3 is not a number from -2 up"),
        ({"startingOffsets": '{"a": 5}'}, "is not of the form"),
        ({"endingOffsets": "earliest"}, "endingOffsets=earliest is not latest or JSON"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger=0 is not a number from 1 up"),
        ({"includeHeaders": "yes"}, "includeHeaders=yes is not true or false"),
        ({"columns": "value,size"}, "there is no column size"),
        ({"kafka.isolation.level": "x"}, "kafka.isolation.level=x is not"),
        ({"kafka.security.protocol": "TLS"}, "security.protocol=TLS is not one of PLAINTEXT"),
        ({"kafka.security.protocol": "SASL_SSL"}, "sasl.mechanism=(not set) is not one of PLAIN"),
        ({"startingOfsets": "earliest"}, "has no option startingofsets"),
    ],
)
def test_what_is_refused(changes, message):
    with pytest.raises(OptionError) as caught:
        source_options({**BASE, **changes})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_sink_options():
    base = {"kafka.bootstrap.servers": "h", "topic": "t"}
    assert sink_options({**base, "kafka.compression.type": "zstd"}).codec == Codec.ZSTD
    for changes, message in (
        ({"kafka.compression.type": "zip"}, "unknown codec 'zip'"),
        ({"kafka.acks": "1"}, "kafka.acks=1"),
        (
            {"kafka.compression.type": "lz4", "kafka.compression.lz4.level": "18"},
            "kafka.compression.lz4.level=18 is not a number from 1 to 17",
        ),
        (
            {"kafka.compression.type": "gzip", "kafka.compression.gzip.level": "best"},
            "kafka.compression.gzip.level=best is not",
        ),
        ({"topc": "x"}, "has no option topc"),
    ):
        with pytest.raises(OptionError, match=message):
            sink_options({**base, **changes})


def test_stream_offsets_are_stable_json():
    positions = {("b", 10): 4, ("b", 2): 3, ("a", 0): 9}
    offset = build_offset(positions, {"a": "x", "b": "y"})
    assert list(offset) == ["a", "b"]
    assert offset["b"] == {"id": "y", "2": 3, "10": 4}
    assert parse_offset(offset) == (positions, {"a": "x", "b": "y"})


def test_large_ranges_are_split():
    ranges = [Range("t", 0, 0, 90), Range("t", 1, 5, 15)]
    parts = split(ranges, 4)
    assert len(parts) >= 4
    for partition, start, end in ((0, 0, 90), (1, 5, 15)):
        mine = [(p.start, p.end) for p in parts if p.partition == partition]
        assert [a for a, _ in mine] == [start, *(b for _, b in mine[:-1])]
        assert mine[-1][1] == end
    assert split(ranges, 1) == ranges
    assert split([], 3) == []


def test_small_ranges_share_a_task():
    few = [Range("t", p, 0, ROWS_SHARED_MAX // 4) for p in range(6)]
    large = Range("t", 6, 0, ROWS_SHARED_MAX + 1)
    assert gather([*few, large], 1) == [tuple(few[:4]), tuple(few[4:]), (large,)]
    assert gather([large, *few[:2]], 1) == [(large,), tuple(few[:2])]
    assert gather([], 1) == []


def test_there_are_as_many_tasks_as_were_asked_for():
    few = [Range("t", p, 0, 1) for p in range(6)]
    assert [len(parts) for parts in gather(few, 4)] == [3, 1, 1, 1]
    assert len(gather(few, 9)) == 6
    assert [r for parts in gather(few, 2) for r in parts] == few


def test_sparks_own_options_of_pace():
    options_given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    options = source_options(
        {
            **options_given,
            "minOffsetsPerTrigger": "100",
            "maxTriggerDelay": "90s",
            "maxRecordsPerPartition": "10",
            "kafkaConsumer.pollTimeoutMs": "1500",
            "fetchOffset.retryIntervalMs": "20",
            "startingOffsetsByTimestampStrategy": "latest",
        }
    )
    assert (options.rows_per_trigger_min, options.trigger_delay_s, options.rows_per_task_max) == (
        100,
        90.0,
        10,
    )
    assert (options.client.request_timeout_s, options.client.backoff_s) == (1.5, 0.02)
    assert options.starting.end_when_younger
    assert not source_options(options_given).starting.end_when_younger
    for name, value in (("maxTriggerDelay", "soon"), ("startingOffsetsByTimestampStrategy", "never")):
        with pytest.raises(OptionError, match=f"{name}={value} is not"):
            source_options({**options_given, name: value})


def test_ranges_are_cut_to_size():
    parts = split([Range("t", 0, 0, 7), Range("t", 1, 5, 6)], 1, 3)
    assert [(r.partition, r.start, r.end) for r in parts] == [(0, 0, 3), (0, 3, 6), (0, 6, 7), (1, 5, 6)]


def test_a_micro_batch_waits_for_enough_records():
    options = source_options(
        {
            "kafka.bootstrap.servers": "h:1",
            "subscribe": "t",
            "minOffsetsPerTrigger": "5",
            "maxTriggerDelay": "1h",
        }
    )
    reader = StreamReader(options)
    start = {"t": {"id": "x", "0": 10}}
    assert reader.holds_back(start, {"t": {"id": "x", "0": 14}})
    assert not reader.holds_back(start, {"t": {"id": "x", "0": 15}})
    reader.triggered_s -= 3600
    assert not reader.holds_back(start, {"t": {"id": "x", "0": 11}})


def test_a_restart_from_a_place_leaves_no_other_beginning():
    orders = Source(("orders",), options={"startingGroup": "g"})
    own = {"startingOffsets": "earliest", "startingGroup": "g", "startingtimestamp": "5", "columns": "value"}
    latest = {"startingOffsets": "latest"}
    assert begun_at(own, None, orders, is_only=True) == begun_at(own, {}, orders, is_only=True) == own
    assert begun_at(own, latest, orders, is_only=False) == {"columns": "value", **latest}
    offsets = {"startingOffsets": json.dumps({"orders": {"0": 3}, "returns": {"0": 1}})}
    assert begun_at(own, offsets, orders, is_only=False) == {
        "columns": "value",
        "startingOffsets": json.dumps({"orders": {"0": 3}}),
    }
    assert begun_at(own, offsets, Source(("customers",)), is_only=False) == own
