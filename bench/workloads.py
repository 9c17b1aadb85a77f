"""What is measured: each workload runs once per round on every broker, on a topic of its own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import load
from bench.brokers import Broker
from bench.requests import Wire, fetch_request, filled_batch, produce_request

KIB, MIB = 1 << 10, 1 << 20
#: A "1 MB" batch stays just under the message size that every broker accepts by default.
LARGEST_BATCH_BYTES = MIB - 256
#: What consumers ask by default: max.partition.fetch.bytes, fetch.max.bytes.
PARTITION_FETCH_BYTES, FETCH_MAX_BYTES = MIB, 50 * MIB
IN_FLIGHT = 5  # max.in.flight.requests.per.connection of Kafka's producer
PRELOAD_REQUESTS = 4_000
PRELOAD_BYTES = 64 << 20
RATE_PER_SECOND = 1_000
BATCH_NAMES = {1: "1 record", 16 * KIB: "16 KB", 64 * KIB: "64 KB", LARGEST_BATCH_BYTES: "1 MB"}

_topic_numbers = itertools.count()


@dataclass(frozen=True)
class Pace:
    """How long one sample lasts."""

    warmup_seconds: float
    seconds: float
    latency_seconds: float
    #: A sample also ends after this many bytes, so that page cache and memory engines stay in bounds.
    max_bytes: int = 600_000_000
    #: More than a sample with its warm-up writes; see touch_memory.
    touch_bytes: int = 1_200_000_000


@dataclass(frozen=True)
class Workload:
    """One row of the table. `kind` says what is done, `unit` what the number means."""

    kind: str  # produce, consume, requests, latency, end-to-end, librdkafka-produce, librdkafka-consume
    record_bytes: int
    batch_bytes: int
    connections: int = 1
    in_flight: int = 1
    partitions: int = 1
    partition_fetch_bytes: int = PARTITION_FETCH_BYTES
    fetch_max_bytes: int = FETCH_MAX_BYTES

    @property
    def unit(self) -> str:
        return {"requests": "requests/s", "latency": "ms", "end-to-end": "ms"}.get(self.kind, "MB/s")

    @property
    def is_latency(self) -> bool:
        return self.unit == "ms"

    @property
    def name(self) -> str:
        size = "1 KB" if self.record_bytes == KIB else f"{self.record_bytes} B"
        batch = BATCH_NAMES[self.batch_bytes]
        if self.kind == "requests":
            return f"one-record requests, {size}, {self.connections} connections, {self.in_flight} in flight"
        if self.is_latency:
            what = "send to ack" if self.kind == "latency" else "end to end"
            return f"{what} at {RATE_PER_SECOND:,} records/s of {size}"
        if self.kind.startswith("librdkafka"):
            return f"{self.kind.partition('-')[2]} by librdkafka, {size}, batches {batch}"
        limit = (
            "" if self.fetch_max_bytes == FETCH_MAX_BYTES else f", answers {self.fetch_max_bytes // KIB} KB"
        )
        many = "connection" if self.connections == 1 else "connections"
        return f"{self.kind} {size}, batches {batch}, {self.connections} {many}{limit}"


def all_workloads(quick: bool) -> list[Workload]:
    """Quick keeps the rows that the budgets speak of and the shape around them."""
    rows = []
    batches = [1, 16 * KIB, 64 * KIB, LARGEST_BATCH_BYTES]
    for kind in ("produce", "consume"):
        for record_bytes, batch_bytes, connections in itertools.product((KIB, 100), batches, (1, 10)):
            if quick and (record_bytes == 100 or (connections == 10 and batch_bytes < 64 * KIB)):
                continue
            in_flight = IN_FLIGHT if kind == "produce" else 1
            rows.append(Workload(kind, record_bytes, batch_bytes, connections, in_flight, connections))
    # Some brokers do not heed max.partition.fetch.bytes and answer with far more: the same, answers bounded.
    rows += [Workload("consume", KIB, 64 * KIB, 1, 1, 1, limit, limit) for limit in (64 * KIB, MIB)]
    rows += [Workload("requests", 100, 1, 50, in_flight, 10) for in_flight in (1, 4)]
    rows += [Workload("latency", 100, 1), Workload("end-to-end", 100, 1)]
    rows += [Workload("librdkafka-produce", KIB, 64 * KIB), Workload("librdkafka-consume", KIB, 64 * KIB)]
    return rows


@contextmanager
def fresh_topic(port: int, partitions: int) -> Iterator[str]:
    topic = f"bench-{next(_topic_numbers)}"
    with Wire(port) as wire:
        wire.create_topic(topic, partitions)
        try:
            yield topic
        finally:
            wire.delete_topic(topic)


def touch_memory(directory: Path, size_bytes: int) -> None:
    """Write and drop a file, so that the pages which the next writes get from the kernel are warm.

    A virtual machine's memory costs several times more when it is touched for the first time (or again after
    the host took it back): the same plain 1 MB writes reach 0.3 GB/s cold and 4 GB/s warm.
    """
    block = os.urandom(1 << 20)
    with (directory / "touch").open("wb", buffering=0) as file:
        for _ in range(size_bytes >> 20):
            file.write(block)
    (directory / "touch").unlink()


def sample(workload: Workload, broker: Broker, pace: Pace) -> dict[str, Any]:
    """Measure once -> {"value": ..., and what the generator said}. Raises BenchError when a request fails."""
    with fresh_topic(broker.port, workload.partitions) as topic:
        if workload.kind in ("produce", "librdkafka-produce"):
            touch_memory(broker.directory, pace.touch_bytes)
        return measure(workload, broker.port, topic, pace, broker)


def measure(
    workload: Workload,
    port: int,
    topic: str,
    pace: Pace,
    broker: Broker | None = None,
    *,
    preload: bool = True,
) -> dict[str, Any]:
    batch, batch_records = filled_batch(workload.record_bytes, workload.batch_bytes)
    produce = [produce_request(topic, p, batch) for p in range(workload.partitions)]
    fetch = [
        fetch_request(topic, p, workload.partition_fetch_bytes, workload.fetch_max_bytes)
        for p in range(workload.partitions)
    ]
    common: dict[str, float] = {
        "connections": workload.connections, "in_flight": workload.in_flight,
        "warmup": pace.warmup_seconds, "seconds": pace.seconds,
    }  # fmt: skip
    rated = {"rate": RATE_PER_SECOND, "seconds": pace.latency_seconds}
    end = 1 << 60
    if workload.kind in ("consume", "librdkafka-consume") and preload:
        end = _preload(workload, port, produce, len(batch)) * batch_records
    cpu = broker.cpu_seconds() if broker else 0.0
    match workload.kind:
        case "produce" | "requests":
            report = load.run(port, common | {"max_bytes": pace.max_bytes}, produce=produce)
        case "consume":
            report = load.run(port, common | {"end": end}, fetch=fetch)
        case "latency":
            report = load.run(port, common | rated, produce=produce)
        case "end-to-end":
            report = load.run(port, common | rated, produce=produce, fetch=fetch)
        case _:
            report = _librdkafka(workload, port, topic, pace, end)
    if broker:
        report["broker_cpu_seconds"] = round(broker.cpu_seconds() - cpu, 3)
    return {"value": _value(workload, report), **report}


def _value(workload: Workload, report: dict[str, Any]) -> float:
    if workload.is_latency:
        return float(report["p99_us"]) / 1000
    if workload.kind == "requests":
        return float(report["requests"]) / float(report["seconds"])
    return float(report["bytes"]) / float(report["seconds"]) / 1e6


def _preload(workload: Workload, port: int, produce: list[bytes], batch_bytes: int) -> int:
    """Write the same number of batches to each partition -> that number."""
    total = min(PRELOAD_REQUESTS, PRELOAD_BYTES // batch_bytes)
    if workload.kind == "librdkafka-consume":
        total = 3 * total  # one pass, no repeats: it needs more to last long enough
    each = max(1, total // workload.partitions)
    keys = {"connections": workload.partitions, "in_flight": IN_FLIGHT, "requests": each}
    load.run(port, keys, produce=produce)
    return each


def _librdkafka(workload: Workload, port: int, topic: str, pace: Pace, records: int) -> dict[str, Any]:
    if workload.kind == "librdkafka-consume":
        return load.run_librdkafka(port, "consume", topic, str(records), fetch_queue_backoff_ms="5")
    words = (topic, str(workload.record_bytes), str(pace.warmup_seconds), str(pace.seconds))
    return load.run_librdkafka(
        port, "produce", *words,
        batch_size=str(workload.batch_bytes), linger_ms="5", acks="1", queue_buffering_max_kbytes="65536",
    )  # fmt: skip


def ceiling(workload: Workload, pace: Pace) -> float | None:
    """What the generator reaches against a server that does nothing; None where that says nothing."""
    if workload.kind not in ("produce", "consume", "requests"):
        return None
    sink = load.Sink(max(workload.batch_bytes, min(workload.partition_fetch_bytes, LARGEST_BATCH_BYTES)))
    try:
        return float(measure(workload, sink.port, "t", pace, preload=False)["value"])
    finally:
        sink.stop()
