"""Reads Connect's topics with one consumer, and appends to them.

A thread reads all partitions of the three topics, committed records only, and goes on with what comes. `read_to_end` waits
until everything has been taken that was there when it was called.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from barnabas.admin import LATEST
from barnabas.admin import TopicPartition as Place
from barnabas.admin.blocking import Admin
from barnabas.client.errors import ClientError
from barnabas.connect.errors import RetriableError

log = logging.getLogger("barnabas.connect")

POLL_S: Final = 0.2
MESSAGES_MAX: Final = 1_000
QUERY_S: Final = 10.0
READ_S: Final = 30.0

Take = Callable[[bytes | None, bytes | None], None]


class TopicLogs:
    """clients: librdkafka's properties. takes: by topic, what receives keys and values, in the reading thread."""

    def __init__(self, clients: Mapping[str, Any], takes: Mapping[str, Take], admin: Admin) -> None:
        self._admin = admin
        self._consumer = Consumer(
            {
                **clients,
                "group.id": "barnabas-connect-internal",  # it is never joined
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                "queued.max.messages.kbytes": 4096,
                "allow.auto.create.topics": False,
            }
        )
        self._producer = Producer(
            {**clients, "enable.idempotence": True, "linger.ms": 0, "partitioner": "murmur2_random"}
        )
        self._takes = takes
        self._next: dict[tuple[str, int], int] = {}
        self._moved = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="connect topics", daemon=True)
        self.trouble: str | None = None

    def start(self) -> None:
        """Reads everything that is there. Raises RetriableError."""
        assigned = []
        for topic in self._takes:
            metadata = self._consumer.list_topics(topic, QUERY_S).topics[topic]
            if metadata.error is not None:
                raise RetriableError(f"topic {topic}: {metadata.error.str()}")
            assigned += [
                TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in metadata.partitions
            ]
        self._next = {(place.topic, place.partition): 0 for place in assigned}
        self._consumer.assign(assigned)
        self._thread.start()
        self.read_to_end(list(self._takes))

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(10)
        self._producer.flush(5)
        self._consumer.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                messages = self._consumer.consume(MESSAGES_MAX, POLL_S)
            except (KafkaException, RuntimeError) as error:
                log.error("topics of Connect cannot be read", extra={"reason": str(error)})
                self._stopping.wait(1.0)
                continue
            if messages:
                self._take(messages)

    def _take(self, messages: Sequence[Any]) -> None:
        for message in messages:
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                self.trouble = error.str()
                log.warning("topic of Connect cannot be read", extra={"reason": error.str()})
                continue
            self.trouble = None
            place = (message.topic(), message.partition())
            if error is None:
                try:
                    self._takes[message.topic()](message.key(), message.value())
                except Exception as unread:
                    log.error(
                        "record cannot be read",
                        extra={"topic": place[0], "offset": message.offset(), "reason": str(unread)},
                    )
            with self._moved:
                self._next[place] = message.offset() + (error is None)
                self._moved.notify_all()

    def read_to_end(self, topics: Sequence[str], timeout_s: float = READ_S) -> None:
        """Waits until all committed records have been taken that these topics have now. Raises RetriableError."""
        deadline = time.monotonic() + timeout_s
        wanted = {Place(*place): LATEST for place in self._next if place[0] in topics}
        try:
            offsets = self._admin.records.offsets(wanted, read_committed=True).require()
        except ClientError as error:
            raise RetriableError(f"topics {', '.join(topics)}: {error}") from error
        ends = {(place.topic, place.partition): end.offset or 0 for place, end in offsets.items()}
        with self._moved:
            while any(self._next[place] < end for place, end in ends.items()):
                left = deadline - time.monotonic()
                if left <= 0 or self._stopping.is_set():
                    raise RetriableError(
                        f"topics {', '.join(topics)} could not be read to their ends in {timeout_s:g} s"
                    )
                self._moved.wait(min(left, 1.0))

    def write(
        self, topic: str, rows: Sequence[tuple[bytes, bytes | None]], timeout_s: float = READ_S
    ) -> None:
        """Appends records, in order, and waits until they are acknowledged. Raises RetriableError."""
        failed: list[str] = []

        def done(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(error.str())

        for key, value in rows:
            self._producer.produce(topic, value, key, on_delivery=done)
        if self._producer.flush(timeout_s) or failed:
            raise RetriableError(
                f"topic {topic} cannot be written: {failed[0] if failed else 'no answer in time'}"
            )

    def write_later(self, topic: str, key: bytes, value: bytes | None) -> None:
        """Appends a record without waiting."""
        self._producer.produce(topic, value, key)
        self._producer.poll(0)
