"""Push queries: rows as they come.

Such a query is a pipeline of its own, whose results go through a topic that lives as long as somebody reads it.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import yaml
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, TopicPartition

from barnabas.admin import NewTopic
from barnabas.pipelines.fronts.sql.catalog import Column
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.planning import Settings, plan
from barnabas.pipelines.fronts.sql.statements import Print, Select
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.sql.left import PREFIX, TOPIC, delete_topics

if TYPE_CHECKING:
    from barnabas.pipelines.sql.engine import Engine

POLL_S: Final = 0.2
LOOK_S: Final = 1.0
"""How often a query is asked whether it has failed."""


class Push:
    """One push query. `rows` is an iterator that waits; `close` ends it from any thread."""

    def __init__(self, engine: Engine, select: Select, start: str) -> None:
        """Raises SqlError."""
        self.engine = engine
        self.id = f"{PREFIX}{select.source.name}_{uuid.uuid4().hex[:12]}"
        self.topic = TOPIC + self.id
        self.limit = select.limit
        self._closed = threading.Event()
        planned = plan(
            engine.catalog, select, query_id=self.id, name=self.topic, kind=None,
            properties={"VALUE_FORMAT": "JSON"}, settings=Settings(start, 1),
        )  # fmt: skip
        self.columns: tuple[Column, ...] = planned.result.columns
        self._document = planned.document

    def start(self) -> None:
        """Starts the pipeline. Raises SqlError."""
        with self.engine.admin() as admin:
            admin.topics.create([NewTopic(self.topic, 1)]).require()
        try:
            self.engine.manager.put(yaml.safe_dump(dict(self._document), sort_keys=False, width=200))
        except PipelineError as error:
            self._tidy()
            raise SqlError(str(error)) from error

    def rows(self) -> Iterator[list[Any]]:
        """The rows; ends at LIMIT and when the query is closed. Raises SqlError if the query fails."""
        names = [column.name for column in self.columns]
        shown, looked_at = 0, time.monotonic()
        try:
            with consumer_of(self.engine.client, self.topic, [0]) as consumer:
                while not self._closed.is_set() and (self.limit is None or shown < self.limit):
                    message = consumer.poll(POLL_S)
                    if time.monotonic() - looked_at > LOOK_S:
                        looked_at = time.monotonic()
                        self._check()
                    if message is None or message.error() is not None or message.value() is None:
                        continue
                    row = json.loads(message.value())
                    shown += 1
                    yield [row.get(name) for name in names]
        finally:
            self.close()
            self._tidy()

    def _check(self) -> None:
        managed = self.engine.manager.get(self.id)
        if managed.last_error is not None and managed.state == "failed":
            raise SqlError(f"the query has failed: {managed.last_error}")

    def close(self) -> None:
        """Ends the query; `rows` tidies up."""
        self._closed.set()

    def _tidy(self) -> None:
        """Removes the pipeline, its files and its topics."""
        manager = self.engine.manager
        with contextlib.suppress(KeyError):
            manager.remove(self.id)
        for folder in manager.folder.glob(f"{self.id}.removed.*"):
            shutil.rmtree(folder, ignore_errors=True)
        delete_topics(self.engine.client, [self.id])


@contextlib.contextmanager
def consumer_of(
    client: Mapping[str, str], topic: str, partitions: list[int], offset: int = OFFSET_BEGINNING
) -> Iterator[Consumer]:
    """A consumer of these partitions."""
    consumer = Consumer(
        {
            **client,
            "group.id": "barnabas-sql",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, offset) for number in partitions])
        yield consumer
    finally:
        consumer.close()


def printed(engine: Engine, statement: Print, closed: threading.Event) -> Iterator[str]:
    """PRINT: a line for each record. Raises SqlError."""
    with engine.admin() as admin:
        if statement.topic not in admin.topics.list():
            raise SqlError(f"there is no topic {statement.topic}; SHOW TOPICS lists them")
        partitions = [p.number for p in admin.topics.describe([statement.topic])[statement.topic].partitions]
    offset = OFFSET_BEGINNING if statement.from_beginning else OFFSET_END
    seen = shown = 0
    with consumer_of(engine.client, statement.topic, partitions, offset) as consumer:
        while not closed.is_set() and (statement.limit is None or shown < statement.limit):
            message = consumer.poll(POLL_S)
            if message is None:
                continue
            if message.error() is not None:
                if message.error().code() == KafkaError._PARTITION_EOF:
                    continue
                raise SqlError(f"{statement.topic} cannot be read: {message.error().str()}")
            seen += 1
            if (seen - 1) % statement.interval:
                continue
            shown += 1
            at = time.strftime("%Y/%m/%d %H:%M:%S", time.gmtime(message.timestamp()[1] / 1000))
            millis = message.timestamp()[1] % 1000
            key, value = _shown(engine, message.key()), _shown(engine, message.value())
            yield (
                f"rowtime: {at}.{millis:03} Z, key: {key}, value: {value}, partition: {message.partition()}"
            )


def _shown(engine: Engine, raw: bytes | None) -> str:
    """A key or value for PRINT: as JSON if it names its schema."""
    return (engine.schemas.shown(raw) if raw is not None else None) or _text(raw)


def _text(raw: bytes | None) -> str:
    if raw is None:
        return "<null>"
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return "0x" + raw.hex()
    return text if text.isprintable() else "0x" + raw.hex()
