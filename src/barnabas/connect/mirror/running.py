"""Runs the flows of one mm2.properties, until it is stopped."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from confluent_kafka import KafkaException

from barnabas.client.errors import ClientError
from barnabas.connect.errors import ConnectError
from barnabas.connect.mirror.dedicated import MirrorFlow
from barnabas.connect.mirror.flow import said
from barnabas.connect.worker.main import Worker

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
                raise ConnectError(f"{flow} cannot start: {said(error)}") from error

    def stop(self) -> None:
        """Ends all of them."""
        for worker in self._workers:
            worker.stop()
        self._workers.clear()
