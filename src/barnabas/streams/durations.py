"""Spans of time: `"5 minutes"`, a timedelta, or milliseconds."""

from __future__ import annotations

from datetime import timedelta

from barnabas.pipelines.processing.processor import milliseconds as of_text
from barnabas.streams.errors import StreamsError

Duration = str | int | timedelta


def milliseconds(duration: Duration) -> int:
    """A span of time in milliseconds. Raises StreamsError."""
    if isinstance(duration, int) and not isinstance(duration, bool):
        return duration
    try:
        return of_text(duration)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        raise StreamsError(
            f"{duration!r} is no span of time: write it like '10 minutes', as a timedelta, or in milliseconds"
        ) from None
