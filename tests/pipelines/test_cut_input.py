"""Java ends while a task in Python gets its rows: what the task has so far must not be taken for all of them."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

PATIENCE_S = 240

PROGRAM = """
import os, signal, sys
from pathlib import Path
from pyspark.sql import functions as F
from barnabas.pipelines.spark.session.class_archive import find_archive
from barnabas.pipelines.formats.columns import DDL_TYPES
from barnabas.pipelines.kinds.targets import base, database
from barnabas.pipelines.spark.outgoing import DOCUMENT, IDENTITY
from barnabas.pipelines.spark.session.start import start_session
from barnabas.pipelines.spark.frame import (ERROR_TYPE, RECORD_COLUMNS)

folder = Path(sys.argv[1])

def deliver(options, task, batches):
    def seen():
        for number, batch in enumerate(batches):
            if number == 1:  # no half batch is under way any more
                # Spark's daemon notices the end of Java too, and is usually quicker to end its workers.
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
                (folder / "new").write_text(str(os.getpid()))
                (folder / "new").rename(folder / f"began-{options['table']}")
            yield batch
    return database.DATABASE.deliver(options, task, seen())

# A row is a batch of its own, and large enough to be sent at once; Java never gets done with the third.
spark = start_session(
    "cut", master="local[1]", quick=True, log_file=folder / "spark.log", archive=find_archive(),
    conf={"spark.sql.execution.arrow.maxRecordsPerBatch": "1"},
)
nothing = [F.expr(f"cast(null as {DDL_TYPES[name[1:]]})").alias(name) for name in RECORD_COLUMNS]
wait = "if(id = 2, reflect('java.lang.Thread', 'sleep', 3600000L), repeat('x', 300000))"
for table, count in (("whole", 2), ("cut", 3)):
    options = {
        "url": f"sqlite:///{folder}/{table}.db", "table": table, "key": [], "columns": {}, "others": "refuse",
        "connect": {},
    }
    database.DATABASE.reach(options)
    rows = spark.range(0, count, 1, 1).select(
        *nothing, F.expr(f"cast(null as {ERROR_TYPE})").alias("_error"), F.lit("{}").alias(DOCUMENT),
        F.lit("").alias(IDENTITY), "id", F.expr(wait).alias("name"),
    )
    work = base._Work("database", options, base.Delivery("q", "identity", 0), False, deliver, "out", False, frozenset())
    rows.mapInArrow(work, base.RESULT_DDL).collect()
"""


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_task_whose_input_is_cut_off_commits_nothing(tmp_path: Path) -> None:
    """With two rows there is nothing to wait for; with three, Java is killed behind the second."""
    for table in ("whole", "cut"):
        with sqlite3.connect(tmp_path / f"{table}.db") as connection:
            connection.execute(f"CREATE TABLE {table} (id INTEGER, name TEXT)")
    with (tmp_path / "out").open("wb") as out:
        program = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=out, stderr=out)
    try:
        _kill_java(program.pid, tmp_path)
    finally:
        program.kill()
        program.wait()
    assert _written(tmp_path, "whole") == (1, 2)
    assert _written(tmp_path, "cut") == (0, 0)


def _written(folder: Path, table: str) -> tuple[int, int]:
    """How many parts the database has noted as written, and how many rows it holds."""
    with sqlite3.connect(folder / f"{table}.db") as connection:
        noted = connection.execute("SELECT count(*) FROM barnabas_deliveries").fetchone()[0]
        return noted, connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def _kill_java(program: int, folder: Path) -> None:
    """Kills Java once the task has begun, and waits until the task's process has ended."""
    give_up = time.monotonic() + PATIENCE_S
    while not (folder / "began-cut").exists():
        assert time.monotonic() < give_up, (folder / "out").read_text()
        time.sleep(0.05)
    worker = int((folder / "began-cut").read_text())
    for process in psutil.Process(program).children(recursive=True):
        if process.name() == "java":
            process.kill()
    while psutil.pid_exists(worker) and psutil.Process(worker).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < give_up, f"process {worker} goes on without Java"
        time.sleep(0.05)
