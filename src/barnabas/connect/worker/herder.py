"""Runs what this worker has been given of the connectors, and changes them on request.

All that is wanted is in the topic of configurations. A thread compares it with what runs whenever it changes: it starts,
stops and restarts tasks, and divides a connector's work into tasks again when its configuration has changed, or when the
source has other partitions than before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.client.errors import ClientError
from barnabas.connect.connectors import LOOK_S, SourceConnector
from barnabas.connect.errors import ConnectError, OptionError
from barnabas.connect.worker import formats
from barnabas.connect.worker.board import Board, Deployed, Restart
from barnabas.connect.worker.formats import State, Target, TaskId
from barnabas.connect.worker.planning import Loaded, load, task_configs
from barnabas.connect.worker.runner import TaskRunner, trace_of
from barnabas.connect.worker.services import Services
from barnabas.pipelines.serving.pauses import pause_seconds

log = logging.getLogger("barnabas.connect")

TICK_S: Final = 1.0
STOP_S: Final = 20.0
"""How long a task may take to end, before it is left behind: its transactional id is taken over."""
THREADS: Final = 8


@dataclass(slots=True)
class Assignment:
    """What this worker runs: connectors (to divide their work), and tasks. None: everything."""

    connectors: frozenset[str] | None = None
    tasks: frozenset[TaskId] | None = None

    def has_connector(self, name: str) -> bool:
        """Whether this worker divides a connector's work."""
        return self.connectors is None or name in self.connectors

    def has_task(self, task: TaskId) -> bool:
        """Whether this worker runs a task."""
        return self.tasks is None or task in self.tasks


@dataclass(slots=True)
class _Owned:
    """A connector whose work this worker divides. planned: the version of the configuration for which that was done.
    look_s: how often it is asked whether it has other partitions."""

    planned: int = -1
    target: Target | None = None
    looked_at: float = 0.0
    retry_at: float = 0.0
    failures: int = 0
    work: Future[None] | None = None
    must_look: bool = False
    look_s: float = LOOK_S


@dataclass(slots=True)
class _Running:
    runner: TaskRunner
    config: Mapping[str, str]
    is_ending: bool = False


@dataclass(slots=True)
class Herder:
    """services: of the worker."""

    services: Services
    assignment: Assignment = field(default_factory=Assignment)
    _owned: dict[str, _Owned] = field(default_factory=dict)
    _running: dict[TaskId, _Running] = field(default_factory=dict)
    _shown: dict[TaskId, State] = field(default_factory=dict)
    _changed: threading.Event = field(default_factory=threading.Event)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(THREADS, "connector"))
    _thread: threading.Thread | None = None
    _idle: bool = False

    @property
    def board(self) -> Board:
        """What is known of the cluster."""
        return self.services.board

    def start(self) -> None:
        """Begins to run connectors."""
        self.board.changed = self._changed.set
        self.board.restart = self.restart
        self._thread = threading.Thread(target=self._run, name="connect herder", daemon=True)
        self._thread.start()

    def note_change(self) -> None:
        """Has what runs compared with what is wanted."""
        self._changed.set()

    def stop(self) -> None:
        """Stops all tasks; what they have not committed is repeated by whoever runs them next."""
        self._stopping.set()
        self._changed.set()
        if self._thread is not None:
            self._thread.join(STOP_S)
        self.halt(lambda task: True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def assign(self, assignment: Assignment) -> None:
        """Takes another assignment; tasks that are not in it end before this returns."""
        with self._lock:
            self.assignment = assignment
            self._owned = {name: row for name, row in self._owned.items() if assignment.has_connector(name)}
        self.halt(lambda task: not assignment.has_task(task))
        self._changed.set()

    def halt(self, which: Callable[[TaskId], bool]) -> None:
        """Stops tasks and waits for them."""
        with self._lock:
            ending = [row for task, row in self._running.items() if which(task)]
            for row in ending:
                row.is_ending = True
                row.runner.ask_to_stop()
        deadline = time.monotonic() + STOP_S
        for row in ending:
            if not row.runner.wait(max(deadline - time.monotonic(), 0.1)):
                log.error("a task does not end, and is left behind", extra={"task": str(row.runner.task)})
            with self._lock:
                self._running.pop(row.runner.task, None)

    # --- the thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._changed.wait(TICK_S)
            self._changed.clear()
            if self._stopping.is_set():
                return
            try:
                self._tick()
            except Exception:
                log.exception("connectors could not be compared with what runs")

    def _tick(self) -> None:
        deployed = {row.name: row for row in self.board.all()}
        with self._lock:
            self._end_what_is_not_wanted(deployed)
            for name in [name for name in self._owned if name not in deployed]:
                del self._owned[name]
            for row in deployed.values():
                if self.assignment.has_connector(row.name):
                    self._own(row)
            for row in deployed.values():
                self._start_tasks(row)

    def _end_what_is_not_wanted(self, deployed: Mapping[str, Deployed]) -> None:
        for task, running in list(self._running.items()):
            row = deployed.get(task.connector)
            if not running.is_ending and not self._is_wanted(task, running, row):
                running.is_ending = True
                running.runner.ask_to_stop()
            if running.is_ending and running.runner.wait(0):
                del self._running[task]
                if row is not None and row.target is not Target.STARTED:
                    self._changed.set()

    def _is_wanted(self, task: TaskId, running: _Running, row: Deployed | None) -> bool:
        if row is None or row.tasks is None or row.target is not Target.STARTED:
            return False
        if task.number >= len(row.tasks) or not self.assignment.has_task(task):
            return False
        return row.tasks[task.number] == running.config

    def _start_tasks(self, row: Deployed) -> None:
        for number, config in enumerate(row.tasks or ()):
            task = TaskId(row.name, number)
            if not self.assignment.has_task(task) or task in self._running:
                continue
            if row.target is Target.STARTED:
                runner = TaskRunner(self.services, task, lambda config=config: self._load(config))  # type: ignore[misc]
                self._running[task] = _Running(runner, config)
                self._shown.pop(task, None)
                runner.start()
            elif row.target is Target.PAUSED and self._shown.get(task) is not State.PAUSED:
                self._shown[task] = State.PAUSED
                self.services.status(f"{formats.STATUS_TASK}{task}", State.PAUSED)

    def _load(self, config: Mapping[str, str]) -> Loaded:
        name = str(config.get("name") or "")
        return load(self.services.options, config, lambda: self._look_again(name))

    def _look_again(self, name: str) -> None:
        owned = self._owned.get(name)
        if owned is not None:
            owned.must_look = True
        self._changed.set()

    # --- dividing work --------------------------------------------------------------------------------

    def _own(self, row: Deployed) -> None:
        owned = self._owned.setdefault(row.name, _Owned())
        if owned.work is not None and not owned.work.done():
            return
        now = time.monotonic()
        is_new = owned.planned != row.version or owned.target is not row.target or row.tasks is None
        is_old = owned.must_look or now - owned.looked_at > owned.look_s
        is_due = is_new or (is_old and row.target is Target.STARTED)
        if not is_due or (now < owned.retry_at and owned.planned == row.version):
            return
        owned.must_look = False
        owned.looked_at, owned.planned = now, row.version
        owned.work = self._threads.submit(self._plan, row, owned)

    def _plan(self, row: Deployed, owned: _Owned) -> None:
        key = f"{formats.STATUS_CONNECTOR}{row.name}"
        try:
            if row.target is Target.STOPPED:
                self._write_tasks(row, [])
                self.services.status(key, State.STOPPED)
            else:
                loaded = self._load(row.config)
                if issubclass(loaded.kind, SourceConnector):
                    owned.look_s = loaded.kind.look_interval_s(loaded.config)
                self._write_tasks(row, self._divided(loaded, row))
                state = State.RUNNING if row.target is Target.STARTED else State.PAUSED
                if owned.target is not row.target or owned.failures or self._other_status(row.name, state):
                    self.services.status(key, state, None, loaded.kind.version)
            owned.target, owned.failures, owned.retry_at = row.target, 0, 0.0
        except (ConnectError, OptionError, ClientError) as error:
            self._plan_failed(row, owned, key, error)
        except Exception as error:
            log.exception("connector failed", extra={"connector": row.name})
            self._plan_failed(row, owned, key, error)
        self._changed.set()

    def _plan_failed(self, row: Deployed, owned: _Owned, key: str, error: Exception) -> None:
        pause_s = pause_seconds(owned.failures)
        owned.failures += 1
        owned.target, owned.retry_at = None, time.monotonic() + pause_s
        log.warning(
            "connector failed", extra={"connector": row.name, "reason": str(error), "retry_s": pause_s}
        )
        again = f"it is started again in {pause_s:g} s (failure {owned.failures})"
        self.services.tell(row.name, "ERROR", f"connector failed: {trace_of(error)}; {again}")
        self.services.status(key, State.FAILED, f"{trace_of(error)}\n{again}")

    def _other_status(self, name: str, state: State) -> bool:
        status = self.board.status(name)
        return status is None or status.state != state or status.worker_id != self.services.worker_id

    def _divided(self, loaded: Loaded, row: Deployed) -> list[dict[str, str]]:
        """The tasks of a connector. Raises ConnectError."""

        def offsets(partitions):  # type: ignore[no-untyped-def]
            return [self.board.offset(row.name, partition) for partition in partitions]

        return task_configs(loaded, row.name, self.services.options.folder, offsets)

    def _write_tasks(self, row: Deployed, tasks: list[dict[str, str]]) -> None:
        """Tasks of other partitions are fenced before the new ones are known, so that no record is read by both. Raises
        ConnectError, ClientError."""
        before = None if row.tasks is None else [dict(task) for task in row.tasks]
        if before == tasks:
            return
        options = self.services.options
        self.halt(lambda task: task.connector == row.name)
        fenced = max(self.board.fencing(row.name), len(before or ()))
        if fenced and options["exactly.once.source.support"] != "disabled":
            ids = [self.services.transactional_id(TaskId(row.name, number)) for number in range(fenced)]
            self.services.admin.transactions.fence(ids).require()
        rows: list[tuple[str, Any]] = [
            (formats.task_key(TaskId(row.name, number)), {"properties": task})
            for number, task in enumerate(tasks)
        ]
        rows += [
            (f"{formats.FENCING}{row.name}", {"task-count": len(tasks)}),
            (f"{formats.COMMIT}{row.name}", {"tasks": len(tasks)}),
        ]
        self.services.logs.write(
            options.config_topic, [(key.encode(), formats.dump(value)) for key, value in rows]
        )
        self.services.logs.read_to_end([options.config_topic])
        for number in range(len(tasks), len(before or ())):
            self._forget_task(TaskId(row.name, number))

    def _forget_task(self, task: TaskId) -> None:
        key = f"{formats.STATUS_TASK}{task}"
        self.services.logs.write_later(self.services.options.status_topic, key.encode(), None)

    # --- restarts -------------------------------------------------------------------------------------

    def restart(self, request: Restart) -> None:
        """Restarts a connector, and those of its tasks that run here, without waiting."""
        self._threads.submit(self._restart, request)

    def _restart(self, request: Restart) -> None:
        name = request.connector
        if request.task is not None:
            self.restart_task(TaskId(name, request.task))
            return
        status = self.board.status(name)
        if not request.only_failed or (status is not None and status.state == State.FAILED):
            with self._lock:
                owned = self._owned.get(name)
                if owned is not None:
                    owned.planned, owned.target, owned.retry_at = -1, None, 0.0
        if request.include_tasks:
            for number, task in self.board.task_statuses(name).items():
                if not request.only_failed or task.state == State.FAILED:
                    self.restart_task(TaskId(name, number))
        self._changed.set()

    def restart_task(self, task: TaskId) -> bool:
        """Restarts a task; False if it does not run here."""
        with self._lock:
            running = self._running.get(task)
        if running is None:
            return False
        self.halt(lambda other: other == task)
        self._changed.set()
        return True
