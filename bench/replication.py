"""Writing with three replicas, and catching up: `python -m bench.replication [--rounds N] [--brokers barnabas,kafka]`.

Three brokers each, factor 3, acks=all, `min.insync.replicas` 2, records of 1 KB. Both clusters run all the time; in each
round each row runs once on each, loaded by one generator per broker that speaks to the partitions which it leads. Brokers
and generators share the machine's cores. Catching up: one broker is killed, the others take records, it comes back; the rate
is that of its log files, from their first new megabyte to the last.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from bench import load
from bench.brokers import Unavailable
from bench.clusters import BROKERS, BarnabasCluster, Cluster, KafkaCluster
from bench.report import machine, markdown
from bench.requests import BenchError, filled_batch, produce_request

RESULTS: Final = Path(__file__).parent / "results"
KIB: Final = 1024
ALL_REPLICAS: Final = -1
CATCH_UP_BYTES: Final = 300_000_000
TRIES: Final = 3
"""Of a row that is measured anew when requests have failed; then it is left out of this round."""
CATCH_UP_TIMEOUT_S: Final = 180.0
SETTLED: Final = 0.02
"""Of the bytes: left out at both ends of a copy, where fetches begin and wait."""
CLUSTERS: Final = {"barnabas": BarnabasCluster, "kafka": KafkaCluster}


class Row(NamedTuple):
    """partitions: of each broker; rate: requests per second and broker, 0 for as many as it takes."""

    name: str
    unit: str
    batch_bytes: int
    partitions: int = 1
    in_flight: int = 5
    rate: int = 0


ROWS: Final = (
    Row("batches of 16 KB, one connection to each broker", "MB/s", 16 * KIB),
    Row("batches of 64 KB, one connection to each broker", "MB/s", 64 * KIB),
    Row("batches of 64 KB, five connections to each broker", "MB/s", 64 * KIB, 5),
    Row("send to ack, 100 one-record requests/s to each broker, p50", "ms", KIB, 1, 1, 100),
)


def topics(cluster: Cluster, number: int, row: Row) -> dict[int, str]:
    """One topic for each broker, which leads all its partitions."""
    topics_by_broker = {broker: f"bench-{number}-{broker}" for broker in BROKERS}
    new_topics = []
    for broker, topic in topics_by_broker.items():
        replicas = [broker, *(other for other in BROKERS if other != broker)]
        configs = {"min.insync.replicas": "2"}
        new_topics.append(
            NewTopic(topic, row.partitions, replica_assignment=[replicas] * row.partitions, config=configs)
        )
    cluster.make(new_topics)
    for topic in topics_by_broker.values():
        cluster.await_in_sync(topic, row.partitions, BROKERS)
    return topics_by_broker


def delete(cluster: Cluster, names: Sequence[str]) -> None:
    admin = cluster.admin()
    for future in admin.delete_topics(list(names)).values():
        with contextlib.suppress(KafkaException):  # what stays costs the next rows little
            future.result(60)


def sample(cluster: Cluster, row: Row, number: int, seconds: float) -> dict[str, float]:
    """What the generators reach together; for a rate the median of their medians."""
    names = topics(cluster, number, row)
    batch, _ = filled_batch(KIB, row.batch_bytes)
    keys: dict[str, float] = {"seconds": seconds, "connections": row.partitions, "in_flight": row.in_flight}
    keys |= {"rate": row.rate} if row.rate else {"warmup": 1.0, "max_bytes": 400_000_000}

    def sample(broker: int) -> dict[str, Any]:
        produce = [
            produce_request(names[broker], index, batch, ALL_REPLICAS) for index in range(row.partitions)
        ]
        return load.run(cluster.ports[broker], keys, produce=produce)

    cpu_s = cluster.cpu_s(BROKERS)
    with ThreadPoolExecutor(len(BROKERS)) as pool:
        runs = list(pool.map(sample, BROKERS))
    spent_s = cluster.cpu_s(BROKERS) - cpu_s
    delete(cluster, list(names.values()))
    if row.rate:
        return {"value": statistics.median(run["p50_us"] for run in runs) / 1000, "cpu_s": spent_s}
    rate = sum(run["bytes"] / run["seconds"] for run in runs) / 1e6
    return {"value": rate, "cpu_s": spent_s}


def log_bytes(cluster: Cluster, broker: int, topic: str) -> int:
    """What a broker's log files of a topic hold."""
    folder = cluster.logs(broker)
    size_bytes = 0
    for path in folder.glob(f"{topic}-*/*.log"):
        try:
            size_bytes += path.stat().st_size
        except FileNotFoundError:
            continue
    return size_bytes


def catch_up(cluster: Cluster, number: int) -> dict[str, float]:
    """Kill broker 3, write, start it again: MB/s at which it copies, and the seconds from its start until it is in sync."""
    topic, partitions = f"catch-up-{number}", 6
    cluster.create(topic, partitions)
    victim = BROKERS[-1]
    cluster.kill(victim)
    living = [broker for broker in BROKERS if broker != victim]
    cluster.await_in_sync(topic, partitions, living)
    batch, _ = filled_batch(KIB, 256 * KIB)
    _, leaders = cluster.leaders(topic, living[0])
    each = CATCH_UP_BYTES // partitions // len(batch)
    for broker in living:
        led = [index for index, leader in leaders.items() if leader == broker]
        produce = [produce_request(topic, index, batch, ALL_REPLICAS) for index in led]
        load.run(
            cluster.ports[broker],
            {"connections": len(led), "in_flight": 2, "requests": each},
            produce=produce,
        )
    total = log_bytes(cluster, living[0], topic)
    had = log_bytes(cluster, victim, topic)
    with ThreadPoolExecutor(1) as pool:
        began_s = time.monotonic()
        starting = pool.submit(cluster.start_again, victim)
        first, last = had + SETTLED * total, (1 - SETTLED) * total
        marks: list[tuple[float, int]] = []
        while not marks or marks[-1][1] < last:
            size = log_bytes(cluster, victim, topic)
            if size > first:
                marks.append((time.monotonic(), size))
            if time.monotonic() - began_s > CATCH_UP_TIMEOUT_S:
                raise BenchError(
                    f"broker {victim} has {size} of {total} bytes after {CATCH_UP_TIMEOUT_S:g} s"
                )
            time.sleep(0.01)
        starting.result()
    cluster.await_in_sync(topic, partitions, BROKERS)
    in_sync_s = time.monotonic() - began_s
    delete(cluster, [topic])
    copied = marks[-1][1] - marks[0][1]
    return {"value": copied / max(marks[-1][0] - marks[0][0], 1e-3) / 1e6, "in_sync_s": in_sync_s}


def table(samples: list[dict[str, Any]], names: list[str]) -> str:
    head = ["row", "unit", *names, *(["ratio"] if len(names) == 2 else [])]
    rows = []
    for row in dict.fromkeys(sample["row"] for sample in samples):
        of_row = [sample for sample in samples if sample["row"] == row]
        values = {
            name: {sample["turn"]: sample["value"] for sample in of_row if sample["cluster"] == name}
            for name in names
        }
        cells = [
            f"{statistics.median(values[name].values()):,.1f}" if values[name] else "-" for name in names
        ]
        both = set.intersection(*(set(values[name]) for name in names))
        if len(names) == 2 and both:
            pairs = [(values[names[0]][turn], values[names[1]][turn]) for turn in both]
            ratio = statistics.median(b / a if of_row[0]["unit"] in ("ms", "s") else a / b for a, b in pairs)
            cells.append(f"{ratio:.2f}")
        rows.append([row, of_row[0]["unit"], *cells])
    return markdown([head, *rows])


def run_all(clusters: list[Cluster], rounds: int, seconds: float) -> list[dict[str, Any]]:
    """All samples, in interleaved rounds."""
    samples: list[dict[str, Any]] = []

    def note(cluster: Cluster, row: str, unit: str, values: dict[str, float]) -> None:
        samples.append({"cluster": cluster.name, "row": row, "unit": unit, "turn": turn, **values})
        print(f"{cluster.name}: {row}: {values}", flush=True)

    number = 0
    for turn in range(rounds):
        for row in ROWS:
            for cluster in clusters if turn % 2 == 0 else reversed(clusters):
                for _ in range(TRIES):
                    number += 1
                    try:
                        note(cluster, row.name, row.unit, sample(cluster, row, number, seconds))
                        break
                    except BenchError as error:  # six brokers on two cores: a session ends, leaders move
                        print(f"{cluster.name}: {row.name}: {error}", flush=True)
        for cluster in clusters:
            number += 1
            try:
                values = catch_up(cluster, number)
            except BenchError as error:
                print(f"{cluster.name}: a follower catches up: {error}", flush=True)
                continue
            note(cluster, "a follower catches up", "MB/s", values)
            note(cluster, "from its start until it is in sync", "s", {"value": values["in_sync_s"]})
    return samples


def main() -> None:
    """Run, print a table and write it to results/."""
    options = argparse.ArgumentParser(prog="python -m bench.replication", description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=4.0)
    options.add_argument("--brokers", default="barnabas,kafka")
    options.add_argument("--no-files", action="store_true", help="print only")
    chosen = options.parse_args()
    load.build("load.c")
    with tempfile.TemporaryDirectory(prefix="bench-replication-") as directory, ExitStack() as stack:
        clusters: list[Cluster] = []
        for name in chosen.brokers.split(","):
            cluster = CLUSTERS[name](Path(directory) / name)
            stack.callback(cluster.stop)
            try:
                cluster.start()
            except Unavailable as error:
                print(f"{name} is left out: {error}", flush=True)
                continue
            clusters.append(cluster)
        samples = run_all(clusters, chosen.rounds, chosen.seconds)
    text = table(samples, [cluster.name for cluster in clusters])
    print(text)
    if not chosen.no_files:
        host = ", ".join(f"{name} {value}" for name, value in machine().items())
        what = f"three brokers, factor 3, acks=all, records of 1 KB; medians of {chosen.rounds} rounds. All brokers of both "
        what += "clusters run all the time and share the cores with the generators"
        head = f"# Replication\n\n`python -m bench.replication`: {what}. {host}.\n\n"
        (RESULTS / "replication.md").write_text(head + text + "\n")
        (RESULTS / "replication.json").write_text(json.dumps(samples, indent=1) + "\n")


if __name__ == "__main__":
    main()
