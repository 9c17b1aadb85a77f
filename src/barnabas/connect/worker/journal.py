"""What happened to each connector on this worker: the last lines, in memory."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

LINES_MAX: Final = 500
CONNECTORS_MAX: Final = 2_000


@dataclass(slots=True)
class Journal:
    """Lines by connector; each has a number, by which a reader goes on."""

    _lines: dict[str, deque[tuple[int, dict[str, str]]]] = field(default_factory=dict)
    _next: int = 1
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, connector: str, level: str, text: str) -> None:
        """Adds a line."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        with self._lock:
            if connector not in self._lines and len(self._lines) >= CONNECTORS_MAX:
                del self._lines[next(iter(self._lines))]
            lines = self._lines.setdefault(connector, deque(maxlen=LINES_MAX))
            lines.append((self._next, {"at": at, "level": level, "text": text}))
            self._next += 1

    def page(self, connector: str, count: int, after: int) -> dict[str, Any]:
        """The last lines with numbers above `after`; `next` is for the following call."""
        with self._lock:
            rows = [row for row in self._lines.get(connector, ()) if row[0] > after][-count:]
            return {"lines": [line for _, line in rows], "next": rows[-1][0] if rows else after}
