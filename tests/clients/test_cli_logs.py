"""`barnabas logs` over a topic that the agent fills and a table."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from tests.clients.cli_support import Cli

LOG = "2026-01-01 INFO started\n" + "".join(f"2026-01-01 ERROR timeout of user=u{i}\n" for i in range(20))


def shipped(cli: Cli, tmp_path: Path) -> str:
    topic, log = cli.topic(), tmp_path / "a.log"
    log.write_text(LOG)
    cli("agent", "tail", str(log), "-t", topic, "--once", "--state", str(tmp_path / "st"))
    return topic


def test_search_in_a_topic(cli: Cli, tmp_path: Path) -> None:
    topic = shipped(cli, tmp_path)
    done = cli("logs", "search", "level:error user:u7", "-t", topic, "--since", "1h")
    assert (
        done.stdout.decode()
        .rstrip()
        .endswith(f"ERROR [{tmp_path}/a.log] 2026-01-01 ERROR timeout of user=u7")
    )
    assert b"1 line in " in done.stderr
    printed = cli.out(
        "logs", "search", "level = 'ERROR' AND message LIKE '%timeout%'", "-t", topic, "--json", "-n", "3"
    )
    assert len(printed.splitlines()) == 3
    counts = cli.json("logs", "search", "timeout", "-t", topic, "--histogram")
    assert sum(count["lines"] for count in counts) == 20
    assert cli.json("logs", "patterns", "-t", topic)[0] | {"first": "", "last": "", "example": ""} == {
        "pattern": "<*> ERROR timeout of <*>", "lines": 20, "before": 0, "level": "ERROR", "first": "", "last": "",
        "example": "", "is_new": False,
    }  # fmt: skip
    for arguments, what in (
        (("search", "(", "-t", topic), b"nothing to search for"),
        (("search", "x"), b"--topic TOPIC, --table DIR"),
        (("search", "x", "-t", topic, "--since", "soon"), b"examples: 30m, 2h"),
        (("tail", "x"), b"--topic TOPIC"),
    ):
        assert what in cli("logs", *arguments, code=2).stderr


def test_what_is_in_the_table_is_not_found_again_in_the_topic(cli: Cli, tmp_path: Path) -> None:
    deltalake, pa = pytest.importorskip("deltalake"), pytest.importorskip("pyarrow")
    topic, folder = shipped(cli, tmp_path), tmp_path / "table"
    kept = LOG.splitlines()[:11]
    table = pa.table(
        {
            "time": pa.array([1_767_225_600_000_000] * 11, pa.timestamp("us", tz="UTC")),
            "level": ["INFO", *["ERROR"] * 10],
            "message": kept,
            "partition": pa.array([0] * 11, pa.int32()),
            "offset": pa.array(range(11), pa.int64()),
            "day": ["2026-01-01"] * 11,
            "hour": pa.array([0] * 11, pa.int32()),
        }
    )
    deltalake.write_deltalake(str(folder), table, mode="append", partition_by=["day", "hour"])
    cli("logs", "index", str(folder))
    lines = (
        cli.out("logs", "search", "timeout", "-t", topic, "--table", str(folder), "-n", "0")
        .decode()
        .splitlines()
    )
    assert [line.rpartition("user=")[2] for line in lines] == [f"u{i}" for i in range(19, -1, -1)]
    error = cli("logs", "search", "x", "--table", str(tmp_path), code=1).stderr
    assert b"is no Delta table" in error


def test_following(cli: Cli) -> None:
    topic, stop = cli.topic(), threading.Event()
    reader = cli.start("logs", "tail", "level:error", "-t", topic, stdout=subprocess.PIPE)
    assert reader.stdout is not None

    def write() -> None:  # until the reader has begun
        while not stop.is_set():
            cli("produce", topic, stdin=b"INFO no\nERROR yes\n")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert reader.stdout.readline().rstrip().endswith(b"ERROR yes")
        reader.terminate()
        assert reader.wait(60) == 0
    finally:
        stop.set()
        writer.join()
        reader.kill()
