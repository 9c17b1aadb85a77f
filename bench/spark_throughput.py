"""Spark between topics: our source, sink and processing beside Spark's JVM connector and confluent-kafka by rows.

    python -m bench.spark_throughput [--quick] [--bootstrap HOST:PORT] [--only read,write,chain,latency,start]

Without --bootstrap a Barnabas broker is started. One Spark session with two tasks at a time (local[2]) runs the same
queries through each format in interleaved rounds: a topic of 200 B records into nothing, rows that Spark makes up
into a topic, the access-log example's steps, and, record by record, from a librdkafka producer through a streaming
query to a librdkafka consumer. Starts of a session are measured in processes of their own. See README.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka as ck  # type: ignore[import-untyped]
import pyarrow as pa

from barnabas.client.blocking import BlockingClient, NewTopic
from barnabas.client.producing import ProduceStream
from barnabas.pipelines.formats.columns import append_batch
from barnabas.pipelines.spark.session.class_archive import build_archive
from barnabas.pipelines.spark.session.start import choose_file_manager, is_local, start_session
from barnabas.records.columnar_encoder import BatchEncoder
from bench import spark_report
from bench.brokers import Barnabas, Unavailable
from bench.spark_report import CHAIN, LATENCY, OURS, READ, WRITE, SparkResults
from bench.spark_rivals import Confluent, connector_jars

RECORD_BYTES = 200
PARTITIONS = 2
ROOT = Path(__file__).parents[1]
LOG_FILE = ROOT / "examples" / "access_log" / "access.log"
PIPELINE = LOG_FILE.with_name("pipeline.yaml")
RESULTS = Path(__file__).parent / "results"
TRIGGER = "100 milliseconds"
RATE = 1_000
BY_ROWS_SHARE = 4
"""The format by rows gets a quarter of the records: at its speed the whole would only take longer."""
LINES_MIN = 400_000
"""With fewer log lines the start of a query is a good part of its time."""
WARM_BATCHES = 40
WARM_SECONDS_MAX = 30.0


@dataclass
class Plan:
    """How much is measured. records: of a read and a write; a third as many log lines. starts: of a session."""

    records: int = 2_000_000
    rounds: int = 4
    latency_rounds: int = 3
    latency_seconds: float = 6.0
    starts: int = 2
    only: frozenset[str] = field(default_factory=frozenset)

    def wants(self, name: str) -> bool:
        return not self.only or name in self.only


QUICK = Plan(records=500_000, rounds=2, latency_rounds=1, latency_seconds=5.0, starts=1)


@contextmanager
def bootstrap_of(address: str | None) -> Iterator[str]:
    """The address of the broker to measure against; one of our own when none is given."""
    if address:
        yield address
        return
    with tempfile.TemporaryDirectory() as folder:
        broker = Barnabas(Path(folder))
        broker.start()
        try:
            yield f"127.0.0.1:{broker.port}"
        finally:
            broker.stop()


def fill(bootstrap: str, topic: str, values: pa.Array, copies: int) -> int:
    """Makes the topic and writes `values` so many times; the number of records."""
    return fill_rows(bootstrap, topic, pa.record_batch({"value": values}), copies)


def fill_rows(bootstrap: str, topic: str, batch: pa.RecordBatch, copies: int) -> int:
    """Makes the topic and writes the rows of `batch` (value, key) so many times; the number of records."""
    with BlockingClient(bootstrap) as client:
        client.create_topics([NewTopic(topic, PARTITIONS)])
        producer_id, epoch = client.init_producer_id()
        encoder = BatchEncoder(
            PARTITIONS, producer_id=producer_id, producer_epoch=epoch, batch_bytes_max=250_000
        )
        stream = ProduceStream(client.cluster)
        for _ in range(copies):
            append_batch(encoder, batch, int(time.time() * 1000))
            stream.send(topic, encoder.take())
        stream.send(topic, encoder.flush())
        stream.flush()
        return stream.records


class Bench:
    """One session, one broker, some formats."""

    def __init__(self, spark: Any, bootstrap: str, formats: Sequence[str], plan: Plan) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.formats = list(formats)
        self.plan = plan
        self.results = SparkResults(list(formats))
        self.stamp = time.time_ns()
        self.sink_options: dict[str, str] = {}

    def topic(self, name: str) -> str:
        return f"bench-{name}-{self.stamp}"

    def source(self, format_name: str, topic: str, *, streaming: bool = False) -> Any:
        reader = (self.spark.readStream if streaming else self.spark.read).format(format_name)
        options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic}
        return reader.options(**options, startingOffsets="earliest").load()

    def share(self, format_name: str, count: int) -> int:
        return count // BY_ROWS_SHARE if format_name == Confluent.name() else count

    def sized(self, name: str, values: pa.Array, copies: int) -> dict[str, tuple[str, int]]:
        """(topic, records) for each format."""
        topics_by_count: dict[int, tuple[str, int]] = {}
        for count in {self.share(f, copies) for f in self.formats}:
            topic = self.topic(f"{name}-{count}")
            topics_by_count[count] = (topic, fill(self.bootstrap, topic, values, max(count, 1)))
        return {f: topics_by_count[self.share(f, copies)] for f in self.formats}

    def rounds(self, name: str, jobs: dict[str, tuple[int, Callable[[], Any]]]) -> None:
        """Runs each format's job once to warm up, then round by round; who goes first changes."""
        for number in range(-1, self.plan.rounds):
            rates_text = []
            for format_name in self.turn(number):
                count, job = jobs[format_name]
                begun = time.perf_counter()
                if not self.attempt(format_name, job):
                    continue
                rate = count / (time.perf_counter() - begun)
                rates_text.append(f"{format_name} {rate:,.0f}")
                if number >= 0:
                    self.results.add(name, format_name, number, rate)
            label = "warm-up" if number < 0 else f"{number + 1}/{self.plan.rounds}"
            print(f"[{label}] {name}: {', '.join(rates_text)}", flush=True)

    def turn(self, number: int) -> list[str]:
        """The formats in this round's order."""
        first = number % len(self.formats)
        return self.formats[first:] + self.formats[:first]

    def attempt(self, format_name: str, job: Callable[[], Any]) -> Any:
        """What the job gives, or True. A rival that fails is left out from then on, and the results say why."""
        try:
            return job() or True
        except Exception as error:
            if format_name == OURS:
                raise
            reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            self.results.skipped[format_name] = f"it failed: {reason[:200]}"
            self.formats.remove(format_name)
            print(f"without {format_name} from here on: {reason[:200]}", flush=True)
            return None

    def read(self) -> None:
        values = pa.array([bytes([33 + i % 90]) * RECORD_BYTES for i in range(10_000)])
        topics = self.sized("read", values, self.plan.records // len(values))
        jobs = {}
        for name, (topic, count) in topics.items():
            jobs[name] = (count, self.source(name, topic).write.format("noop").mode("overwrite").save)
        self.rounds(READ, jobs)

    def write(self) -> None:
        jobs = {}
        for name in self.formats:
            topic, count = self.topic(f"write-{name}"), self.share(name, self.plan.records)
            with BlockingClient(self.bootstrap) as client:
                client.create_topics([NewTopic(topic, PARTITIONS)])
            rows = self.spark.range(0, count, 1, 2).selectExpr(f"repeat('x', {RECORD_BYTES}) AS value")
            writer = rows.write.format(name).option("kafka.bootstrap.servers", self.bootstrap)
            jobs[name] = (count, writer.option("topic", topic).mode("append").save)
        self.rounds(WRITE, jobs)

    def chain(self) -> None:
        """The steps of the access-log example, the results thrown away."""
        from barnabas.pipelines.compiler.outputs import query_rows
        from barnabas.pipelines.fronts.yaml.spec import load_spec

        lines = pa.array(LOG_FILE.read_bytes().splitlines(), pa.binary())
        count = max(self.plan.records // 3, LINES_MIN)
        topics = self.sized("chain", lines, count // len(lines))
        spec = load_spec(PIPELINE)
        jobs = {}
        for name, (topic, count) in topics.items():
            parsed = query_rows(spec, spec.queries()[0], self.source(name, topic))
            jobs[name] = (count, parsed.write.format("noop").mode("overwrite").save)
        self.rounds(CHAIN, jobs)

    def latency(self) -> None:
        for number in range(self.plan.latency_rounds):
            latencies = []
            for name in self.turn(number):
                attempted = self.attempt(name, partial(self.pass_through, name, number))
                if not attempted:
                    continue
                took, phases = attempted
                middle, late = percentiles(took)
                self.results.add(LATENCY, name, number, middle, p99=late, phases=phases)
                latencies.append(f"{name} {middle:,.0f} / {late:,.0f}")
            print(f"[{number + 1}/{self.plan.latency_rounds}] {LATENCY}: {', '.join(latencies)}", flush=True)

    def pass_through(self, name: str, number: int) -> tuple[list[float], dict[str, float]]:
        """ms of each record from produce() to poll() through a query that copies a topic, once it is warm; and how
        long the parts of a micro-batch took (median ms)."""
        there, back = (f"{self.topic(f'{way}-{name}')}-{number}" for way in ("there", "back"))
        with BlockingClient(self.bootstrap) as client:
            client.create_topics([NewTopic(there, PARTITIONS), NewTopic(back, PARTITIONS)])
        with tempfile.TemporaryDirectory() as folder:
            choose_file_manager(self.spark, local=is_local(self.spark, folder))
            rows = self.source(name, there, streaming=True).select("key", "value")
            writer = rows.writeStream.format(name).option("kafka.bootstrap.servers", self.bootstrap)
            writer = writer.option("topic", back).option("checkpointLocation", f"{folder}/checkpoint")
            writer = writer.options(**self.sink_options)
            query = writer.trigger(processingTime=TRIGGER).start()
            try:
                with Listener(self.bootstrap, back) as listener:
                    begun = self.produce(there, query)
                    listener.wait_for_quiet()
                rows_read = [p["durationMs"] for p in query.recentProgress if p["numInputRows"]]
            finally:
                query.stop()
        phases = rows_read[-WARM_BATCHES:]
        names = (
            "latestOffset",
            "walCommit",
            "queryPlanning",
            "addBatch",
            "commitOffsets",
            "triggerExecution",
        )
        middles = {n: float(statistics.median([p.get(n, 0) for p in phases])) for n in names}
        return [(seen - sent) / 1e6 for sent, seen in listener.times if sent >= begun], middles

    def produce(self, topic: str, query: Any) -> int:
        """RATE records/s until the query is warm and then for the time of a sample; when the sample began (ns)."""
        producer = ck.Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})
        started = time.monotonic()
        until = begun = 0.0
        sent = 0
        while not until or time.monotonic() < until:
            for _ in range(RATE // 100):
                producer.produce(topic, b"%020d" % time.time_ns() + b"x" * (RECORD_BYTES - 20))
            producer.poll(0)
            sent += RATE // 100
            if not until and sent % (RATE // 2) == 0:
                error = query.exception()
                if error is not None:
                    raise RuntimeError(str(error)[:500])
                last = query.lastProgress
                warm = last is not None and last["batchId"] >= WARM_BATCHES
                if warm or time.monotonic() - started > WARM_SECONDS_MAX:
                    begun, until = time.time_ns(), time.monotonic() + self.plan.latency_seconds
            pause = started + sent / RATE - time.monotonic()
            if pause > 0:
                time.sleep(pause)
        producer.flush()
        return int(begun)


class Listener:
    """A librdkafka consumer in a thread. times: (sent, seen) in ns of each record."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.times: list[tuple[int, int]] = []
        self._consumer = ck.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "bench", "fetch.queue.backoff.ms": 5}
        )
        self._consumer.assign([ck.TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._consumer.close()

    def _listen(self) -> None:
        while not self._stopped.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and not message.error():
                self.times.append((int(message.value()[:20]), time.time_ns()))

    def wait_for_quiet(self) -> None:
        """Until nothing has come for a second."""
        while True:
            before = len(self.times)
            time.sleep(1.0)
            if len(self.times) == before:
                return


def percentiles(values: list[float]) -> tuple[float, float]:
    """Median and 99th percentile. Raises RuntimeError without values."""
    if not values:
        raise RuntimeError("no record came through")
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]


START_PROGRAM = """
import sys, time
from pathlib import Path
from barnabas.pipelines.spark.session.start import start_session
archive = Path(sys.argv[1]) if sys.argv[1] else None
begun = time.perf_counter()
spark = start_session("start", master="local[2]", archive=archive)
print(time.perf_counter() - begun)
spark.stop()
"""


def session_start(archive: Path | None) -> float:
    """Seconds to a session in a fresh process."""
    program = [sys.executable, "-c", START_PROGRAM, str(archive or "")]
    done = subprocess.run(program, capture_output=True, text=True, check=True, timeout=180)
    return float(done.stdout.split()[-1])


def measure_starts(plan: Plan, results: SparkResults) -> None:
    """Starts without and with the class archive. It is made afresh, but not in a quick run."""
    if plan.starts > 1:
        with tempfile.TemporaryDirectory() as folder:
            program = [sys.executable, "-m", "barnabas.pipelines.spark.session.start"]
            begun = time.perf_counter()
            subprocess.run(
                program, check=True, capture_output=True, env={**os.environ, "BARNABAS_CACHE": folder}
            )
            results.archive_seconds = time.perf_counter() - begun
    archive = build_archive()
    for _ in range(plan.starts):
        results.starts.setdefault("plain", []).append(session_start(None))
        if archive is not None:
            results.starts.setdefault("archive", []).append(session_start(archive))
    print("session start:", {k: [round(v, 1) for v in row] for k, row in results.starts.items()}, flush=True)


def run(address: str | None, plan: Plan) -> SparkResults:
    """Everything that the plan wants."""
    formats = [OURS, "kafka", Confluent.name()]
    skipped = {}
    jars: list[Path] = []
    version = ""
    try:
        version, jars = connector_jars()
    except Unavailable as reason:
        formats.remove("kafka")
        skipped["kafka"] = str(reason)
        print(f"without Spark's JVM connector: {reason}", flush=True)
    busy = round(os.getloadavg()[0], 1)
    # Spark's Python workers import this package.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with bootstrap_of(address) as bootstrap:
        conf = {"spark.jars": ",".join(map(str, jars))} if jars else {}
        spark = start_session("bench", master="local[2]", archive=build_archive(), conf=conf)
        spark.dataSource.register(Confluent)
        bench = Bench(spark, bootstrap, formats, plan)
        for name in [f for f in formats if f != OURS]:
            bench.attempt(name, partial(bench.source, name, "bench"))  # whether it goes with this Spark
        try:
            for name in filter(plan.wants, ("read", "write", "chain", "latency")):
                getattr(bench, name)()
        finally:
            spark.stop()
    results = bench.results
    results.skipped.update(skipped)
    results.settings = {
        "spark": pyspark_version(),
        "connector": version or "-",
        "records": plan.records,
        "rounds": plan.rounds,
        "load average before": busy,
    }
    if plan.wants("start"):
        measure_starts(plan, results)
    return results


def pyspark_version() -> str:
    import pyspark

    return str(pyspark.__version__)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bootstrap", help="a broker that runs; without it one is started")
    parser.add_argument("--quick", action="store_true", help="fewer records and rounds: 2 minutes, not 6")
    parser.add_argument("--records", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", default="", help="of: read, write, chain, latency, start")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    plan = QUICK if options.quick else Plan()
    plan.records = options.records or plan.records
    plan.rounds = options.rounds or plan.rounds
    plan.only = frozenset(filter(None, options.only.split(",")))
    results = run(options.bootstrap, plan)
    holds = spark_report.show(results)
    spark_report.write(results, options.out)
    try:
        spark_report.draw(results, options.out / "spark.png")
    except ImportError:
        print("no plot: matplotlib is not installed (pip install 'barnabas[bench]')")
    print(f"written to {options.out}: spark.md, spark.json, spark.png")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
