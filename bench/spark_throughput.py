"""Records/s between a broker and Spark: the source, the sink, and the access-log chain.

    python -m bench.spark_throughput [--bootstrap HOST:PORT] [--records N] [--rounds N]

Without --bootstrap a Barnabas broker is started for the measurement. Records are 200 B, two partitions, two
Spark tasks (local[2]). The source reads into Spark's rows and throws them away (`noop`); the sink writes rows
that Spark makes up. Best and median of the rounds; the first round, in which Java compiles, is left out.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from barnabas.client.blocking import BlockingClient, NewTopic
from barnabas.client.producing import ProduceStream
from barnabas.pipelines.columns import append_batch
from barnabas.pipelines.session import build_archive, start_session
from barnabas.records.columnar_encoder import BatchEncoder
from bench.brokers import Barnabas

RECORD_BYTES = 200
PARTITIONS = 2
LOG_FILE = Path(__file__).parents[1] / "examples" / "access_log" / "access.log"
PIPELINE = LOG_FILE.with_name("pipeline.yaml")
BUDGETS = {"source": 500_000, "sink": 300_000, "chain": 150_000}
"""Records/s that must be reached on two cores."""


@contextmanager
def bootstrap_of(given: str | None) -> Iterator[str]:
    """The address of the broker to measure against; one of our own when none is given."""
    if given:
        yield given
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
    with BlockingClient(bootstrap) as client:
        client.create_topics([NewTopic(topic, PARTITIONS)])
        producer_id, epoch = client.init_producer_id()
        encoder = BatchEncoder(
            PARTITIONS, producer_id=producer_id, producer_epoch=epoch, batch_bytes_max=250_000
        )
        stream = ProduceStream(client.cluster)
        batch = pa.record_batch({"value": values})
        for _ in range(copies):
            append_batch(encoder, batch, int(time.time() * 1000))
            stream.send(topic, encoder.take())
        stream.send(topic, encoder.flush())
        stream.flush()
        return stream.records


def timed(rounds: int, action: Callable[[], None]) -> list[float]:
    """Seconds of each round after a first one that is thrown away."""
    seconds = []
    for _ in range(rounds + 1):
        begun = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - begun)
    return seconds[1:]


def measure(bootstrap: str, records: int, rounds: int, only: str | None = None) -> dict[str, dict[str, Any]]:
    """records/s of each measurement: {"source": {"median": ..., "best": ..., "budget": ...}, ...}."""
    stamp = time.time_ns()
    options = {"kafka.bootstrap.servers": bootstrap}
    spark = start_session("bench", master="local[2]", archive=build_archive())
    found: dict[str, dict[str, Any]] = {}
    results: dict[str, tuple[int, list[float]]] = {}

    def read(topic: str) -> Any:
        reader = spark.read.format("barnabas").options(**options).option("subscribe", topic)
        return reader.option("startingOffsets", "earliest").load()

    if only in (None, "source"):
        values = pa.array([bytes([33 + i % 90]) * RECORD_BYTES for i in range(10_000)])
        count = fill(bootstrap, f"bench-source-{stamp}", values, records // len(values))
        action = lambda: read(f"bench-source-{stamp}").write.format("noop").mode("overwrite").save()  # noqa: E731
        results["source"] = (count, timed(rounds, action))
    if only in (None, "sink"):
        target = f"bench-sink-{stamp}"
        with BlockingClient(bootstrap) as client:
            client.create_topics([NewTopic(target, PARTITIONS)])
        rows = spark.range(0, records, 1, 2).selectExpr(f"repeat('x', {RECORD_BYTES}) AS value")
        writer = rows.write.format("barnabas").options(**options).option("topic", target).mode("append")
        results["sink"] = (records, timed(rounds, writer.save))
    if only in (None, "chain"):
        from barnabas.pipelines.chain import query_rows
        from barnabas.pipelines.spec import load_spec

        lines = pa.array(LOG_FILE.read_bytes().splitlines(), pa.binary())
        count = fill(bootstrap, f"bench-chain-{stamp}", lines, max(records // 3 // len(lines), 1))
        spec = load_spec(PIPELINE)
        parsed = query_rows(spec, spec.queries()[0], read(f"bench-chain-{stamp}"))
        results["chain"] = (count, timed(rounds, parsed.write.format("noop").mode("overwrite").save))
    for name, (count, seconds) in results.items():
        found[name] = {
            "median": round(count / statistics.median(seconds)),
            "best": round(count / min(seconds)),
            "budget": BUDGETS[name],
            "records": count,
        }
    spark.stop()
    return found


def table(found: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'':<8} {'median/s':>12} {'best/s':>12} {'budget/s':>12}"]
    for name, row in found.items():
        lines.append(f"{name:<8} {row['median']:>12,} {row['best']:>12,} {row['budget']:>12,}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bootstrap")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=sorted(BUDGETS))
    options = parser.parse_args()
    with bootstrap_of(options.bootstrap) as bootstrap:
        print(table(measure(bootstrap, options.records, options.rounds, options.only)))


if __name__ == "__main__":
    main()
