"""The rate of a link beside a follower's and beside MirrorMaker 2's: `python -m bench.mirror [--rounds N] [--mm2-libs DIR]`.

Load: a topic with six partitions that one broker leads, without replicas, full of 1 KB records in batches of 16 KB. In each
round a broker of another cluster copies them by a link, another broker of the same cluster becomes a follower of them, and
with --mm2-libs (a folder with the jars of connect-mirror and connect-runtime) Java's MirrorMaker 2 copies them to a third
cluster. The rate is that of the copy's log files, from the first 2 % to the last.
Goals: 70 % of the follower's rate, three times MirrorMaker 2's.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from confluent_kafka.admin import NewTopic

from barnabas.admin import Admin, TopicPartition
from barnabas.cores.links import LinkSpec
from bench import load
from bench.brokers import Barnabas
from bench.clusters import BarnabasCluster
from bench.report import machine, markdown
from bench.requests import BenchError, filled_batch, produce_request

PARTITIONS: Final = 6
BATCH_BYTES: Final = 16 << 10
SETTLED: Final = 0.02
TIMEOUT_S: Final = 300.0
LEADER: Final = 1
FOLLOWER: Final = 2
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
    found = 0
    for path in folder.glob(f"{topic}-*/*.log"):
        with contextlib.suppress(FileNotFoundError):
            found += path.stat().st_size
    return found


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


def by_link(cluster: BarnabasCluster, folder: Path, topic: str, total: int) -> float:
    target = Barnabas(folder)
    target.start()
    try:
        where = f"127.0.0.1:{target.port}"

        def begin() -> None:
            spec = LinkSpec("bench", {"bootstrap.servers": cluster.bootstrap}, topic)
            with Admin(where) as admin:
                admin.links.create("bench", spec.texts())

        return rate(target.data, topic, total, begin)
    finally:
        target.stop()


def by_follower(cluster: BarnabasCluster, topic: str, total: int) -> float:
    def begin() -> None:
        with Admin(cluster.bootstrap) as admin:
            moves = {TopicPartition(topic, index): (LEADER, FOLLOWER) for index in range(PARTITIONS)}
            admin.replicas.reassign(moves).require()

    found = rate(cluster.logs(FOLLOWER), topic, total, begin)
    cluster.await_in_sync(topic, PARTITIONS, (LEADER, FOLLOWER))
    return found


@contextlib.contextmanager
def mirror_maker(libs: Path, folder: Path, source: str, target: str, topic: str) -> Iterator[None]:
    """Java's MirrorMaker 2 while the block runs."""
    config = folder / "mm2.properties"
    config.write_text(MM2.format(source=source, target=target, topic=topic))
    command = [
        "java",
        "-Xmx1g",
        "-cp",
        f"{libs}/*",
        "org.apache.kafka.connect.mirror.MirrorMaker",
        str(config),
    ]
    with (folder / "mm2.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def by_mirror_maker(cluster: BarnabasCluster, libs: Path, folder: Path, topic: str, total: int) -> float:
    target = Barnabas(folder)
    target.start()
    try:
        with contextlib.ExitStack() as stack:

            def begin() -> None:
                where = f"127.0.0.1:{target.port}"
                stack.enter_context(mirror_maker(libs, folder, cluster.bootstrap, where, topic))

            return rate(target.data, f"a.{topic}", total, begin)
    finally:
        target.stop()


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=600)
    parser.add_argument("--mm2-libs", type=Path)
    given = parser.parse_args()
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        cluster = BarnabasCluster(folder / "source")
        cluster.start()
        try:
            for turn in range(given.rounds):
                topic = f"mirror-{turn}"
                total = fill(cluster, topic, given.megabytes * 1_000_000)
                rates = {
                    "link": by_link(cluster, folder / f"link-{turn}", topic, total),
                    "follower": by_follower(cluster, topic, total),
                }
                if given.mm2_libs is not None:
                    rates["MirrorMaker 2"] = by_mirror_maker(
                        cluster, given.mm2_libs, folder / f"mm2-{turn}", topic, total
                    )
                for name, value in rates.items():
                    found.setdefault(name, []).append(value)
                print(rates, flush=True)
        finally:
            cluster.stop()
    rows = [["copied by", "MB/s", "of the follower's rate"]]
    for name, values in found.items():
        ratio = statistics.median(a / b for a, b in zip(values, found["follower"], strict=True))
        rows.append([name, f"{statistics.median(values):,.0f}", f"{ratio:.2f}"])
    print(markdown(rows))
    print(machine())


if __name__ == "__main__":
    main()
