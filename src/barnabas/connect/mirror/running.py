"""Runs the flows of one mm2.properties, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence

from confluent_kafka import KafkaException

from barnabas.client.errors import ClientError
from barnabas.connect.errors import ConnectError
from barnabas.connect.mirror.dedicated import MirrorFlow
from barnabas.connect.mirror.flow import message_of
from barnabas.connect.worker.api import error_shape
from barnabas.connect.worker.main import STOP_S, Worker
from barnabas.http.listening import ServiceError
from barnabas.http.server import HttpOptions, HttpServer, Service
from barnabas.observe.metric import Sample

log = logging.getLogger("barnabas.connect")


class MirrorMaker:
    """The workers of all flows in this process."""

    def __init__(self, flows: Sequence[MirrorFlow]) -> None:
        self.flows = flows
        self._workers: list[Worker] = []

    def start(self, name: str) -> None:
        """name: this process, as statuses show it. Raises ConnectError that names the flow."""
        for flow in self.flows:
            worker = Worker(flow.worker)
            self._workers.append(worker)
            try:
                worker.start(name)
            except (ClientError, ConnectError, KafkaException) as error:
                self.stop()
                raise ConnectError(f"{flow} cannot start: {message_of(error)}") from error

    def stop(self) -> None:
        """Ends all of them."""
        for worker in self._workers:
            worker.stop()
        self._workers.clear()

    def samples(self) -> Iterator[Sample]:
        """What the tasks of this process measure of themselves."""
        for worker in list(self._workers):
            yield from worker.samples()

    def server(self, name: str, http: HttpOptions) -> HttpServer:
        """A server with `/metrics` and `/health`, which starts and stops the flows."""

        async def start(url: str) -> None:
            try:
                await asyncio.to_thread(self.start, name)
            except ConnectError as error:
                raise ServiceError(str(error)) from error

        async def stop() -> None:
            await asyncio.to_thread(self.stop)

        def build() -> Service:
            return Service(
                "mirror", [], error_shape, start=start, stop=stop, stop_s=STOP_S, samples=self.samples
            )

        return HttpServer(build, http)
