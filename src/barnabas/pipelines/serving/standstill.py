"""Whether a query makes progress: pure, times and numbers come with each observation.

A query stands still if it has not moved for a while although something waits for it. It moves when a micro-batch ends,
which changes the offsets that it has reached. A large first micro-batch stands still, too, until it ends: what is said
about a query is that nothing has ended, and what it is doing, not that it is broken.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a query at a moment. now_s: monotonic. reached: its last micro-batch and offsets as text; None before
    Spark's first report. lag: records that wait; None if unknown. busy: whether it is processing data."""

    now_s: float
    reached: str | None
    lag: int | None
    busy: bool

    @property
    def waits(self) -> bool:
        """Whether something waits for the query. Where the lag is unknown: it has not begun, or is in a micro-batch."""
        return self.lag > 0 if self.lag is not None else self.reached is None or self.busy


@dataclass(slots=True)
class Standstill:
    """Since when a query stands still. since_s: when it last moved or had nothing to do, in monotonic seconds. patience_s:
    after this time it is said."""

    since_s: float
    patience_s: float
    reached: str | None = None
    is_told: bool = False

    def note(self, seen: Seen) -> None:
        """Takes an observation. A query that has started again and not reported yet has not moved."""
        moved = seen.reached is not None and seen.reached != self.reached
        if moved:
            self.reached = seen.reached
        if moved or not seen.waits:
            self.since_s = seen.now_s

    def seconds(self, now_s: float) -> float | None:
        """For how long the query has stood still; None if it has not, or for a short time only."""
        passed = now_s - self.since_s
        return passed if passed > self.patience_s else None
