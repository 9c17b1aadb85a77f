"""`python -m bench`: Barnabas and its rivals side by side, in interleaved rounds. See README.md."""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from bench import report
from bench.brokers import ALL, Broker, Unavailable
from bench.plot import draw
from bench.report import Results
from bench.requests import BenchError
from bench.workloads import Pace, Workload, all_workloads, ceiling, sample

RESULTS = Path(__file__).parent / "results"
IDLE_SETTLE_S = 1.0
#: A memory engine that keeps what it was sent is started afresh past this.
RESTART_ABOVE_MB = 4_000


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows, shorter samples: 3-4 minutes")
    parser.add_argument("--rounds", type=int, help="rounds over all workloads (default 5, quick 3)")
    parser.add_argument("--seconds", type=float, help="length of one sample (default 1.0, quick 0.5)")
    parser.add_argument(
        "--only", metavar="PATTERN", action="append", help="workloads whose name matches, e.g. '*64 KB*'"
    )
    parser.add_argument(
        "--brokers", metavar="NAMES", help="comma separated, of: " + ", ".join(c.name for c in ALL)
    )
    parser.add_argument(
        "--dir", type=Path, help="where the brokers keep their data (default: a temporary folder)"
    )
    parser.add_argument(
        "--out", type=Path, default=RESULTS, help="where results.json, results.md, results.png go"
    )
    parser.add_argument("--list", action="store_true", help="print the workloads and end")
    return parser.parse_args()


def chosen(workloads: list[Workload], patterns: list[str] | None) -> list[Workload]:
    return [w for w in workloads if not patterns or any(fnmatch.fnmatch(w.name, p) for p in patterns)]


def start_all(names: list[str], directory: Path, results: Results, starts: int) -> list[Broker]:
    """Start each broker `starts` times, noting start-up time and idle memory; the last start stays up."""
    running = []
    for kind in ALL:
        if kind.name not in names:
            continue
        broker = kind(directory)
        try:
            for i in range(starts):
                broker.start()
                time.sleep(IDLE_SETTLE_S)
                results.start_seconds.setdefault(broker.name, []).append(round(broker.start_seconds, 3))
                results.idle_mb.setdefault(broker.name, []).append(round(broker.rss_mb(), 1))
                if i < starts - 1:
                    broker.stop()
        except (Unavailable, BenchError) as why:
            print(f"skipped {broker.name}: {why}", flush=True)
            results.skipped[broker.name] = str(why)
            broker.stop()
            continue
        print(
            f"started {broker.name} in {broker.start_seconds:.2f} s, {broker.rss_mb():.0f} MB resident",
            flush=True,
        )
        running.append(broker)
    results.brokers = [b.name for b in running]
    return running


def burn_in(brokers: list[Broker], workloads: list[Workload], seconds: float) -> None:
    """One pass that does not count: a JVM compiles what it runs often, memory is touched, files exist."""
    kinds = {w.kind: w for w in workloads}
    for broker in brokers:
        for workload in kinds.values():
            with contextlib.suppress(BenchError, OSError):  # the rounds will say it
                sample(workload, broker, Pace(0.0, seconds, latency_seconds=seconds))


def run_rounds(
    brokers: list[Broker], workloads: list[Workload], rounds: int, pace: Pace, results: Results
) -> None:
    """Round by round, workload by workload, broker by broker; who goes first changes from round to round."""
    for number in range(rounds):
        turn = brokers[number % len(brokers) :] + brokers[: number % len(brokers)]
        for workload in workloads:
            rates = []
            for broker in turn:
                try:
                    measured = sample(workload, broker, pace)
                except (BenchError, OSError) as why:
                    results.failures.append(f"round {number + 1}, {workload.name}, {broker.name}: {why}")
                    rates.append(f"{broker.name} FAILED ({why})")
                    revive(broker)
                    continue
                results.add(workload, broker.name, {"round": number, **measured})
                rates.append(f"{broker.name} {report.number(measured['value'], workload.unit)}")
                if broker.rss_mb() > RESTART_ABOVE_MB:
                    broker.stop()
                    broker.start()
            print(
                f"[{number + 1}/{rounds}] {workload.name} ({workload.unit}): {', '.join(rates)}", flush=True
            )


def revive(broker: Broker) -> None:
    """A broker that died or hangs after a failed sample is started afresh."""
    broker.stop()
    with contextlib.suppress(BenchError):
        broker.start()


def show(results: Results) -> bool:
    """Print the table and the budgets -> whether none is broken."""
    print()
    print(report.aligned(report.table(results)))
    print(f"\n{report.NOTE}\n\nBudgets")
    lines = report.verdicts(results)
    rows = [[report.holds_text(v.holds), v.budget, v.workload, v.found, v.wanted] for v in lines]
    print(report.aligned(rows, left=3))
    for line in results.failures:
        print(f"failed: {line}")
    return not any(v.holds is False for v in lines) and not results.failures


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the brokers are stopped then as well
    options = arguments()
    workloads = chosen(all_workloads(options.quick), options.only)
    if options.list:
        print("\n".join(w.name for w in workloads))
        return 0
    rounds = options.rounds or (3 if options.quick else 5)
    seconds = options.seconds or (0.5 if options.quick else 1.0)
    pace = Pace(0.2, seconds, latency_seconds=2.0 if options.quick else 5.0)
    names = options.brokers.split(",") if options.brokers else [c.name for c in ALL]
    results = Results([], settings={"rounds": rounds, "seconds per sample": seconds})
    busy = round(os.getloadavg()[0], 1)
    results.settings["load average before"] = busy
    if busy > (os.cpu_count() or 1) / 2:
        print(
            f"the machine is already busy (load average {busy}): expect noise, trust ratios only", flush=True
        )
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir) as folder:
        directory = Path(folder)
        brokers = start_all(names, directory, results, starts=3 if options.quick else 5)
        if not brokers:
            print("no broker to measure")
            return 2
        try:
            for workload in workloads:
                results.ceilings[workload] = ceiling(workload, pace)
            burn_in(brokers, workloads, seconds=1.0 if options.quick else 3.0)
            run_rounds(brokers, workloads, rounds, pace, results)
        finally:
            for broker in brokers:
                broker.stop()
    within = show(results)
    report.write(results, options.out)
    try:
        draw(results, options.out / "results.png")
    except ImportError:
        print("no plot: matplotlib is not installed (pip install 'barnabas[bench]')")
    print(f"\nwritten to {options.out}: results.md, results.json, results.png")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
