"""How long to wait before what has failed is started again: the same for pipelines and for tasks of connectors."""

from __future__ import annotations

from typing import Final

BACKOFF_SECONDS: Final = 1.0
BACKOFF_SECONDS_MAX: Final = 300.0
WELL_SECONDS: Final = 60.0
"""After this time without a failure, the pause before a restart is reset and the last error is cleared."""


def pause_seconds(restarts: int) -> float:
    """The pause before the next start. restarts: how many there have been since it last ran well."""
    return float(min(BACKOFF_SECONDS * 2.0 ** min(restarts, 30), BACKOFF_SECONDS_MAX))
