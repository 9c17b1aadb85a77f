"""The errors of pipelines that users see."""

from __future__ import annotations


class PipelineError(Exception):
    """A pipeline cannot be read, started or carried on; the message is one line that says what to do."""


class BrokerAway(PipelineError):
    """No broker answers: that may pass by itself."""
