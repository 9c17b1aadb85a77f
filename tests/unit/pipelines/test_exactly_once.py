"""The parts of the exactly-once sink that need no broker."""

from __future__ import annotations

import json

import pytest

from barnabas.client.transactions import TxnProducer
from barnabas.pipelines.spark.topics.exactly_once import (
    NOTE_BYTES_MAX,
    Batch,
    Decided,
    Opened,
    Prepared,
    SinkError,
    check_rows,
    packed,
    prefix_of,
    rows_before,
    task_id,
    unpacked,
)
from barnabas.pipelines.spark.topics.options import OptionError, sink_options

BASE = {"kafka.bootstrap.servers": "h:1", "topic": "t"}
OWNER = TxnProducer("q", 1, 0)


def prepared(count: int) -> list[Prepared]:
    return [
        Prepared(n, TxnProducer(task_id("q", n), 4000 + n * 7 % 90, n % 50), 1, ("t", 0, 1))
        for n in range(count)
    ]


def opened(decided: Decided | None) -> Opened:
    return Opened("q", 60_000, OWNER, decided)


@pytest.mark.parametrize("count", [1, 2, 500])
def test_the_list_of_transactions_survives(count):
    tasks = prepared(count)
    text = packed(tasks)
    assert len(json.dumps({"prepared": text})) < NOTE_BYTES_MAX
    assert unpacked("q", text) == [task.producer for task in tasks]


def test_a_list_that_is_too_long_is_left_out():
    assert packed(prepared(20_000)) is None
    assert unpacked("q", None) is None


def test_what_a_task_finds_of_its_batch():
    batch, other = Batch("a", 7), Batch("b", 7)
    assert rows_before(opened(None), batch, 0) is None
    assert rows_before(opened(Decided(other, 2)), batch, 0) is None
    assert rows_before(opened(Decided(Batch("a", 6), 2)), batch, 0) is None
    assert rows_before(opened(Decided(batch, 2)), batch, 5) == -1
    partly = opened(Decided(batch, 2, {1: 40}))
    assert rows_before(partly, batch, 1) == 40
    assert rows_before(partly, batch, 0) is None
    check_rows(partly, 1, 40, 40)
    check_rows(opened(Decided(batch, 2)), 1, -1, 3)
    with pytest.raises(SinkError, match="has committed 40 rows in an earlier run, but has 41 now"):
        check_rows(partly, 1, 40, 41)


def test_what_names_a_query(tmp_path):
    assert prefix_of(sink_options(BASE)) is None
    assert prefix_of(sink_options({**BASE, "kafka.transactional.id": "copy"})) == "copy"
    (tmp_path / "metadata").write_text('{"id": "0-1"}')
    for place in (str(tmp_path), tmp_path.as_uri()):
        assert prefix_of(sink_options({**BASE, "checkpointLocation": place})) == "barnabas-0-1"
    far = sink_options({**BASE, "checkpointLocation": "s3a://bucket/a"})
    assert prefix_of(far) == prefix_of(far)
    assert prefix_of(far) != prefix_of(sink_options({**BASE, "checkpointLocation": "s3a://bucket/b"}))
    with pytest.raises(OptionError, match="exactlyOnce to false"):
        prefix_of(sink_options({**BASE, "checkpointLocation": str(tmp_path / "nothing")}))


def test_options():
    with pytest.raises(OptionError, match="exactlyOnce=maybe is not true or false"):
        sink_options({**BASE, "exactlyOnce": "maybe"})
    with pytest.raises(OptionError, match=r"kafka.transaction.timeout.ms=0 is not a number"):
        sink_options({**BASE, "kafka.transaction.timeout.ms": "0"})
