"""Steps whose rows come from user code, or are whole records."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from barnabas.pipelines.plan.processing import Process
from barnabas.pipelines.plan.whole import WholeRecord

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic. at_us: its timestamp in microseconds since 1970. headers: pairs of a name and bytes."""

    topic: str
    key: bytes | None
    value: bytes | None
    at_us: int = 0
    partition: int = 0
    offset: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Work(Protocol):
    """User code at work, with what it keeps for all keys."""

    def process(self, key: Any, fields: Fields, now_ms: int) -> list[Fields]:
        """The rows that are made of one. Raises Failed."""
        ...

    def advance(self, now_ms: int) -> list[Fields]:
        """The rows of timers whose time has come by the clock. Raises Failed."""
        ...


AtWork = Callable[[Process], Work]


def whole(step: WholeRecord, record: Record) -> Fields:
    """The fields of a record."""
    headers = [
        [name, None if value is None else base64.b64encode(value).decode()] for name, value in record.headers
    ]
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "at": record.at_us // 1000,
        "key": record.key,
        "value": record.value,
        "headers": json.dumps(headers, separators=(",", ":")) if headers else None,
        "task": zlib.crc32(record.key or b"") % step.tasks,
    }
