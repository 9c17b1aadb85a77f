"""How long groups take to read a topic, by each group protocol, beside Apache Kafka:

    python -m bench.group_reading                                    # 500,000 records, 3 rounds
    python -m bench.group_reading --records 100000 --rounds 1 --only share

The members are librdkafka's, in threads of one process that is started for each sample. They join while the topic is
empty, and have time to become stable: what is measured is the time from the first record that any of them gets to the last
one, while a generator in C writes the topic as fast as it can.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import confluent_kafka
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from bench import load
from bench.brokers import ApacheKafka, Barnabas, Broker, running
from bench.report import machine
from bench.requests import BenchError, filled_batch, produce_request
from bench.workloads import KIB, fresh_topic

RESULTS: Final = Path(__file__).parent / "results"
PARTITIONS: Final = 10
RECORD_BYTES: Final = 100
BATCH_BYTES: Final = 16 * KIB
AT_ONCE: Final = 1_000
GIVE_UP_S: Final = 180.0


class Row(NamedTuple):
    """One line of the table."""

    protocol: str
    members: int

    @property
    def name(self) -> str:
        return f"{self.protocol}, {self.members} {'member' if self.members == 1 else 'members'}"


ROWS: Final = (
    Row("classic", 10), Row("consumer", 10), Row("share", 1), Row("share", 10), Row("share", 50),
)  # fmt: skip
SETTLE_S: Final = 12.0
"""Members of the newer protocols learn of one another with their heartbeats, every five seconds."""


# --- the process of the members ---------------------------------------------------------------------------------------


class Tally:
    """How many records all members together have got, and when."""

    def __init__(self, wanted: int) -> None:
        self.wanted, self.count = wanted, 0
        self.first = self.last = 0.0
        self.over = threading.Event()
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """A member has got so many records."""
        now = time.monotonic()
        with self._lock:
            self.first = self.first or now
            self.last = now
            self.count += count
            if self.count >= self.wanted:
                self.over.set()


def reader(bootstrap: str, group: str, protocol: str) -> tuple[Any, Callable[[], list[Any]]]:
    """A consumer, and its call that gets the next records."""
    options: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 3}
    if protocol == "share":
        shared = confluent_kafka.ShareConsumer(options)
        return shared, lambda: list(shared.poll(0.2) or ())
    options |= {
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "fetch.queue.backoff.ms": 5,  # its default of 1000 stalls on a fast broker
    }
    plain = confluent_kafka.Consumer(options)
    return plain, lambda: list(plain.consume(AT_ONCE, 0.2))


def member(bootstrap: str, topic: str, group: str, protocol: str, tally: Tally) -> None:
    """Read until all members together have got everything."""
    consumer, following = reader(bootstrap, group, protocol)
    consumer.subscribe([topic])
    while not tally.over.is_set():
        batch = following()
        failed = next((message.error() for message in batch if message.error() is not None), None)
        if failed is not None:
            print(f"a member got {failed}", file=sys.stderr)
        elif batch:
            tally.add(len(batch))
    consumer.close()


def read(bootstrap: str, topic: str, group: str, protocol: str, members: int, wanted: int) -> None:
    """Print how long it took."""
    tally = Tally(wanted)
    threads = [
        threading.Thread(target=member, args=(bootstrap, topic, group, protocol, tally), daemon=True)
        for _ in range(members)
    ]
    for thread in threads:
        thread.start()
    time.sleep(SETTLE_S)
    print("ready", flush=True)
    tally.over.wait(GIVE_UP_S)
    print(json.dumps({"count": tally.count, "seconds": tally.last - tally.first}), flush=True)
    for thread in threads:
        thread.join(10)


# --- the rounds -------------------------------------------------------------------------------------------------------


def begin_at_the_start(bootstrap: str, group: str) -> None:
    """A share group reads what is there already, and not only what comes."""
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(20)


def sample(broker: Broker, topic: str, row: Row, group: str, records: int) -> dict[str, float]:
    """One group of its own reads the topic. Raises BenchError when it does not get everything, or more than that."""
    bootstrap = f"127.0.0.1:{broker.port}"
    if row.protocol == "share":
        begin_at_the_start(bootstrap, group)
    batch, per_batch = filled_batch(RECORD_BYTES, BATCH_BYTES)
    requests = -(-records // (per_batch * PARTITIONS))
    wanted = requests * PARTITIONS * per_batch
    words = [bootstrap, topic, group, row.protocol, str(row.members), str(wanted)]
    members = subprocess.Popen(
        [sys.executable, "-m", "bench.group_reading", "--read", *words], stdout=subprocess.PIPE, text=True
    )
    assert members.stdout is not None
    with members:
        if members.stdout.readline() != "ready\n":
            raise BenchError(f"{row.name} on {broker.name}: the members ended")
        cpu = broker.cpu_seconds()
        fill(broker, topic, batch, requests)
        report: dict[str, float] = json.loads(members.stdout.readline())
        cpu = broker.cpu_seconds() - cpu
    if report["count"] != wanted:
        raise BenchError(f"{row.name} on {broker.name}: {report['count']:,} of {wanted:,} records")
    return {**report, "broker_cpu_seconds": round(cpu, 2)}


def fill(broker: Broker, topic: str, batch: bytes, requests: int) -> None:
    """Write so many requests to each partition."""
    produce = [produce_request(topic, partition, batch) for partition in range(PARTITIONS)]
    load.run(broker.port, {"connections": PARTITIONS, "in_flight": 5, "requests": requests}, produce=produce)


def rounds(brokers: list[Broker], rows: list[Row], count: int, records: int) -> dict[str, Any]:
    """All samples: row -> broker -> one entry per round."""
    samples: dict[str, Any] = {row.name: {broker.name: [] for broker in brokers} for row in rows}
    for number in range(count):
        for row in rows:
            for broker in brokers if number % 2 else reversed(brokers):
                with fresh_topic(broker.port, PARTITIONS) as topic:
                    one = sample(broker, topic, row, f"{topic}-{row.protocol}", records)
                samples[row.name][broker.name].append(one)
                print(f"[{number + 1}/{count}] {row.name}: {broker.name} {one['seconds']:.2f} s", flush=True)
    return samples


def table(rates: dict[str, Any], names: list[str]) -> list[str]:
    """The lines of the table; a ratio is the median of the rounds' own."""
    lines = [f"| group | {' | '.join(names)} | time / kafka's |", "| --- |" + " ---: |" * (len(names) + 1)]
    for row, by_broker in rates.items():
        cells = [
            f"{statistics.median(s['seconds'] for s in samples):.2f} "
            f"({statistics.median(s['broker_cpu_seconds'] for s in samples):.2f})"
            for samples in by_broker.values()
        ]
        ratio = "-"
        if len(names) == 2:
            pairs = zip(by_broker["barnabas"], by_broker["kafka"], strict=True)
            ratio = f"{statistics.median(a['seconds'] / b['seconds'] for a, b in pairs):.2f}"
        lines.append(f"| {row} | {' | '.join(cells)} | {ratio} |")
    return lines


def main() -> None:
    """Run the rounds, print a table and write it."""
    options = argparse.ArgumentParser(prog="python -m bench.group_reading", description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--records", type=int, default=500_000)
    options.add_argument("--only", default="", help="rows whose name begins with this; writes no results")
    options.add_argument("--no-files", action="store_true", help="write no results")
    options.add_argument("--read", nargs=6, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.read:
        bootstrap, topic, group, protocol, members, wanted = chosen.read
        read(bootstrap, topic, group, protocol, int(members), int(wanted))
        return
    load.build("load.c")
    rows = [row for row in ROWS if row.name.startswith(chosen.only)]
    with (
        tempfile.TemporaryDirectory(prefix="bench-groups-") as folder,
        running((Barnabas, ApacheKafka), Path(folder)) as brokers,
    ):
        rates = rounds(brokers, rows, chosen.rounds, chosen.records)
        names = [broker.name for broker in brokers]
    lines = table(rates, names)
    print("\n".join(lines))
    if chosen.no_files or chosen.only:
        return
    where = ", ".join(f"{name} {value}" for name, value in machine().items())
    head = [
        "# Groups that read a topic",
        "",
        f"`python -m bench.group_reading`: {chosen.records:,} records of 100 B in ten partitions; seconds from the first "
        f"record to the last (CPU seconds of the broker), medians of {chosen.rounds} rounds. {where}.",
        "",
    ]
    (RESULTS / "group_reading.md").write_text("\n".join([*head, *lines, ""]))
    (RESULTS / "group_reading.json").write_text(json.dumps(rates, indent=1) + "\n")


if __name__ == "__main__":
    main()
