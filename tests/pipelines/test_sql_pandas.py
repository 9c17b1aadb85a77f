"""pandas reads tables and streams of a SQL server with functions in Python, through SQLAlchemy."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any, Final

import pandas
import pytest
import sqlalchemy
from sqlalchemy.dialects import registry

from barnabas.client.blocking import BlockingClient
from barnabas.records.batch import Record, build_batch
from tests.pipelines.test_server import until
from tests.pipelines.test_sql_server import EARLIEST, SqlServer

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]

BEGIN_MS: Final = 1_700_000_040_000
FUNCTIONS: Final = """
import statistics
from barnabas.sql.functions import aggregate, scalar

@scalar
def twice(x: float) -> float:
    return x * 2

@aggregate(takes=["DOUBLE"], returns="DOUBLE")
def middle(values):
    return statistics.median(values)
"""


def put(client: BlockingClient, topic: str, rows: list[tuple[bytes, Any, int]]) -> None:
    """Writes records: key, value as JSON or bytes, time in milliseconds."""
    batch = [
        Record(n, at, key, value if isinstance(value, bytes) else json.dumps(value).encode(), ())
        for n, (key, value, at) in enumerate(rows)
    ]
    client.produce_raw(topic, 0, build_batch(batch))


def test_pandas_reads_tables_and_streams(
    bootstrap: str, client: BlockingClient, new_topic, tmp_path: Path
) -> None:
    functions = tmp_path / "own.py"
    functions.write_text(FUNCTIONS)
    server = SqlServer(tmp_path / "sql", bootstrap)
    server.words = ("sql", "start", "--functions", str(functions), "--data")
    server.start()
    try:
        source = new_topic()
        put(client, source, [(b"ab"[n % 2 : n % 2 + 1], {"v": n}, BEGIN_MS) for n in range(6)])
        server.statements(
            f"CREATE STREAM s (id STRING KEY, v DOUBLE) WITH (kafka_topic='{source}', value_format='JSON');"
            f"CREATE TABLE t WITH (kafka_topic='{source}-t') AS SELECT id, MIDDLE(v) AS m, COUNT(*) AS c FROM s "
            "GROUP BY id;",
            **EARLIEST,
        )
        registry.register("barnabas", "barnabas.sql.alchemy", "Dialect")
        engine = sqlalchemy.create_engine(f"barnabas://127.0.0.1:{server.port}?start=earliest&timeout_s=300")
        until(lambda: len(server.rows("SELECT * FROM t;")) == 2, 300)
        looked_up = pandas.read_sql("SELECT id, m + 1 AS more FROM t WHERE c * 2 = 6", engine)
        assert looked_up.sort_values("id").values.tolist() == [["a", 3.0], ["b", 4.0]]
        followed = pandas.read_sql("SELECT id, TWICE(v) AS w FROM s WHERE v > 2 EMIT CHANGES LIMIT 3", engine)
        assert followed.sort_values("w").values.tolist() == [["b", 6.0], ["a", 8.0], ["b", 10.0]]
    finally:
        server.stop(signal.SIGKILL)
