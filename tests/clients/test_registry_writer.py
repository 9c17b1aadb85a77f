"""Several instances of the registry: one writes, the others hand on; what kill -9 leaves."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
import uuid
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.support.registry import RegistryProcess, call

SESSION_MS = 6_000
"""The least that brokers allow."""


class Clients:
    """Threads that register schemas at any instance, and remember every answer that came."""

    def __init__(self, urls: list[str], count: int) -> None:
        self.urls = urls
        self.stopping = threading.Event()
        self.ids: dict[str, set[int]] = {}
        self.wrong: list[str] = []
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.work, args=(number,)) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def work(self, number: int) -> None:
        choose = random.Random(number)
        turn = 0
        while not self.stopping.is_set():
            turn += 1
            # Every second schema is one that another client registers as well, under another subject.
            shared = choose.random() < 0.5
            name = f"Shared{choose.randrange(50)}" if shared else f"Own{number}x{turn}"
            schema = json.dumps({"type": "record", "name": name, "fields": []}, separators=(",", ":"))
            try:
                status, answer = call(
                    choose.choice(self.urls),
                    "POST",
                    f"/subjects/{number}-{name}/versions",
                    {"schema": schema},
                    timeout=60,
                )
            except (OSError, HTTPException):
                continue  # the instance is dead, or died before or while it answered
            with self.lock:
                if status == 200:
                    self.ids.setdefault(schema, set()).add(answer["id"])
                elif status < 500:
                    self.wrong.append(f"{status} {answer}")

    def count(self) -> int:
        with self.lock:
            return len(self.ids)

    def stop(self) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join()


def kill_and_check(bootstrap: str, folder: Path, kills: int, clients: int) -> None:
    name = uuid.uuid4().hex[:8]
    arguments = (
        "--topic",
        f"_schemas_{name}",
        "--group",
        f"registry-{name}",
        "--session-timeout-ms",
        str(SESSION_MS),
    )
    instances = [RegistryProcess(bootstrap, folder / f"r{i}.log", *arguments) for i in range(2)]
    by_url = {instance.url: instance for instance in instances}
    for instance in instances:
        instance.start()
    for instance in instances:
        instance.await_writer()
    running = Clients(list(by_url), clients)
    choose = random.Random(name)
    try:
        for _ in range(kills):
            before = running.count()
            await_progress(running, before)
            time.sleep(choose.random() * 0.2)  # anywhere in the course of a registration
            writer = next(i for i in instances if "own=True" in last_election(i))
            writer.end(signal.SIGKILL)
            writer.launch()
            writer.await_ready()
        await_progress(running, running.count())
    finally:
        running.stop()
    try:
        check(running, instances)
    finally:
        assert [instance.end() for instance in instances] == [0, 0]


def last_election(instance: RegistryProcess) -> str:
    lines = [line for line in instance.log_path.read_text().splitlines() if "writer elected" in line]
    return lines[-1] if lines else ""


def await_progress(running: Clients, before: int) -> None:
    deadline = time.monotonic() + 240
    while running.count() <= before + 5:
        assert time.monotonic() < deadline, running.wrong[:5]
        time.sleep(0.02)


def check(running: Clients, instances: list[RegistryProcess]) -> None:
    assert not running.wrong
    by_id: dict[int, str] = {}
    for schema, ids in running.ids.items():
        assert len(ids) == 1, f"{schema} has ids {ids}"
        assert by_id.setdefault(next(iter(ids)), schema) == schema
    deadline = time.monotonic() + 120
    for instance in instances:
        for schema_id, schema in by_id.items():
            answer: Any = None
            while answer is None or (answer[0] != 200 and time.monotonic() < deadline):
                answer = call(instance.url, "GET", f"/schemas/ids/{schema_id}")
            assert answer[1]["schema"] == schema


def test_no_id_twice_and_nothing_lost_when_the_writer_is_killed(bootstrap: str, tmp_path: Path) -> None:
    kill_and_check(bootstrap, tmp_path, kills=2, clients=4)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_no_id_twice_after_a_hundred_kills(bootstrap: str, tmp_path: Path) -> None:
    kill_and_check(bootstrap, tmp_path, kills=100, clients=10)
