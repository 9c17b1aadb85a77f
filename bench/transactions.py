"""Transactions: Barnabas beside Apache Kafka, and the exactly-once sink of pipelines beside the same sink without.

    python -m bench.transactions [--quick] [--only brokers,reading,sink]

Both brokers run at a time and take turns, round by round, under the same clients (librdkafka). The sink copies a topic
through a streaming query in micro-batches of 100,000 records. See README.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka as ck  # type: ignore[import-untyped]
import pyarrow as pa

from barnabas.client.blocking import BlockingClient, NewTopic
from bench.brokers import ApacheKafka, Barnabas, Broker, running
from bench.report import aligned, machine, markdown

RESULTS = Path(__file__).parent / "results"
RECORD = b"x" * 200
PARTITIONS = 4
SIZES = (1, 10, 100, 1000)
MANY = 50
LARGE = 10_000
INTERVALS_S = (0.01, 0.1, 1.0)
BATCH_ROWS = 100_000
OURS, THEIRS = "barnabas", "kafka"
WITH, WITHOUT = "exactly once", "at least once"
COMMITTED, ALL = "read_committed", "read_uncommitted"
READINGS = 4
LOWER_IS_BETTER = ("ms",)
NOTE = (
    "Medians over the rounds, in which both take turns; a ratio is the median of the rounds' own ratios (more than 1: the "
    "first is better). Records of 200 B, librdkafka's producers and consumers in Python, one broker each."
)


@dataclass
class Plan:
    """seconds: of one sample. sink_records: of one copy."""

    rounds: int = 3
    seconds: float = 4.0
    records: int = 300_000
    sink_records: int = 2_000_000


QUICK = Plan(rounds=2, seconds=1.5, records=100_000, sink_records=600_000)


@dataclass
class Samples:
    """rows[row][subject]: a value per round."""

    rows: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, row: str, subject: str, value: float) -> None:
        self.rows.setdefault(row, {}).setdefault(subject, []).append(value)

    def table(self, first: str, second: str) -> list[list[str]]:
        lines = [["", first, second, f"x {second}"]]
        for row, by in self.rows.items():
            if first in by:
                middle = {name: statistics.median(values) for name, values in by.items()}
                pairs = list(zip(by[first], by.get(second, ()), strict=False))
                turned = any(word in row.split()[-1] for word in LOWER_IS_BETTER)
                ratios = [b / a if turned else a / b for a, b in pairs if a and b]
                lines.append(
                    [row, *(f"{middle[s]:,.0f}" if s in middle else "-" for s in (first, second)),
                     f"{statistics.median(ratios):.2f}" if ratios else "-"]
                )  # fmt: skip
        return lines


class Bench:
    """Both brokers, and what is measured of them."""

    def __init__(self, brokers: list[Broker], plan: Plan) -> None:
        self.brokers = brokers
        self.plan = plan
        self.samples = Samples()
        self.read = Samples()
        self.made = 0

    def topic(self, broker: Broker, partitions: int = PARTITIONS) -> str:
        self.made += 1
        name = f"t{self.made}"
        with BlockingClient(f"127.0.0.1:{broker.port}") as client:
            client.create_topics([NewTopic(name, partitions)])
        return name

    def producer(self, broker: Broker, **more: Any) -> Any:
        settings = {"linger.ms": 0, "enable.idempotence": True, "queue.buffering.max.messages": 500_000}
        return ck.Producer({"bootstrap.servers": f"127.0.0.1:{broker.port}", **settings, **more})

    def transactional(self, broker: Broker, name: str, **more: Any) -> Any:
        producer = self.producer(broker, **{"transactional.id": name, **more})
        producer.init_transactions(60)
        return producer

    def consumer(self, broker: Broker, topic: str, isolation: str = "read_committed", **more: Any) -> Any:
        consumer_made = ck.Consumer(
            {"bootstrap.servers": f"127.0.0.1:{broker.port}", "group.id": f"g-{topic}",
             "isolation.level": isolation, "enable.auto.commit": False, "fetch.queue.backoff.ms": 5, **more}
        )  # fmt: skip
        consumer_made.assign([ck.TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        return consumer_made

    def run(self, *, only_reading: bool = False) -> None:
        """Every row, round by round; only_reading: what has been committed, read both ways."""
        for number in range(self.plan.rounds):
            turn = self.brokers if number % 2 == 0 else self.brokers[::-1]
            for broker in turn:
                self.reading(broker)
            print(
                f"[{number + 1}/{self.plan.rounds}]\n{aligned(self.read.table(COMMITTED, ALL))}", flush=True
            )
        if not only_reading:
            self.writing()

    def writing(self) -> None:
        jobs: list[tuple[str, Callable[[Broker], float]]] = [
            (f"{size:,} records in a transaction, commits/s", lambda b, size=size: self.commits(b, size))
            for size in SIZES
        ]
        jobs += [
            (f"{MANY} producers, 1 record each, commits/s", self.many),
            (f"produce {LARGE:,} in a transaction, records/s", lambda b: self.produce(b, True)),
            ("produce idempotently, records/s", lambda b: self.produce(b, False)),
        ]
        for number in range(self.plan.rounds):
            turn = self.brokers if number % 2 == 0 else self.brokers[::-1]
            for row, job in jobs:
                for broker in turn:
                    self.samples.add(row, broker.name, job(broker))
            for broker in turn:
                for interval_s in INTERVALS_S:
                    middle, late = self.pass_through(broker, interval_s)
                    row = f"copied, a commit every {interval_s * 1000:,.0f} ms"
                    self.samples.add(f"{row}, p50 ms", broker.name, middle)
                    self.samples.add(f"{row}, p99 ms", broker.name, late)
            print(
                f"[{number + 1}/{self.plan.rounds}]\n{aligned(self.samples.table(OURS, THEIRS))}", flush=True
            )

    def commits(self, broker: Broker, size: int, name: str = "one", topic: str = "") -> float:
        topic = topic or self.topic(broker)
        producer = self.transactional(broker, f"{name}-{topic}")
        done, began = -3, time.perf_counter()  # the first ones warm up
        while done < 0 or time.perf_counter() - began < self.plan.seconds:
            producer.begin_transaction()
            for number in range(size):
                producer.produce(topic, RECORD, partition=number % PARTITIONS)
            producer.commit_transaction(60)
            done += 1
            if done == 0:
                began = time.perf_counter()
        return done / (time.perf_counter() - began)

    def many(self, broker: Broker) -> float:
        topic, rates = self.topic(broker), []
        threads = [
            threading.Thread(target=lambda n=n: rates.append(self.commits(broker, 1, f"m{n}", topic)))
            for n in range(MANY)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(rates)

    def produce(self, broker: Broker, in_transactions: bool) -> float:
        topic = self.topic(broker)
        producer = (
            self.transactional(broker, topic, **{"linger.ms": 5})
            if in_transactions
            else self.producer(broker, **{"linger.ms": 5})
        )
        began = time.perf_counter()
        for first in range(0, self.plan.records, LARGE):
            if in_transactions:
                producer.begin_transaction()
            for number in range(LARGE):
                producer.produce(topic, RECORD, partition=number % PARTITIONS)
            producer.poll(0)
            if in_transactions:
                producer.commit_transaction(60)
            elif first + LARGE >= self.plan.records:
                producer.flush(60)
        return self.plan.records / (time.perf_counter() - began)

    def reading(self, broker: Broker) -> None:
        """A topic of committed transactions of 100 records, read both ways."""
        topic = self.topic(broker)
        producer = self.transactional(broker, topic)
        count = self.plan.records
        for _ in range(0, count, 100):
            producer.begin_transaction()
            for number in range(100):
                producer.produce(topic, RECORD, partition=number % PARTITIONS)
            producer.commit_transaction(60)
        for reading in range(2 * READINGS):
            # Each way as often first as second; the first pair warms up.
            isolation = (COMMITTED, ALL)[(reading + reading // 2) % 2]
            consumer = self.consumer(broker, topic, isolation)
            seen, began = 0, 0.0
            while seen < count:
                messages = consumer.consume(10_000, 1)
                began = began or time.perf_counter()
                seen += sum(m.error() is None for m in messages)
            if reading >= 2:
                rate = count / (time.perf_counter() - began)
                self.read.add(f"{broker.name}, records/s", isolation, rate)
            consumer.close()

    def pass_through(self, broker: Broker, interval_s: float) -> tuple[float, float]:
        """ms of each record from produce() to poll() through a copier that commits every so often."""
        there, back = self.topic(broker), self.topic(broker)
        over = threading.Event()
        copier = threading.Thread(target=self.copy, args=(broker, there, back, interval_s, over))
        copier.start()
        reader = self.consumer(broker, back)
        source = self.producer(broker)
        times: list[float] = []
        until = time.monotonic() + max(self.plan.seconds, 3 * interval_s) + 1
        warm = time.monotonic() + 1
        while time.monotonic() < until:
            source.produce(there, b"%d" % time.time_ns(), partition=len(times) % PARTITIONS)
            source.poll(0)
            for message in reader.consume(100, 0.005):
                if message.error() is None and time.monotonic() > warm:
                    times.append((time.time_ns() - int(message.value())) / 1e6)
        over.set()
        copier.join()
        reader.close()
        times.sort()
        return times[len(times) // 2], times[len(times) * 99 // 100]

    def copy(self, broker: Broker, there: str, back: str, interval_s: float, over: threading.Event) -> None:
        consumer = self.consumer(broker, there)
        producer = self.transactional(broker, f"copy-{back}")
        while not over.is_set():
            messages = [m for m in consumer.consume(1, 0.1) if m.error() is None]
            if not messages:
                continue
            ends, end_s = {}, time.monotonic() + interval_s
            producer.begin_transaction()
            while messages or time.monotonic() < end_s:
                for message in messages:
                    producer.produce(back, message.value(), partition=message.partition())
                    ends[message.partition()] = message.offset() + 1
                left_s = end_s - time.monotonic()
                messages = (
                    [m for m in consumer.consume(500, min(left_s, 0.01)) if m.error() is None]
                    if left_s > 0
                    else []
                )
            offsets = [ck.TopicPartition(there, p, end) for p, end in ends.items()]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
            producer.commit_transaction(60)
        consumer.close()


def measure_sink(plan: Plan) -> Samples:
    """A copy of a topic in micro-batches of BATCH_ROWS, with and without transactions, by turns."""
    from barnabas.pipelines.spark.session.start import choose_file_manager, is_local, start_session
    from bench.spark_throughput import QUICK as SPARK_QUICK
    from bench.spark_throughput import Bench as SparkBench
    from bench.spark_throughput import fill

    samples = Samples()
    with tempfile.TemporaryDirectory() as folder:
        broker = Barnabas(Path(folder))
        broker.start()
        bootstrap = f"127.0.0.1:{broker.port}"
        spark = start_session("bench", master="local[2]")
        try:
            values = pa.array([bytes([33 + i % 90]) * len(RECORD) for i in range(10_000)])
            fill(bootstrap, "there", values, plan.sink_records // len(values))
            choose_file_manager(spark, local=is_local(spark, folder))
            for number in range(-1, plan.rounds):
                for way in (WITH, WITHOUT) if number % 2 == 0 else (WITHOUT, WITH):
                    took = _copied(spark, bootstrap, way, number, Path(folder))
                    if number >= 0:
                        for row, value in took.items():
                            samples.add(row, way, value)
            bench = SparkBench(spark, bootstrap, ["barnabas"], SPARK_QUICK)
            for number in range(plan.rounds):
                for way in (WITH, WITHOUT) if number % 2 == 0 else (WITHOUT, WITH):
                    bench.sink_options = {"exactlyOnce": str(way == WITH).lower()}
                    times, _ = bench.pass_through("barnabas", number * 2 + (way == WITH))
                    times.sort()
                    samples.add("1,000 records/s through a query, p50 ms", way, times[len(times) // 2])
                    samples.add("1,000 records/s through a query, p99 ms", way, times[len(times) * 99 // 100])
        finally:
            spark.stop()
            broker.stop()
    return samples


def _copied(spark: Any, bootstrap: str, way: str, number: int, folder: Path) -> dict[str, float]:
    """Records a second of a copy, by Spark's own times of its micro-batches; and the ms of one."""
    name = f"copy-{number}-{way.replace(' ', '-')}"
    with BlockingClient(bootstrap) as client:
        client.create_topics([NewTopic(name, 2)])
    query = (
        spark.readStream.format("barnabas")
        .options(
            **{"kafka.bootstrap.servers": bootstrap, "subscribe": "there", "startingOffsets": "earliest"}
        )
        .option("maxOffsetsPerTrigger", str(BATCH_ROWS))
        .load()
        .select("key", "value")
        .writeStream.format("barnabas")
        .options(
            **{"kafka.bootstrap.servers": bootstrap, "topic": name, "exactlyOnce": str(way == WITH).lower()}
        )
        .option("checkpointLocation", str(folder / name))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [p for p in query.recentProgress if p["numInputRows"]][1:]
    spent_ms = sum(p["durationMs"]["triggerExecution"] for p in batches)
    rows = sum(p["numInputRows"] for p in batches)
    print(f"{name}: {rows * 1000 / spent_ms:,.0f} records/s", flush=True)
    return {
        f"copied in batches of {BATCH_ROWS:,}, records/s": rows * 1000 / spent_ms,
        f"one batch of {BATCH_ROWS:,}, ms": spent_ms / len(batches),
    }


def measure_brokers(plan: Plan, *, only_reading: bool) -> Bench:
    """Barnabas beside Apache Kafka, where that can be had."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running((Barnabas, ApacheKafka), Path(folder)) as brokers,
    ):
        bench = Bench(brokers, plan)
        bench.run(only_reading=only_reading)
        return bench


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--only", default="brokers,sink", help="of: brokers, reading, sink")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    plan = QUICK if options.quick else Plan()
    wanted = options.only.split(",")
    file = options.out / "transactions.json"
    kept: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    if "sink" in wanted:
        kept["sink"] = measure_sink(plan).rows
    if "brokers" in wanted or "reading" in wanted:
        bench = measure_brokers(plan, only_reading="brokers" not in wanted)
        kept["reading"] = bench.read.rows
        if bench.samples.rows:
            kept["brokers"] = bench.samples.rows
    kept["machine"] = machine()
    options.out.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(kept, indent=1) + "\n")
    page = ["# Transactions", "", NOTE]
    for name, pair in (
        ("brokers", (OURS, THEIRS)),
        ("reading", (COMMITTED, ALL)),
        ("sink", (WITH, WITHOUT)),
    ):
        if name in kept:
            table = Samples(kept[name]).table(*pair)
            print(aligned(table))
            page += ["", markdown(table).strip()]
    page += ["", ", ".join(f"{name}: {value}" for name, value in kept["machine"].items())]
    (options.out / "transactions.md").write_text("\n".join(page) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
