"""Connectors beside Apache Kafka's Connect worker: `python -m bench.connect --libs DIR [--rounds N] [--only NAME]`.

Load: one broker of Barnabas, and in each round first our worker, then Kafka's with the same job: the lines of a file into a
topic, rows of a topic into a table of PostgreSQL, changes of a table of PostgreSQL into a topic; then the memory of 20
connectors, and how long a connector takes to run in a running worker. Kafka's worker writes exactly once, as ours does;
`Kafka, at least once` is its default. DIR has the jars of bench/connect.xml:
`mvn -f bench/connect.xml dependency:copy-dependencies -DoutputDirectory=DIR`. Confluent's JDBC source and Elasticsearch sink
are in no public registry, so those have no rival here.
Goals: file source 2 x, JDBC 1.5 x, changes 1 x the rate of Kafka's; half its memory; a start under 2 s.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil  # type: ignore[import-untyped]
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.databases import Postgres

from barnabas import http_client
from bench.brokers import Barnabas, free_port
from bench.report import machine, markdown
from bench.requests import BenchError

TIMEOUT_S: Final = 300.0
CONNECTORS: Final = 20
STRING: Final = "org.apache.kafka.connect.storage.StringConverter"
JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
ROW: Final = {
    "type": "struct",
    "fields": [
        {"field": "id", "type": "int32", "optional": False},
        {"field": "name", "type": "string", "optional": False},
        {"field": "amount", "type": "double", "optional": False},
    ],
}


@dataclass
class Worker:
    """A Connect worker in a process of its own. name: in the table."""

    name: str
    url: str
    process: subprocess.Popen[bytes]

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """An answer as data."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        address = http_client.Address(self.url)
        answer = http_client.ask(address, method, path, data, headers, timeout_s=60)
        if answer.status >= 400:
            raise BenchError(f"{self.name}: {method} {path}: {answer.status} {answer.body[:500]!r}")
        return json.loads(answer.body) if answer.body else None

    def create(self, name: str, config: dict[str, str]) -> None:
        """A connector that is running when this returns."""
        self.call("PUT", f"/connectors/{name}/config", config)
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            with contextlib.suppress(BenchError):
                status = self.call("GET", f"/connectors/{name}/status")
                states = {task["state"] for task in status["tasks"]}
                if states == {"RUNNING"}:
                    return
                if "FAILED" in states:
                    raise SystemExit(f"{self.name}: {name}: {status}")
            if time.monotonic() > deadline:
                raise BenchError(f"{self.name}: {name} does not run")
            time.sleep(0.01)

    def delete(self, name: str) -> None:
        """Removes a connector."""
        self.call("DELETE", f"/connectors/{name}")

    def memory_mb(self) -> float:
        """Resident memory of the process and its children."""
        root = psutil.Process(self.process.pid)
        return float(sum(p.memory_info().rss for p in [root, *root.children(recursive=True)]) / 1e6)

    def cpu_s(self) -> float:
        """CPU time of the process and its children."""
        root = psutil.Process(self.process.pid)
        return float(sum(sum(p.cpu_times()[:2]) for p in [root, *root.children(recursive=True)]))


@contextlib.contextmanager
def running(name: str, command: list[str], url: str, log: Path) -> Iterator[Worker]:
    """A worker that answers, until the block ends."""
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    worker = Worker(name, url, process)
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while True:
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"{name} does not start: {log.read_text(errors='replace')[-2000:]}")
            with contextlib.suppress(Exception):
                worker.call("GET", "/connectors")
                break
            time.sleep(0.1)
        yield worker
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ours(bootstrap: str, folder: Path) -> contextlib.AbstractContextManager[Worker]:
    """Barnabas's worker."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "barnabas",
        "connect",
        "start",
        "-b",
        bootstrap,
        "--listen",
        f"127.0.0.1:{port}",
    ]
    return running("Barnabas", command, f"http://127.0.0.1:{port}", folder / "ours.log")


def kafkas(bootstrap: str, folder: Path, libs: Path, exact: str) -> contextlib.AbstractContextManager[Worker]:
    """Kafka's worker. exact: its exactly.once.source.support."""
    url = f"http://127.0.0.1:{free_port()}"
    group = f"kafka-{exact}"
    options_given = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "listeners": url,
        "key.converter": JSON,
        "value.converter": JSON,
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "offset.flush.interval.ms": "5000",
        "exactly.once.source.support": exact,
        **{f"{part}.storage.topic": f"{group}-{part}" for part in ("config", "offset", "status")},
        **{f"{part}.storage.replication.factor": "1" for part in ("config", "offset", "status")},
    }
    properties = folder / f"{group}.properties"
    properties.write_text("".join(f"{name}={text}\n" for name, text in options_given.items()))
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    command = ["java", "-Xmx1g", "-cp", f"{libs}/*", main, str(properties)]
    name = "Kafka" if exact == "enabled" else "Kafka, at least once"
    return running(name, command, url, folder / f"{group}.log")


class Rate:
    """How fast a count grows to a total, from its first hundredth on."""

    def __init__(self, total: int, count: Callable[[], int]) -> None:
        self.total, self.count = total, count

    def measure(self) -> float:
        """Per second. Raises BenchError."""
        marks: list[tuple[float, int]] = []
        deadline = time.monotonic() + TIMEOUT_S
        while not marks or marks[-1][1] < self.total:
            count = self.count()
            if count >= self.total // 100 and (not marks or marks[-1][1] != count):
                marks.append((time.monotonic(), count))
            if time.monotonic() > deadline:
                raise BenchError(f"{count} of {self.total} after {TIMEOUT_S:g} s")
            time.sleep(0.005)
        return (marks[-1][1] - marks[0][1]) / max(marks[-1][0] - marks[0][0], 1e-3)


@dataclass
class Bench:
    """libs: jars of Kafka's worker; None: without it. found: values by job and worker."""

    bootstrap: str
    folder: Path
    libs: Path | None
    postgres: Postgres | None
    records: int
    found: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    turn: int = 0

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self.reader = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "bench"})

    def note(self, job: str, worker: str, value: float) -> None:
        """Stores a value and shows it."""
        self.found.setdefault(job, {}).setdefault(worker, []).append(value)
        print(f"{self.turn} {job:<22} {worker:<22} {value:,.1f}", flush=True)

    def topic(self, name: str) -> str:
        """A new topic with one partition."""
        new_topic = NewTopic(name, 1, 1, config={"retention.ms": "-1"})
        for result in self.admin.create_topics([new_topic]).values():
            result.result()
        return name

    def end(self, topic: str) -> int:
        """The end offset of its partition, markers of transactions included."""
        return int(self.reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])

    def round(self, jobs: list[str]) -> None:
        """All jobs with all workers."""
        self.turn += 1
        makers: list[Callable[[], contextlib.AbstractContextManager[Worker]]] = [
            lambda: ours(self.bootstrap, self.folder)
        ]
        if self.libs is not None:
            libs = self.libs
            makers += [lambda: kafkas(self.bootstrap, self.folder, libs, "enabled")]
            makers += [lambda: kafkas(self.bootstrap, self.folder, libs, "disabled")]
        for make in makers:
            for job in jobs:
                with make() as worker:
                    mark = f"{job}-{self.turn}-{worker.name.replace(', ', '-').replace(' ', '-')}"
                    getattr(self, f"job_{job}")(worker, mark)

    def job_file(self, worker: Worker, mark: str) -> None:
        """Lines of 100 bytes."""
        file = self.folder / "lines"
        if not file.exists():
            file.write_text("".join(f"{number:099d}\n" for number in range(self.records)))
        topic, before = self.topic(mark), worker.cpu_s()
        config = {
            "connector.class": "FileStreamSource",
            "file": str(file),
            "topic": topic,
            "value.converter": STRING,
        }
        worker.create(mark, config)
        self.note("file source, lines/s", worker.name, Rate(self.records, lambda: self.end(topic)).measure())
        self.note("file source, us/line", worker.name, (worker.cpu_s() - before) / self.records * 1e6)

    def job_sink(self, worker: Worker, mark: str) -> None:
        """Records with schemas into rows."""
        assert self.postgres is not None
        topic, total = self.topic(mark), self.records // 5
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 20})
        for number in range(total):
            value = {"schema": ROW, "payload": {"id": number, "name": f"name {number}", "amount": number / 7}}
            producer.produce(topic, json.dumps(value).encode())
            producer.poll(0)
        producer.flush()
        table = f"t{self.turn}{len(self.found.get('JDBC sink, rows/s', {}))}{worker.name.count(',')}"
        url = f"jdbc:postgresql://127.0.0.1:{self.postgres.port}/postgres"
        common = {"topics": topic, "value.converter": JSON, "value.converter.schemas.enable": "true"}
        mine = {
            "connector.class": "JdbcSink", "connection.url": f"{url}?user=me", "auto.create": "true",
            "insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "id", "table.name.format": table,
        }  # fmt: skip
        theirs = {
            "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector", "connection.url": url,
            "connection.username": "me", "connection.password": "x", "schema.evolution": "basic", "insert.mode": "upsert",
            "primary.key.mode": "record_value", "primary.key.fields": "id", "collection.name.format": table,
            "batch.size": "3000", "use.reduction.buffer": "false",
            "consumer.override.max.poll.records": "3000",
        }  # fmt: skip
        worker.create(mark, {**common, **(mine if worker.name == "Barnabas" else theirs)})

        def count() -> int:
            tables = self.postgres.query(f"SELECT to_regclass('public.{table}')")  # type: ignore[union-attr]
            if tables[0][0] is None:
                return 0
            return int(self.postgres.query(f"SELECT count(*) FROM {table}")[0][0])  # type: ignore[union-attr]

        self.note("JDBC sink, rows/s", worker.name, Rate(total, count).measure())

    def job_changes(self, worker: Worker, mark: str) -> None:
        """Inserted rows as change events."""
        assert self.postgres is not None
        total, table = self.records // 2, "c_" + mark.replace("-", "_").lower()
        prefix = mark.lower()
        self.postgres.query(f"CREATE TABLE {table} (id int primary key, name text, amount double precision)")
        topic = self.topic(f"{prefix}.public.{table}")
        slot = table[:60]
        config = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput",
            "database.hostname": "127.0.0.1", "database.port": str(self.postgres.port), "database.user": "me",
            "database.password": "x", "database.dbname": "postgres", "topic.prefix": prefix, "slot.name": slot,
            "publication.name": slot, "publication.autocreate.mode": "filtered",
            "table.include.list": f"public.{table}", "snapshot.mode": "no_data", "slot.drop.on.stop": "true",
        }  # fmt: skip
        worker.create(mark, config)
        deadline = time.monotonic() + TIMEOUT_S
        while not self.postgres.query(
            f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{slot}' AND active"
        ):
            if time.monotonic() > deadline:
                raise BenchError(f"{worker.name}: no slot")
            time.sleep(0.1)
        for begin in range(0, total, 1000):
            self.postgres.query(
                f"INSERT INTO {table} SELECT n, 'name ' || n, n / 7.0 FROM generate_series({begin}, {begin + 999}) n"
            )
        self.note("changes, events/s", worker.name, Rate(total, lambda: self.end(topic)).measure())
        worker.delete(mark)

    def job_memory(self, worker: Worker, mark: str) -> None:
        """20 file sources, idle."""
        starts = []
        for number in range(CONNECTORS):
            file = self.folder / f"idle-{number}"
            file.write_text("a line\n")
            name = f"{mark}-{number}"
            begun = time.monotonic()
            worker.create(
                name,
                {
                    "connector.class": "FileStreamSource",
                    "file": str(file),
                    "topic": mark,
                    "value.converter": STRING,
                },
            )
            starts.append(time.monotonic() - begun)
        time.sleep(10)
        self.note("memory of 20, MB", worker.name, worker.memory_mb())
        self.note("start, s", worker.name, statistics.median(starts))


JOBS: Final = ("file", "sink", "changes", "memory")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--libs", type=Path)
    parser.add_argument("--only", action="append", choices=JOBS)
    options = parser.parse_args()
    jobs = list(options.only or JOBS)
    with tempfile.TemporaryDirectory() as text, contextlib.ExitStack() as stack:
        folder = Path(text)
        folder.chmod(0o755)
        broker = Barnabas(folder / "broker")
        broker.start()
        stack.callback(broker.stop)
        postgres = None
        if {"sink", "changes"} & set(jobs):
            (folder / "postgres").mkdir()
            postgres = Postgres(folder / "postgres", "wal_level=logical")
            stack.callback(postgres.stop, "immediate")
        bench = Bench(f"127.0.0.1:{broker.port}", folder, options.libs, postgres, options.records)
        for _ in range(options.rounds):
            bench.round(jobs)
    rows = [
        [
            "job",
            *dict.fromkeys(name for values in bench.found.values() for name in values),
            "Barnabas / Kafka",
        ]
    ]
    for job, by_worker in bench.found.items():
        medians = {name: statistics.median(values) for name, values in by_worker.items()}
        ratio = medians["Barnabas"] / medians["Kafka"] if "Kafka" in medians else None
        shown = [f"{medians[name]:,.1f}" if name in medians else "-" for name in rows[0][1:-1]]
        rows.append([job, *shown, "-" if ratio is None else f"{ratio:.2f}"])
    print(markdown(rows))
    print(machine())


if __name__ == "__main__":
    main()
