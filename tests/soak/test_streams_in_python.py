"""Streams in Python, killed with kill -9 again and again: driver, Java and Python's workers, while lines come in.

    pytest tests/soak/test_streams_in_python.py -m soak -s [--soak-minutes 20]

The truth is kept outside: how often each word was written. In the end the topic has, for each word, counts that only grow,
one of each micro-batch, up to that number; the app's store has the last one; and there are no dead letters.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.streams import StreamsError
from tests.pipelines.readers import consumed
from tests.soak.streams.words import app_of
from tests.support.process import BrokerProcess

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]

APP = Path(__file__).parent / "streams" / "words.py"
TOPIC = "kept"
WORDS = 50
LINES_PER_S = 40
ROUNDS_MIN = 3
START_S = 400.0
END_S = 600.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data").start()
    yield process
    process.kill()


class Writer(threading.Thread):
    """Writes lines at a steady rate. truth: how often each word was written."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.truth: Counter[str] = Counter()
        self.stopping = threading.Event()
        self._chance = random.Random(7)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def run(self) -> None:
        while not self.stopping.wait(1 / LINES_PER_S):
            line = [f"w{self._chance.randrange(WORDS)}" for _ in range(5)]
            self._producer.produce(f"{TOPIC}-lines", " ".join(line))
            self.truth.update(line)
            self._producer.poll(0)
        assert self._producer.flush(300) == 0


class Running:
    """The app's process, and all that belongs to it."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        with (folder / "app.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(APP), bootstrap, TOPIC, str(folder / "checkpoints")],
                cwd=Path(__file__).parents[2],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )

    def kill(self) -> None:
        """Ends all of its processes with SIGKILL."""
        family = [self.process.pid]
        try:
            family += [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]
        except psutil.Error:
            pass  # it has ended by itself
        for pid in family:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


def test_counts_are_exact_through_kills(
    broker: BrokerProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(f"{TOPIC}-{name}", 2, 1) for name in ("lines", "counts")]
    for future in admin.create_topics(topics).values():
        future.result()
    store = app_of(broker.bootstrap, TOPIC).store("counts", checkpoint_dir=tmp_path / "checkpoints")

    def counted() -> int:
        try:
            return sum(count for _, count in store.items())
        except StreamsError:
            return 0

    chance = random.Random(3)
    end = time.monotonic() + 60 * float(request.config.getoption("--soak-minutes"))
    writer = Writer(broker.bootstrap)
    writer.start()
    app = Running(broker.bootstrap, tmp_path)
    rounds = 0
    try:
        while rounds < ROUNDS_MIN or time.monotonic() < end:
            before, give_up = counted(), time.monotonic() + START_S
            while counted() == before:
                assert time.monotonic() < give_up, (tmp_path / "app.log").read_text()[-2000:]
                time.sleep(0.2)
            time.sleep(chance.uniform(0, 6))
            app.kill()
            rounds += 1
            print(
                f"{time.strftime('%H:%M:%S')} killed {rounds} times, {counted():,} words counted", flush=True
            )
            app = Running(broker.bootstrap, tmp_path)
        writer.stopping.set()
        writer.join()
        wanted, give_up = sum(writer.truth.values()), time.monotonic() + END_S
        while counted() < wanted:
            assert time.monotonic() < give_up, f"{counted()} of {wanted} words are counted"
            time.sleep(0.2)
    finally:
        app.kill()
    assert dict(store.items()) == dict(writer.truth)
    counts_by_word: dict[str, list[int]] = {}
    for record in consumed(broker.bootstrap, f"{TOPIC}-counts"):
        assert record.key is not None
        assert record.value is not None
        counts_by_word.setdefault(record.key.decode(), []).append(int(record.value))
    assert {word: counts[-1] for word, counts in counts_by_word.items()} == dict(writer.truth)
    assert [word for word, counts in counts_by_word.items() if counts != sorted(set(counts))] == []
    assert consumed(broker.bootstrap, f"{TOPIC}-dead-letters") == []
    print(f"{rounds} kills, {wanted:,} words: each counted once")
