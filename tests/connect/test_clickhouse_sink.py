"""The ClickHouse sink into ClickHouse's engine (chdb, embedded) behind a stand-in of its HTTP interface: pip install
chdb-core."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from barnabas.connect.errors import OptionError, RetriableError
from barnabas.connect.kinds.clickhouse import ClickHouseSink
from barnabas.testing.connect import run_sink

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        importlib.util.find_spec("chdb") is None, reason="no ClickHouse engine: pip install chdb-core"
    ),
]


def test_rows_are_inserted_and_refused_ones_reported(tmp_path: Path) -> None:
    from tests.pipelines.test_clickhouse import ClickHouse

    server = ClickHouse(tmp_path)
    try:
        server.query(
            "CREATE TABLE events (id Int32, name String, at DateTime64(3)) ENGINE = ReplacingMergeTree ORDER BY id"
        )
        config = {
            "hostname": "127.0.0.1",
            "port": server.place.rpartition(":")[2],
            "ssl": "false",
            "username": "me",
            "password": "secret",
            "topic2TableMap": "t=events",
        }
        with run_sink(ClickHouseSink, config, [("t", 0)]) as sink:
            rows = [{"id": n, "name": f"n{n}", "at": "2026-01-02T03:04:05.678Z"} for n in range(3)]
            sink.put([sink.record("t", row) for row in rows])
            sink.put([sink.record("t", rows[0]), sink.record("t", {"id": "x"}), sink.record("t", None)])
            assert "x" in str(sink.reported[0][1])
            assert len(sink.reported) == 1
            server.be_busy(1)
            with pytest.raises(RetriableError, match="503"):
                sink.put([sink.record("t", {"id": 9})])
        result_rows = server.query(
            "SELECT id, name, toString(at) AS at FROM events FINAL ORDER BY id FORMAT JSONEachRow"
        )
        assert result_rows == [{"id": n, "name": f"n{n}", "at": "2026-01-02 03:04:05.678"} for n in range(3)]
        with pytest.raises(OptionError, match="password is incorrect"):
            run_sink(ClickHouseSink, {**config, "password": "wrong"}).__enter__()
    finally:
        server.process.kill()
        server.process.wait()


def test_what_does_not_answer_and_what_it_does_not_do_is_told() -> None:
    with pytest.raises(OptionError, match=r"127\.0\.0\.1:1 does not answer"):
        run_sink(ClickHouseSink, {"hostname": "127.0.0.1", "port": "1", "ssl": "false"}).__enter__()
    with pytest.raises(OptionError, match="ReplacingMergeTree"):
        run_sink(ClickHouseSink, {"hostname": "h", "exactlyOnce": "true"}).__enter__()
