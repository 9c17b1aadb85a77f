"""Errors of pipelines that are shown to users."""

from __future__ import annotations


class PipelineError(Exception):
    """A pipeline cannot be read, started or continued; the message is one line that says what to do."""


class BrokerAway(PipelineError):
    """No broker answers, which may be temporary."""
