"""Access points: names that lead to topics. Stored in a compacted topic, which every instance of the service reads."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import threading
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from barnabas.admin import NewTopic
from barnabas.http.errors import HttpError
from barnabas.proxy.errors import from_kafka
from barnabas.proxy.kafka import Kafka
from barnabas.proxy.producing import Outgoing, Producing
from barnabas.wire.errors import ErrorCode

log = logging.getLogger("barnabas.proxy")

DEFAULT_TOPIC: Final = "_access_points"
POINTS_MAX: Final = 10_000
CAUGHT_UP_S: Final = 30.0
RETRY_S: Final = 1.0
TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class Point:
    """An access point. id: begins with `datahub-`. created_ms: since 1970."""

    id: str
    name: str
    topic: str
    paused: bool = False
    created_ms: int = 0


def read_point(point_id: str, value: bytes) -> Point:
    """Parse the key and value of a record. Raises ValueError."""
    try:
        point = Point(**json.loads(value))
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    texts = (point.id, point.name, point.topic)
    if not all(isinstance(text, str) for text in texts) or type(point.created_ms) is not int:
        raise ValueError(f"{point!r} has fields of other types")
    if type(point.paused) is not bool or point.id != point_id or not TOPIC_NAME.fullmatch(point.topic):
        raise ValueError(f"{point!r} is not the access point {point_id!r}, or names no topic")
    point.name.encode()  # UnicodeEncodeError is a ValueError
    return point


class Points:
    """All access points, as read from the topic. Use it in one event loop."""

    def __init__(self, kafka: Kafka, producing: Producing, topic: str) -> None:
        self._kafka = kafka
        self._producing = producing
        self._topic = topic
        self._held: dict[str, Point] = {}
        self._next = 0
        self._ended = threading.Event()
        self._moved = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._thread: threading.Thread | None = None

    async def start(self) -> None:
        """Create the topic if it is missing, read it to its end, and continue to read in a thread. Raises HttpError."""
        kafka = self._kafka
        wanted = NewTopic(self._topic, 1, configs={"cleanup.policy": "compact"})

        async def create() -> None:
            results = await kafka.admin.topics.create([wanted])
            results.except_for(ErrorCode.TOPIC_ALREADY_EXISTS).require()

        await kafka.ask(create())
        await self._producing.partitions(self._topic)
        _, end = await kafka.offsets_of(self._topic, 0)
        self._thread = threading.Thread(target=self._follow, name="access points", daemon=True)
        self._thread.start()
        await self._reached(end)

    async def _reached(self, offset: int) -> None:
        """Wait until this instance has read all records before `offset`. Raises HttpError."""
        try:
            async with asyncio.timeout(CAUGHT_UP_S):
                while self._next < offset:
                    self._moved.clear()
                    if self._next < offset:
                        await self._moved.wait()
        except TimeoutError:
            raise HttpError(503, f"topic {self._topic} could not be read in {CAUGHT_UP_S:g} s") from None

    def _follow(self) -> None:
        while not self._ended.is_set():
            try:
                self._read()
            except Exception:
                log.exception(
                    "the topic of the access points could not be read; trying again",
                    extra={"topic": self._topic, "offset": self._next},
                )
                self._ended.wait(RETRY_S)

    def _read(self) -> None:
        consumer = Consumer(
            self._kafka.config(
                {"enable.partition.eof": True},
                {"group.id": "access-points", "enable.auto.commit": False, "auto.offset.reset": "earliest"},
            )
        )
        try:
            consumer.assign([TopicPartition(self._topic, 0, self._next or OFFSET_BEGINNING)])
            while not self._ended.is_set():
                self._take(consumer.poll(0.5))
        finally:
            consumer.close()

    def _take(self, message: Any) -> None:
        if message is None:
            return
        if message.error() is None:
            if message.offset() < self._next:
                self._held.clear()  # the topic was created again
            self._next = message.offset() + 1
            point_id = (message.key() or b"").decode("utf-8", "replace")
            try:
                if message.value() is None:
                    self._held.pop(point_id, None)
                else:
                    self._held[point_id] = read_point(point_id, message.value())
            except ValueError as error:
                log.warning(
                    "an access point cannot be read",
                    extra={"offset": message.offset(), "reason": str(error)},
                )
        elif message.error().name() == "_PARTITION_EOF":
            if message.offset() < self._next:
                self._held.clear()
            self._next = message.offset()  # compaction may have removed the last records
        else:
            return
        try:
            self._loop.call_soon_threadsafe(self._moved.set)
        except RuntimeError:
            return  # the loop has ended

    async def stop(self) -> None:
        """Stop reading the topic."""
        self._ended.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    # --- reading and changing -------------------------------------------------------------------------

    def all(self) -> list[Point]:
        """All access points, the oldest first."""
        return sorted(self._held.values(), key=lambda point: (point.created_ms, point.id))

    def find(self, point_id: str) -> Point | None:
        """The access point with an id; None if there is none."""
        return self._held.get(point_id)

    async def create(self, name: str, topic: str, now_ms: int) -> Point:
        """Create an access point. Raises HttpError if the topic does not exist, or there are too many access points."""
        if not TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
            raise HttpError(400, f"{topic[:100]!r} is not the name of a topic")
        if len(self._held) >= POINTS_MAX:
            raise HttpError(400, f"there are {POINTS_MAX} access points already")
        await self._producing.partitions(topic)
        point = Point(f"datahub-{secrets.token_hex(4)}", name or topic, topic, False, now_ms)
        await self._write(point.id, point)
        return point

    async def pause(self, point: Point, paused: bool) -> Point:
        """Pause or resume an access point; returns the changed one. Raises HttpError."""
        changed = replace(point, paused=paused)
        await self._write(point.id, changed)
        return changed

    async def delete(self, point: Point) -> None:
        """Delete an access point. Raises HttpError."""
        await self._write(point.id, None)

    async def _write(self, point_id: str, point: Point | None) -> None:
        value = None if point is None else json.dumps(asdict(point)).encode()
        (result,) = await self._producing.send(self._topic, [Outgoing(point_id.encode(), value, 0)])
        if result.error is not None:
            raise from_kafka(result.error)
        await self._reached(result.offset + 1)
