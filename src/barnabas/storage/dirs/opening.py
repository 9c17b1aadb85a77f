"""Logs the progress of opening a log dir, if that takes long."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

log = logging.getLogger("barnabas.storage")

BETWEEN_SECONDS: Final = 5.0


class Opening:
    """Counts the open logs of one dir."""

    def __init__(self, log_dir: str, total: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log_dir = log_dir
        self._total = total
        self._monotonic = monotonic
        self._began = self._reported_at = monotonic()
        self._done = 0

    def opened(self, count: int) -> None:
        """`count` more logs are open: writes a line every five seconds, with an estimate of the remaining time."""
        self._done += count
        now = self._monotonic()
        if now - self._reported_at < BETWEEN_SECONDS or self._done >= self._total:
            return
        self._reported_at = now
        left_s = (now - self._began) / self._done * (self._total - self._done) if self._done else -1.0
        extra = {"dir": self._log_dir, "open": self._done, "of": self._total, "seconds_left": round(left_s)}
        log.info("opening logs", extra=extra)
