"""Alerts about drivers: user code with state, as `pipeline.yaml` names it. `test_trucks.py` tests it without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, ClassVar

from barnabas.pipelines.processing import ListState, Processor, ValueState

WITHIN = timedelta(minutes=10)
EVENTS = 3


class Dangerous(Processor):
    """Tells of a driver who has three dangerous events within ten minutes, and again after ten minutes without any."""

    returns: ClassVar = {"driver": "string", "alert": "string", "events": "int", "at": "timestamp"}
    recent = ListState("timestamp")
    warned = ValueState("boolean")

    def process(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        # Records may be out of order: an event counts by its own time.
        recent = sorted([*self.recent, row["at"]])
        recent = [at for at in recent if at > recent[-1] - WITHIN]
        self.recent.set(recent)
        self.timers.clear()
        self.timers.set(recent[-1] + WITHIN)
        if len(recent) >= EVENTS and not self.warned.get(False):
            self.warned.set(True)
            yield {"driver": self.key, "alert": "dangerous", "events": len(recent), "at": recent[-1]}

    def on_timer(self, at: datetime) -> Iterator[dict[str, Any]]:
        if self.warned.get(False):
            yield {"driver": self.key, "alert": "calm again", "at": at}
        self.warned.clear()
        self.recent.clear()
