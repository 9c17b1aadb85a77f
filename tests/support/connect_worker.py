"""A Connect worker of a test, in a thread, and what its connectors have written."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, TopicPartition

import requests
from barnabas.connect.worker.main import make_server
from barnabas.connect.worker.settings import WorkerOptions
from barnabas.http.server import HttpOptions, HttpServer, ServerThread
from tests.support.cluster import until


def worker_options(bootstrap: str, group: str, **more: str) -> WorkerOptions:
    options = {
        "group.id": group,
        **{f"{part}.storage.topic": f"{group}-{part}" for part in ("config", "offset", "status")},
        "offset.storage.partitions": "2",
        "status.storage.partitions": "1",
        "offset.flush.interval.ms": "200",
        "scheduled.rebalance.max.delay.ms": "0",
        **more,
    }
    return WorkerOptions.of({"bootstrap.servers": bootstrap}, options)


class Worker:
    """A worker in a thread."""

    def __init__(self, options: WorkerOptions) -> None:
        self._server: HttpServer = make_server(options, HttpOptions("127.0.0.1:0"))
        self._thread = ServerThread([self._server])
        self._thread.start()
        self.url = self._server.url

    def stop(self) -> None:
        self._thread.stop()

    def call(self, method: str, path: str, body: Any = None) -> requests.Response:
        return requests.request(method, self.url + path, json=body, timeout=60)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.call(method, path, body)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def create(self, name: str, **config: str) -> None:
        config = {key.replace("_", "."): value for key, value in config.items()}
        self.ask("POST", "/connectors", {"name": name, "config": config})

    def until(self, name: str, state: str, tasks: int = 1) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            answer = self.call("GET", f"/connectors/{name}/status")
            if answer.status_code != 200:
                return None
            status: dict[str, Any] = answer.json()
            states = [task["state"] for task in status["tasks"]]
            return status if states == [state] * tasks else None

        return until(look, f"{tasks} tasks of {name} are {state}")


def records(bootstrap: str, topic: str, count: int, isolation: str = "read_committed") -> list[Any]:
    """The first records of a topic with one partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "isolation.level": isolation})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages: list[Any] = []
    try:
        until(
            lambda: (
                messages.extend(m for m in consumer.consume(1000, 0.2) if not m.error())
                or len(messages) >= count
            ),
            f"{count} records of {topic}",
        )
        messages.extend(m for m in consumer.consume(1000, 0.3) if not m.error())
    finally:
        consumer.close()
    return messages


def values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    return [message.value() for message in records(bootstrap, topic, count)]
