"""What keeps a log from being searched."""

from __future__ import annotations


class LogError(Exception):
    """A table cannot be read; the message says why."""
