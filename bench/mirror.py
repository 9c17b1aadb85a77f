"""Links and MirrorMaker 2 beside a follower and Java's: `python -m bench.mirror [--rounds N] [--mm2-libs DIR] [--ways ...]`.

Load: a topic with six partitions that one broker leads, without replicas, full of 1 KB records in batches of 16 KB. In each
round a broker of another cluster copies them by a link, another broker of the same cluster becomes a follower of them, our
MirrorMaker 2 copies them, and with --mm2-libs (a folder with the jars of connect-mirror and its like) Java's does. The
rate is that of the copy's log files, from the first 2 % to the last. After that a producer sends 200 records/s for some
seconds, and a consumer of the copy measures how old each is when it arrives. Memory is the most that the process of the
mirror has had; of a link, by how much its broker has grown. Before each copy a file of its size is written and deleted:
memory that a virtual machine touches for the first time is several times slower. Every process has a session of its own, as
the brokers of the cluster have: on a machine with other work, Linux divides the time among sessions.
Goals: a link has 70 % of the follower's rate, and three times the rate of Java's MirrorMaker 2 in a third of its memory.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from barnabas.admin import Admin
from barnabas.admin import TopicPartition as AdminPartition
from barnabas.cores.links import LinkSpec
from bench import load
from bench.brokers import Barnabas
from bench.clusters import BarnabasCluster
from bench.report import machine, markdown
from bench.requests import BenchError, filled_batch, produce_request

RESULTS: Final = Path(__file__).parent / "results"
PARTITIONS: Final = 6
BATCH_BYTES: Final = 16 << 10
SETTLED: Final = 0.02
TIMEOUT_S: Final = 300.0
SHARES: Final = {"median": 0.5, "99 %": 0.99}
LEADER: Final = 1
FOLLOWER: Final = 2
LINKED: Final = "link"
OURS: Final = "MirrorMaker 2"
JAVAS: Final = "Java's MirrorMaker 2"
FOLLOWED: Final = "follower"
NAMES: Final = {"link": LINKED, "mm2": OURS, "java": JAVAS, "follower": FOLLOWED}
PACED: Final = 2_000
PACED_PER_S: Final = 200
MM2: Final = """\
clusters=a,b
a.bootstrap.servers={source}
b.bootstrap.servers={target}
a->b.enabled=true
b->a.enabled=false
a->b.topics={topic}
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
emit.heartbeats.enabled=false
tasks.max=6
dedicated.mode.enable.internal.rest=false
"""


def log_bytes(folder: Path, topic: str) -> int:
    """What the log files of a topic hold."""
    size_bytes = 0
    for path in folder.glob(f"{topic}-*/*.log"):
        with contextlib.suppress(FileNotFoundError):
            size_bytes += path.stat().st_size
    return size_bytes


def warm(folder: Path, size_bytes: int) -> None:
    """See the module."""
    path, piece = folder / "warm", b"\1" * (1 << 20)
    with path.open("wb") as file:
        for _ in range(0, size_bytes, len(piece)):
            file.write(piece)
    path.unlink()


def rate(folder: Path, topic: str, total: int, begin: Callable[[], None]) -> float:
    """MB/s at which a copy grows to about `total` bytes."""
    began_s = time.monotonic()
    begin()
    marks: list[tuple[float, int]] = []
    while not marks or marks[-1][1] < (1 - SETTLED) * total:
        size = log_bytes(folder, topic)
        if size > SETTLED * total:
            marks.append((time.monotonic(), size))
        if time.monotonic() - began_s > TIMEOUT_S:
            raise BenchError(f"{size} of {total} bytes of {topic} after {TIMEOUT_S:g} s")
        time.sleep(0.01)
    return (marks[-1][1] - marks[0][1]) / max(marks[-1][0] - marks[0][0], 1e-3) / 1e6


def fill(cluster: BarnabasCluster, topic: str, size_bytes: int) -> int:
    """A topic on the leader alone; what its log files hold."""
    cluster.make(
        [
            NewTopic(
                topic, PARTITIONS, replica_assignment=[[LEADER]] * PARTITIONS, config={"retention.ms": "-1"}
            )
        ]
    )
    batch, _ = filled_batch(1 << 10, BATCH_BYTES)
    time.sleep(1)
    load.run(
        cluster.ports[LEADER],
        {"connections": PARTITIONS, "in_flight": 5, "requests": size_bytes // PARTITIONS // len(batch)},
        produce=[produce_request(topic, index, batch, 1) for index in range(PARTITIONS)],
    )
    return log_bytes(cluster.logs(LEADER), topic)


@dataclass
class Sample:
    """What one mirror did in one round. delays_ms: for each share of the records, how late they are at most."""

    mb_per_s: float
    memory_mb: float = 0.0
    delays_ms: dict[str, float] = field(default_factory=dict)


def by_link(cluster: BarnabasCluster, folder: Path, topic: str, total: int) -> Sample:
    target = Barnabas(folder)
    target.start()
    try:
        where = f"127.0.0.1:{target.port}"

        def begin() -> None:
            spec = LinkSpec("bench", {"bootstrap.servers": cluster.bootstrap}, topic)
            with Admin(where) as admin:
                admin.links.create("bench", spec.texts())

        assert target.process is not None
        before_mb = memory_mb(target.process.pid)
        measured = Sample(rate(target.data, topic, total, begin))
        measured.delays_ms = delays_ms(cluster.bootstrap, where, topic, topic)
        measured.memory_mb = memory_mb(target.process.pid) - before_mb
        return measured
    finally:
        target.stop()


def by_follower(cluster: BarnabasCluster, topic: str, total: int) -> Sample:
    def begin() -> None:
        with Admin(cluster.bootstrap) as admin:
            moves = {AdminPartition(topic, index): (LEADER, FOLLOWER) for index in range(PARTITIONS)}
            admin.replicas.reassign(moves).require()

    measured = Sample(rate(cluster.logs(FOLLOWER), topic, total, begin))
    cluster.await_in_sync(topic, PARTITIONS, (LEADER, FOLLOWER))
    return measured


def memory_mb(process: int) -> float:
    """The most memory that a process has had at one time."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise BenchError(f"process {process} says nothing of its memory")


def delays_ms(source: str, target: str, topic: str, copy: str) -> dict[str, float]:
    """How old records are when a consumer of the copy gets them, at most, for each of SHARES."""
    consumer = Consumer({"bootstrap.servers": target, "group.id": "bench", "fetch.wait.max.ms": 10})
    consumer.assign([TopicPartition(copy, 0, OFFSET_END)])
    consumer.poll(2)
    producer = Producer({"bootstrap.servers": source, "linger.ms": 0, "acks": 1})
    delays: list[float] = []

    def drain(timeout_s: float) -> None:
        message = consumer.poll(timeout_s)
        while message is not None:
            if message.error() is None and message.value().isdigit():  # no record of the copying before
                delays.append((time.time_ns() - int(message.value())) / 1e6)
            message = consumer.poll(0)

    for _ in range(PACED):
        producer.produce(topic, b"%d" % time.time_ns(), partition=0)
        producer.poll(0)
        drain(1 / PACED_PER_S)
    deadline_s = time.monotonic() + TIMEOUT_S
    while len(delays) < 0.99 * PACED and time.monotonic() < deadline_s:
        drain(0.1)
    producer.flush(10)
    consumer.close()
    delays.sort()
    return {name: delays[int(share * (len(delays) - 1))] for name, share in SHARES.items() if delays}


def ours(config: Path) -> list[str]:
    code = "import sys; from barnabas.kafka_tools.servers.connect_mirror import main; sys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-c", code, str(config)]


def javas(libs: Path, config: Path) -> list[str]:
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    return ["java", "-Xmx1g", "-cp", f"{libs}/*", main, str(config)]


def by_mirror_maker(
    cluster: BarnabasCluster, command: Callable[[Path], list[str]], folder: Path, topic: str, total: int
) -> Sample:
    target = Barnabas(folder)
    target.start()
    where = f"127.0.0.1:{target.port}"
    config = folder / "mm2.properties"
    config.write_text(MM2.format(source=cluster.bootstrap, target=where, topic=topic))
    started: list[subprocess.Popen[bytes]] = []

    def begin() -> None:
        with (folder / "mm2.log").open("wb") as log:
            started.append(subprocess.Popen(command(config), stdout=log, stderr=log, start_new_session=True))

    try:
        own_sample = Sample(rate(target.data, f"a.{topic}", total, begin))
        own_sample.delays_ms = delays_ms(cluster.bootstrap, where, topic, f"a.{topic}")
        own_sample.memory_mb = memory_mb(started[0].pid)
        return own_sample
    finally:
        for process in started:
            process.kill()
            process.wait()
        target.stop()


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=1500)
    parser.add_argument("--no-files", action="store_true", help="print only")
    parser.add_argument("--mm2-libs", type=Path)
    parser.add_argument(
        "--ways", default="link,mm2,java,follower", help="what is measured; the follower always is"
    )
    options = parser.parse_args()
    wanted = {NAMES[way] for way in options.ways.split(",")} | {FOLLOWED}
    found: dict[str, list[Sample]] = {}
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        cluster = BarnabasCluster(folder / "source")
        cluster.start()
        try:
            for turn in range(options.rounds):
                topic = f"mirror-{turn}"
                total = fill(cluster, topic, options.megabytes * 1_000_000)
                for name, measure in ways(cluster, options.mm2_libs, folder, turn, topic, total).items():
                    if name not in wanted:
                        continue
                    warm(folder, total)
                    sample = measure()
                    found.setdefault(name, []).append(sample)
                    print(
                        turn, name, round(sample.mb_per_s), "MB/s", round(sample.memory_mb), "MB", flush=True
                    )
        finally:
            cluster.stop()
    text = markdown(table(found))
    print(text)
    host = ", ".join(f"{name} {value}" for name, value in machine().items())
    host += f"; load of the machine at the start {load_before:.1f}"
    print(host)
    if not options.no_files:
        what = f"{options.megabytes} MB of 1 KB records in {PARTITIONS} partitions; medians of {options.rounds} rounds"
        head = f"# Mirroring\n\n`python -m bench.mirror`: {what}. {host}.\n\n"
        (RESULTS / "mirror.md").write_text(head + text + "\n")
        rows = {name: [asdict(sample) for sample in samples] for name, samples in found.items()}
        (RESULTS / "mirror.json").write_text(json.dumps(rows, indent=1) + "\n")


def ways(
    cluster: BarnabasCluster, libs: Path | None, folder: Path, turn: int, topic: str, total: int
) -> dict[str, Callable[[], Sample]]:
    """How each copies the topic, by name."""
    measures: dict[str, Callable[[], Sample]] = {
        LINKED: lambda: by_link(cluster, folder / f"link-{turn}", topic, total),
        OURS: lambda: by_mirror_maker(cluster, ours, folder / f"ours-{turn}", topic, total),
    }
    if libs is not None:
        measures[JAVAS] = lambda: by_mirror_maker(
            cluster, partial(javas, libs), folder / f"java-{turn}", topic, total
        )
    measures[FOLLOWED] = lambda: by_follower(cluster, topic, total)
    return measures


def _ratio(samples: list[Sample], others: list[Sample]) -> str:
    """The median of the rounds' own ratios, so that a slow minute hits both."""
    ratios = [own.mb_per_s / other.mb_per_s for own, other in zip(samples, others, strict=False)]
    return f"{statistics.median(ratios):.2f}" if ratios else "-"


def table(samples_by_way: dict[str, list[Sample]]) -> list[list[str]]:
    """Medians of all rounds."""
    rows = [
        [
            "copied by",
            "MB/s",
            "of the follower's rate",
            "of Java's",
            "MB of memory",
            "delay ms, median",
            "delay ms, 99 %",
        ]
    ]
    for name, samples in samples_by_way.items():
        ratios = [_ratio(samples, samples_by_way.get(other, [])) for other in (FOLLOWED, JAVAS)]
        cells = [name, f"{statistics.median(one.mb_per_s for one in samples):,.0f}", *ratios]
        if samples[0].delays_ms:
            cells.append(f"{statistics.median(one.memory_mb for one in samples):,.0f}")
            cells += [f"{statistics.median(one.delays_ms[at] for one in samples):,.0f}" for at in SHARES]
        rows.append(cells + ["-"] * (len(rows[0]) - len(cells)))
    return rows


if __name__ == "__main__":
    main()
