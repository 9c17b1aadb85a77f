"""`python -m bench.logs`: log search in a large Delta table.

The lines are those of a web server's log (`--log`), of which each got a level and a request id of its own; they fill a week.
The table is written without Spark, by day and hour as the pipeline of `barnabas logs template` writes it. What is searched
for: a word that occurs once, a frequent word (its newest 100 lines), and histograms of the whole week. A figure is the time
of the command `barnabas logs`, its start included; the median of its runs.

    python -m bench.logs --log access.log --gb 10 --dir DIR

A table that is in DIR already is used again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from barnabas.logs.errors import LogError
from barnabas.logs.tables import LogTable
from bench.report import machine
from bench.requests import BenchError

RESULTS: Final = Path(__file__).parent / "results"
BEGINS: Final = datetime(2026, 11, 20, tzinfo=UTC)
HOURS: Final = 168
LEVELS: Final = ("INFO", "WARN", "ERROR")
SHARES: Final = (0.94, 0.05, 0.01)
RUNS: Final = 3


def questions(word: str) -> dict[str, tuple[str, ...]]:
    """What is asked, as options of `barnabas logs search`. word: one that occurs once."""
    return {
        "a word that occurs once": (word,),
        "the newest 100 lines with a frequent word": ("presentations",),
        "the newest 100 errors with a word": ("level:error jquery",),
        "histogram of the week, all lines": ("", "--histogram"),
        "histogram of the week, errors": ("level:error", "--histogram"),
        "histogram of the week, a frequent word": ("presentations", "--histogram"),
    }


def hour_of_lines(lines: pa.Array, number: int, rows: int) -> pa.Table:
    """The lines of one hour, as the pipeline writes them."""
    chance = np.random.default_rng(number)
    begins = BEGINS + timedelta(hours=number)
    times = np.sort(chance.integers(0, 3_600_000_000, rows)) + int(begins.timestamp() * 1_000_000)
    levels = pa.array(LEVELS).take(pa.array(chance.choice(len(LEVELS), rows, p=SHARES)))
    ids = pa.array([f"{value:016x}" for value in chance.integers(0, 1 << 63, rows).tolist()])
    texts = lines.take(pa.array(chance.integers(0, len(lines), rows)))
    message = pc.binary_join_element_wise(
        levels, texts, pc.binary_join_element_wise("request", ids, "="), " "
    )
    offsets = np.arange(number * rows, (number + 1) * rows)
    return pa.table(
        {
            "time": pa.array(times, pa.timestamp("us", "UTC")),
            "level": levels,
            "message": message,
            "host": pa.array(["web1"]).take(pa.array(np.zeros(rows, int))),
            "path": pa.array(["/var/log/nginx/access.log"]).take(pa.array(np.zeros(rows, int))),
            "fields": pa.array([""]).take(pa.array(np.zeros(rows, int))),
            "partition": pa.array(np.zeros(rows, np.int32)),
            "offset": pa.array(offsets),
            "day": pa.array([begins.strftime("%Y-%m-%d")]).take(pa.array(np.zeros(rows, int))),
            "hour": pa.array(np.full(rows, begins.hour, np.int32)),
        }
    )


def lines_of(log: Path, size_bytes: int) -> tuple[pa.Array, int]:
    """The lines of a log, and how many an hour has in a week of so many bytes."""
    lines = pa.array(log.read_text(errors="replace").splitlines())
    mean = pc.sum(pc.binary_length(lines)).as_py() / len(lines) + 31
    return lines, int(size_bytes / mean / HOURS)


def hours(log: Path, size_bytes: int) -> Iterator[pa.Table]:
    """A week of lines with so many bytes."""
    lines, rows = lines_of(log, size_bytes)
    for number in range(HOURS):
        yield hour_of_lines(lines, number, rows)


def make_table(folder: Path, log: Path, size_bytes: int) -> None:
    for table in hours(log, size_bytes):
        write_deltalake(str(folder), table, mode="append", partition_by=["day", "hour"])


def rare_word(log: Path, size_bytes: int) -> str:
    """The request id of a line in the middle of the week."""
    lines, rows = lines_of(log, size_bytes)
    lines_of_hour = hour_of_lines(lines, HOURS // 2, rows)
    return str(lines_of_hour["message"][len(lines_of_hour) // 2].as_py().rpartition("=")[2])


def index(folder: Path) -> dict[str, Any]:
    """Writes the index; what it cost."""
    before, began = os.times(), time.monotonic()
    done = [*LogTable(folder).build_indexes()]
    after = os.times()
    return {
        "lines": sum(file.rows for file, _ in done),
        "bytes": sum(size for _, size in done),
        "cpu_s": round(after.user + after.system - before.user - before.system, 1),
        "wall_s": round(time.monotonic() - began, 1),
    }


def ask(folder: Path, options: tuple[str, ...]) -> dict[str, Any]:
    """The command's time. Raises BenchError."""
    command = [sys.executable, "-m", "barnabas", "logs", "search", *options, "--table", str(folder)]
    walls, cpus, summary = [], [], ""
    for _ in range(RUNS):
        before, began = os.times(), time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        walls.append(time.monotonic() - began)
        after = os.times()
        cpus.append(
            after.children_user + after.children_system - before.children_user - before.children_system
        )
        if done.returncode:
            raise BenchError(f"{options}: {done.stderr}")
        summary = (done.stderr.strip().splitlines() or [f"{len(done.stdout.splitlines())} bars"])[-1]
    return {
        "s": round(statistics.median(walls), 2),
        "cpu_s": round(statistics.median(cpus), 2),
        "said": summary,
    }


def table_of(folder: Path) -> dict[str, Any]:
    files = LogTable(folder).files()
    return {
        "lines": sum(file.rows for file in files),
        "files": len(files),
        "bytes": sum(file.size_bytes for file in files),
    }


def is_there(folder: Path) -> bool:
    try:
        return bool(LogTable(folder).files())
    except LogError:
        return False


def text_of(results: dict[str, Any]) -> str:
    """The report."""
    table, index = results["table"], results["index"]
    rows = [
        "# Log search",
        "",
        f"`python -m bench.logs --gb {results['gb']:g}`: {table['lines']:,} lines of a web server's log, a week, in a Delta "
        f"table of {table['files']} files and {table['bytes'] / 1e9:.2f} GB;",
        f"{machine()['cores']} cores of {machine()['cpu']}; load average of the machine before the questions: "
        f"{results['load average']}.",
        "",
        f"Index: {index['lines'] / index['cpu_s']:,.0f} lines a second of one core's time; {index['bytes'] / 1e6:,.0f} MB.",
        "",
        "| question | s | processor time, s | what it said |",
        "|---|---:|---:|---|",
    ]
    for name, answer in results["answers"].items():
        rows.append(f"| {name} | {answer['s']:.2f} | {answer['cpu_s']:.2f} | {answer['said']} |")
    return "\n".join([*rows, ""])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.logs", description=__doc__)
    parser.add_argument("--log", type=Path, required=True, help="a web server's log")
    parser.add_argument("--gb", type=float, default=10)
    parser.add_argument("--dir", type=Path, required=True, help="where the table is made")
    options = parser.parse_args()
    results: dict[str, Any] = {"gb": options.gb}
    results |= measured(options.dir, options.log, options.gb)
    text = text_of(results)
    print(text)
    (RESULTS / "logs.md").write_text(text)
    (RESULTS / "logs.json").write_text(json.dumps(results, indent=1) + "\n")
    return 0


def measured(folder: Path, log: Path, gb: float) -> dict[str, Any]:
    """A table, its index, its answers, and the load average before the questions."""
    size_bytes, table, kept = int(gb * 1e9), folder / f"table-{gb:g}", folder / f"table-{gb:g}.json"
    if not is_there(table):
        make_table(table, log, size_bytes)
    index_made = index(table)
    if index_made["lines"]:
        kept.write_text(json.dumps(index_made))
    answers, load = {}, round(os.getloadavg()[0], 1)
    for name, options in questions(rare_word(log, size_bytes)).items():
        answers[name] = ask(table, options)
        print(name, answers[name], flush=True)
    index_kept = json.loads(kept.read_text())
    return {"table": table_of(table), "index": index_kept, "answers": answers, "load average": load}


if __name__ == "__main__":
    sys.exit(main())
