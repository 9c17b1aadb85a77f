"""A source connector that fills the topic of a pipeline's source, in the pipeline's process.

Its tasks are those of a Connect worker: records and offsets are written in one transaction, under the transactional ids of
the group `barnabas-pipelines`, so that what is killed is repeated from the last committed offset and nothing is doubled.
The offsets of all pipelines are in one topic, in Kafka Connect's format.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from confluent_kafka import KafkaException

from barnabas.admin import NewTopic
from barnabas.admin.blocking import Admin
from barnabas.client.errors import BrokerUnavailable, ClientError
from barnabas.connect.errors import ConnectError, OptionError
from barnabas.connect.worker.board import Board
from barnabas.connect.worker.creating import Creation
from barnabas.connect.worker.formats import State, TaskId
from barnabas.connect.worker.logs import TopicLogs
from barnabas.connect.worker.planning import Loaded, load, task_configs
from barnabas.connect.worker.runner import TaskRunner
from barnabas.connect.worker.services import Services
from barnabas.connect.worker.settings import WorkerOptions
from barnabas.connect.worker.source import SourceTask
from barnabas.pipelines.plan.errors import BrokerAway, PipelineError
from barnabas.wire.errors import ErrorCode

log = logging.getLogger("barnabas.connect")

GROUP: Final = "barnabas-pipelines"
OFFSETS: Final = "barnabas-pipelines-offsets"
OFFSET_PARTITIONS: Final = 5
DEADLINE_S: Final = 30.0
LOOK_S: Final = 60.0
STOP_S: Final = 20.0
IDLE_ROUNDS: Final = 3
"""After so many polls of everything without a record, a source has nothing more at the moment."""
Tell = Callable[[str, str], None]


@dataclass(slots=True)
class _Services(Services):
    """What tasks need, without a worker's topics. topics: those that the source reads. troubles: by the key of a status."""

    topics: Sequence[str] = ()
    troubles: dict[str, str] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)

    def status(self, key: str, state: str, trace: str | None = None, version: str | None = None) -> None:
        """Only failures are kept."""
        if state == State.FAILED:
            self.troubles[key] = " ".join((trace or "").split())
        else:
            self.troubles.pop(key, None)

    def note_topic(self, topic: str, task: TaskId) -> None:
        """Says once if the connector writes to a topic that the source does not read."""
        if self.topics and topic not in self.topics and topic not in self.others:
            self.others.add(topic)
            self.tell(
                task.connector,
                "WARNING",
                f"it writes to topic {topic}, but the source reads {', '.join(self.topics)}",
            )


def feed(
    name: str,
    config: Mapping[str, str],
    client: Mapping[str, str],
    topics: Sequence[str],
    *,
    compacted: bool,
    tell: Tell,
) -> Feeding:
    """See `Connectors`."""
    return Feeding(name, config, client, topics, compacted=compacted, tell=tell)


class Feeding:
    """See `Feed`."""

    def __init__(
        self,
        name: str,
        config: Mapping[str, str],
        client: Mapping[str, str],
        topics: Sequence[str],
        *,
        compacted: bool,
        tell: Tell,
    ) -> None:
        self._name, self._config, self._topics, self._compacted = (
            name,
            {**config, "name": name},
            topics,
            compacted,
        )
        worker_texts = {"group.id": GROUP, "offset.storage.topic": OFFSETS, "topic.tracking.enable": "false"}
        self._options = WorkerOptions.of(client, worker_texts)
        self._tell = tell
        self._stopping, self._changed = threading.Event(), threading.Event()
        self._services: _Services | None = None
        self._runners: list[TaskRunner] = []
        self._thread: threading.Thread | None = None
        self._planning: str | None = None

    # --- what pipelines call ------------------------------------------------------------------------

    def drain(self) -> None:
        """See `Feed`."""
        try:
            services = self._opened()
            for number, config in enumerate(self._planned(services)):
                loaded, task = self._load(config), TaskId(self._name, number)
                SourceTask(services, task, loaded, self._stopping, IDLE_ROUNDS).run(lambda: None)
        except Exception as error:
            raise self._failure(error) from error
        finally:
            self._close()

    def start(self) -> None:
        """See `Feed`."""
        try:
            services = self._opened()
            tasks = self._planned(services)
        except Exception as error:
            self._close()
            raise self._failure(error) from error
        self._run_tasks(services, tasks)
        self._thread = threading.Thread(
            target=self._watch, args=(services, tasks), name=f"feed {self._name}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """See `Feed`."""
        self._stopping.set()
        self._changed.set()
        if self._thread is not None:
            self._thread.join(STOP_S)
            self._end_tasks()
            self._close()

    def trouble(self) -> str | None:
        """See `Feed`."""
        services = self._services
        troubles = [] if services is None else list(services.troubles.copy().values())
        return next(iter([*([self._planning] if self._planning else []), *troubles]), None)

    # --- the work -----------------------------------------------------------------------------------

    def _opened(self) -> _Services:
        options = self._options
        admin = Admin(replace(options.own_client(), deadline_s=DEADLINE_S))
        board = Board()
        tell = lambda connector, level, text: self._tell(level, text)  # noqa: E731
        logs: Any = None
        try:
            self._create_topics(admin)
            logs = TopicLogs(options.clients(), {options.offset_topic: board.take_offset}, admin)
            self._services = _Services(options, board, logs, admin, GROUP, tell, topics=self._topics)
            logs.start()
        except Exception:
            if self._services is None:
                admin.close()
            raise
        return self._services

    def _create_topics(self, admin: Admin) -> None:
        """Raises ClientError, ConnectError."""
        descriptions = admin.topics.describe([OFFSETS, *self._topics]).done
        new = []
        if OFFSETS not in descriptions:
            new.append(NewTopic(OFFSETS, OFFSET_PARTITIONS, -1, {"cleanup.policy": "compact"}))
        creation = Creation(admin, self._config, enabled=True)
        for topic in self._topics:
            if topic in descriptions:
                continue
            if any(name.startswith("topic.creation.default.") for name in self._config):
                creation.require(topic)
            else:
                new.append(NewTopic(topic, 1, -1, {"cleanup.policy": "compact"} if self._compacted else {}))
        if new:
            admin.topics.create(new).except_for(ErrorCode.TOPIC_ALREADY_EXISTS).require()

    def _load(self, config: Mapping[str, str]) -> Loaded:
        return load(self._options, config, self._changed.set)

    def _planned(self, services: _Services) -> list[dict[str, str]]:
        """The tasks that there should be. Raises ConnectError."""

        def offsets(partitions: Sequence[Mapping[str, Any]]) -> list[Any]:
            return [services.board.offset(self._name, partition) for partition in partitions]

        return task_configs(self._load(self._config), self._name, None, offsets)

    def _run_tasks(self, services: _Services, tasks: Sequence[Mapping[str, str]]) -> None:
        self._runners = [
            TaskRunner(services, TaskId(self._name, number), lambda config=config: self._load(config))  # type: ignore[misc]
            for number, config in enumerate(tasks)
        ]
        for runner in self._runners:
            runner.start()

    def _end_tasks(self) -> None:
        for runner in self._runners:
            runner.ask_to_stop()
        for runner in self._runners:
            if not runner.wait(STOP_S):
                log.error("a task does not end, and is left behind", extra={"task": str(runner.task)})
        self._runners = []

    def _watch(self, services: _Services, tasks: list[dict[str, str]]) -> None:
        """Divides the work again when the source has other partitions than before."""
        while not self._stopping.is_set():
            self._changed.wait(LOOK_S)
            self._changed.clear()
            if self._stopping.is_set():
                return
            try:
                tasks_now = self._planned(services)
                self._planning = None
            except Exception as error:
                self._planning = str(error)
                continue
            if tasks_now != tasks:
                self._tell("INFO", f"the source is divided into {len(tasks_now)} tasks again")
                self._end_tasks()
                tasks = tasks_now
                self._run_tasks(services, tasks)

    def _close(self) -> None:
        services, self._services = self._services, None
        if services is not None:
            services.logs.stop()
            services.admin.close()

    def _failure(self, error: Exception) -> Exception:
        about = f"connector {self._name}"
        if isinstance(error, BrokerUnavailable):
            return BrokerAway(f"{about}: {error}")
        if isinstance(error, KafkaException):
            return PipelineError(f"{about}: {error.args[0].str()}")
        if isinstance(error, (ConnectError, OptionError, ClientError)):
            return PipelineError(f"{about}: {error}")
        return PipelineError(f"{about}: {type(error).__name__}: {error}")
