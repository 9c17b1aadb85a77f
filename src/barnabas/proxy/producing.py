"""Producing for HTTP: many requests share one librdkafka producer; each gets the results of its own records.

Memory is bounded by librdkafka's queue: when it is full, records are refused, with an error that says to try again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from barnabas.http.errors import HttpError
from barnabas.proxy.errors import TOPIC_NOT_FOUND
from barnabas.proxy.kafka import Kafka

log = logging.getLogger("barnabas.proxy")

QUEUE_KB: Final = 64 << 10
QUEUE_RECORDS: Final = 200_000
DELIVERY_TIMEOUT_MS: Final = 30_000
RECORD_BYTES_MAX: Final = 16 << 20
TOPIC_TIMEOUT_S: Final = 10.0
KNOWN_S: Final = 30.0
"""How long a topic's number of partitions is cached."""
NEW_TOPIC_TRIES: Final = 8
NEW_TOPIC_PAUSE_S: Final = 0.15
DIRECT_MAX: Final = 50
"""Up to this many records are handed to librdkafka on the event loop; more are handed over by a thread."""


class Outgoing(NamedTuple):
    """A record to produce. partition: -1 to choose one by its key. timestamp_ms: 0 for now."""

    key: bytes | None
    value: bytes | None
    partition: int = -1
    timestamp_ms: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()


class Delivered(NamedTuple):
    """The result of a record. error: None if it was stored; otherwise the numbers are -1."""

    partition: int
    offset: int
    timestamp_ms: int
    error: KafkaError | None


class Batch:
    """The records of one request that are in progress. done: set when each has a result."""

    def __init__(self, count: int, producer: Any) -> None:
        self.producer = producer
        self.results: list[Delivered | None] = [None] * count
        self.done = asyncio.Event()
        self._left = count
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        if not count:
            self.done.set()

    def settle(self, index: int, error: KafkaError | None, message: Any) -> None:
        """Store the result of a record. Called by the thread that serves deliveries, or by the one that produces."""
        if error is not None or message is None:
            delivered = Delivered(-1, -1, -1, error)
        else:
            delivered = Delivered(message.partition(), message.offset(), message.timestamp()[1], None)
        with self._lock:
            self.results[index] = delivered
            self._left -= 1
            if self._left:
                return
        try:
            self._loop.call_soon_threadsafe(self.done.set)
        except RuntimeError:
            pass  # the loop has ended: nobody waits any more


class Producing:
    """The producer and the thread that serves its deliveries."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._producer = self._new()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._known: dict[str, tuple[float, int]] = {}
        self._thread = threading.Thread(target=self._serve, name="rest producer", daemon=True)
        self._thread.start()

    def _new(self) -> Any:
        defaults = {
            "enable.idempotence": True,
            "linger.ms": 1,
            "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
            "message.max.bytes": RECORD_BYTES_MAX,
            "queue.buffering.max.kbytes": QUEUE_KB,
            "queue.buffering.max.messages": QUEUE_RECORDS,
            "partitioner": "murmur2_random",
        }
        return Producer(self._kafka.config(defaults))

    def _serve(self) -> None:
        while not self._ended.is_set():
            producer = self._producer
            try:
                producer.poll(0.5)
            except KafkaException as error:
                log.warning("the producer failed", extra={"reason": error.args[0].str()})
                if _is_fatal(error.args[0]):
                    self._replace(producer)
            except Exception:  # a delivery callback must not end the deliveries of others
                log.exception("a delivery could not be reported")

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has; creates it if the brokers allow that. Raises HttpError 404."""
        now = time.monotonic()
        known = self._known.get(topic)
        if known is not None and now - known[0] < KNOWN_S:
            return known[1]
        for attempt in range(NEW_TOPIC_TRIES):
            count = await self._kafka.call(lambda: self._ask(topic))
            if count:
                if len(self._known) > 10_000:
                    self._known.clear()
                self._known[topic] = (now, count)
                return count
            await asyncio.sleep(NEW_TOPIC_PAUSE_S * (attempt + 1) / 2)
        raise HttpError(404, f"Topic {topic!r} not found.", TOPIC_NOT_FOUND)

    def _ask(self, topic: str) -> int:
        """How many partitions a topic has, 0 if it does not exist (yet). Raises KafkaException."""
        metadata = self._producer.list_topics(topic, timeout=TOPIC_TIMEOUT_S).topics[topic]
        absent = (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError._UNKNOWN_TOPIC,
            KafkaError.LEADER_NOT_AVAILABLE,
        )
        if metadata.error is not None and metadata.error.code() not in absent:
            raise KafkaException(metadata.error)
        return len(metadata.partitions)

    def forget(self, topic: str) -> None:
        """Forget the topic's number of partitions: it may have changed."""
        self._known.pop(topic, None)

    async def send(self, topic: str, records: Sequence[Outgoing]) -> list[Delivered]:
        """Produce records, and wait for the result of each; returns them in the order of the records."""
        if len(records) <= DIRECT_MAX:
            return await self.fate(topic, self.begin(topic, records))
        batch = Batch(len(records), self._producer)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._kafka.threads, self._hand_over, topic, records, batch)
        return await self.fate(topic, batch)

    def begin(self, topic: str, records: Sequence[Outgoing]) -> Batch:
        """Hand records to librdkafka; a partition gets its records in the order of the calls."""
        batch = Batch(len(records), self._producer)
        self._hand_over(topic, records, batch)
        return batch

    async def fate(self, topic: str, batch: Batch) -> list[Delivered]:
        """Wait for the result of each record."""
        await batch.done.wait()
        results = [result for result in batch.results if result is not None]
        if any(result.error is not None for result in results):
            self.forget(topic)
        fatal = any(result.error is not None and _is_fatal(result.error) for result in results)
        if fatal:
            self._replace(batch.producer)
        return await self._explained(topic, results)

    async def _explained(self, topic: str, results: list[Delivered]) -> list[Delivered]:
        """The same results; refusals to write to a copy of another cluster's topic have the broker's words."""
        if not any(_is_against_policy(result) for result in results):
            return results
        try:
            why = await self._kafka.ask(self._kafka.admin.links.why_read_only(topic))
        except HttpError:
            return results
        if not why:
            return results
        refused = KafkaError(KafkaError.POLICY_VIOLATION, why)
        return [
            result._replace(error=refused) if _is_against_policy(result) else result for result in results
        ]

    def _hand_over(self, topic: str, records: Sequence[Outgoing], batch: Batch) -> None:
        produce = batch.producer.produce
        for index, record in enumerate(records):
            settle = partial(batch.settle, index)
            more: dict[str, Any] = {}
            if record.timestamp_ms:
                more["timestamp"] = record.timestamp_ms
            if record.headers:
                more["headers"] = list(record.headers)
            try:
                produce(topic, record.value, record.key, record.partition, settle, **more)
            except BufferError:
                settle(KafkaError(KafkaError._QUEUE_FULL, "too many records are under way; try again"), None)
            except KafkaException as error:
                settle(error.args[0], None)
            except (TypeError, ValueError, OverflowError) as error:
                settle(KafkaError(KafkaError._INVALID_ARG, str(error)), None)

    def _replace(self, failed: Any) -> None:
        """Replace a producer after a fatal error, after which an idempotent producer cannot continue."""
        with self._lock:
            if failed is not self._producer:
                return
            log.warning("the producer is replaced after a fatal error")
            self._producer = self._new()
        threading.Thread(target=_settle_rest, args=(failed,), name="rest old producer", daemon=True).start()

    async def stop(self) -> None:
        """Wait up to 10 s for records in progress, and stop the thread."""
        await asyncio.get_running_loop().run_in_executor(None, self._stop)

    def _stop(self) -> None:
        self._producer.flush(10)
        self._ended.set()
        self._thread.join()


def _settle_rest(producer: Any) -> None:
    """Records that the failed producer still holds are reported as failed."""
    try:
        producer.purge()
    except KafkaException:
        pass
    end = time.monotonic() + DELIVERY_TIMEOUT_MS / 1000
    while len(producer) and time.monotonic() < end:
        try:
            producer.poll(0.5)
        except KafkaException:
            continue  # it reports its failure again


def _is_against_policy(result: Delivered) -> bool:
    return result.error is not None and result.error.code() == KafkaError.POLICY_VIOLATION


def _is_fatal(error: KafkaError) -> bool:
    return error.code() == KafkaError._FATAL or bool(error.fatal())
