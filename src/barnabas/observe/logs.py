"""Log lines: time, level, where, constant text, then the fields as name=value. One line each."""

from __future__ import annotations

import logging
import sys
import time
from typing import Final

STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class FieldFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO barnabas.log recovered topic=a partition=0 took_ms=12`."""

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = "".join(
            f" {name}={_shown(value)}" for name, value in record.__dict__.items() if name not in STANDARD
        )
        line = (
            f"{when}.{int(record.msecs):03d}Z {record.levelname} {record.name} {record.getMessage()}{fields}"
        )
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _shown(value: object) -> str:
    text = str(value)
    return repr(text) if " " in text or "\n" in text or not text else text


def set_up(level: str = "INFO") -> None:
    """Send the log of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FieldFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
