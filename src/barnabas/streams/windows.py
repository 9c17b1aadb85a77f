"""Windows of time, and how changes of tables are held back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from barnabas.streams.durations import Duration, milliseconds
from barnabas.streams.errors import StreamsError


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows; all spans in milliseconds. Made by `tumbling`, `hopping`, `sliding`, `session` and `unlimited`."""

    kind: Literal["time", "sliding", "session", "unlimited"]
    size_ms: int = 0
    advance_ms: int = 0
    grace_ms: int = 0
    start_ms: int = 0


def _whole(what: str, duration: Duration, least: int = 1) -> int:
    duration_ms = milliseconds(duration)
    if duration_ms < least:
        raise StreamsError(f"{what} {duration!r} is too short")
    return duration_ms


def tumbling(size: Duration, grace: Duration = 0) -> Windows:
    """Windows that begin where the last one ends. grace: how long after its end a window takes late records."""
    size_ms = _whole("size", size)
    return Windows("time", size_ms, size_ms, _whole("grace", grace, 0))


def hopping(size: Duration, advance: Duration, grace: Duration = 0) -> Windows:
    """Windows that overlap: one begins every `advance`."""
    size_ms, advance_ms = _whole("size", size), _whole("advance", advance)
    if advance_ms > size_ms:
        raise StreamsError(
            f"advance {advance!r} is longer than size {size!r}: records between windows were lost"
        )
    return Windows("time", size_ms, advance_ms, _whole("grace", grace, 0))


def sliding(difference: Duration, grace: Duration = 0) -> Windows:
    """A window for each span of records that are at most `difference` apart."""
    return Windows("sliding", _whole("difference", difference, 0), 0, _whole("grace", grace, 0))


def session(gap: Duration, grace: Duration = 0) -> Windows:
    """Windows that end when nothing has come for `gap`."""
    return Windows("session", _whole("gap", gap), 0, _whole("grace", grace, 0))


def unlimited(start: int = 0) -> Windows:
    """One window that begins at a time (milliseconds since 1970) and never ends."""
    return Windows("unlimited", start_ms=start)


@dataclass(frozen=True, slots=True)
class Suppressed:
    """How changes are held back. wait_ms None: until the window is over."""

    wait_ms: int | None = None
    records_max: int | None = None
    strict: bool = False


def until_window_closes(max_records: int | None = None) -> Suppressed:
    """Only the last result of each window, once it is over. max_records: more in one task are an error."""
    return Suppressed(None, max_records, strict=True)


def until_time_limit(wait: Duration, max_records: int | None = None) -> Suppressed:
    """At most one change of a key in `wait`. max_records: with more in one task, the earliest are sent before their time."""
    return Suppressed(milliseconds(wait), max_records)
