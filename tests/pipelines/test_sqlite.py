"""Tasks that write to one SQLite database at the same time."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from barnabas.pipelines.kinds.targets.base import DOCUMENT, IDENTITY, Task
from barnabas.pipelines.kinds.targets.database import DATABASE
from barnabas.pipelines.spark.frame import RECORD_COLUMNS


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize("key", [[], ["id"]])
def test_tasks_wait_for_each_other(tmp_path: Path, journal: str, key: list[str]) -> None:
    """Both have looked at the table before the first of them writes, unless one of them has to wait."""
    place = tmp_path / "out.db"
    with sqlite3.connect(place) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    options = {
        "url": f"sqlite:///{place}",
        "table": "t",
        "key": key,
        "columns": {},
        "connect": {},
        "others": "refuse",
    }
    DATABASE.reach(options)
    both_began = threading.Barrier(2)

    def rows(part: int) -> Iterator[pa.RecordBatch]:
        try:
            both_began.wait(0.5)
        except threading.BrokenBarrierError:
            pass  # the other one waits
        numbers = range(part * 10, part * 10 + 10)
        record = dict.fromkeys([*RECORD_COLUMNS, "_error", DOCUMENT, IDENTITY], pa.nulls(10))
        record |= {"_topic": ["t"] * 10, "_partition": [part] * 10, "_offset": list(numbers)}
        yield pa.record_batch({**record, "id": list(numbers)})

    def deliver(part: int) -> int:
        task = Task("q", 0, part, "identity", in_order=True)
        assert DATABASE.deliver is not None
        return sum(len(refused) for _, refused in DATABASE.deliver(options, task, rows(part)))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(deliver, range(2))) == [0, 0]
    with sqlite3.connect(place) as connection:
        assert [row[0] for row in connection.execute("SELECT id FROM t ORDER BY id")] == [*range(20)]
