"""Streams in Python and statements of SQL beside Kafka Streams (Java), Quix Streams and Faust, on one broker of ours.

    python -m bench.streams [--records 100000] [--only words,windows,join,filter] [--rivals barnabas,sql,java,quix,faust]

Four workloads: words of lines counted (the count of each word whenever it changes), records counted in windows of an
hour over 100,000 keys, records joined with a table of 10,000 rows, and records filtered and changed one by one. Each app is
a process of its own on topics of its own with two partitions; it runs and has processed a few records when the clock starts.
Then the records are written at once, and the clock stops when the last result can be read. An app that takes longer than the
limit gets the share it has processed.

Guarantees: exactly once for Barnabas and Java (exactly_once_v2), what the others do by default (at least once).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer  # type: ignore[import-untyped]

from barnabas.client.blocking import BlockingClient, NewTopic
from bench.brokers import CACHE, Unavailable
from bench.report import machine
from bench.spark_throughput import bootstrap_of

APPS = Path(__file__).parent / "streams_apps"
RESULTS = Path(__file__).parent / "results"
WORKLOADS = ("words", "windows", "join", "filter")
RIVALS = ("barnabas", "sql", "java", "quix", "faust")
SHOWN = {
    "barnabas": "Barnabas",
    "sql": "its SQL",
    "java": "Kafka Streams (Java)",
    "quix": "Quix Streams",
    "faust": "Faust",
}
VERSION = "4.3.1"
PARTITIONS = 2
KEYS = 100_000
ROWS = 10_000
VOCABULARY = 1_000
WORDS = 5
WARM = 20
START_S = 300.0
LIMIT_S = 240.0
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>bench</groupId><artifactId>streams</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""


@dataclass
class Row:
    """A run. seconds: from the first record to the last result. done: the share that was processed within the limit."""

    workload: str
    rival: str
    records: int
    seconds: float
    done: float
    load: float

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records * self.done / self.seconds


def command(rival: str) -> list[str]:
    """What runs an app of a rival, without its arguments. Raises Unavailable."""
    if rival == "barnabas":
        return [sys.executable, str(APPS / "ours.py")]
    if rival == "sql":
        return [sys.executable, str(APPS / "statements.py")]
    if rival == "java":
        return ["java", "-Xmx1g", "-cp", java_classes(), "Bench"]
    name = {"quix": "quix.py", "faust": "fausted.py"}[rival]
    return [str(rivals_python()), str(APPS / name)]


def java_classes() -> str:
    """The class path of Bench.java and Kafka Streams, fetched by Maven once. Raises Unavailable."""
    folder = CACHE / f"streams-{VERSION}"
    if not (folder / ".complete").exists():
        if shutil.which("mvn") is None or shutil.which("javac") is None:
            raise Unavailable("no `mvn` and `javac` on the PATH")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pom.xml").write_text(POM.format(version=VERSION))
        run(["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs"], folder)
        (folder / ".complete").touch()
    path = f"{folder}/libs/*"
    run(["javac", "-nowarn", "-cp", path, "-d", str(folder), str(APPS / "Bench.java")], folder)
    return f"{folder}:{path}"


def rivals_python() -> Path:
    """Python with Quix Streams and Faust, in an environment of their own. Raises Unavailable."""
    folder = CACHE / "streams-rivals"
    if not (folder / ".complete").exists():
        run([sys.executable, "-m", "venv", "--clear", str(folder)], CACHE)
        packages = ["quixstreams", "faust-streaming"]
        run([str(folder / "bin" / "pip"), "install", "-q", *packages], CACHE)
        (folder / ".complete").touch()
    return folder / "bin" / "python"


def run(words: Sequence[str], folder: Path) -> None:
    """Raises Unavailable with the end of what a failed command said."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise Unavailable((done.stdout + done.stderr).strip()[-300:])


def records(workload: str, count: int, seed: int) -> list[tuple[str, str]]:
    """Keys and values."""
    chance = random.Random(seed)
    if workload == "words":
        return [
            (f"l{number}", " ".join(f"w{chance.randrange(VOCABULARY)}" for _ in range(WORDS)))
            for number in range(count)
        ]
    keys = KEYS if workload == "windows" else ROWS
    return [(f"k{chance.randrange(keys)}", f"v{number}") for number in range(count)]


class Results:
    """What an app has written: how much of the input that accounts for."""

    def __init__(self, bootstrap: str, topic: str, workload: str) -> None:
        self.adds = workload in ("join", "filter")
        self.last: dict[bytes, int] = {}
        self.total = 0
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": f"{topic}-reader", "auto.offset.reset": "earliest",
             "isolation.level": "read_committed"}
        )  # fmt: skip
        self._consumer.subscribe([topic])

    def until(self, wanted: int, give_up: float, process: subprocess.Popen[bytes]) -> bool:
        """Reads until the results account for so many records; False if that takes too long."""
        while self.total < wanted and time.monotonic() < give_up and process.poll() is None:
            for message in self._consumer.consume(10_000, 0.05):
                if message.error() is None:
                    self._note(message.key(), message.value())
        return self.total >= wanted

    def _note(self, key: bytes, value: bytes) -> None:
        if self.adds:
            self.total += 1
            return
        count = int(value)
        self.total += count - self.last.get(key, 0)
        self.last[key] = count

    def close(self) -> None:
        self._consumer.close()


def send(bootstrap: str, topic: str, rows: Sequence[tuple[str, str]]) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
    )
    for key, value in rows:
        producer.produce(topic, value, key)
    producer.flush()


def measure(bootstrap: str, rival: str, workload: str, count: int, folder: Path) -> Row:
    """Raises Unavailable."""
    words = command(rival)
    prefix = f"{rival}-{workload}-{os.getpid()}"
    with BlockingClient(bootstrap) as client:
        names = ["in", "out", *(["table"] if workload == "join" else [])]
        client.create_topics([NewTopic(f"{prefix}-{name}", PARTITIONS) for name in names])
    if workload == "join":
        send(bootstrap, f"{prefix}-table", [(f"k{number}", f"row {number}") for number in range(ROWS)])
    (folder / prefix).mkdir()
    log = (folder / f"{prefix}.log").open("wb")
    process = subprocess.Popen(
        [*words, workload, bootstrap, prefix, str(folder / prefix)], stdout=log, stderr=log, cwd=folder
    )
    results = Results(bootstrap, f"{prefix}-out", workload)
    each = WORDS if workload == "words" else 1
    try:
        time.sleep(5)
        send(bootstrap, f"{prefix}-in", records(workload, WARM, 1))
        if not results.until(WARM * each, time.monotonic() + START_S, process):
            raise Unavailable(f"it has not begun: {(folder / f'{prefix}.log').read_bytes()[-300:]!r}")
        rows = records(workload, count, 2)
        before = results.total
        begun = time.monotonic()
        send(bootstrap, f"{prefix}-in", rows)
        results.until(before + count * each, begun + LIMIT_S, process)
        seconds = time.monotonic() - begun
        done = (results.total - before) / (count * each)
        return Row(workload, rival, count, round(seconds, 2), round(done, 4), round(os.getloadavg()[0], 1))
    finally:
        results.close()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def page(rows: Sequence[Row]) -> str:
    """The results as a page."""
    rivals = [rival for rival in RIVALS if any(row.rival == rival for row in rows)]
    lines = [
        "# Streams in Python",
        "",
        "Records per second, and in brackets how many times as many that is as Barnabas processes in the same run; see",
        "`bench/streams.py` for what is measured.",
        "",
        f"| workload | {' | '.join(SHOWN[rival] for rival in rivals)} | load average |",
        f"|---|{'---:|' * (len(rivals) + 1)}",
    ]
    for workload in WORKLOADS:
        mine = {row.rival: row for row in rows if row.workload == workload}
        if not mine:
            continue
        ours = mine["barnabas"].rate if "barnabas" in mine else 0.0
        cells = []
        for rival in rivals:
            row = mine.get(rival)
            ratio = f" ({row.rate / ours:.2g})" if row is not None and ours and rival != "barnabas" else ""
            cells.append("-" if row is None else f"{row.rate:,.0f}{ratio}")
        loads = [row.load for row in mine.values()]
        lines.append(f"| {workload} | {' | '.join(cells)} | {min(loads):g} to {max(loads):g} |")
    about = ", ".join(f"{name}: {value}" for name, value in machine().items())
    return (
        "\n".join([*lines, "", f"{max(row.records for row in rows):,} records in each run. {about}"]) + "\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--only", default=",".join(WORKLOADS))
    parser.add_argument("--rivals", default=",".join(RIVALS))
    parser.add_argument("--bootstrap")
    args = parser.parse_args()
    rows: list[Row] = []
    with bootstrap_of(args.bootstrap) as bootstrap, tempfile.TemporaryDirectory(prefix="streams-") as name:
        for workload in args.only.split(","):
            for rival in args.rivals.split(","):
                if workload == "filter" and rival in ("quix", "faust"):
                    continue  # their apps have three workloads
                try:
                    row = measure(bootstrap, rival, workload, args.records, Path(name))
                except Unavailable as error:
                    print(f"{workload} {rival}: not measured: {error}", flush=True)
                    continue
                rows.append(row)
                print(f"{workload:8} {rival:9} {row.rate:>10,.0f} records/s  {asdict(row)}", flush=True)
    if not rows:
        return 1
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "streams.json").write_text(
        json.dumps({"machine": machine(), "rows": [asdict(r) for r in rows]}, indent=1) + "\n"
    )
    (RESULTS / "streams.md").write_text(page(rows))
    print(page(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
