"""What a worker knows of the cluster: the replayed records of Connect's three topics. No I/O.

Reading threads change it while requests read it, so every method holds the lock for a moment; what it returns is a copy.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.connect.records import Json
from barnabas.connect.worker import formats
from barnabas.connect.worker.formats import State, Status, Target, TaskId

log = logging.getLogger("barnabas.connect")


@dataclass(frozen=True, slots=True)
class Deployed:
    """A connector. config: its texts. tasks: their configurations, once they have been made (None before).

    version: counts changes of the configuration, tasks_version those of the tasks, in this process.
    """

    name: str
    config: Mapping[str, str]
    target: Target = Target.STARTED
    tasks: tuple[Mapping[str, str], ...] | None = None
    version: int = 0
    tasks_version: int = 0


@dataclass(slots=True)
class _Row:
    config: dict[str, str]
    version: int
    target: Target = Target.STARTED
    tasks: tuple[Mapping[str, str], ...] | None = None
    tasks_version: int = 0


@dataclass(frozen=True, slots=True)
class Restart:
    """A request to restart a connector and some of its tasks. task: only the task of this number."""

    connector: str
    include_tasks: bool
    only_failed: bool
    task: int | None = None


@dataclass(slots=True)
class Board:
    """changed: called, in the reading thread, after configurations, targets or tasks have changed. restart: as well, with
    requests to restart. logger: with (name, level) for the whole cluster."""

    changed: Callable[[], None] = lambda: None
    restart: Callable[[Restart], None] = lambda restart: None
    logger: Callable[[str, str], None] = lambda name, level: None
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _rows: dict[str, _Row] = field(default_factory=dict)
    _targets: dict[str, Target] = field(default_factory=dict)
    _pending: dict[TaskId, dict[str, str]] = field(default_factory=dict)
    _fencing: dict[str, int] = field(default_factory=dict)
    _connectors: dict[str, Status] = field(default_factory=dict)
    _tasks: dict[TaskId, Status] = field(default_factory=dict)
    _topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    _offsets: dict[str, dict[str, tuple[bytes, Json, Json]]] = field(default_factory=dict)
    _versions: int = 0
    is_replayed: bool = False

    # --- reading ------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """The connectors, sorted."""
        with self._lock:
            return sorted(self._rows)

    def get(self, name: str) -> Deployed | None:
        """A connector."""
        with self._lock:
            row = self._rows.get(name)
            return None if row is None else self._deployed(name, row)

    def all(self) -> list[Deployed]:
        """All connectors, by name."""
        with self._lock:
            return [self._deployed(name, row) for name, row in sorted(self._rows.items())]

    @staticmethod
    def _deployed(name: str, row: _Row) -> Deployed:
        return Deployed(name, dict(row.config), row.target, row.tasks, row.version, row.tasks_version)

    def status(self, name: str) -> Status | None:
        """The status of a connector."""
        with self._lock:
            return self._connectors.get(name)

    def task_statuses(self, name: str) -> dict[int, Status]:
        """The statuses of its tasks, by number."""
        with self._lock:
            return {
                task.number: status for task, status in sorted(self._tasks.items()) if task.connector == name
            }

    def topics(self, name: str) -> list[str]:
        """The topics that a connector has used."""
        with self._lock:
            return sorted(self._topics.get(name, ()))

    def uses(self, name: str, topic: str) -> bool:
        """Whether a connector is known to use a topic."""
        with self._lock:
            return topic in self._topics.get(name, ())

    def fencing(self, name: str) -> int:
        """How many tasks of a source may have transactions open."""
        with self._lock:
            return self._fencing.get(name, 0)

    def offsets(self, name: str) -> list[tuple[Json, Json]]:
        """The offsets of a source, by partition."""
        with self._lock:
            return [(partition, offset) for _, partition, offset in self._offsets.get(name, {}).values()]

    def offset(self, name: str, partition: Json) -> Json | None:
        """The offset of a partition of a source."""
        with self._lock:
            row = self._offsets.get(name, {}).get(formats.canonical(partition))
            return None if row is None else row[2]

    def offset_key(self, name: str, partition: Json) -> bytes:
        """The key under which the offset of a partition is stored: as it was written first."""
        with self._lock:
            row = self._offsets.get(name, {}).get(formats.canonical(partition))
        return formats.offset_key(name, partition) if row is None else row[0]

    # --- replaying ----------------------------------------------------------------------------------

    def take_config(self, raw_key: bytes | None, raw: bytes | None) -> None:
        """A record of the topic of configurations. Raises ValueError."""
        key = (raw_key or b"").decode()
        value = formats.load(raw)
        if value is not None and not isinstance(value, dict):
            raise ValueError(f"{key} is not an object")
        with self._lock:
            self._apply(key, value)

    def _apply(self, key: str, value: dict[str, Any] | None) -> None:
        if key.startswith(formats.CONNECTOR):
            self._apply_connector(key.removeprefix(formats.CONNECTOR), value)
        elif key.startswith(formats.TARGET):
            self._apply_target(key.removeprefix(formats.TARGET), value)
        elif key.startswith(formats.COMMIT):
            self._apply_commit(key.removeprefix(formats.COMMIT), value)
        elif key.startswith(formats.FENCING):
            self._fencing[key.removeprefix(formats.FENCING)] = int((value or {}).get("task-count", 0))
        elif key.startswith(formats.RESTART):
            if value is not None and self.is_replayed:
                name = key.removeprefix(formats.RESTART)
                flags = bool(value["include-tasks"]), bool(value["only-failed"])
                task = value.get("task")
                self.restart(Restart(name, *flags, task if isinstance(task, int) else None))
        elif key.startswith(formats.LOGGER):
            if value is not None and self.is_replayed:
                self.logger(key.removeprefix(formats.LOGGER), str(value["level"]))
        elif key.startswith(formats.TASK):
            task = formats.task_of(key.removeprefix(formats.TASK))
            if task is not None and value is not None:
                self._pending[task] = _texts(value["properties"])

    def _apply_connector(self, name: str, value: dict[str, Any] | None) -> None:
        if value is None:
            self._rows.pop(name, None)
            self._targets.pop(name, None)
            self._pending = {task: row for task, row in self._pending.items() if task.connector != name}
        else:
            self._versions += 1
            config = _texts(value["properties"])
            row = self._rows.get(name)
            if row is None:
                target = self._targets.get(name, Target.STARTED)
                self._rows[name] = _Row(config, self._versions, target)
            else:
                row.config, row.version = config, self._versions
        self.changed()

    def _apply_target(self, name: str, value: dict[str, Any] | None) -> None:
        if value is None:
            self._targets.pop(name, None)
            return
        self._targets[name] = formats.read_target(value)
        row = self._rows.get(name)
        if row is not None:
            row.target = self._targets[name]
        self.changed()

    def _apply_commit(self, name: str, value: dict[str, Any] | None) -> None:
        row = self._rows.get(name)
        if row is None or value is None:
            return
        count = int(value["tasks"])
        tasks = [self._pending.get(TaskId(name, number)) for number in range(count)]
        if any(task is None for task in tasks):  # compaction has removed some: they are made again
            log.warning("configurations of tasks are not complete", extra={"connector": name})
            row.tasks = None
        else:
            self._versions += 1
            row.tasks = tuple(task for task in tasks if task is not None)
            row.tasks_version = self._versions
        self.changed()

    def take_status(self, raw_key: bytes | None, raw: bytes | None) -> None:
        """A record of the topic of statuses. Raises ValueError."""
        key = (raw_key or b"").decode()
        value = formats.load(raw)
        with self._lock:
            if key.startswith(formats.STATUS_TOPIC):
                topic, _, name = key.removeprefix(formats.STATUS_TOPIC).partition(formats.TOPIC_OF)
                used = self._topics.setdefault(name, {})
                if value is None:
                    used.pop(topic, None)
                else:
                    used[topic] = value
            elif key.startswith(formats.STATUS_CONNECTOR):
                name = key.removeprefix(formats.STATUS_CONNECTOR)
                self._take(self._connectors, name, value)
            elif key.startswith(formats.STATUS_TASK):
                task = formats.task_of(key.removeprefix(formats.STATUS_TASK))
                if task is not None:
                    self._take(self._tasks, task, value)

    @staticmethod
    def _take(statuses: dict[Any, Status], key: Any, value: Any) -> None:
        status = None if value is None else formats.read_status(value)
        if status is None or status.state == State.DESTROYED:
            statuses.pop(key, None)
        else:
            statuses[key] = status

    def take_offset(self, raw_key: bytes | None, raw: bytes | None) -> None:
        """A record of the topic of offsets. Raises ValueError."""
        key = formats.load(raw_key)
        if not isinstance(key, list) or len(key) != 2 or not isinstance(key[1], dict):
            raise ValueError("the key of an offset is not [connector, partition]")
        name, partition = str(key[0]), key[1]
        offset = formats.load(raw)
        with self._lock:
            rows = self._offsets.setdefault(name, {})
            if isinstance(offset, dict):
                rows[formats.canonical(partition)] = (bytes(raw_key or b""), partition, offset)
            else:
                rows.pop(formats.canonical(partition), None)


def _texts(properties: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): value if value is None else _text(value) for name, value in properties.items()}  # type: ignore[misc]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
