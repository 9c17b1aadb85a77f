"""Processes that write numbered lines into logs that rotate, and what is true of the topic they were shipped into.

Each writer ends after its time and prints how many lines it has written: `name 0000017 some words to make it a line`.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

PYTHON_WRITER = """
import fcntl, logging, logging.handlers, sys, time
folder, name, how, seconds, per_tick = *sys.argv[1:4], float(sys.argv[4]), int(sys.argv[5])
path, end, written = f"{folder}/{name}.log", time.monotonic() + seconds, 0
if how == "rotating":
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=40_000, backupCount=900)
elif how == "timed":
    handler = logging.handlers.TimedRotatingFileHandler(path, when="s", interval=2, backupCount=900)
elif how == "watched":
    handler = logging.handlers.WatchedFileHandler(path)  # reopens when somebody has renamed its file
else:
    handler = logging.FileHandler(path)  # keeps its file open for ever: for copytruncate
log = logging.getLogger(); log.addHandler(handler); log.setLevel(logging.INFO)
with open(f"{folder}/../{name}.lock", "w") as lock:
    while time.monotonic() < end:
        # Whoever rotates by copytruncate holds the lock: what is written between copy and truncation is lost by nature.
        fcntl.flock(lock, fcntl.LOCK_EX)
        for _ in range(per_tick):
            log.info("%s %07d some words to make it a line", name, written); written += 1
        fcntl.flock(lock, fcntl.LOCK_UN)
        time.sleep(0.05)
print(written)
"""


@dataclass
class Writers:
    """The writers of one folder."""

    folder: Path
    seconds: float
    lines_per_tick: int = 15
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def python(self, name: str, how: str) -> None:
        """how: rotating, timed, watched, or append."""
        arguments = [str(self.folder), name, how, str(self.seconds), str(self.lines_per_tick)]
        self.start(name, [sys.executable, "-c", PYTHON_WRITER, *arguments])

    def java(self, name: str, command: list[str], *arguments: str) -> None:
        """A program of tests/soak/java."""
        self.start(
            name, [*command, str(self.folder), name, str(self.seconds), str(self.lines_per_tick), *arguments]
        )

    def start(self, name: str, command: list[str]) -> None:
        self.processes[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def are_at_work(self) -> bool:
        return any(process.poll() is None for process in self.processes.values())

    def written(self) -> dict[str, int]:
        """How many lines each has written; waits for them to end."""
        counts = {}
        for name, process in self.processes.items():
            out, errors = process.communicate(timeout=120)
            assert process.returncode == 0, (name, errors.decode()[-2000:])
            counts[name] = int(out)
        return counts

    def kill(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.communicate()

    @contextmanager
    def paused(self, name: str) -> Any:
        """Nothing is written by a Python writer meanwhile."""
        with (self.folder.parent / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def read_topic(bootstrap: str, topic: str) -> Iterable[Any]:
    """Every record of a topic of one partition, by confluent-kafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            for message in consumer.consume(1000, 60):
                if message.error() is None:
                    yield message
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    return
    finally:
        consumer.close()


def wait_for_lines(bootstrap: str, topic: str, count: int, seconds: float) -> bool:
    """Whether a topic of one partition has so many records; False when it has not grown for `seconds`."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge"})
    end, grew_at = 0, time.monotonic()
    try:
        while end < count and time.monotonic() - grew_at < seconds:
            end_now = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)[1]
            if end_now > end:
                end, grew_at = end_now, time.monotonic()
            time.sleep(0.2)
    finally:
        consumer.close()
    return end >= count


def judge(bootstrap: str, topic: str, written: dict[str, int]) -> list[str]:
    """What is wrong with a topic that must hold each line once, in the order of its file; nothing when all is well."""
    seen: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    last: dict[str, int] = {}
    wrong = []
    for message in read_topic(bootstrap, topic):
        headers = dict(message.headers())
        file_id, _, position = headers["position"].decode().partition(":")
        where = f"{headers['file'].decode()} {file_id}:{position} at offset {message.offset()}"
        words = message.value().split()
        if len(words) != 9:
            wrong.append(f"not a line that was written: {message.value()[:80]!r}, {where}")
            continue
        seen[words[0].decode()][int(words[1])].append(where)
        if int(position) <= last.get(file_id, -1):
            wrong.append(f"out of order: {where} after position {last[file_id]}")
        last[file_id] = int(position)
    for name, count in written.items():
        lost = [number for number in range(count) if number not in seen[name]]
        doubled = {number: places for number, places in seen[name].items() if len(places) > 1}
        if lost:
            wrong.append(f"{name}: {len(lost)} of {count} lines lost: {lost[:5]} ... {lost[-1]}")
        if doubled:
            wrong.append(
                f"{name}: {len(doubled)} of {count} lines doubled, the first: {next(iter(doubled.items()))}"
            )
    return wrong
