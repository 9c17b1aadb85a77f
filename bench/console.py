"""The console beside a broker: searches in ten million records, by key with and without an index and by expression, what a
producer's acknowledgements take meanwhile, and pages over a thousand topics and groups.

    python -m bench.console [--records 10000000] [--topics 1000] [--groups 1000]

The console is a process of its own. See README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

import requests
from bench.report import aligned, machine, markdown

RESULTS = Path(__file__).parent / "results"
TOPIC = "searched"
PARTITIONS = 4
INDEX = "barnabas.key.index"
WAIT_S = 600
NOTE = (
    "Records with a key of their own (`customer-N`) and JSON of about 90 bytes, lz4, four partitions, "
    "segments of 1 GiB. *By key* goes to the one partition that the key hashes to, from the oldest record "
    "on; seconds are those of the HTTP request, the median of eleven keys over the whole topic. Filters "
    "go through one partition. *Everywhere* is the same in all four partitions. *Produce p99* is of "
    "acknowledged single records (acks=all) that another client sends meanwhile. *Pages* are answers of "
    "the API and of the HTML, the first and the median of ten."
)


def table(rows: list[dict[str, Any]]) -> list[list[str]]:
    """A head and rows, as the reports take them."""
    body = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row.values()] for row in rows]
    return [[name.replace("_", " ") for name in rows[0]], *body]


@contextlib.contextmanager
def process(*arguments: str) -> Iterator[str]:
    """A command of Barnabas; the word after `ready on`."""
    command = [sys.executable, "-m", "barnabas", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as started:
        assert started.stdout is not None
        try:
            line = started.stdout.readline()
            while line and not line.startswith("ready"):
                line = started.stdout.readline()
            yield line.split()[2].rstrip(",;:")
        finally:
            started.terminate()


def fill(bootstrap: str, count: int) -> None:
    """The records to be searched."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config={INDEX: "true"})])[TOPIC].result()
    producer = ck.Producer(
        {
            "bootstrap.servers": bootstrap, "partitioner": "murmur2", "compression.type": "lz4", "linger.ms": 50,
            "queue.buffering.max.messages": 2_000_000, "batch.size": 1 << 20,
        }
    )  # fmt: skip
    for number in range(count):
        value = (
            f'{{"customer":{number},"country":"{"DE" if number % 1000 == 0 else "FR"}","amount":{number % 997},'
            f'"note":"the order {number}"}}'
        )
        while True:
            try:
                producer.produce(TOPIC, value, f"customer-{number}")
                break
            except BufferError:
                producer.poll(0.2)
        if number % 50_000 == 0:
            producer.poll(0)
    producer.flush()


def index(bootstrap: str, wanted: bool) -> None:
    """Switch the topic's key index on or off."""
    entry = ConfigEntry(INDEX, "true" if wanted else "false", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def search(api: str, **query: Any) -> tuple[float, dict[str, Any]]:
    """(seconds, the answer). Goes on until the search is over."""
    begun = time.monotonic()
    at: dict[str, Any] = {}
    scanned = hits = 0
    while True:
        answer = requests.get(
            f"{api}/topics/{TOPIC}/records",
            params={"from": "oldest", "budget_ms": 30_000, "limit": 500, **query, **at},
            timeout=WAIT_S,
        ).json()
        scanned += answer["progress"]["scanned"]
        hits += len(answer["records"])
        if answer["next"] is None:
            return time.monotonic() - begun, {"scanned": scanned, "found": hits, "notes": answer["notes"]}
        at = {"at": answer["next"]}


def wait_for_index(api: str) -> float:
    """Seconds until nearly nothing is left to be indexed."""
    begun = time.monotonic()
    while time.monotonic() - begun < WAIT_S:
        _, answer = search(api, key="nobody", partitioner="all")
        notes = " ".join(answer["notes"])
        if "key index skipped" in notes and "not indexed yet" not in notes:
            break
        time.sleep(1)
    return time.monotonic() - begun


class Pings:
    """Another client: single records, one after the other, until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
        self._stop = threading.Event()
        self.seconds: list[float] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            self._producer.produce("pings", b"ping")
            self._producer.flush()
            self.seconds.append(time.monotonic() - begun)
            time.sleep(0.005)

    def p99_ms(self) -> float:
        """Stop; the 99th percentile."""
        self._stop.set()
        self._thread.join()
        return round(statistics.quantiles(self.seconds, n=100)[98] * 1000, 1)


def key_row(name: str, api: str, bootstrap: str, count: int, **query: Any) -> dict[str, Any]:
    pings = Pings(bootstrap)
    seconds, scanned = [], 0
    for number in range(11):
        took, answer = search(api, key=f"customer-{number * (count // 11)}", **query)
        assert answer["found"] == 1, answer
        seconds.append(took)
        scanned += answer["scanned"]
    return {
        "search": name,
        "seconds": round(statistics.median(seconds), 3),
        "slowest": round(max(seconds), 3),
        "records_read": scanned // 11,
        "records_per_second": "",
        "produce_p99_ms": pings.p99_ms(),
    }


def filter_row(name: str, api: str, bootstrap: str, text: str) -> dict[str, Any]:
    pings = Pings(bootstrap)
    took, answer = search(api, filter=text, partition=0)
    return {
        "search": name,
        "seconds": round(took, 3),
        "slowest": "",
        "records_read": answer["scanned"],
        "records_per_second": round(answer["scanned"] / took),
        "produce_p99_ms": pings.p99_ms(),
    }


def searches(bootstrap: str, api: str, count: int) -> list[dict[str, Any]]:
    quiet = Pings(bootstrap)
    time.sleep(5)
    rows: list[dict[str, Any]] = [
        {
            "search": "none", "seconds": 0, "slowest": "", "records_read": 0, "records_per_second": "",
            "produce_p99_ms": quiet.p99_ms(),
        }
    ]  # fmt: skip
    rows.append(key_row("by key, index", api, bootstrap, count))
    rows.append(key_row("by key everywhere, index", api, bootstrap, count, partitioner="all"))
    index(bootstrap, False)
    rows.append(key_row("by key, no index", api, bootstrap, count))
    index(bootstrap, True)
    rows.append(filter_row("amount = ... (JSON)", api, bootstrap, "amount = 996 AND country = 'XX'"))
    rows.append(filter_row("value LIKE ... (text)", api, bootstrap, "value LIKE '%order 77777 %'"))
    return rows


def crowd(bootstrap: str, topics: int, groups: int) -> None:
    """Many topics of ten partitions, and many groups with offsets in one of them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for begin in range(0, topics, 100):
        new_topics = [NewTopic(f"many-{n:04}", 10, 1) for n in range(begin, min(begin + 100, topics))]
        for future in admin.create_topics(new_topics).values():
            future.result()
    asked = []
    for number in range(groups):
        places = [ck.TopicPartition(f"many-{number % topics:04}", p, 0) for p in range(3)]
        offsets_of_group = ck.ConsumerGroupTopicPartitions(f"group-{number:04}", places)
        asked += admin.alter_consumer_group_offsets([offsets_of_group]).values()
        if len(asked) >= 50:
            for future in asked:
                future.result()
            asked = []
    for future in asked:
        future.result()


def page_rows(url: str) -> list[dict[str, Any]]:
    rows = []
    for name, path in (
        ("overview", ""), ("topics", "/topics"), ("groups", "/groups"), ("brokers", "/brokers"),
        ("one topic", "/topics/many-0007"),
    ):  # fmt: skip
        for kind, base in (("page", f"{url}/clusters/local"), ("API", f"{url}/api/v1/clusters/local")):
            seconds, size = [], 0
            for _ in range(11):
                begun = time.monotonic()
                answer = requests.get(base + path, timeout=WAIT_S)
                seconds.append(time.monotonic() - begun)
                answer.raise_for_status()
                size = len(answer.content)
            rows.append(
                {
                    "page": f"{name}, {kind}",
                    "first_ms": round(seconds[0] * 1000),
                    "median_ms": round(statistics.median(seconds[1:]) * 1000),
                    "kilobytes": round(size / 1024),
                }
            )
    return rows


def main() -> None:
    """Run everything and write bench/results/console.md and .json."""
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--groups", type=int, default=1_000)
    options = parser.parse_args()
    results: dict[str, Any] = {"machine": machine()}
    with (
        tempfile.TemporaryDirectory() as folder,
        process("start", "--data", folder, "--listen", "127.0.0.1:0") as bootstrap,
        process("console", "-b", bootstrap, "--listen", "127.0.0.1:0") as url,
    ):
        api = f"{url}/api/v1/clusters/local"
        fill(bootstrap, options.records)
        results["records"] = options.records
        results["indexed_after_s"] = round(wait_for_index(api), 1)
        results["index_bytes"] = sum(p.stat().st_size for p in Path(folder).rglob("*.keyindex"))
        results["log_bytes"] = sum(p.stat().st_size for p in Path(folder).rglob("*.log"))
        results["searches"] = searches(bootstrap, api, options.records)
        print(aligned(table(results["searches"])))
    with (
        tempfile.TemporaryDirectory() as folder,
        process("start", "--data", folder, "--listen", "127.0.0.1:0") as bootstrap,
    ):
        crowd(bootstrap, options.topics, options.groups)
        with process("console", "-b", bootstrap, "--listen", "127.0.0.1:0") as url:
            results["pages"] = page_rows(url)
            print(aligned(table(results["pages"])))
    (RESULTS / "console.json").write_text(json.dumps(results, indent=2) + "\n")
    sentence = (
        f"The index of {options.records:,} records has {results['index_bytes'] >> 10:,} KiB beside "
        f"{results['log_bytes'] >> 20:,} MiB of log, "
        f"and was complete {results['indexed_after_s']} s after the last record."
    )
    parts = ["# The console", NOTE, "## Searches", markdown(table(results["searches"])), sentence]
    title = f"## Pages, with {options.topics:,} topics of ten partitions and {options.groups:,} groups"
    parts += [
        title,
        markdown(table(results["pages"])),
        ", ".join(f"{k}: {v}" for k, v in results["machine"].items()),
    ]
    (RESULTS / "console.md").write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
