"""What the REST API asks for: connectors and their states. Methods block; refusals are HttpError.

A change is a record in the topic of configurations; a method returns once this worker has read it back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from barnabas.connect.errors import ConnectError, OptionError
from barnabas.connect.plugins import SINK, SOURCE, find_plugin
from barnabas.connect.worker import formats
from barnabas.connect.worker.board import Board, Deployed
from barnabas.connect.worker.formats import State, Status, Target, TaskId
from barnabas.connect.worker.herder import Herder
from barnabas.connect.worker.services import Services
from barnabas.connect.worker.validating import messages, validate
from barnabas.http.errors import HttpError

log = logging.getLogger("barnabas.connect")

INITIAL: Final = {"RUNNING": Target.STARTED, "PAUSED": Target.PAUSED, "STOPPED": Target.STOPPED}
UNKNOWN: Final = "unknown"


def kind_of(config: Mapping[str, str]) -> str:
    """source, sink or unknown."""
    try:
        return find_plugin(str(config.get("connector.class") or "").strip()).kind
    except OptionError:
        return UNKNOWN


@dataclass(slots=True)
class Requests:
    """services, herder: of this worker."""

    services: Services
    herder: Herder
    _changing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def board(self) -> Board:
        """What is known of the cluster."""
        return self.services.board

    def deployed(self, name: str) -> Deployed:
        """Raises HttpError 404."""
        deployed = self.board.get(name)
        if deployed is None:
            raise HttpError(HTTPStatus.NOT_FOUND, f"Connector {name} not found")
        return deployed

    def _write(self, rows: Mapping[str, Any]) -> None:
        logs, topic = self.services.logs, self.services.options.config_topic
        encoded = [
            (key.encode(), None if value is None else formats.dump(value)) for key, value in rows.items()
        ]
        logs.write(topic, encoded)
        logs.read_to_end([topic])

    # --- what is there --------------------------------------------------------------------------------

    def info(self, name: str) -> dict[str, Any]:
        """ConnectorInfo."""
        row = self.deployed(name)
        tasks = [{"connector": name, "task": number} for number in range(len(row.tasks or ()))]
        return {"name": name, "config": dict(row.config), "tasks": tasks, "type": kind_of(row.config)}

    def status(self, name: str) -> dict[str, Any]:
        """ConnectorStateInfo."""
        state = self.board.status(name)
        row = self.board.get(name)
        if state is None and row is None:
            raise HttpError(HTTPStatus.NOT_FOUND, f"No status found for connector {name}")
        if state is None:
            state = Status(State.UNASSIGNED, self.services.worker_id)
        tasks = [
            {"id": number, **_state(status)} for number, status in self.board.task_statuses(name).items()
        ]
        kind = UNKNOWN if row is None else kind_of(row.config)
        return {"name": name, "connector": _state(state), "tasks": tasks, "type": kind}

    def task_status(self, name: str, number: int) -> dict[str, Any]:
        """TaskState."""
        status = self.board.task_statuses(name).get(number)
        if status is None:
            raise HttpError(HTTPStatus.NOT_FOUND, f"No status found for task {name}-{number}")
        return {"id": number, **_state(status)}

    def tasks(self, name: str) -> list[dict[str, Any]]:
        """TaskInfos."""
        row = self.deployed(name)
        return [
            {"id": {"connector": name, "task": number}, "config": dict(config)}
            for number, config in enumerate(row.tasks or ())
        ]

    # --- changes --------------------------------------------------------------------------------------

    def checked(self, name: str, config: Mapping[str, str | None]) -> None:
        """Raises HttpError 400 for a configuration that cannot run."""
        try:
            report = validate(self.services.options, config)
        except OptionError as error:
            raise HttpError(HTTPStatus.BAD_REQUEST, str(error)) from error
        complaints = messages(report)
        if complaints:
            kind = str(config.get("connector.class") or "{connectorType}")
            raise HttpError(
                HTTPStatus.BAD_REQUEST,
                f"Connector configuration is invalid and contains the following {len(complaints)} error(s):\n"
                + "\n".join(complaints)
                + "\nYou can also find the above list of errors at the endpoint "
                f"`/connector-plugins/{kind if '{' in kind else '{connectorType}'}/config/validate`",
            )
        group = f"connect-{name}"
        if kind_of(config_of(config)) == SINK and group == self.services.options.group:
            raise HttpError(
                HTTPStatus.BAD_REQUEST,
                f"Consumer group for sink connector named {name} conflicts with Connect worker group {group}",
            )

    def create(self, name: str, config: Mapping[str, str | None], initial: str | None) -> dict[str, Any]:
        """A new connector. Raises HttpError 400, 409."""
        target = Target.STARTED
        if initial is not None:
            if initial.upper() not in INITIAL:
                raise HttpError(
                    HTTPStatus.BAD_REQUEST, f"initial_state is {initial!r}, but must be {', '.join(INITIAL)}"
                )
            target = INITIAL[initial.upper()]
        self.checked(name, config)
        with self._changing:
            if self.board.get(name) is not None:
                raise HttpError(HTTPStatus.CONFLICT, f"Connector {name} already exists")
            rows: dict[str, Any] = {}
            if initial is not None:
                rows[f"{formats.TARGET}{name}"] = formats.target_value(target)
            rows[f"{formats.CONNECTOR}{name}"] = {"properties": dict(config)}
            self._write(rows)
        return self.info(name)

    def put_config(self, name: str, config: Mapping[str, str | None]) -> tuple[bool, dict[str, Any]]:
        """Whether the connector is new, and its ConnectorInfo. Raises HttpError 400."""
        self.checked(name, config)
        with self._changing:
            is_new = self.board.get(name) is None
            self._write({f"{formats.CONNECTOR}{name}": {"properties": dict(config)}})
        return is_new, self.info(name)

    def patch_config(self, name: str, changes: Mapping[str, str | None]) -> dict[str, Any]:
        """Changes some options; None removes one. Raises HttpError 400, 404."""
        config: dict[str, str | None] = {**self.deployed(name).config, **changes}
        kept = {option: text for option, text in config.items() if text is not None}
        return self.put_config(name, kept)[1]

    def delete(self, name: str) -> None:
        """Removes a connector; offsets of a source stay, as in Kafka. Raises HttpError 404."""
        row = self.deployed(name)
        with self._changing:
            self._write({f"{formats.CONNECTOR}{name}": None, f"{formats.TARGET}{name}": None})
        self.herder.halt(lambda task: task.connector == name)
        topic = self.services.options.status_topic
        keys = [f"{formats.STATUS_CONNECTOR}{name}"]
        numbers = set(range(len(row.tasks or ()))) | set(self.board.task_statuses(name))
        keys += [f"{formats.STATUS_TASK}{TaskId(name, number)}" for number in sorted(numbers)]
        keys += [formats.topic_key(used, name) for used in self.board.topics(name)]
        self.services.logs.write(topic, [(key.encode(), None) for key in keys])
        self.services.logs.read_to_end([topic])

    def want(self, name: str, target: Target) -> None:
        """Pauses, resumes or stops. Raises HttpError 404."""
        self.deployed(name)
        with self._changing:
            self._write({f"{formats.TARGET}{name}": formats.target_value(target)})

    def restart(self, name: str, include_tasks: bool, only_failed: bool) -> dict[str, Any]:
        """Restarts a connector and some of its tasks, wherever they run; its ConnectorStateInfo. Raises HttpError 404."""
        self.deployed(name)
        value = {"include-tasks": include_tasks, "only-failed": only_failed}
        self._write({f"{formats.RESTART}{name}": value})
        state = self.status(name)
        if not only_failed or state["connector"]["state"] == State.FAILED:
            state["connector"]["state"] = State.RESTARTING.value
        for task in state["tasks"] if include_tasks else ():
            if not only_failed or task["state"] == State.FAILED:
                task["state"] = State.RESTARTING.value
        return state

    def restart_task(self, name: str, number: int) -> None:
        """Restarts a task, wherever it runs. Raises HttpError 404.

        Another worker reads the request in the topic of configurations, so workers need no login at each other. Kafka's
        workers read it as a request to restart the connector if it has failed, and nothing else.
        """
        row = self.deployed(name)
        if number >= len(row.tasks or ()):
            raise HttpError(HTTPStatus.NOT_FOUND, f"Task {name}-{number} not found")
        if not self.herder.restart_task(TaskId(name, number)):
            value = {"include-tasks": False, "only-failed": True, "task": number}
            self._write({f"{formats.RESTART}{name}": value})

    # --- topics ---------------------------------------------------------------------------------------

    def _require_tracking(self, reset: bool) -> None:
        options = self.services.options
        if not options["topic.tracking.enable"]:
            raise HttpError(HTTPStatus.FORBIDDEN, "Topic tracking is disabled.")
        if reset and not options["topic.tracking.allow.reset"]:
            raise HttpError(HTTPStatus.FORBIDDEN, "Topic tracking reset is disabled.")

    def topics(self, name: str) -> dict[str, Any]:
        """The topics that a connector has used. Raises HttpError 403, 404."""
        self._require_tracking(False)
        self.deployed(name)
        return {name: {"topics": self.board.topics(name)}}

    def reset_topics(self, name: str) -> None:
        """Forgets them. Raises HttpError 403, 404."""
        self._require_tracking(True)
        self.deployed(name)
        topic = self.services.options.status_topic
        keys = [formats.topic_key(used, name).encode() for used in self.board.topics(name)]
        self.services.logs.write(topic, [(key, None) for key in keys])
        self.services.logs.read_to_end([topic])

    def set_cluster_level(self, name: str, level: str) -> None:
        """Sets a logger's level on all workers."""
        self._write({f"{formats.LOGGER}{name}": {"level": level}})

    # --- plug-ins -------------------------------------------------------------------------------------

    def validate(self, asked: str, config: Mapping[str, str | None]) -> dict[str, Any]:
        """ConfigInfos. Raises HttpError 400, 404."""
        try:
            find_plugin(asked)
        except OptionError as error:
            raise HttpError(HTTPStatus.NOT_FOUND, str(error)) from error
        if not config.get("connector.class"):
            config = {**config, "connector.class": asked}
        try:
            return validate(self.services.options, config, asked)
        except (OptionError, ConnectError) as error:
            raise HttpError(HTTPStatus.BAD_REQUEST, str(error)) from error


def config_of(config: Mapping[str, str | None]) -> dict[str, str]:
    """Without options that are null."""
    return {name: text for name, text in config.items() if text is not None}


def _state(status: Status) -> dict[str, Any]:
    fields: dict[str, Any] = {"state": str(status.state), "worker_id": status.worker_id}
    if status.trace:
        fields["trace"] = status.trace
    if status.version:
        fields["version"] = status.version
    return fields


__all__ = ["SOURCE", "Requests", "config_of", "kind_of"]
