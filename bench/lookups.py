"""Lookups in views: a file with ten million keys, and lookups over HTTP beside a query that is busy, and beside an idle one.

    python -m bench.lookups [--keys 10000000] [--seconds 30] [--rate 500] [--records 20000]

The file is written by the code that applies micro-batches, without Spark. The server (`barnabas pipelines serve`) has one
pipeline: a count and a sum by customer, into a view. See README.md.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka as ck  # type: ignore[import-untyped]
import pyarrow as pa

from barnabas.client.blocking import BlockingClient, NewTopic
from barnabas.pipelines.views.columns import Column
from barnabas.pipelines.views.lookup import Asked, Reader
from barnabas.pipelines.views.store import Note, ViewFile, ViewShape, file_bytes
from bench.many_pipelines import Server, servers
from bench.report import aligned, machine, markdown
from bench.requests import BenchError

RESULTS = Path(__file__).parent / "results"
BATCH_ROWS = 100_000
CUSTOMERS = 100_000
THREADS = 4
NOTE = (
    "*File*: rows with a text key of 15 characters and three values, in micro-batches of 100,000 random keys, each a "
    "transaction that is on the disk; lookups by one key without HTTP. *Over HTTP*: lookups by key on four kept "
    "connections, sent at a fixed rate whether answers come or not, so a wait counts for all that wait; latency from when "
    "a lookup was due to its answer. *Oldest*: how long ago the oldest rows were written."
)
PIPELINE = """
pipeline: bench
source: {topic: orders}
steps: [parse: {json: {customer: string, amount: int}}]
outputs:
  - name: totals
    aggregate: {by: [customer], compute: {orders: count(*), total: sum(amount)}}
    view: {}
"""


def percentiles(seconds: list[float]) -> dict[str, float]:
    """p50, p95, p99 in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100)
    return {f"p{n}_ms": round(cuts[n - 1] * 1000, 3) for n in (50, 95, 99)}


def file_row(keys: int, folder: Path) -> dict[str, Any]:
    """Writes a file with so many keys, then looks some up in a fresh reader."""
    path = folder / "view.sqlite"
    columns = (
        Column("customer", "string", True),
        Column("orders", "bigint"),
        Column("total", "double"),
        Column("at", "timestamp"),
    )
    shape = ViewShape("bench/totals", "id", columns)
    order = list(range(keys))
    random.Random(7).shuffle(order)
    begun, cpu = time.monotonic(), time.process_time()
    for number in range(0, keys, BATCH_ROWS):
        ids = order[number : number + BATCH_ROWS]
        table = pa.table(
            {
                "customer": pa.array([f"customer-{n:06}" for n in ids]),
                "orders": pa.array(ids, pa.int64()),
                "total": pa.array([n / 4 for n in ids]),
                "at": pa.array([n * 1_000_000 for n in ids], pa.timestamp("us", "UTC")),
            }
        ).sort_by("customer")
        with ViewFile(path) as file, file.transaction():
            file.adopt(shape)
            stored = [column.stored(table[column.name]) for column in columns]
            file.put(shape, zip(*stored, strict=True))
            file.set_note(Note(number // BATCH_ROWS))
    seconds, busy = time.monotonic() - begun, time.process_time() - cpu
    begun = time.monotonic()
    reader = Reader(path)
    reader.find(Asked(("customer-000007",)))
    first = time.monotonic() - begun
    took = []
    for _ in range(2_000):
        begun = time.monotonic()
        found = reader.find(Asked((f"customer-{random.randrange(keys):06}",)))
        took.append(time.monotonic() - begun)
        if len(found.rows) != 1:
            raise BenchError("a key was not found")
    return {
        "keys": keys,
        "rows_per_second": round(keys / seconds),
        "cpu_us_per_row": round(busy / keys * 1e6, 2),
        "bytes_per_row": round(file_bytes(path) / keys, 1),
        "file_mb": file_bytes(path) >> 20,
        "first_lookup_ms": round(first * 1000, 2),
        **percentiles(took),
    }


class Feeding(threading.Thread):
    """Produces orders at a rate until it is stopped."""

    def __init__(self, address: str, rate: int) -> None:
        super().__init__(daemon=True)
        self.producer = ck.Producer({"bootstrap.servers": address, "linger.ms": 20})
        self.rate, self.sent, self.ended = rate, 0, threading.Event()

    def run(self) -> None:
        pick = random.Random(3)
        begun = time.monotonic()
        while not self.ended.wait(0.05):
            due = int((time.monotonic() - begun) * self.rate)
            for _ in range(min(due - self.sent, self.rate)):
                value = (
                    f'{{"customer": "customer-{pick.randrange(CUSTOMERS):06}", "amount": {self.sent % 100}}}'
                )
                self.producer.produce("orders", value)
                self.producer.poll(0)
                self.sent += 1
        self.producer.flush(30)


def load(port: int, rate: float, seconds: float) -> dict[str, Any]:
    """Lookups at a fixed rate: their latencies, how many failed, and how old the rows were."""
    took: list[float] = []
    ages: list[float] = []
    failed = [0]
    lock = threading.Lock()
    begun = time.monotonic() + 0.2

    def work(index: int) -> None:
        pick = random.Random(index)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        number = index
        while (due := begun + number / rate) < begun + seconds:
            time.sleep(max(due - time.monotonic(), 0))
            key = f"customer-{pick.randrange(CUSTOMERS):06}"
            connection.request("GET", f"/pipelines/bench/views/totals?key={key}")
            answer = connection.getresponse()
            raw = answer.read()
            done = time.monotonic() - due
            with lock:
                took.append(done)
                if answer.status != 200:
                    failed[0] += 1
                else:
                    ages.append(json.loads(raw)["as_of"]["seconds_ago"])
            number += THREADS
        connection.close()

    workers = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    spent = time.monotonic() - begun
    oldest = {"oldest_s": round(max(ages), 1) if ages else None}
    return {
        "lookups_per_second": round(len(took) / spent),
        "failed": failed[0],
        **percentiles(took),
        **oldest,
    }


def read_so_far(server: Server) -> int:
    """Records that the pipeline has read."""
    queries = server.call("GET", "/pipelines/bench")["queries"]
    return int(queries[0]["records"]) if queries else 0


def server_rows(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Lookups beside a busy query, and then beside an idle one."""
    rows = []
    with servers(folder) as (server, broker, _):
        address = f"127.0.0.1:{broker.port}"
        with BlockingClient(address) as client:
            client.create_topics([NewTopic("orders", 2)])
        feeding = Feeding(address, args.records)
        try:
            server.call("POST", "/pipelines", PIPELINE)
            feeding.start()
            give_up = time.monotonic() + 240
            while read_so_far(server) < 5 * args.records:
                if time.monotonic() > give_up:
                    raise BenchError("the pipeline reads nothing")
                time.sleep(0.5)
            before, at = read_so_far(server), time.monotonic()
            lookups = load(server.port, args.rate, args.seconds)
            read = (read_so_far(server) - before) / (time.monotonic() - at)
            rows.append(
                {
                    "beside": f"a query, {args.records:,} records/s sent",
                    "records_per_second": round(read),
                    **lookups,
                }
            )
            feeding.ended.set()
            feeding.join()
            while read_so_far(server) < feeding.sent and time.monotonic() < give_up + 240:
                time.sleep(0.5)
            idle = load(server.port, args.rate, args.seconds)
            rows.append({"beside": "an idle query", "records_per_second": 0, **idle})
        finally:
            feeding.ended.set()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--records", type=int, default=20_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as name:
        files = [file_row(keys, Path(name) / str(keys)) for keys in (args.keys // 10, args.keys) if keys]
        served = server_rows(args, Path(name))
    result = {"machine": machine(), "file": files, "http": served}
    (RESULTS / "lookups.json").write_text(json.dumps(result, indent=1) + "\n")
    (RESULTS / "lookups.md").write_text(page(files, served))
    print(aligned(table(files)), aligned(table(served)), sep="\n\n")
    return 0


def table(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Rows of figures, with their names as the head."""
    head = [name.replace("_", " ") for name in rows[0]]
    return [
        head,
        *[[f"{v:,}" if isinstance(v, (int, float)) else str(v) for v in row.values()] for row in rows],
    ]


def page(files: list[dict[str, Any]], served: list[dict[str, Any]]) -> str:
    """The results as a page."""
    lines = [
        "# Lookups in views",
        "",
        NOTE,
        "",
        "## File",
        "",
        markdown(table(files)),
        "",
        "## Over HTTP",
        "",
        markdown(table(served)),
        "",
        ", ".join(f"{name}: {value}" for name, value in machine().items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
