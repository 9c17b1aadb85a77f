"""What tasks need of their worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.admin.blocking import Admin
from barnabas.connect.worker import formats
from barnabas.connect.worker.board import Board
from barnabas.connect.worker.formats import Status, TaskId
from barnabas.connect.worker.logs import TopicLogs
from barnabas.connect.worker.settings import WorkerOptions
from barnabas.observe.metric import Sample


@dataclass(slots=True)
class Counts:
    """What a task has done. at: the time of the last record, in seconds since 1970."""

    records: int = 0
    failed: int = 0
    at: float = 0.0


@dataclass(slots=True)
class Services:
    """options, board, logs: of the worker. worker_id: HOST:PORT. tell: writes a line to a connector's journal."""

    options: WorkerOptions
    board: Board
    logs: TopicLogs
    admin: Admin
    worker_id: str
    tell: Callable[[str, str, str], None] = lambda connector, level, text: None
    generation: int = 0
    counts: dict[TaskId, Counts] = field(default_factory=dict)
    measured: dict[TaskId, Callable[[], Iterable[Sample]]] = field(default_factory=dict)
    """What running tasks measure of themselves."""

    def samples(self) -> Iterable[Sample]:
        """Of all tasks."""
        for collect in list(self.measured.values()):
            yield from collect()

    def status(self, key: str, state: str, trace: str | None = None, version: str | None = None) -> None:
        """Writes a status; key as in `formats`."""
        value = formats.status_value(Status(state, self.worker_id, self.generation, trace, version))
        self.logs.write_later(self.options.status_topic, key.encode(), formats.dump(value))

    def note_topic(self, topic: str, task: TaskId) -> None:
        """Notes that a connector uses a topic."""
        if not self.options["topic.tracking.enable"] or self.board.uses(task.connector, topic):
            return
        value = formats.topic_value(topic, task, int(time.time() * 1000))
        key = formats.topic_key(topic, task.connector).encode()
        self.logs.write_later(self.options.status_topic, key, formats.dump(value))

    def transactional_id(self, task: TaskId) -> str:
        """As Kafka's workers name it, so that they fence each other."""
        return f"{self.options.group}-{task.connector}-{task.number}"


def overrides(config: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The options of a connector for its clients: kind.override.*"""
    prefix = f"{kind}.override."
    return {name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)}
