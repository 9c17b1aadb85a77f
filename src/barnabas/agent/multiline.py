"""Which lines belong to the line before them: stack traces, and whatever a pattern describes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

LINES_MAX: Final = 500
BYTES_MAX: Final = 10 << 20
TIMEOUT_SECONDS: Final = 5.0


class Joiner(Protocol):
    """Looks at the lines of one file, in their order."""

    def joins(self, line: bytes) -> bool:
        """Whether the line belongs to the one before it."""


class ByPattern:
    """A line that matches belongs to the one before it; negated: one that does not match does."""

    __slots__ = ("negated", "search")

    def __init__(self, pattern: re.Pattern[bytes], negated: bool) -> None:
        self.search, self.negated = pattern.search, negated

    def joins(self, line: bytes) -> bool:
        """See Joiner."""
        return (self.search(line) is not None) is not self.negated


class Java:
    """Frames, causes, and the exception itself when it stands on a line of its own after the log line."""

    __slots__ = ()
    PATTERN: Final = re.compile(
        rb"^(?:[ \t]+(?:at\s|\.\.\. \d+ )"
        rb"|[ \t]*(?:Caused by|Suppressed): "
        rb"|(?:Exception in thread .*|(?:[\w$]+\.)+[\w$]*(?:Exception|Error|Throwable|Failure|Fault)[\w$]*(?::.*)?)\r?$"
        rb"|[ \t]+\S)"
    )

    def joins(self, line: bytes) -> bool:
        """See Joiner."""
        return self.PATTERN.match(line) is not None and not line.startswith(b"Exception in thread")


class Python:
    """A traceback, up to the line with the exception, and those of other exceptions that led to it."""

    __slots__ = ("is_after", "is_inside")
    CHAINED: Final = (b"During handling of the above exception", b"The above exception was the direct cause")

    def __init__(self) -> None:
        self.is_inside = self.is_after = False

    def joins(self, line: bytes) -> bool:
        """See Joiner."""
        if line.startswith(b"Traceback (most recent call last):"):
            self.is_inside, self.is_after = True, False
            return True
        if line[:1] in (b" ", b"\t"):
            return True
        if self.is_inside:
            # The exception itself, unless the traceback is followed by an empty line.
            self.is_inside, self.is_after = False, True
            return True
        if self.is_after and (not line.strip() or line.startswith(self.CHAINED)):
            return True
        self.is_after = False
        return False


class Go:
    """A panic with the stacks of its goroutines."""

    __slots__ = ("is_inside",)
    BEGINS: Final = re.compile(rb"^(?:panic: |fatal error: |goroutine \d+ \[|SIG[A-Z]+: )")
    GOES_ON: Final = re.compile(
        rb"^(?:\s|\r?$|goroutine \d+ \[|created by |exit status \d|\[signal |\[recovered\]|panic: |runtime: "
        rb"|[\w./*(){}\[\]\xc2\xb7\-]+\(.*\)\r?$)"
    )

    def __init__(self) -> None:
        self.is_inside = False

    def joins(self, line: bytes) -> bool:
        """See Joiner."""
        if self.is_inside and self.GOES_ON.match(line):
            return True
        self.is_inside = self.BEGINS.match(line) is not None
        return False


PRESETS: Final[dict[str, Callable[[], Joiner]]] = {"java": Java, "python": Python, "go": Go}
INDENTED: Final = re.compile(rb"^[ \t]")


@dataclass(frozen=True, slots=True)
class Multiline:
    """How records of several lines are recognized: by a preset, or by a pattern (see ByPattern).

    lines_max, bytes_max: a record that has more continues in another one. timeout_s: how long a record waits for more.
    """

    preset: str = ""
    pattern: re.Pattern[bytes] = INDENTED
    negated: bool = False
    lines_max: int = LINES_MAX
    bytes_max: int = BYTES_MAX
    timeout_s: float = TIMEOUT_SECONDS

    def joiner(self) -> Joiner:
        """A joiner for one file."""
        return PRESETS[self.preset]() if self.preset else ByPattern(self.pattern, self.negated)
