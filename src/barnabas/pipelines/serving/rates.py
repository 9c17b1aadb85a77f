"""Estimates how long a query will take, from its progress in the last seconds; and formats progress lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

WINDOW_SECONDS: Final = 20.0


@dataclass(slots=True)
class Gauge:
    """Recent observations of a query: seconds (monotonic), records so far, records waiting."""

    seen: deque[tuple[float, int, int]] = field(default_factory=deque)

    def note(self, now_s: float, rows: int, lag: int) -> None:
        """Adds an observation; discards those older than WINDOW_SECONDS."""
        self.seen.append((now_s, rows, lag))
        while self.seen[0][0] < now_s - WINDOW_SECONDS:
            self.seen.popleft()

    def seconds_left(self) -> int | None:
        """The seconds until no records wait, if the lag continues to fall as fast as now. None when it does not fall,
        or too little is known."""
        if len(self.seen) < 2:
            return None
        (first_s, _, first), (last_s, _, last) = self.seen[0], self.seen[-1]
        if last == 0:
            return 0
        if first <= last or last_s <= first_s:
            return None
        return round(last * (last_s - first_s) / (first - last))


def progress_line(status: Mapping[str, Any], reports: Iterable[Any], dead_letters: str) -> str:
    """A pipeline's progress in one line: records, and rate, lag and time left of the query with the largest lag."""
    reports = list(reports)
    rows = max((report.rows for report in reports), default=0)
    failed = sum(report.failed for report in reports)
    parts = [f"{status['name']}: {rows:,} records"]
    if failed:
        parts.append(f"{failed:,} to {dead_letters}")
    if status["waiting"]:
        return ", ".join([*parts, status["waiting"]])
    if status["stuck"]:
        return ", ".join([*parts, status["stuck"]])
    if status["state"] == "failed":
        return ", ".join(
            [*parts, f"{status['last_error']}; trying again in {status['retry_in_seconds']:g} s"]
        )
    queries = status["queries"]
    if queries:
        slowest = max(queries, key=lambda query: query["lag"] or 0)
        if slowest["records_per_second"]:
            parts.append(f"{slowest['records_per_second']:,.0f}/s")
        if slowest["lag"] is not None:
            parts.append(f"{slowest['lag']:,} waiting")
            if slowest["lag"] and slowest["seconds_left"] is not None:
                parts.append(f"{duration_text(slowest['seconds_left'])} left")
    return ", ".join(parts)


def duration_text(seconds: float) -> str:
    """A duration as text: `45 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"
