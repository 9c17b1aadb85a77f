"""What flows through a topology: records, the windows of keys, and the changes of tables."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

Headers = tuple[tuple[str, bytes | None], ...]
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)
SAME: Final[Any] = object()
"""A part of a record that is not changed."""


@dataclass(frozen=True, slots=True)
class Record(Generic[K, V]):
    """A record. timestamp: in milliseconds since 1970. headers: pairs of a name and bytes."""

    key: K
    value: V
    timestamp: int = 0
    headers: Headers = ()

    @property
    def time(self) -> datetime:
        """Its timestamp as a datetime in UTC."""
        return EPOCH + self.timestamp * MILLISECOND

    def header(self, name: str) -> bytes | None:
        """The last header of this name; None if there is none."""
        return next((value for key, value in reversed(self.headers) if key == name), None)

    def put(
        self, *, key: Any = SAME, value: Any = SAME, timestamp: Any = SAME, headers: Any = SAME
    ) -> Record[Any, Any]:
        """The record with other parts: `record.put(value=1)`."""
        return Record(
            self.key if key is SAME else key,
            self.value if value is SAME else value,
            self.timestamp if timestamp is SAME else timestamp,
            self.headers if headers is SAME else headers,
        )


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """A span of time in milliseconds since 1970. end: the first moment after it; of sessions and sliding windows, the
    last one in it."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Windowed(Generic[K]):
    """The key of a result for a window."""

    key: K
    window: Window

    @property
    def start(self) -> int:
        """The window's start in milliseconds."""
        return self.window.start

    @property
    def end(self) -> int:
        """The window's end in milliseconds."""
        return self.window.end


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a key of a table. old: what it was, if a node further down needs it; else None."""

    new: Any
    old: Any = None


def milliseconds_of(time: int | float | datetime) -> int:
    """A moment in milliseconds since 1970. A datetime without a zone is in UTC."""
    if isinstance(time, datetime):
        aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        return (aware - EPOCH) // MILLISECOND
    return int(time)


def pairs_of(headers: Any) -> Headers:
    """Headers of a mapping or of pairs; values that are text become bytes."""
    if headers is None:
        return ()
    pairs = headers.items() if hasattr(headers, "items") else headers
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)


def headers_text(headers: Headers) -> str | None:
    """Headers as a plan carries them: a JSON list of pairs of a name and base64; None without any."""
    if not headers:
        return None
    pairs = [[name, None if value is None else base64.b64encode(value).decode()] for name, value in headers]
    return json.dumps(pairs, separators=(",", ":"))


def headers_of(text: str | None) -> Headers:
    """The headers of such a text."""
    if not text:
        return ()
    return tuple((name, None if data is None else base64.b64decode(data)) for name, data in json.loads(text))
