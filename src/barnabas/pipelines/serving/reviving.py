"""Spark's Java process may die, be killed or run out of memory: it is started again, and pipelines go on from their
checkpoints. Health checks say so meanwhile."""

from __future__ import annotations

import logging
import time

from barnabas.pipelines.serving.engine import Engine
from barnabas.pipelines.serving.pauses import WELL_SECONDS, pause_seconds
from barnabas.pipelines.spark.frame import spark_reason

log = logging.getLogger(__name__)


class Revival:
    """Watches the Java process of an engine. `turn` is called by the supervisor's thread, `trouble` by any."""

    def __init__(self, engine: Engine, first_pause_s: float) -> None:
        """first_pause_s: before the second start in a row; then it doubles."""
        self._engine = engine
        self._first_pause_s = first_pause_s
        self._seen: str | None = None
        self._since = 0.0
        self._failure = ""
        self._starts = 0
        self._started_at = self._retry_at = 0.0

    def trouble(self) -> str | None:
        """A line about a Java process that has ended; None while it runs."""
        seen = self._seen or self._engine.death()
        if seen is None:
            return None
        if not self._engine.can_restart:
            return seen
        return f"{seen}; starting it again{self._failure}"

    def turn(self) -> bool:
        """Whether pipelines can be looked after. Starts Java again if it has ended, which takes seconds."""
        death = self._engine.death()
        if death is None:
            return True
        if self._seen is None:
            self._note(death)
        if not self._engine.can_restart:
            self._engine.give_up()
            return True
        if time.monotonic() < self._retry_at:
            return False
        self._starts += 1
        try:
            self._engine.restart()
        except Exception as error:  # Java may be gone, or there may be no memory: it is tried for ever
            self._put_off(spark_reason(error))
            return False
        seconds = time.monotonic() - self._since
        log.info("Spark's Java process runs again", extra={"after_s": round(seconds, 1)})
        self._seen, self._failure, self._started_at = None, "", time.monotonic()
        return True

    def _note(self, death: str) -> None:
        self._since = time.monotonic()
        if self._since - self._started_at > WELL_SECONDS:
            self._starts = 0
        self._seen = death
        pause_s = pause_seconds(self._starts - 1, self._first_pause_s) if self._starts else 0.0
        self._retry_at = self._since + pause_s
        what_next = "it is started again, and all pipelines go on from their checkpoints"
        log.error(
            death,
            extra={"next": what_next, "retry_s": pause_s}
            if self._engine.can_restart
            else {"next": "nothing runs until this process is restarted; its checkpoints are kept"},
        )

    def _put_off(self, reason: str) -> None:
        pause_s = pause_seconds(self._starts - 1, self._first_pause_s)
        self._retry_at = time.monotonic() + pause_s
        self._failure = f" has failed: {reason}"
        log.error("Spark's Java process does not start again", extra={"reason": reason, "retry_s": pause_s})
