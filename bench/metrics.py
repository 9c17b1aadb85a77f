"""What metrics cost: a broker that counts requests beside one that does not, and scrapes of 10,000 partitions.

    python -m bench.metrics [--without TREE] [--rounds 30] [--seconds 0.8] [--partitions 10000]

TREE is a copy of this checkout with its compiled modules, in which `begin_quick` of `RequestStats` (runtime/timing.pyx)
returns 0 and `quick` returns None at once, and which is compiled again: `cythonize -i src/barnabas/runtime/timing.pyx`.
With TMPDIR on a file system in memory (/dev/shm) the disk does not disturb. Both brokers run at the same time and get the
same load in turns. Without --without, only scrapes are measured.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.brokers import Barnabas
from bench.report import aligned, machine, markdown
from bench.requests import Wire
from bench.workloads import KIB, Pace, Workload, sample

RESULTS: Final = Path(__file__).parent / "results"
WORKLOADS: Final = (
    Workload("requests", 100, 1, 50, 1, 10),
    Workload("requests", 100, 1, 50, 4, 10),
    Workload("produce", KIB, 64 * KIB, 1, 4, 1),
)
TOPIC_PARTITIONS: Final = 100
SCRAPES: Final = 10
PROBE_S: Final = 3.0
WARMUP_S: Final = 0.2
NOTE: Final = (
    "*Processor time*: of the thread that runs the broker's loop, for each request; the least of the rounds, since whatever "
    "else runs on the machine adds to it. *Waits*: of a client that asks for the API versions again and again."
)


class Counting(Barnabas):
    """A broker that deletes the files of a deleted topic soon: each sample writes to a topic of its own, some gigabytes."""

    def command(self) -> list[str]:
        return [*super().command(), "-o", "log.segment.delete.delay.ms=1000"]


class FromTree(Counting):
    """The same of another checkout."""

    name = "without"
    tree = Path()

    def command(self) -> list[str]:
        _, *rest = super().command()
        return [sys.executable, "-m", "barnabas", *rest]

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "PYTHONPATH": str(self.tree / "src")}


class WithMetrics(Barnabas):
    """A broker whose metrics are served."""

    name = "scraped"

    def command(self) -> list[str]:
        return [*super().command(), "--with", "metrics", "--metrics-listen", "127.0.0.1:0"]

    @property
    def metrics_port(self) -> int:
        match = re.search(r"service=metrics url=http://127\.0\.0\.1:(\d+)", self.log_path.read_text())
        assert match is not None
        return int(match[1])


def cost(tree: Path, rounds: int, seconds: float, folder: Path) -> list[dict[str, Any]]:
    """For each workload, the processor time for each request of a broker that counts and of one that does not, in µs: the
    least of all rounds, since what else runs on the machine only adds to it."""
    FromTree.tree = tree
    brokers = [Counting(folder / "now"), FromTree(folder / "before")]
    pace = Pace(WARMUP_S, seconds, seconds, touch_bytes=1 << 20)
    for broker in brokers:
        broker.start()
    costs = []
    try:
        for workload in WORKLOADS:
            taken: dict[str, list[float]] = {broker.name: [] for broker in brokers}
            for number in range(rounds):
                for broker in brokers if number % 2 else brokers[::-1]:
                    taken[broker.name].append(_us_per_request(workload, broker, pace))
            now, without = min(taken["barnabas"]), min(taken["without"])
            costs.append({"workload": workload.name, "now_us": now, "without_us": without, "rounds": taken})
            print(f"{workload.name}: {now:.3f} µs, without counting {without:.3f}", flush=True)
    finally:
        for broker in brokers:
            broker.stop()
    return costs


def _us_per_request(workload: Workload, broker: Barnabas, pace: Pace) -> float:
    before_ns = _processor_ns(broker)
    requests = _requests(workload, broker, pace)
    return (_processor_ns(broker) - before_ns) / 1000 / requests


def _requests(workload: Workload, broker: Barnabas, pace: Pace) -> float:
    """How many requests were served, with those of the warm-up, at the rate of the others."""
    measured = sample(workload, broker, pace)
    per_s = (
        measured["value"] if workload.kind == "requests" else measured["value"] * 1e6 / workload.batch_bytes
    )
    return float(per_s) * (pace.warmup_seconds + pace.seconds)


def _processor_ns(broker: Barnabas) -> int:
    """The processor time of the thread that runs the broker's loop."""
    assert broker.process is not None
    pid = broker.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0])


class Probe:
    """Asks for the API versions again and again."""

    def __init__(self, port: int) -> None:
        self.waits_ms: list[float] = []
        self._port, self._ends = port, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with Wire(self._port) as wire:
            while not self._ends.is_set():
                begun_s = time.perf_counter()
                wire.api_versions()
                self.waits_ms.append((time.perf_counter() - begun_s) * 1000)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ends.set()
            self._thread.join()

    def shown(self) -> dict[str, float]:
        waits = sorted(self.waits_ms)
        return {
            "p50_ms": round(waits[len(waits) // 2], 3),
            "p99_ms": round(waits[len(waits) * 99 // 100], 3),
            "max_ms": round(waits[-1], 2),
        }


def scrape(port: int) -> tuple[float, int]:
    """(seconds, bytes) of one scrape."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    begun_s = time.perf_counter()
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    body = answer.read()
    took_s = time.perf_counter() - begun_s
    connection.close()
    assert answer.status == 200
    return took_s, len(body)


def scrapes(partitions: int, folder: Path) -> dict[str, Any]:
    """The numbers of scrapes of so many partitions."""
    broker = WithMetrics(folder)
    broker.start()
    try:
        with Wire(broker.port) as wire:
            for number in range(partitions // TOPIC_PARTITIONS):
                wire.create_topic(f"many-{number}", TOPIC_PARTITIONS)
        scrape_port = broker.metrics_port
        time.sleep(1)
        idle = Probe(broker.port)
        with idle.running():
            time.sleep(PROBE_S)
        before_mb = broker.rss_mb()
        scrape(scrape_port)
        cpu_s = broker.cpu_seconds()
        took_alone_s = [scrape(scrape_port)[0] for _ in range(SCRAPES)]
        cpu_s = (broker.cpu_seconds() - cpu_s) / SCRAPES
        busy, took_s, size_bytes = Probe(broker.port), [], 0
        with busy.running():
            for _ in range(SCRAPES):
                seconds, size_bytes = scrape(scrape_port)
                took_s.append(seconds)
                time.sleep(PROBE_S / SCRAPES)
        return {
            "partitions": partitions,
            "processor_ms": round(cpu_s * 1000, 1),
            "scrape_ms": round(statistics.median(took_alone_s) * 1000, 1),
            "scrape_beside_a_busy_client_ms": round(statistics.median(took_s) * 1000, 1),
            "size_bytes": size_bytes,
            "more_memory_mb": round(broker.rss_mb() - before_mb, 1),
            "waits_without_scrapes": idle.shown(),
            "waits_with_scrapes": busy.shown(),
        }
    finally:
        broker.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.metrics", description=__doc__.partition("\n")[0])
    parser.add_argument("--without", type=Path, metavar="TREE")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.8)
    parser.add_argument("--partitions", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        results: dict[str, Any] = {"machine": machine(), "load": os.getloadavg()[0]}
        results["scrapes"] = scrapes(options.partitions, folder / "scraped")
        if options.without is not None:
            results["cost"] = cost(options.without.resolve(), options.rounds, options.seconds, folder)
    rows = [["processor time for each request", "counting", "not counting", "ratio"]]
    rows += [
        [
            row["workload"],
            f"{row['now_us']:.2f} µs",
            f"{row['without_us']:.2f} µs",
            f"{row['now_us'] / row['without_us']:.3f}",
        ]
        for row in results.get("cost", ())
    ]
    scraped = results["scrapes"]
    more = [["scrapes", ""]]
    more += [[name.replace("_", " "), str(value)] for name, value in scraped.items()]
    print(f"{aligned(rows)}\n\n{aligned(more)}")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "metrics.json").write_text(json.dumps(results, indent=1) + "\n")
    head = f"Machine: {results['machine']}, load average {results['load']:.1f}.\n\n{NOTE}"
    (RESULTS / "metrics.md").write_text(f"# Metrics\n\n{head}\n\n{markdown(rows)}\n\n{markdown(more)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
