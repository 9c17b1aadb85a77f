"""The SQL server: how soon it is ready, how soon a statement runs, what lookups take, and what many statements cost.

    python -m bench.sql [--statements 10,50] [--lookups 2000]

A broker and a server (`barnabas sql start`) of its own are started for each row. Linux only: /proc says what memory is
shared. See README.md.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka as ck  # type: ignore[import-untyped]

from barnabas.client.blocking import LATEST, BlockingClient, NewTopic
from bench.brokers import Barnabas, free_port
from bench.lookups import percentiles
from bench.many_pipelines import Server, costs, cpu_over
from bench.report import aligned, machine, markdown
from bench.requests import BenchError

RESULTS = Path(__file__).parent / "results"
CUSTOMERS = 1_000
RECORDS = 10_000
WAIT_S = 600
SETTLE_S = 10
QUERIES = {
    "filter": "CREATE STREAM {name} WITH (kafka_topic='{name}', partitions=1) AS SELECT customer, amount * 2 AS twice "
    "FROM orders WHERE amount >= 0 EMIT CHANGES;",
    "totals": "CREATE TABLE {name} WITH (kafka_topic='{name}', partitions=1) AS SELECT customer, COUNT(*) AS n, "
    "SUM(amount) AS total FROM orders GROUP BY customer EMIT CHANGES;",
}
"""Every second statement is the first one, the others are the second."""
NOTE = (
    "*Ready*: from the start of the command to its line `ready`. *First rows*: from the request with the statement until "
    "its first record is in its topic, in a server that runs (median and slowest of all statements of the row, which are "
    "sent one after the other). *Memory*: of the server, its Java process and its workers, with shared pages divided among "
    "those that share them (PSS), after a while without records. *Lookups*: `SELECT ... WHERE key = ...` over `/query` on "
    "one kept connection, one after the other, in ms."
)


class SqlServer(Server):
    """`barnabas sql start` in a process of its own."""

    words = ("sql", "start", "--data")

    def statement(self, text: str) -> None:
        """Raises BenchError."""
        properties = {"auto.offset.reset": "earliest"}
        self.call("POST", "/ksql", json.dumps({"ksql": text, "streamsProperties": properties}))


def fill(bootstrap: str) -> None:
    """The source, with its records."""
    with BlockingClient(bootstrap) as client:
        client.create_topics([NewTopic("orders", 1)])
    producer = ck.Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        key = f"customer-{number % CUSTOMERS:04}"
        producer.produce("orders", json.dumps({"amount": number % 100}), key)
        producer.poll(0)
    producer.flush(30)


def until(is_so: Callable[[], bool], what: str) -> None:
    """Raises BenchError if it takes too long."""
    give_up = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > give_up:
            raise BenchError(f"not within {WAIT_S} s: {what}")
        time.sleep(0.02)


def has_rows(client: BlockingClient, topic: str) -> bool:
    if topic not in client.topics():
        return False
    return client.list_offsets({(topic, 0): LATEST})[topic, 0].offset > 0


def lookups(server: SqlServer, table: str, count: int) -> dict[str, float]:
    """Lookups by key: their latencies. Raises BenchError."""
    pick, took = random.Random(5), []
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for _ in range(count):
        text = f"SELECT * FROM {table} WHERE customer = 'customer-{pick.randrange(CUSTOMERS):04}';"
        begun = time.monotonic()
        connection.request("POST", "/query", json.dumps({"ksql": text}), {"content-type": "application/json"})
        raw = connection.getresponse().read()
        took.append(time.monotonic() - begun)
        if b'"row"' not in raw:
            raise BenchError(f"{text} answered {raw.decode()[:300]}")
    connection.close()
    return percentiles(took)


def measure(count: int, asked: int) -> dict[str, Any]:
    """A row: so many statements in one server. Raises BenchError."""
    row: dict[str, Any] = {"statements": count, "load average": round(os.getloadavg()[0], 1)}
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as place:
        folder = Path(place)
        broker = Barnabas(folder / "broker")
        broker.start()
        try:
            bootstrap = f"127.0.0.1:{broker.port}"
            fill(bootstrap)
            server = SqlServer(folder, bootstrap)
            row["ready_s"] = server.start_seconds
            try:
                row |= statements(server, broker, bootstrap, count, asked)
            finally:
                server.stop()
            server = SqlServer(folder, bootstrap)
            row["again_s"] = server.start_seconds
            try:
                row["lookups_again"] = lookups(server, "totals1", asked)
            finally:
                server.stop()
        finally:
            broker.stop()
    return row


def statements(server: SqlServer, broker: Barnabas, bootstrap: str, count: int, asked: int) -> dict[str, Any]:
    """Sends the statements, and measures what they cost. Raises BenchError."""
    server.statement(
        "CREATE STREAM orders (customer STRING KEY, amount INT) WITH (kafka_topic='orders', value_format='JSON');"
    )
    first_rows = []
    with BlockingClient(bootstrap) as client:
        for number in range(count):
            kind = list(QUERIES)[number % 2]
            name, begun = f"{kind}{number}", time.monotonic()
            server.statement(QUERIES[kind].format(name=name))
            until(partial(has_rows, client, name), name)
            first_rows.append(time.monotonic() - begun)
            print(f"{name}: rows after {first_rows[-1]:.2f} s", flush=True)
    time.sleep(SETTLE_S)
    cpu = cpu_over(20, server, broker)
    cost = costs(server, broker)
    return {
        "first_rows_s": statistics.median(first_rows),
        "first_rows_max_s": max(first_rows),
        "mb": {role: cost[role]["mb"] for role in ("driver", "java", "workers")},
        "processes": {role: cost[role]["processes"] for role in ("driver", "java", "workers")},
        "cpu": sum(used for role, used in cpu.items() if role != "broker"),
        "lookups": lookups(server, "totals1", asked),
    }


class WithSql(Barnabas):
    """`barnabas start --with sql`."""

    name = "with-sql"

    def command(self) -> list[str]:
        return [*super().command(), "--with", "sql", "--sql-listen", f"127.0.0.1:{free_port()}"]


def with_broker() -> float:
    """Seconds until `barnabas start --with sql` is ready. Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as place:
        broker = WithSql(Path(place))
        try:
            broker.start()
        finally:
            broker.stop()
        return broker.start_seconds


def table(rows: list[dict[str, Any]]) -> list[list[str]]:
    head = [
        "statements",
        "ready",
        "ready again",
        "first rows",
        "slowest",
        "driver, MB",
        "Java, MB",
        "workers, MB",
        "sum, MB",
    ]
    head += ["CPU idle", "lookup p50", "p99", "after a restart p50", "p99"]
    lines = [head]
    for row in rows:
        lines.append(
            [
                str(row["statements"]),
                f"{row['ready_s']:.1f} s",
                f"{row['again_s']:.1f} s",
                f"{row['first_rows_s']:.2f} s",
                f"{row['first_rows_max_s']:.2f} s",
                *(f"{row['mb'][role]:,.0f}" for role in ("driver", "java", "workers")),
                f"{sum(row['mb'].values()):,.0f}",
                f"{row['cpu']:.2f}",
                *(
                    f"{row[name][p]:.1f}"
                    for name in ("lookups", "lookups_again")
                    for p in ("p50_ms", "p99_ms")
                ),
            ]
        )
    return lines


def page(result: dict[str, Any]) -> str:
    """The results as a page."""
    rows = result["rows"]
    busy = ", ".join(f"{row['load average']:g}" for row in rows)
    lines = [
        "# SQL server",
        "",
        NOTE,
        "",
        markdown(table(rows)),
        "",
        f"`barnabas start --with sql`, broker and server in one process: ready after {result['with_broker_s']:.1f} s. "
        f"Load average of the machine before each row: {busy}.",
        "",
        ", ".join(f"{name}: {value}" for name, value in result["machine"].items()),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--statements", default="10,50", help="how many, one row each")
    parser.add_argument("--lookups", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    result: dict[str, Any] = {"machine": machine(), "with_broker_s": with_broker(), "rows": []}
    print(f"start --with sql: ready after {result['with_broker_s']:.2f} s", flush=True)
    for count in map(int, options.statements.split(",")):
        result["rows"].append(measure(count, options.lookups))
        print(aligned(table(result["rows"])), flush=True)
    (options.out / "sql.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.out / "sql.md").write_text(page(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
