"""Where the broker's time goes under one workload:

    python -m bench.profile_broker 'produce 1 KB, batches 64 KB*'

Starts Barnabas as the benchmark does, drives the first workload whose name matches, and prints the hottest
symbols by `perf` (which sees system calls and the kernel) or, without perf, the stacks by `py-spy`. The share
of a symbol is of the broker's own time; the load generator competes for the cores but is not in the list.

With `--functions` the broker runs under cProfile instead, which names the Python functions and makes them slower:
read the shares, not the times.
"""

from __future__ import annotations

import argparse
import fnmatch
import pstats
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from bench.brokers import Barnabas
from bench.report import number
from bench.workloads import Pace, Workload, all_workloads, sample

WARMUP_S = 1.0
LINES = 45


class ProfiledBarnabas(Barnabas):
    """The broker under cProfile, which writes what it saw when the broker ends."""

    @property
    def profile_path(self) -> Path:
        return self.directory / "functions.prof"

    def command(self) -> list[str]:
        _, *rest = super().command()
        return [sys.executable, "-m", "cProfile", "-o", str(self.profile_path), "-m", "barnabas", *rest]


def watch_command(pid: int, seconds: float, directory: Path) -> list[str]:
    """The profiler to run beside the load. Raises SystemExit when there is none."""
    if shutil.which("perf"):
        data = str(directory / "perf.data")
        return [
            "perf",
            "record",
            "-q",
            "-F",
            "999",
            "-g",
            "-p",
            str(pid),
            "-o",
            data,
            "--",
            "sleep",
            str(seconds),
        ]
    if shutil.which("py-spy"):
        out = str(directory / "stacks.txt")
        return [
            "py-spy",
            "record",
            "-p",
            str(pid),
            "-d",
            str(int(seconds)),
            "-f",
            "raw",
            "-o",
            out,
            "--native",
        ]
    raise SystemExit("neither `perf` (package linux-perf) nor `py-spy` (pip) is installed")


def show(directory: Path) -> None:
    if (directory / "perf.data").exists():
        report = [
            "perf",
            "report",
            "-i",
            str(directory / "perf.data"),
            "--stdio",
            "--no-children",
            "-g",
            "none",
        ]
        done = subprocess.run(report, capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if line.strip() and not line.startswith("#")]
        print("\n".join(lines[:LINES]) or done.stderr)
        return
    rows = (directory / "stacks.txt").read_text().splitlines()
    print("\n".join(sorted(rows, key=lambda row: -int(row.rpartition(" ")[2]))[:LINES]))


def by_symbol(workload: Workload, pace: Pace, directory: Path) -> None:
    broker = Barnabas(directory)
    broker.start()
    try:
        assert broker.process is not None
        command = watch_command(broker.process.pid, pace.seconds, directory)
        profiler = threading.Timer(WARMUP_S, subprocess.run, [command], {"capture_output": True})
        profiler.start()
        result = sample(workload, broker, pace)
        profiler.join()
    finally:
        broker.stop()
    print(f"{workload.name}: {number(result['value'], workload.unit)} {workload.unit}\n")
    show(directory)


def by_function(workload: Workload, pace: Pace, directory: Path) -> None:
    broker = ProfiledBarnabas(directory)
    broker.start()
    try:
        result = sample(workload, broker, pace)
    finally:
        broker.stop()
    print(f"{workload.name}: {number(result['value'], workload.unit)} {workload.unit} under cProfile\n")
    stats = pstats.Stats(str(broker.profile_path))
    stats.strip_dirs().sort_stats("tottime").print_stats(LINES)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.profile_broker", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("pattern", help="name of a workload (see `python -m bench --list`), with wildcards")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--functions", action="store_true", help="Python functions by cProfile")
    options = parser.parse_args()
    matching = [w for w in all_workloads(quick=False) if fnmatch.fnmatch(w.name, options.pattern)]
    if not matching:
        print(f"no workload matches {options.pattern!r}; see `python -m bench --list`", file=sys.stderr)
        return 2
    pace = Pace(WARMUP_S, options.seconds, options.seconds, max_bytes=0)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        if options.functions:
            by_function(matching[0], pace, Path(folder))
        else:
            by_symbol(matching[0], pace, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
