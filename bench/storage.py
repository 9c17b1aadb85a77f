"""`python -m bench.storage`: cleaning, recovery, and what many partitions cost, beside Apache Kafka. See README.md."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from barnabas.records.compression import Codec
from bench import load
from bench.brokers import ALL, Broker, Unavailable
from bench.requests import CREATE_TOPICS, BenchError, Wire, fetch_request, filled_batch, produce_request, text
from bench.storage_logs import Shape, make_log, measure
from bench.storage_report import Results, show, write
from bench.workloads import touch_memory

RESULTS: Final = Path(__file__).parent / "results"
MB: Final = 10**6
DEFAULT_MAP_BYTES: Final = 128 << 20
MAP_SLOT_BYTES: Final = 24
CONNECTIONS: Final = 4
IN_FLIGHT: Final = 5
BATCH_BYTES: Final = 16 << 10
PRELOAD_BYTES: Final = 160 << 20
SAMPLE_BYTES_MAX: Final = 400 * MB
IDLE_S: Final = 5.0
WAIT_S: Final = 120.0

FEW: Final = 1_000
SMALL, LARGE = Shape(1, 100, FEW), Shape(64, 1000, FEW)
CLEANINGS: Final = (
    LARGE,
    Shape(64, 1000),
    Shape(64, 1000, FEW, Codec.LZ4),
    Shape(1, 1000, FEW),
    Shape(1, 1000),
    SMALL,
    Shape(5, 100, 20_000),
)
RECOVERIES: Final = (SMALL, Shape(1, 100, FEW, producer_id=7), LARGE, Shape(64, 1000, FEW, Codec.LZ4))


# --- cleaning and recovery of a log alone


def logs(directory: Path, results: Results, total_bytes: int) -> None:
    for shape in RECOVERIES:
        folder = directory / "recover" / "t-0"
        records = make_log(folder, shape, total_bytes)
        report = measure(do="recover", folder=str(folder))
        if report["end_offset"] != records:
            raise BenchError(f"{shape.name}: {report['end_offset']} of {records} records were recovered")
        per_gb = 1e9 / report["bytes"]
        results.put(
            "Recovery", shape.name,
            {"s/GB": report["seconds"] * per_gb, "CPU s/GB": report["cpu_seconds"] * per_gb, "peak MB": report["peak_mb"]},
        )  # fmt: skip
        shutil.rmtree(folder.parent)
    for shape in CLEANINGS:
        clean(directory, results, shape, total_bytes)
    unique = Shape(64, 1000)
    keys = total_bytes // 1024
    clean(directory, results, unique, total_bytes, map_bytes=int(keys / 4 / 0.9) * MAP_SLOT_BYTES)


def clean(
    directory: Path, results: Results, shape: Shape, total_bytes: int, map_bytes: int = DEFAULT_MAP_BYTES
) -> None:
    folder = directory / "clean" / "t-0"
    make_log(folder, shape, total_bytes)
    report = measure(do="clean", folder=str(folder), map_bytes=map_bytes)
    keys = f"{shape.keys:,} keys" if shape.keys else "each key once"
    small = ", a map for a quarter of them" if map_bytes < DEFAULT_MAP_BYTES else ""
    results.put(
        "Cleaning", f"{shape.name}, {keys}{small}",
        {
            "MB/s": report["bytes"] / report["seconds"] / MB,
            "MB per CPU s": report["bytes"] / report["cpu_seconds"] / MB,
            "peak MB": report["peak_mb"], "passes": report["passes"],
            "left of the log": report["left_bytes"] / report["bytes"],
        },
    )  # fmt: skip
    shutil.rmtree(folder.parent)


# --- recovery of a broker


def wait_for_end(broker: Broker, topic: str, wanted: int) -> None:
    """Until partition 0 answers with its end offset. Raises BenchError when it is another one."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            with Wire(broker.port) as wire:
                end = wire.end_offset(topic, 0)
            break
        except (OSError, BenchError, struct.error) as error:
            if time.monotonic() > deadline:
                raise BenchError(f"{topic} is not served after {WAIT_S:.0f} s: {error}") from error
            time.sleep(0.005)
    if end != wanted:
        raise BenchError(f"{topic} ends at {end}, not at {wanted}, after a restart")


def recovery(broker: Broker, results: Results, record_bytes: int, batch_bytes: int, total_bytes: int) -> None:
    """Fill a partition, then start over it: once after kill -9, once after a stop in order."""
    batch, records = filled_batch(record_bytes, batch_bytes)
    topic = f"recovery-{batch_bytes}"
    with Wire(broker.port) as wire:
        wire.create_topic(topic, 1)
    requests = total_bytes // len(batch)
    load.run(
        broker.port,
        {"connections": 1, "in_flight": IN_FLIGHT, "requests": requests},
        produce=[produce_request(topic, 0, batch)],
    )
    seconds = {}
    for kill in (True, False):
        began = time.monotonic()
        broker.restart(kill=kill)
        stopped = time.monotonic() - began - broker.start_seconds
        wait_for_end(broker, topic, requests * records)
        seconds[kill] = time.monotonic() - began - stopped
    size = "one-record batches of 200 B" if batch_bytes < 1000 else f"batches of {batch_bytes >> 10} KB"
    row = f"{size}, {requests * len(batch) // MB} MB"
    per_gb = (seconds[True] - seconds[False]) * 1e9 / (requests * len(batch))
    results.put(
        "Recovery after kill -9", row,
        {
            f"{broker.name} s": seconds[True],
            f"{broker.name} in order, s": seconds[False],
            f"{broker.name} s/GB": per_gb,
        },
    )  # fmt: skip


# --- many partitions


def create(broker: Broker, topic: str, partitions: int) -> float:
    """Seconds until every partition answers."""
    began = time.monotonic()
    with Wire(broker.port, timeout_seconds=WAIT_S) as wire:
        row = text(topic) + struct.pack(">ihii", partitions, 1, 0, 0)
        body = wire.ask(CREATE_TOPICS, 4, struct.pack(">i", 1) + row + struct.pack(">ib", 60_000, 0))
        code = struct.unpack_from(">h", body, 8 + 2 + len(topic))[0]
        if code:
            raise BenchError(f"cannot create {topic!r}: error {code}")
        for partition in range(partitions):
            while not answers(wire, topic, partition):
                if time.monotonic() - began > WAIT_S:
                    raise BenchError(f"{topic}-{partition} is not served after {WAIT_S:.0f} s")
                time.sleep(0.01)
    return time.monotonic() - began


def answers(wire: Wire, topic: str, partition: int) -> bool:
    try:
        return wire.end_offset(topic, partition) >= 0
    except BenchError:
        return False


def counted(broker: Broker, run: Callable[[], dict[str, float]]) -> dict[str, float]:
    cpu = broker.cpu_seconds()
    report = run()
    cpu = broker.cpu_seconds() - cpu
    return {
        "mb_per_s": report["bytes"] / report["seconds"] / MB,
        "cpu_us_per_mb": cpu * 1e6 / (report["bytes"] / MB),
        "cpu_us_per_request": cpu * 1e6 / report["requests"],
    }


def many_partitions(broker: Broker, results: Results, counts: list[int], rounds: int, seconds: float) -> None:
    batch, records = filled_batch(1024, BATCH_BYTES)
    keys = {"connections": CONNECTIONS, "warmup": 0, "seconds": seconds, "max_bytes": SAMPLE_BYTES_MAX}
    preloaded = {}
    for count in counts:
        topic = f"many-{count}"
        created = create(broker, topic, count)
        each = max(PRELOAD_BYTES // len(batch) // count, 2)
        while each * count % CONNECTIONS:  # so that every partition gets the same
            each += 1
        turns = {"partitions": count, "requests": each * count // CONNECTIONS}
        load.run(
            broker.port,
            {"connections": CONNECTIONS, "in_flight": IN_FLIGHT} | turns,
            produce=[produce_request(topic, 0, batch)],
        )  # fmt: skip
        preloaded[count] = each * records
        results.sample(broker=broker.name, count=count, created_s=round(created, 2))
    for number in range(rounds):
        for kind in ("fetch", "produce"):
            touch_memory(broker.directory, SAMPLE_BYTES_MAX)
            for count in counts[number % len(counts) :] + counts[: number % len(counts)]:
                topic = f"many-{count}"
                if kind == "fetch":
                    template = [fetch_request(topic, 0, len(batch), len(batch))]
                    more = {"partitions": count, "end": preloaded[count]}
                    measured = counted(broker, lambda: load.run(broker.port, keys | more, fetch=template))  # noqa: B023
                else:
                    template = [produce_request(topic, 0, batch)]
                    more = {"partitions": count, "in_flight": IN_FLIGHT}
                    measured = counted(broker, lambda: load.run(broker.port, keys | more, produce=template))  # noqa: B023
                results.sample(broker=broker.name, kind=kind, count=count, round=number, **measured)
    for kind in ("produce", "fetch"):
        summarize(broker.name, results, kind, counts)


def summarize(broker: str, results: Results, kind: str, counts: list[int]) -> None:
    base = results.median("cpu_us_per_mb", broker=broker, kind=kind, count=counts[0])
    for count in counts:
        middle = {
            key: results.median(key, broker=broker, kind=kind, count=count)
            for key in ("mb_per_s", "cpu_us_per_mb", "cpu_us_per_request")
        }
        name = f"{count:,} partition{'s' * (count > 1)}"
        results.put(
            "Many partitions", f"{kind}, {name}",
            {
                f"{broker} MB/s": middle["mb_per_s"] or 0.0,
                f"{broker} CPU us/request": middle["cpu_us_per_request"] or 0.0,
                f"{broker} x 1": (middle["cpu_us_per_mb"] or 0.0) / (base or 1.0),
            },
        )  # fmt: skip


def full_broker(broker: Broker, results: Results, counts: list[int]) -> None:
    """What the partitions cost when nobody uses them, and at a start."""
    title, topic = "A broker full of partitions", f"many-{counts[-1]}"
    created = results.median("created_s", broker=broker.name, count=counts[-1])
    results.put(title, f"creating {counts[-1]:,} partitions, s", {broker.name: created or 0.0})
    results.put(title, "memory after the load, MB", {broker.name: broker.rss_mb()})
    time.sleep(IDLE_S / 5)
    cpu, began = broker.cpu_seconds(), time.monotonic()
    time.sleep(IDLE_S)
    idle = (broker.cpu_seconds() - cpu) / (time.monotonic() - began) * 100
    results.put(title, "CPU while idle, %", {broker.name: idle})
    with Wire(broker.port) as wire:
        end = wire.end_offset(topic, 0)
    for kill, row in ((True, "start-up after kill -9, s"), (False, "start-up after a stop in order, s")):
        began = time.monotonic()
        broker.restart(kill=kill)
        stopped = time.monotonic() - began - broker.start_seconds
        wait_for_end(broker, topic, end)
        results.put(title, row, {broker.name: time.monotonic() - began - stopped})
    results.put(title, "memory after the restart, MB", {broker.name: broker.rss_mb()})


# --- the whole


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.storage", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller logs, one round: under 2 minutes")
    parser.add_argument("--only", choices=("logs", "recovery", "partitions"), help="one part alone")
    parser.add_argument("--brokers", default="barnabas,kafka", metavar="NAMES")
    parser.add_argument(
        "--partitions", type=int, help="the largest number of partitions (default 5000, quick 1000)"
    )
    parser.add_argument("--dir", type=Path, help="where data is kept (default: a temporary folder)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where storage.json, .md and .png go")
    return parser.parse_args()


def attempt(results: Results, what: str, step: Callable[[], None]) -> None:
    """A part that fails is noted, and the others go on."""
    try:
        step()
    except (BenchError, OSError, struct.error, subprocess.SubprocessError) as error:
        results.fail(f"{what}: {error}")


def with_broker(kind: type[Broker], directory: Path, results: Results, options: argparse.Namespace) -> None:
    size = (60 if options.quick else 120) * MB
    counts = [1, 100, options.partitions or (1_000 if options.quick else 5_000)]
    rounds, seconds = (1, 0.5) if options.quick else (3, 1.0)
    broker = kind(directory)
    broker.start_timeout_s = WAIT_S
    try:
        if options.only in (None, "recovery"):
            broker.start()
            for record_bytes, batch_bytes, total in ((128, 200, size // 2), (1024, 64 << 10, 4 * size)):
                attempt(
                    results, f"{kind.name}, recovery of {batch_bytes} B batches",
                    lambda: recovery(broker, results, record_bytes, batch_bytes, total),  # noqa: B023
                )  # fmt: skip
            broker.stop()
        if options.only in (None, "partitions"):
            broker.start()
            attempt(
                results, f"{kind.name}, many partitions",
                lambda: many_partitions(broker, results, counts, rounds, seconds),
            )  # fmt: skip
            attempt(results, f"{kind.name}, full broker", lambda: full_broker(broker, results, counts))
    finally:
        broker.stop()


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the brokers are stopped then as well
    options = arguments()
    results = Results(settings={"load average before": round(os.getloadavg()[0], 1)})
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir) as folder:
        directory = Path(folder)
        if options.only in (None, "logs"):
            attempt(results, "logs", lambda: logs(directory, results, (40 if options.quick else 128) * MB))
        for kind in ALL:
            if kind.name in options.brokers.split(",") and options.only != "logs":
                try:
                    with_broker(kind, directory, results, options)
                except (Unavailable, BenchError) as why:
                    results.skipped[kind.name] = str(why)
                    print(f"skipped {kind.name}: {why}", flush=True)
    results.settings["seconds in all"] = round(time.monotonic() - began)
    show(results)
    if options.only is None:
        write(results, options.out)
    return 1 if any(not line.startswith("kafka") for line in results.failures) else 0


if __name__ == "__main__":
    sys.exit(main())
