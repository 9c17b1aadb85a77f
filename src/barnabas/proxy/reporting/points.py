"""Access points: names that lead to topics. Stored in a compacted topic, which every instance of the service reads."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Awaitable
from dataclasses import asdict, dataclass, replace
from typing import Final

from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.client.tables.table import TopicTable
from barnabas.client.tables.topic import CompactedTopic
from barnabas.http.errors import HttpError
from barnabas.proxy.errors import from_client
from barnabas.proxy.producing import Producing

DEFAULT_TOPIC: Final = "_access_points"
POINTS_MAX: Final = 10_000
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


class PointCodec:
    """Access points as JSON, by their ids; see Codec."""

    def decode(self, key: bytes | None, value: bytes | None) -> tuple[str, Point | None]:
        """Raises ValueError."""
        point_id = (key or b"").decode("utf-8", "replace")
        return point_id, None if value is None else read_point(point_id, value)

    def encode(self, key: str, value: Point | None) -> tuple[bytes, bytes | None]:
        """The bytes of a record."""
        return key.encode(), None if value is None else json.dumps(asdict(value)).encode()


class Points:
    """All access points, as read from the topic. Use it in one event loop."""

    def __init__(self, client: ClientOptions, producing: Producing, topic: str) -> None:
        self._producing = producing
        self._table = TopicTable(client, CompactedTopic(topic, "access points"), PointCodec())

    async def start(self) -> None:
        """Create the topic if it is missing, read it to its end, and continue to read in a thread. Raises HttpError."""
        await _ask(self._table.start())

    async def stop(self) -> None:
        """Stop reading the topic."""
        await self._table.stop()

    def trouble(self) -> str | None:
        """Why the topic cannot be read; None if it can."""
        return self._table.trouble

    def all(self) -> list[Point]:
        """All access points, the oldest first."""
        return sorted(self._table.snapshot().values(), key=lambda point: (point.created_ms, point.id))

    def find(self, point_id: str) -> Point | None:
        """The access point with an id; None if there is none."""
        return self._table.get(point_id)

    async def create(self, name: str, topic: str, now_ms: int) -> Point:
        """Create an access point. Raises HttpError if the topic does not exist, or there are too many access points."""
        if not TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
            raise HttpError(400, f"{topic[:100]!r} is not the name of a topic")
        if len(self._table) >= POINTS_MAX:
            raise HttpError(400, f"there are {POINTS_MAX} access points already")
        await self._producing.partitions(topic)
        point = Point(f"datahub-{secrets.token_hex(4)}", name or topic, topic, False, now_ms)
        await _ask(self._table.put(point.id, point))
        return point

    async def pause(self, point: Point, paused: bool) -> Point:
        """Pause or resume an access point; returns the changed one. Raises HttpError."""
        changed = replace(point, paused=paused)
        await _ask(self._table.put(point.id, changed))
        return changed

    async def delete(self, point: Point) -> None:
        """Delete an access point. Raises HttpError."""
        await _ask(self._table.delete(point.id))


async def _ask(work: Awaitable[None]) -> None:
    try:
        await work
    except ClientError as error:
        raise from_client(error) from error
