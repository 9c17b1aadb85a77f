"""Errors of pipelines that are shown to users."""

from __future__ import annotations

import difflib
from collections.abc import Collection


class PipelineError(Exception):
    """A pipeline cannot be read, started or continued; the message is one line that says what to do."""


class BrokerAway(PipelineError):
    """No broker answers, which may be temporary."""


class SparkAway(PipelineError):
    """Spark's Java process has ended, and may be started again."""


class TargetAway(PipelineError):
    """A target does not answer, which may be temporary."""


def suggestion(name: str, allowed: Collection[str]) -> str:
    """`did you mean X?` if an allowed name is similar, then all allowed names. Names that begin with an underscore are
    internal and never shown."""
    allowed = [word for word in allowed if not word.startswith("_")]
    lowered = {word.lower(): word for word in allowed}
    near = difflib.get_close_matches(name.lower(), list(lowered), n=1)
    hint = f"did you mean {lowered[near[0]]!r}? " if near else ""
    return f"{hint}allowed: {', '.join(sorted(allowed))}"
