"""One worker against two: `python -m bench.workers [--rounds N]`.

Both run all the time. In each round each row runs once on each, loaded by two generators: with one worker both speak to it,
with two each speaks to its own. The ratio is the median of the rounds' own ratios. The generators, the brokers and whatever
else runs share the machine's cores, so on two cores this is what is left for the brokers, and not their limit.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench import load
from bench.requests import Wire
from bench.workloads import KIB, Pace, Workload, measure

GENERATORS: Final = 2
PACE: Final = Pace(warmup_seconds=0.3, seconds=1.5, latency_seconds=1.0)
ROWS: Final = (
    Workload("requests", 100, 1, 25, 1, 5),
    Workload("requests", 100, 1, 25, 4, 5),
    Workload("produce", KIB, 16 * KIB, 5, 5, 5),
    Workload("consume", KIB, 16 * KIB, 5, 1, 5),
)
_numbers = itertools.count()


@contextmanager
def started(folder: Path, port: int, workers: int) -> Iterator[int]:
    """Brokers with so many workers; the port of the first."""
    command = [
        sys.executable,
        "-m",
        "barnabas",
        "start",
        "--data",
        str(folder),
        "--listen",
        f"127.0.0.1:{port}",
    ]
    with (folder.parent / f"{folder.name}.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--workers", str(workers)], stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert process.stdout is not None
        try:
            if not process.stdout.readline().startswith("ready"):
                sys.exit(f"the broker did not start: {log.name}")
            yield port
        finally:
            process.terminate()
            process.wait(60)


def sample(row: Workload, port: int, workers: int) -> float:
    """What all generators reach together."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    homes = {f"bench-{next(_numbers)}": number % workers for number in range(GENERATORS)}
    topics = [
        NewTopic(topic, num_partitions=row.partitions, replica_assignment=[[home + 1]] * row.partitions)
        for topic, home in homes.items()
    ]
    for creation in admin.create_topics(topics).values():
        creation.result(60)
    for topic, home in homes.items():
        await_served(port + home, topic, row.partitions)
    try:
        with ThreadPoolExecutor(GENERATORS) as pool:
            runs = [pool.submit(measure, row, port + home, topic, PACE) for topic, home in homes.items()]
            return sum(float(run.result()["value"]) for run in runs)
    finally:
        for gone in admin.delete_topics(list(homes)).values():
            gone.result(60)


def await_served(port: int, topic: str, partitions: int) -> None:
    """Until the broker that leads the topic has heard of it."""
    with Wire(port) as wire:
        for partition in range(partitions):
            while not wire.serves(topic, partition):
                time.sleep(0.01)


def main() -> None:
    """Run the rounds and print a table."""
    options = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--port", type=int, default=29092)
    chosen = options.parse_args()
    load.build("load.c")  # once, and not by each of the generators that run at the same time
    rates: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-workers-") as directory, ExitStack() as stack:
        ports = {
            workers: stack.enter_context(
                started(Path(directory) / str(workers), chosen.port + 10 * workers, workers)
            )
            for workers in (1, 2)
        }
        for turn in range(chosen.rounds):
            for row in ROWS:
                for workers in (1, 2) if turn % 2 else (2, 1):
                    value = sample(row, ports[workers], workers)
                    rates.setdefault((row.name, workers), []).append(value)
    for row in ROWS:
        one, two = rates[row.name, 1], rates[row.name, 2]
        ratio = statistics.median(after / before for before, after in zip(one, two, strict=True))
        print(
            f"2 x {row.name}: one worker {statistics.median(one):,.0f} {row.unit}, two {statistics.median(two):,.0f}, "
            f"ratio {ratio:.2f}"
        )


if __name__ == "__main__":
    main()
