"""One line on the terminal that shows the progress of long work: how much is done, how fast, how much is left.
Nothing is written if standard error is no terminal, with -q, or in the first second.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import deque
from types import TracebackType
from typing import Final, TextIO

from barnabas.terminal.output import MANNER, count_of, size_text

PATIENCE_SECONDS: Final = 1.0
"""Work that is done sooner shows no line."""
BETWEEN_SECONDS: Final = 0.2
WINDOW_SECONDS: Final = 5.0
"""The rate is that of the last so many seconds."""
CLEAR: Final = "\r\x1b[K"


def time_left_text(seconds: float) -> str:
    """`8 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Progress:
    """The progress line of one piece of work; a context manager that removes the line at the end.

    what: begins the line. noun: what is counted, in the singular. total: how many there are, where it is known.
    """

    def __init__(
        self,
        what: str,
        noun: str,
        total: int | None = None,
        *,
        shown: bool = True,
        stream: TextIO | None = None,
    ) -> None:
        """shown: False if the command writes its output to the same terminal."""
        self.what = what
        self.noun = noun
        self.total = total
        self._stream = stream or sys.stderr
        self._active = shown and not MANNER.quiet and self._stream.isatty()
        self._began = time.monotonic()
        self._next = self._began + PATIENCE_SECONDS
        self._seen: deque[tuple[float, float]] = deque([(self._began, 0.0)])
        self._is_on_screen = False

    def __enter__(self) -> Progress:
        MANNER.clear_line = self.clear
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.clear()
        MANNER.clear_line = lambda: None

    def update(
        self, count: int, *, size_bytes: int | None = None, fraction: float | None = None, more: str = ""
    ) -> None:
        """Report progress; returns at once when no update of the line is due. fraction: of the whole, if `count` does
        not determine it. more: words for the end of the line.
        """
        if not self._active:
            return
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + BETWEEN_SECONDS
        self._seen.append((now, float(count)))
        while len(self._seen) > 2 and now - self._seen[0][0] > WINDOW_SECONDS:
            self._seen.popleft()
        line = self.text(now, count, size_bytes, fraction, more)
        columns = shutil.get_terminal_size().columns
        self._stream.write(f"{CLEAR}{line[: columns - 1]}")
        self._stream.flush()
        self._is_on_screen = True

    def text(self, now: float, count: int, size_bytes: int | None, fraction: float | None, more: str) -> str:
        """The line without the terminal's control characters."""
        since, before = self._seen[0]
        rate = (count - before) / max(now - since, 1e-9)
        if fraction is None and self.total:
            fraction = min(count / self.total, 1.0)
        parts = [
            count_of(count, self.noun)
            if self.total is None
            else f"{count:,} of {count_of(self.total, self.noun)}"
        ]
        if fraction is not None:
            parts[0] += f" ({fraction:.0%})"
        if size_bytes is not None:
            parts.append(size_text(size_bytes))
        parts.append(f"{rate:,.0f} {self.noun}s/s")
        if fraction and rate > 0:
            parts.append(f"{time_left_text((now - self._began) * (1 - fraction) / fraction)} left")
        if more:
            parts.append(more)
        return f"{self.what}: {', '.join(parts)}"

    def clear(self) -> None:
        """Remove the line from the terminal."""
        if self._is_on_screen:
            self._stream.write(CLEAR)
            self._stream.flush()
            self._is_on_screen = False
