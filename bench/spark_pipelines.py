"""Whole pipelines to their ends: the access-log steps into two topics, a Delta table and PostgreSQL, and wide rows.

    python -m bench.spark_pipelines [--lines 1000000] [--rounds 3] [--only topics,delta,postgres,wide]

Every row runs a pipeline file as `barnabas pipeline run --once` does, in one Spark session with two tasks at a time
(local[2]), and counts the lines read per second from the start of the first query to the end of the last one. One line
in a hundred is no access log and goes to the dead letters. The row `topics` is also run through Spark's own Kafka
connector in Java: the same data frames, its source and its sink. The rows `JSON to JSON`, `topic to topic` and
`CSV to JSON` are run both ways: made directly, and by Spark's expressions, which a setting in the file asks for. See
README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from barnabas.client.blocking import BlockingClient, NewTopic
from barnabas.pipelines.compiler.outputs import query_rows
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.pipeline import PipelineSpec
from barnabas.pipelines.serving.run import run_pipeline
from barnabas.pipelines.spark.session.class_archive import build_archive
from barnabas.pipelines.spark.session.start import start_session
from bench.brokers import Unavailable
from bench.report import aligned, machine
from bench.spark_rivals import connector_jars
from bench.spark_throughput import LOG_FILE, PARTITIONS, RESULTS, ROOT, bootstrap_of, fill, fill_rows

STEPS = """
steps:
  - parse: {pattern: combined-log}
  - convert: {status: int, body_bytes_sent: long}
  - time: {field: time, format: "dd/MMM/yyyy:HH:mm:ss Z"}
  - drop: [ident, remote_user]
outputs:
"""
TOPICS = (
    STEPS
    + """
  - {topic: NAME-all, partitions: 2, key: remote_addr, headers: {status: status, method: method}}
  - topic: NAME-paths
    partitions: 2
    key: path
    value: "concat_ws(' ', method, path, status)"
    headers: {agent: user_agent}
"""
)
DELTA = STEPS + "  - files: {path: FOLDER/table}\n"
POSTGRES = STEPS + '  - database: {url: "DATABASE", table: lines}\n'
TYPES = "{id: long, kind: string, user: string, price: double, quantity: int, at: timestamp, note: string}"
AFTER = """
  - filter: "quantity > 1 and kind <> 'none'"
  - set: {total: "price * quantity", who: "concat(upper(user), '-', kind)"}
outputs:
  - {topic: NAME-out, partitions: 2, key: user, route: {by: kind, topics: {order: NAME-orders, refund: NAME-refunds}}}
"""
OBJECTS = f"steps:\n  - parse: {{json: {TYPES}}}{AFTER}"
OBJECTS_TO_DELTA = f"steps:\n  - parse: {{json: {TYPES}}}\noutputs:\n  - files: {{path: FOLDER/table}}\n"
SEPARATED = f"steps:\n  - parse: {{csv: {TYPES}}}{AFTER}"
COPIES = """
steps:
  - metadata: {user: key}
  - filter: "user like 'user1%'"
  - drop: [user]
outputs:
  - {topic: NAME-out, partitions: 2}
"""
BY_SPARK = "spark: {spark.sql.session.timeZone: UTC}\n"
"""A setting that changes nothing, but says that the records are Spark's."""
SPARKS_PART = 6
"""Of the records, so many times fewer go through Spark's expressions: they take as much longer."""
WIDE_COLUMNS, WIDE_BYTES = 200, 100
BAD_EVERY = 100
EVERY = "topics,connector,delta,postgres,wide,objects,objects_to_delta,separated,copies"
BUDGETS = {
    "topics": 150_000.0,
    "postgres": 20_000.0,
    "JSON to JSON": 120_000.0,
    "CSV to JSON": 120_000.0,
    "topic to topic": 300_000.0,
    "JSON to Delta": 60_000.0,
}
"""Lines per second, on two cores."""
RATIO_MIN = 1.5
"""Of our way into two topics and the same through Spark's own connector."""


RECORDS = 10_000
"""The records of a generated topic that are different."""


def record_of(number: int) -> dict[str, Any]:
    """A record of 300 B in JSON."""
    return {
        "id": number,
        "kind": ("order", "refund", "visit", "none")[number % 4],
        "user": f"user{number * 7919 % 1000}",
        "price": number * 37 % 100_000 / 100,
        "quantity": number % 10,
        "at": f"2024-05-17T08:{number % 60:02d}:03.{number % 1000:03d}Z",
        "note": "n" * 100,
        "basket": {"items": [1, 2, 3], "shop": "north", "campaign": "x" * 20},
    }


def is_kept(record: dict[str, Any]) -> bool:
    """Whether a record passes the filter."""
    return bool(record["quantity"] > 1 and record["kind"] != "none")


class Bench:
    """One session, one broker. rates: lines per second of each round by row."""

    def __init__(self, spark: Any, bootstrap: str, lines: int, rounds: int) -> None:
        self.spark, self.bootstrap, self.rounds = spark, bootstrap, rounds
        self.stamp = time.time_ns()
        values = LOG_FILE.read_bytes().splitlines()
        values[::BAD_EVERY] = [b"no access log"] * len(values[::BAD_EVERY])
        self.topic = f"bench-lines-{self.stamp}"
        self.lines = fill(bootstrap, self.topic, pa.array(values, pa.binary()), max(lines // len(values), 1))
        self.rates: dict[str, list[float]] = {}

    def spec(self, name: str, text: str, topic: str) -> PipelineSpec:
        return parse_spec(f"pipeline: {name}\nsource: {{topic: {topic}}}\n{text.replace('NAME', name)}")

    def run(
        self, row: str, make: Callable[[str, str], PipelineSpec], count: int, kept: int | None = None
    ) -> None:
        """A warm-up, then round by round; each with a pipeline, a checkpoint and a folder of its own. kept: how many records
        pass its filter."""
        for number in range(-1, self.rounds):
            with tempfile.TemporaryDirectory() as folder:
                name = f"bench-{row.replace(' ', '-').replace(',', '').replace(chr(39), '')}-{self.stamp}-{number + 1}"
                spec = make(name, folder)
                report = run_pipeline(
                    spec, once=True, bootstrap=self.bootstrap, checkpoint_dir=f"{folder}/checkpoints"
                )
            if report.rows != (count if kept is None else kept):
                raise RuntimeError(f"{row}: {report.rows} records of {count}")
            self.note(row, number, count, report.seconds)

    def note(self, row: str, number: int, count: int, seconds: float) -> None:
        label = "warm-up" if number < 0 else f"{number + 1}/{self.rounds}"
        print(f"[{label}] {row}: {count / seconds:,.0f} lines/s", flush=True)
        if number >= 0:
            self.rates.setdefault(row, []).append(count / seconds)

    def topics(self) -> None:
        self.run("topics", lambda name, _: self.spec(name, TOPICS, self.topic), self.lines)

    def connector(self) -> None:
        """The same data frames between Spark's own source and sink."""
        for number in range(-1, self.rounds):
            name = f"bench-jvm-{self.stamp}-{number + 1}"
            spec = self.spec(name, TOPICS, self.topic)
            with BlockingClient(self.bootstrap) as client:
                written = [topic for output in spec.outputs for topic in output.topics()]
                client.create_topics([NewTopic(topic, PARTITIONS) for topic in [*written, spec.dead_letters]])
            with tempfile.TemporaryDirectory() as folder:
                begun = time.perf_counter()
                for query in spec.queries():
                    reader = self.spark.readStream.format("kafka").option("includeHeaders", "true")
                    reader = reader.option("kafka.bootstrap.servers", self.bootstrap)
                    source = (
                        reader.option("subscribe", self.topic).option("startingOffsets", "earliest").load()
                    )
                    writer = (
                        query_rows(spec, query, source)
                        .drop("origin", "timestamp")
                        .writeStream.format("kafka")
                    )
                    writer = writer.option("kafka.bootstrap.servers", self.bootstrap)
                    writer = writer.option("checkpointLocation", folder).trigger(availableNow=True)
                    writer.start().awaitTermination()
                seconds = time.perf_counter() - begun
            self.note("topics, Spark's JVM connector", number, self.lines, seconds)

    def delta(self) -> None:
        self.run("delta", lambda name, f: self.spec(name, DELTA.replace("FOLDER", f), self.topic), self.lines)

    def postgres(self) -> None:
        with postgres_server() as (url, execute):
            execute(
                "CREATE TABLE lines (remote_addr text, time timestamptz, method text, path text, protocol text, "
                "status int, body_bytes_sent bigint, referer text, user_agent text)"
            )
            text = POSTGRES.replace("DATABASE", url)
            self.run("postgres", lambda name, _: self.spec(name, text, self.topic), self.lines)

    def both(
        self, row: str, text: str, values: list[bytes], kept: int, keys: list[bytes] | None = None
    ) -> None:
        """A row made directly and, with fewer records, by Spark's expressions. kept: of `values`, how many pass."""
        for label, part, more in ((row, 1, ""), (f"{row}, Spark's expressions", SPARKS_PART, BY_SPARK)):
            copies = max(self.lines // len(values) // part, 1)
            topic = f"bench-{row.replace(' ', '-')}-{part}-{self.stamp}"
            columns = {"value": pa.array(values, pa.binary())}
            if keys is not None:
                columns["key"] = pa.array(keys, pa.binary())
            count = fill_rows(self.bootstrap, topic, pa.record_batch(columns), copies)

            def make(name: str, _: str, more: str = more, topic: str = topic) -> PipelineSpec:
                return self.spec(name, more + text, topic)

            self.run(label, make, count, copies * kept)

    def objects(self) -> None:
        """JSON of 300 B: parse, filter, two computed fields, route."""
        records = [record_of(number) for number in range(RECORDS)]
        values = [json.dumps(record, separators=(",", ":")).encode() for record in records]
        self.both("JSON to JSON", OBJECTS, values, sum(map(is_kept, records)))

    def objects_to_delta(self) -> None:
        """The same records into a Delta table."""
        values = [json.dumps(record_of(number)).encode() for number in range(RECORDS)]
        topic = f"bench-objects-{self.stamp}"
        count = fill(self.bootstrap, topic, pa.array(values, pa.binary()), max(self.lines // RECORDS, 1))
        text = OBJECTS_TO_DELTA
        self.run("JSON to Delta", lambda name, f: self.spec(name, text.replace("FOLDER", f), topic), count)

    def separated(self) -> None:
        """The same records as lines of CSV."""
        records = [record_of(number) for number in range(RECORDS)]
        values = [",".join(map(str, list(record.values())[:7])).encode() for record in records]
        self.both("CSV to JSON", SEPARATED, values, sum(map(is_kept, records)))

    def copies(self) -> None:
        """A filter on the key, and records that stay as they are."""
        records = [record_of(number) for number in range(RECORDS)]
        values = [json.dumps(record).encode() for record in records]
        keys = [str(record["user"]).encode() for record in records]
        self.both("topic to topic", COPIES, values, sum(key.startswith(b"user1") for key in keys), keys)

    def wide(self) -> None:
        """Objects of 200 fields, 20 KB each, into a topic, every field declared."""
        record = {f"field_{n}": f"{n:03d}" + "x" * (WIDE_BYTES - 16) for n in range(WIDE_COLUMNS)}
        value = json.dumps(record).encode()
        topic, count = f"bench-wide-{self.stamp}", max(self.lines // 100, 1_000)
        count = fill(self.bootstrap, topic, pa.array([value] * 100, pa.binary()), max(count // 100, 1))
        fields = ", ".join(f"{name}: string" for name in record)
        output = "{topic: NAME-out, partitions: 2, headers: {a: field_1}}"
        text = f"steps: [parse: {{json: {{{fields}}}}}]\noutputs: [{output}]"
        self.run("wide", lambda name, _: self.spec(name, text, topic), count)


@contextmanager
def postgres_server() -> Iterator[tuple[str, Callable[[str], None]]]:
    """A server of Debian's package over a folder of its own: its URL, and what runs a statement in it."""
    import psycopg

    servers = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not servers:
        raise Unavailable("no PostgreSQL server: apt install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="barnabas-pg-"))
    user = "nobody" if os.getuid() == 0 else None
    if user:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)

    def call(program: str, *arguments: str) -> None:
        command = [str(servers[-1].with_name(program)), "-D", str(folder / "data"), *arguments]
        subprocess.run(command, user=user, cwd=folder, check=True, stdout=subprocess.DEVNULL)

    port = 54_000 + os.getpid() % 1_000
    url = f"postgresql+psycopg://me@127.0.0.1:{port}/postgres"

    def execute(sql: str) -> None:
        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            connection.execute(sql)

    try:
        call("initdb", "-U", "me", "-A", "trust", "--no-sync")
        call(
            "pg_ctl", "-o", f"-p {port} -k {folder} -c listen_addresses=127.0.0.1", "-l", "log", "-w", "start"
        )
        try:
            yield url, execute
        finally:
            call("pg_ctl", "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def table(rates: dict[str, list[float]]) -> list[list[str]]:
    """A line per row: median, and the budget."""
    rows = [["pipeline", "lines/s", "goal", ""]]
    for row, rates_of_row in rates.items():
        middle, goal = statistics.median(rates_of_row), BUDGETS.get(row)
        holds = "" if goal is None else "holds" if middle >= goal else "BROKEN"
        rows.append([row, f"{middle:,.0f}", "-" if goal is None else f"{goal:,.0f}", holds])
    for row, rates_of_row in rates.items():
        if slow := rates.get(f"{row}, Spark's expressions"):
            rows.append(
                [
                    f"{row}: direct / Spark's",
                    f"{statistics.median(rates_of_row) / statistics.median(slow):.2f}",
                    "-",
                    "",
                ]
            )
    ours, theirs = rates.get("topics"), rates.get("topics, Spark's JVM connector")
    if ours and theirs:
        ratio = statistics.median(ours) / statistics.median(theirs)
        rows.append(
            [
                "topics: ours / connector",
                f"{ratio:.2f}",
                f"{RATIO_MIN}",
                "holds" if ratio >= RATIO_MIN else "BROKEN",
            ]
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bootstrap", help="a broker that runs; without it one is started")
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=EVERY)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    # Spark's Python processes would compile every module at each start, some seconds of the first core.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    jars: list[Path] = []
    wanted = options.only.split(",")
    busy = round(os.getloadavg()[0], 1)
    try:
        _, jars = connector_jars()
    except Unavailable as reason:
        print(f"without Spark's JVM connector: {reason}", flush=True)
        wanted = [name for name in wanted if name != "connector"]
    with bootstrap_of(options.bootstrap) as bootstrap:
        conf = {"spark.jars": ",".join(map(str, jars))} if jars else {}
        spark = start_session("bench", master="local[2]", archive=build_archive(), conf=conf)
        bench = Bench(spark, bootstrap, options.lines, options.rounds)
        try:
            for name in wanted:
                try:
                    getattr(bench, name)()
                except Unavailable as reason:
                    print(f"without {name}: {reason}", flush=True)
        finally:
            spark.stop()
    rows = table(bench.rates)
    print(aligned(rows))
    place = options.out / "spark_pipelines.json"
    before = json.loads(place.read_text())["rates"] if place.exists() else {}
    result = {
        "machine": machine(),
        "load average before": busy,
        "lines": bench.lines,
        "rates": before | bench.rates,
    }
    place.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if any(row[-1] == "BROKEN" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
