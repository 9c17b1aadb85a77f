"""Reads how far groups are behind, for the commands that show it."""

from __future__ import annotations

import time

from barnabas.admin import Admin
from barnabas.monitor.lag.reading import LagReader, Look
from barnabas.terminal.administering import saying


def looked(admin: Admin, names: list[str] | None, reader: LagReader | None = None) -> Look:
    """The lag of these groups now, None: all. Raises CliError."""
    reader = reader or LagReader(admin.asynchronous)
    with saying("cannot read the lag"):
        return admin.thread.run(reader.look(names, time.time_ns() // 1_000_000))


def seconds_of(seconds: float | None) -> float | None:
    """Rounded to tenths."""
    return None if seconds is None else round(seconds, 1)
