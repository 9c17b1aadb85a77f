"""The worker as a service: what `barnabas connect start` and `barnabas start --with connect` run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import KafkaException

from barnabas.admin import NewTopic
from barnabas.admin.blocking import Admin
from barnabas.client.errors import ClientError
from barnabas.connect.errors import ConnectError
from barnabas.connect.worker import loggers
from barnabas.connect.worker.api import Api, error_shape
from barnabas.connect.worker.board import Board
from barnabas.connect.worker.herder import Assignment, Herder
from barnabas.connect.worker.journal import Journal
from barnabas.connect.worker.logs import TopicLogs
from barnabas.connect.worker.membership import Membership
from barnabas.connect.worker.requests import Requests
from barnabas.connect.worker.services import Services
from barnabas.connect.worker.settings import WorkerOptions
from barnabas.http.errors import HttpError
from barnabas.http.listening import ServiceError
from barnabas.http.server import HttpOptions, HttpServer, Service
from barnabas.observe.metric import Sample
from barnabas.wire.errors import ErrorCode

log = logging.getLogger("barnabas.connect")

DEADLINE_S: Final = 30.0
STOP_S: Final = 40.0


class Worker:
    """One worker. Methods block; `start` and `stop` once each."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self.board = Board()
        self.journal = Journal()
        self.cluster_id = ""
        self._admin: Admin | None = None
        self._logs: TopicLogs | None = None
        self._herder: Herder | None = None
        self._membership: Membership | None = None
        self.requests: Requests | None = None
        self._services: Services | None = None

    def start(self, url: str) -> None:
        """Creates the topics, reads them, and begins to run connectors. Raises ClientError, ConnectError."""
        options, board = self.options, self.board
        self._admin = Admin(replace(options.own_client(), deadline_s=DEADLINE_S))
        self.cluster_id = self._admin.cluster.describe().id or ""
        _require_topics(self._admin, options)
        takes = {
            options.config_topic: board.take_config,
            options.offset_topic: board.take_offset,
            options.status_topic: board.take_status,
        }
        self._logs = TopicLogs(options.clients(), takes, self._admin)
        self._logs.start()
        board.is_replayed = True
        board.logger = _set_level
        services = Services(
            options, board, self._logs, self._admin, _worker_id(options, url), self.journal.tell
        )
        self._services = services
        shares = not options.standalone
        self._herder = Herder(services, Assignment(frozenset(), frozenset()) if shares else Assignment())
        self.requests = Requests(services, self._herder)
        self._herder.start()
        if shares:
            self._membership = Membership(services, self._herder)
            board.changed = self._note_change
            self._membership.start()
        if options.standalone:
            self._remove_others()
        self._add_first()

    def _note_change(self) -> None:
        """Called in the reading thread."""
        assert self._herder is not None
        assert self._membership is not None
        self._herder.note_change()
        self._membership.look()

    def _remove_others(self) -> None:
        """A standalone worker has the connectors that its command line names."""
        assert self.requests is not None
        for name in self.board.names():
            if name not in self.options.first:
                self.requests.delete(name)

    def _add_first(self) -> None:
        """The connectors that the command line names."""
        assert self.requests is not None
        for name, config in self.options.first.items():
            try:
                self.requests.put_config(name, config)
            except HttpError as error:
                raise ConnectError(f"connector {name}: {error.message}") from error

    def stop(self) -> None:
        """Stops tasks and threads."""
        if self._membership is not None:
            self._membership.stop()
        if self._herder is not None:
            self._herder.stop()
        if self._logs is not None:
            self._logs.stop()
        if self._admin is not None:
            self._admin.close()

    def samples(self) -> Iterable[Sample]:
        """What its tasks measure of themselves."""
        return () if self._services is None else self._services.samples()

    def health(self) -> Mapping[str, Any]:
        """As Kafka Connect says it, with the number of connectors."""
        trouble = self.unready()
        if trouble is not None:
            return {"status": "unhealthy", "message": f"The worker's topics cannot be read: {trouble}"}
        return {
            "status": "healthy",
            "message": "Worker has completed startup and is ready to handle requests.",
            "connectors": len(self.board.names()),
        }

    def unready(self) -> str | None:
        """Why requests cannot be served."""
        return None if self._logs is None else self._logs.trouble


def _set_level(name: str, level: str) -> None:
    loggers.set_level(name, level)


def _worker_id(options: WorkerOptions, url: str) -> str:
    host, port = options["rest.advertised.host.name"], options["rest.advertised.port"]
    if options.advertise:
        return options.advertise.rpartition("//")[2].rstrip("/")
    own_host, _, own_port = url.rpartition("//")[2].rpartition(":")
    return f"{host or own_host}:{port or own_port}"


def _require_topics(admin: Admin, options: WorkerOptions) -> None:
    """Raises ClientError, ConnectError."""
    wanted = {
        options.config_topic: (1, options["config.storage.replication.factor"]),
        options.offset_topic: (
            options["offset.storage.partitions"],
            options["offset.storage.replication.factor"],
        ),
        options.status_topic: (
            options["status.storage.partitions"],
            options["status.storage.replication.factor"],
        ),
    }
    descriptions = admin.topics.describe(wanted).done
    new = [
        NewTopic(name, partitions, replication, {"cleanup.policy": "compact"})
        for name, (partitions, replication) in wanted.items()
        if name not in descriptions
    ]
    if new:
        admin.topics.create(new).except_for(ErrorCode.TOPIC_ALREADY_EXISTS).require()
    if options.config_topic in descriptions and len(descriptions[options.config_topic].partitions) != 1:
        raise ConnectError(
            f"topic {options.config_topic} has {len(descriptions[options.config_topic].partitions)} partitions, "
            "but must have one"
        )


def make_server(options: WorkerOptions, http: HttpOptions) -> HttpServer:
    """A server that is not started yet."""

    def build() -> Service:
        worker = Worker(options)
        routes: list[Any] = []

        async def start(url: str) -> None:
            try:
                await asyncio.to_thread(worker.start, url)
            except (ClientError, ConnectError, KafkaException) as error:
                await asyncio.to_thread(worker.stop)
                reason = error.args[0].str() if isinstance(error, KafkaException) else error
                raise ServiceError(f"the Connect worker cannot start: {reason}") from error

        async def stop() -> None:
            await asyncio.to_thread(worker.stop)

        routes += Api(_Late(worker), worker.journal, lambda: worker.cluster_id).routes()  # type: ignore[arg-type]
        return Service(
            "connect",
            routes,
            error_shape,
            start=start,
            stop=stop,
            stop_s=STOP_S,
            health=worker.health,
            unready=worker.unready,
            samples=worker.samples,
            raw_paths=True,
        )

    return HttpServer(build, http.known_as(options.advertise))


class _Late:
    """The worker's requests, which exist once it has started."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker.requests, name)
