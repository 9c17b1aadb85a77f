"""A task's thread: the task runs, and after a failure it runs again, after a pause that grows."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException

from barnabas.connect.errors import ConnectError, OptionError
from barnabas.connect.worker import formats
from barnabas.connect.worker.failing import exception_class
from barnabas.connect.worker.formats import State, TaskId
from barnabas.connect.worker.planning import Loaded
from barnabas.connect.worker.services import Services
from barnabas.connect.worker.sink import SinkTask
from barnabas.connect.worker.source import SourceTask
from barnabas.pipelines.serving.pauses import WELL_SECONDS, pause_seconds

log = logging.getLogger("barnabas.connect")

TRACE_MAX: Final = 8_000


def trace_of(error: BaseException) -> str:
    """An error as a status shows it: the class that Kafka has for it, and the message."""
    if isinstance(error, KafkaException):
        return f"org.apache.kafka.common.KafkaException: {error.args[0].str()}"[:TRACE_MAX]
    return f"{exception_class(error)}: {error}"[:TRACE_MAX]


class TaskRunner:
    """load: makes what runs; called before each run. restarts: how often it has failed since it last ran well."""

    def __init__(self, services: Services, task: TaskId, load: Callable[[], Loaded]) -> None:
        self._services, self.task, self._load = services, task, load
        self._stopping = threading.Event()
        self._again = threading.Event()
        self.restarts = 0
        self.is_failed = False
        self._started_at = 0.0
        self._version = ""
        self._thread = threading.Thread(target=self._run, name=f"task {task}", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Lets the task end after what it is doing."""
        self._stopping.set()
        self._again.set()

    def wait(self, timeout_s: float) -> bool:
        """Whether the thread has ended in time."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def retry_now(self) -> None:
        """Ends the pause after a failure."""
        self._again.set()

    def _status(self, state: State, trace: str | None = None) -> None:
        self._services.status(f"{formats.STATUS_TASK}{self.task}", state, trace, self._version or None)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._started_at = 0.0
            try:
                loaded = self._load()
                self._version = loaded.kind.version
                kind = SourceTask if loaded.is_source else SinkTask
                kind(self._services, self.task, loaded, self._stopping).run(self._started)
                continue
            except Exception as error:
                if self._stopping.is_set():
                    return
                self._failed(error)

    def _started(self) -> None:
        self._started_at = time.monotonic()
        self.is_failed = False
        self._status(State.RUNNING)
        self._services.tell(self.task.connector, "INFO", f"task {self.task.number} runs")

    def _failed(self, error: Exception) -> None:
        if self._started_at and time.monotonic() - self._started_at > WELL_SECONDS:
            self.restarts = 0
        pause_s = pause_seconds(self.restarts)
        self.restarts += 1
        self.is_failed = True
        known = isinstance(error, (ConnectError, OptionError, KafkaException))
        log.log(
            logging.WARNING if known else logging.ERROR,
            "task failed",
            extra={"task": str(self.task), "reason": str(error), "retry_s": pause_s},
            exc_info=None if known else error,
        )
        again = f"it is started again in {pause_s:g} s (failure {self.restarts})"
        trace = trace_of(error)
        self._services.tell(self.task.connector, "ERROR", f"task {self.task.number} failed: {trace}; {again}")
        self._status(State.FAILED, f"{trace}\n{again}")
        self._again.clear()
        if not self._stopping.is_set():
            self._again.wait(pause_s)
