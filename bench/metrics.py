"""What metrics cost: a broker that counts beside one of an earlier tree that does not, and scrapes of 10,000 partitions.

    python -m bench.metrics [--before TREE] [--rounds 5] [--seconds 3] [--partitions 10000]

TREE is a checkout of a version that counts nothing (5c776ec), with its extensions built (`setup.py build_ext --inplace`).
Both brokers run at the same time and get the same load in turns. Without --before, only scrapes are measured.
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
    Workload("consume", KIB, 64 * KIB, 1, 1, 1),
)
TOPIC_PARTITIONS: Final = 100
SCRAPES: Final = 10
PROBE_S: Final = 3.0
NOTE: Final = (
    "*Throughput* and *processor time* (of the broker, for each request) with counting, as a share of those without: "
    "medians of the rounds' ratios. *Longest wait*: of a client that asks for the API versions again and again."
)


class FromTree(Barnabas):
    """A broker of another checkout."""

    name = "before"
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
        found = re.search(r"service=metrics url=http://127\.0\.0\.1:(\d+)", self.log_path.read_text())
        assert found is not None
        return int(found[1])


def cost(tree: Path, rounds: int, seconds: float, folder: Path) -> list[dict[str, Any]]:
    """For each workload, the ratios of a broker that counts to one that does not."""
    FromTree.tree = tree
    brokers = [Barnabas(folder / "now"), FromTree(folder / "before")]
    pace = Pace(1.0, seconds, seconds, touch_bytes=300_000_000)
    for broker in brokers:
        broker.start()
    found = []
    try:
        for workload in WORKLOADS:
            ratios = []
            for number in range(rounds + 1):  # the first one warms up
                made = {
                    broker.name: sample(workload, broker, pace)
                    for broker in (brokers if number % 2 else brokers[::-1])
                }
                if number:
                    ratios.append(_ratio(made["barnabas"], made["before"]))
            value, cpu = (statistics.median(column) for column in zip(*ratios, strict=True))
            found.append({"workload": workload.name, "throughput": value, "cpu": cpu, "rounds": ratios})
            print(f"{workload.name}: throughput {value:.3f}, processor time {cpu:.3f}", flush=True)
    finally:
        for broker in brokers:
            broker.stop()
    return found


def _ratio(now: dict[str, Any], before: dict[str, Any]) -> tuple[float, float]:
    per_unit = [found["broker_cpu_seconds"] / (found["value"] * found["seconds"]) for found in (now, before)]
    return now["value"] / before["value"], per_unit[0] / per_unit[1]


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
    made = argparse.ArgumentParser(prog="python -m bench.metrics", description=__doc__.partition("\n")[0])
    made.add_argument("--before", type=Path, metavar="TREE")
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--seconds", type=float, default=3.0)
    made.add_argument("--partitions", type=int, default=10_000)
    options = made.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        found: dict[str, Any] = {"machine": machine(), "load": os.getloadavg()[0]}
        found["scrapes"] = scrapes(options.partitions, folder / "scraped")
        if options.before is not None:
            found["cost"] = cost(options.before.resolve(), options.rounds, options.seconds, folder)
    rows = [["", "throughput", "processor time"]]
    rows += [
        [row["workload"], f"{row['throughput']:.3f}", f"{row['cpu']:.3f}"] for row in found.get("cost", ())
    ]
    scraped = found["scrapes"]
    more = [["scrapes", ""]]
    more += [[name.replace("_", " "), str(value)] for name, value in scraped.items()]
    print(f"{aligned(rows)}\n\n{aligned(more)}")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "metrics.json").write_text(json.dumps(found, indent=1) + "\n")
    head = f"Machine: {found['machine']}, load average {found['load']:.1f}.\n\n{NOTE}"
    (RESULTS / "metrics.md").write_text(f"# Metrics\n\n{head}\n\n{markdown(rows)}\n\n{markdown(more)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
