"""Log lines: time, level, logger, constant text, then the fields as name=value, or the same as JSON."""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class FieldFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO barnabas.log recovered topic=a partition=0 took_ms=12`."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of text, followed by the traceback of its exception, if any."""
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
    """The text, quoted if it contains spaces or unprintable characters: peers choose some texts, and terminals obey them."""
    text = str(value)
    return text if text and " " not in text and text.isprintable() else repr(text)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON; values that JSON cannot represent become text."""
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        shown = {
            "time": f"{when}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in record.__dict__.items() if name not in STANDARD},
        }
        if record.exc_info:
            shown["exception"] = self.formatException(record.exc_info)
        return json.dumps(shown, ensure_ascii=False, default=str)


class LogSettings(NamedTuple):
    """The destination of a process's log. file None: standard error. style: text or json."""

    level: str = "INFO"
    file: Path | None = None
    style: str = "text"


STANDARD_ERROR: Final = LogSettings()
FILE_BYTES: Final = 10_000_000
OLD_FILES: Final = 4


def set_up(settings: LogSettings = STANDARD_ERROR) -> None:
    """Send the log of this process to the configured destination. Raises OSError if the file cannot be written."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if settings.file is not None:
        from logging.handlers import RotatingFileHandler

        handler = RotatingFileHandler(
            settings.file, maxBytes=FILE_BYTES, backupCount=OLD_FILES, encoding="utf-8"
        )
    handler.setFormatter(JsonFormatter() if settings.style == "json" else FieldFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level)
