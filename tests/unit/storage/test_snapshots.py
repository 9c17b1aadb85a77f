"""Logs come and go on the broker's loop while threads look at all of them."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.config import LogConfig
from barnabas.storage.dirs.log_manager import LogManager


@contextmanager
def run_whenever_the_interpreter_may_switch(work: Callable[[], None]) -> Iterator[None]:
    """Run `work` wherever an object that the garbage collector knows is made: other threads may run there."""

    def collected(phase: str, _: object) -> None:
        if phase == "start":
            work()

    before = gc.get_threshold()
    gc.callbacks.append(collected)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collected)


JOBS: dict[str, Callable[[LogManager], object]] = {
    "flush": lambda logs: logs.flush_due(1e12),
    "checkpoint": lambda logs: logs.checkpoint(),
    "remove": lambda logs: logs.remove_doomed(1e12),
    "usage": lambda logs: logs.usage(),
    "find what to clean": lambda logs: logs.cleaner.filthiest(0),
}


@pytest.mark.parametrize("job", JOBS)
def test_logs_may_come_and_go_while_a_thread_looks_at_all_of_them(tmp_path: Path, job: str) -> None:
    logs = LogManager([tmp_path], lambda topic: LogConfig())
    logs.lock()
    logs.load(0)
    for index in range(10):
        logs.create("t", index, None, 0)
    known = list(logs.logs.values())
    numbers = itertools.count(100)

    def come_and_go() -> None:
        number = next(numbers)
        logs._logs[TopicPartition("other", number)] = known[0]
        logs._logs.pop(TopicPartition("other", number - 3), None)

    try:
        with run_whenever_the_interpreter_may_switch(come_and_go):
            JOBS[job](logs)
        assert next(numbers) > 100, "logs came meanwhile"
    finally:
        for name in [name for name in logs.logs if name.topic == "other"]:
            del logs._logs[name]
        logs.close()
