"""Consumer instances of API v2: librdkafka consumers that the service keeps between requests.

Each instance is used by one request at a time, in a thread; the others wait their turn, so that two connections which use
the same instance never see a record twice nor lose one. Idle instances are closed. Records that a closed connection did
not receive are read again: positions advance only when the answer is complete and its client is still connected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from barnabas.http.errors import HttpError
from barnabas.proxy.errors import (
    BAD_CONSUMER_CONFIG,
    ILLEGAL_STATE,
    INSTANCE_EXISTS,
    INSTANCE_NOT_FOUND,
    from_exception,
)
from barnabas.proxy.kafka import Kafka

log = logging.getLogger("barnabas.proxy")
T = TypeVar("T")

INSTANCES_MAX: Final = 100
IDLE_S: Final = 300.0
RESPONSE_BYTES_MAX: Final = 8 << 20
DEFAULT_TIMEOUT_MS: Final = 1_000
SLICE_S: Final = 0.25
"""How long a thread waits at a time; then it checks whether the client has gone or the instance is being deleted."""
LINGER_S: Final = 0.02
RECORDS_MAX: Final = 50_000
QUEUED_KB: Final = 2_048
FETCH_BYTES: Final = 1 << 20
OFFSETS_TIMEOUT_S: Final = 15.0
FRESH_MEMBER: Final = KafkaError._STATE


class Instance:
    """One consumer. users: requests that use it or wait for it. closing: it is being deleted, and its requests end."""

    def __init__(self, group: str, name: str, format: str, consumer: Any, settings: dict[str, Any]) -> None:
        self.group = group
        self.name = name
        self.format = format
        self.consumer = consumer
        self.settings = settings
        self.auto_commit: bool = settings["enable.auto.commit"]
        self.min_bytes: int = settings["fetch.min.bytes"]
        self.timeout_ms: int = settings["consumer.request.timeout.ms"]
        self.lock = asyncio.Lock()
        self.users = 0
        self.used_at = time.monotonic()
        self.closing = False
        self.topics: list[str] = []
        self.pattern: str | None = None
        self.assigned: list[TopicPartition] = []
        self.positions: dict[tuple[str, int], int] = {}
        """Cleared, but never filled."""


class Consuming:
    """The instances of this process, by group and name."""

    def __init__(self, kafka: Kafka, instances_max: int = INSTANCES_MAX, idle_s: float = IDLE_S) -> None:
        self._kafka = kafka
        self._max = instances_max
        self._idle_s = idle_s
        self._instances: dict[tuple[str, str], Instance | None] = {}
        self._threads = ThreadPoolExecutor(instances_max + 4, "rest consumer")
        self._sweeper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._instances)

    def start(self) -> None:
        """Start the task that closes idle instances."""
        self._sweeper = asyncio.create_task(self._sweep(), name="rest consumers")

    async def stop(self) -> None:
        """Close all instances, so that their groups need not wait for their sessions to expire."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        instances = [instance for instance in self._instances.values() if instance is not None]
        self._instances.clear()
        await asyncio.gather(*(self._close(instance) for instance in instances), return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run `work` in a thread. A cancelled request waits for its thread, so the next one finds the consumer idle."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise
        except KafkaException as error:
            raise from_exception(error) from error
        except RuntimeError as error:  # the consumer is closed
            raise HttpError(404, "Consumer instance not found.", INSTANCE_NOT_FOUND) from error

    # --- the instances --------------------------------------------------------------------------------

    async def create(self, group: str, name: str | None, format: str, settings: dict[str, Any]) -> Instance:
        """Create an instance. Raises HttpError 40902 (name is taken), 42204 (bad settings), 429 (too many of them)."""
        name = name or f"rest-consumer-{uuid.uuid4()}"
        key = (group, name)
        if key in self._instances:
            raise HttpError(409, "Consumer instance with the specified name already exists.", INSTANCE_EXISTS)
        if len(self._instances) >= self._max:
            raise HttpError(
                429,
                f"there are {self._max} consumer instances already; delete one",
                headers={"retry-after": "5"},
            )
        self._instances[key] = None  # reserves the name while the consumer is created
        try:
            consumer = await self._run(self._make, group, settings)
        except HttpError as error:
            self._instances.pop(key, None)
            raise HttpError(
                422, f"Invalid consumer configuration: {error.message}", BAD_CONSUMER_CONFIG
            ) from error
        except BaseException:
            self._instances.pop(key, None)
            raise
        instance = Instance(group, name, format, consumer, settings)
        self._instances[key] = instance
        return instance

    def _make(self, group: str, settings: dict[str, Any]) -> Any:
        defaults = {
            "queued.max.messages.kbytes": QUEUED_KB,
            "fetch.message.max.bytes": FETCH_BYTES,
            "fetch.max.bytes": FETCH_BYTES,
            "fetch.wait.max.ms": 100,
            "max.poll.interval.ms": int(max(self._idle_s + 60, 300) * 1000),
        }
        fixed = {
            "group.id": group,
            "enable.auto.commit": settings["enable.auto.commit"],
            "enable.auto.offset.store": False,
            "auto.offset.reset": settings["auto.offset.reset"],
            "enable.partition.eof": False,
        }
        return Consumer(self._kafka.config(defaults, fixed))

    @contextlib.asynccontextmanager
    async def using(self, group: str, name: str) -> AsyncIterator[Instance]:
        """The instance, for exclusive use by this request. Raises HttpError 40403 if there is none."""
        instance = self._instances.get((group, name))
        if instance is None or instance.closing:
            raise HttpError(404, "Consumer instance not found.", INSTANCE_NOT_FOUND)
        instance.users += 1
        try:
            async with instance.lock:
                if instance.closing:
                    raise HttpError(404, "Consumer instance not found.", INSTANCE_NOT_FOUND)
                yield instance
        finally:
            instance.users -= 1
            instance.used_at = time.monotonic()

    async def delete(self, group: str, name: str) -> None:
        """Close and delete an instance. Raises HttpError 40403 if there is none."""
        instance = self._instances.get((group, name))
        if instance is None or instance.closing:
            raise HttpError(404, "Consumer instance not found.", INSTANCE_NOT_FOUND)
        await self._close(instance)

    async def _close(self, instance: Instance) -> None:
        instance.closing = True
        async with instance.lock:
            try:
                await self._run(instance.consumer.close)
            finally:
                self._instances.pop((instance.group, instance.name), None)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(self._idle_s / 4, 5.0))
            now = time.monotonic()
            for instance in list(self._instances.values()):
                if instance is None or instance.users or instance.closing:
                    continue
                if now - instance.used_at > self._idle_s:
                    log.info(
                        "an idle consumer instance is closed",
                        extra={"group": instance.group, "instance": instance.name},
                    )
                    try:
                        await self._close(instance)
                    except Exception:
                        log.exception("a consumer instance could not be closed")

    # --- what is read ---------------------------------------------------------------------------------

    async def subscribe(self, instance: Instance, topics: list[str], pattern: str | None) -> None:
        """Subscribe to topics or to a pattern. Raises HttpError 40903 if that contradicts an earlier choice."""
        if instance.assigned:
            raise exclusive()
        if (instance.pattern is not None and topics) or (instance.topics and pattern is not None):
            raise exclusive()
        names = topics if pattern is None else [pattern if pattern.startswith("^") else f"^{pattern}"]
        await self._run(instance.consumer.subscribe, names)
        instance.topics, instance.pattern = topics, pattern

    async def unsubscribe(self, instance: Instance) -> None:
        """End the subscription and the assignment; the group has been left when this returns."""
        work = self._leave_group if instance.topics or instance.pattern is not None else self._unassign
        try:
            await self._run(work, instance)
        finally:
            instance.topics, instance.pattern, instance.assigned = [], None, []
            instance.positions.clear()

    def _unassign(self, instance: Instance) -> None:
        instance.consumer.unassign()

    def _leave_group(self, instance: Instance) -> None:
        """Replace the consumer by one that was in no group.

        librdkafka's `unsubscribe` would only begin to leave: what the group gave and takes back waits in the consumer's
        queue, and the group waits until somebody polls, which nobody does without a subscription. A poll after partitions
        were assigned by hand would then replace these partitions by the group's, or take them away.
        """
        left, instance.consumer = instance.consumer, self._make(instance.group, instance.settings)
        left.close()

    async def assign(self, instance: Instance, partitions: list[TopicPartition]) -> None:
        """Assign partitions by hand. Raises HttpError 40903 if the instance has a subscription."""
        if instance.topics or instance.pattern is not None:
            raise exclusive()
        await self._run(instance.consumer.assign, partitions)
        instance.assigned = partitions
        instance.positions.clear()

    async def assignment(self, instance: Instance) -> list[TopicPartition]:
        """The partitions that are assigned, by hand or by the group. Raises HttpError."""
        partitions: list[TopicPartition] = await self._run(instance.consumer.assignment)
        return partitions

    async def seek(self, instance: Instance, places: list[TopicPartition]) -> None:
        """Set the offsets of the next records. Raises HttpError 40903 for a partition that is not assigned."""
        assigned = {(p.topic, p.partition) for p in await self.assignment(instance)}
        for place in places:
            if (place.topic, place.partition) not in assigned:
                raise HttpError(
                    409,
                    f"Illegal state: No current assignment for partition {place.topic}-{place.partition}",
                    ILLEGAL_STATE,
                )
        await self._run(self._seek, instance, places)

    def _seek(self, instance: Instance, places: list[TopicPartition]) -> None:
        for place in places:
            deadline = time.monotonic() + OFFSETS_TIMEOUT_S
            while True:
                try:
                    instance.consumer.seek(place)
                    break
                except KafkaException as error:
                    # A partition that was assigned a moment ago cannot be moved before its fetcher has begun.
                    if error.args[0].code() != FRESH_MEMBER or time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)

    # --- records --------------------------------------------------------------------------------------

    async def fetch(
        self,
        instance: Instance,
        timeout_ms: int,
        max_bytes: int,
        gone: Callable[[], Awaitable[bool]],
        answer: Callable[[Sequence[Any]], Awaitable[tuple[T, int]]],
    ) -> T:
        """The result of `answer` for the next records; it gets an empty list if none arrive within timeout_ms.

        gone: whether the client has disconnected. answer: (records) -> (result, how many of the records are in it).
        Positions go back if `answer` fails or the client has disconnected, else to the first record not in the result.
        """
        if not (instance.topics or instance.pattern is not None or instance.assigned):
            raise HttpError(
                409, "Consumer is not subscribed to any topics or assigned any partitions", ILLEGAL_STATE
            )
        records = await self._collect(instance, timeout_ms, max_bytes, gone)
        try:
            response, count = await answer(records)
            if await gone():
                raise HttpError(400, "the client has closed the connection")
        except BaseException:
            await asyncio.shield(self._go_back(instance, records))
            raise
        if count:
            await self._run(self._store, instance, records[:count])
        if count < len(records):
            await self._go_back(instance, records[count:])
        return response

    async def _collect(
        self, instance: Instance, timeout_ms: int, max_bytes: int, gone: Callable[[], Awaitable[bool]]
    ) -> list[Any]:
        records: list[Any] = []
        deadline = time.monotonic() + timeout_ms / 1000
        try:
            while not instance.closing:
                left = deadline - time.monotonic()
                size = await self._run(
                    _take, instance.consumer, records, max_bytes, max(min(left, SLICE_S), 0)
                )
                enough = size >= min(max_bytes, max(instance.min_bytes, 1)) or len(records) >= RECORDS_MAX
                if enough or time.monotonic() >= deadline:
                    break
                if await gone():
                    raise HttpError(400, "the client has closed the connection")
        except BaseException:
            await asyncio.shield(self._go_back(instance, records))
            raise
        return records

    async def _go_back(self, instance: Instance, records: Sequence[Any]) -> None:
        """Set the positions back, so that these records are read again."""
        first: dict[tuple[str, int], int] = {}
        for record in records:
            first.setdefault((record.topic(), record.partition()), record.offset())
        for (topic, partition), offset in first.items():
            with contextlib.suppress(HttpError):  # the partition is another member's by now
                await self._run(instance.consumer.seek, TopicPartition(topic, partition, offset))

    def _store(self, instance: Instance, records: Sequence[Any]) -> None:
        last = {(record.topic(), record.partition()): record for record in records}
        for (topic, partition), record in last.items():
            place = TopicPartition(topic, partition, record.offset() + 1)
            with contextlib.suppress(KafkaException):  # the partition is another member's by now
                instance.consumer.store_offsets(offsets=[place])

    # --- offsets --------------------------------------------------------------------------------------

    async def commit(self, instance: Instance, offsets: list[TopicPartition] | None) -> None:
        """Commit these offsets, or with None those of all records read. Raises HttpError."""
        await self._run(self._commit, instance, offsets)

    def _commit(self, instance: Instance, offsets: list[TopicPartition] | None) -> None:
        try:
            if offsets is None:
                instance.consumer.commit(asynchronous=False)
            elif offsets:
                done = instance.consumer.commit(offsets=offsets, asynchronous=False)
                for place in done or ():
                    if place.error is not None:
                        raise KafkaException(place.error)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:  # nothing was read since the last time
                raise

    async def committed(self, instance: Instance, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The group's committed offsets, whoever has committed them. Raises HttpError."""

        def ask() -> list[TopicPartition]:
            offsets: list[TopicPartition] = instance.consumer.committed(partitions, timeout=OFFSETS_TIMEOUT_S)
            return offsets

        return await self._run(ask)


def _take(consumer: Any, records: list[Any], max_bytes: int, wait_s: float) -> int:
    """Append available records, waiting for the first; the bytes of all keys and values. Raises KafkaException."""
    size = sum(_size(record) for record in records)
    first = True
    while size < max_bytes and len(records) < RECORDS_MAX:
        message = consumer.poll(wait_s if first else LINGER_S if size < 1 else 0)
        first = False
        if message is None:
            break
        error = message.error()
        if error is not None:
            if records or error.code() in _PASSING:
                break  # the error is transient, or occurs again with the next request
            raise KafkaException(error)
        records.append(message)
        size += _size(message)
    return size


_PASSING: Final = frozenset(
    {
        KafkaError._PARTITION_EOF,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._MAX_POLL_EXCEEDED,
    }
)


def _size(message: Any) -> int:
    return len(message.key() or b"") + len(message.value() or b"")


def exclusive() -> HttpError:
    """The error of an instance that is to read by two of: topics, a pattern, partitions."""
    return HttpError(
        409,
        "Illegal state: Subscription to topics, partitions and pattern are mutually exclusive",
        ILLEGAL_STATE,
    )
