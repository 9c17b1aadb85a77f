"""How long to wait before what has failed is started again (the same for pipelines and for tasks of connectors), and how
often the supervisor looks at what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BACKOFF_SECONDS: Final = 1.0
BACKOFF_SECONDS_MAX: Final = 300.0
WELL_SECONDS: Final = 60.0
"""After this time without a failure, the pause before a restart is reset and the last error is cleared."""


def pause_seconds(restarts: int, first_s: float = BACKOFF_SECONDS) -> float:
    """The pause before the next start. restarts: how many there have been since it last ran well."""
    return float(min(first_s * 2.0 ** min(restarts, 30), BACKOFF_SECONDS_MAX))


@dataclass(frozen=True, slots=True)
class Pace:
    """The supervisor's times, in seconds.

    tick_s: between two looks at all pipelines. first_pause_s: before the first restart. target_s: before a target that does
    not answer is tried again. patience_s: how long a query may stand still, or a pipeline start, before that is said.
    look_s: between two looks into Spark's log for the reason. lag_s: between two requests for a pipeline's lag, and the
    timeout of such a request.
    """

    tick_s: float = 0.25
    first_pause_s: float = BACKOFF_SECONDS
    target_s: float = 5.0
    patience_s: float = 120.0
    look_s: float = 30.0
    lag_s: float = 2.0
