"""Keeps Spark's Python workers fast from task to task."""

from __future__ import annotations

import gc
from typing import Final

_IMPORTING_TASKS: Final = 4
"""A worker's first tasks import modules, some of which only a task that reads, or one that writes, imports."""
_tasks_seen = 0


def settle() -> None:
    """To be called when a task begins: excludes the modules imported so far from garbage collections.

    PySpark's workers collect garbage after every task, and traverse all objects of imported modules: 15 ms or more in
    each worker of a micro-batch, which is more than the work itself if batches are small.
    """
    global _tasks_seen
    if _tasks_seen < _IMPORTING_TASKS:
        _tasks_seen += 1
        gc.freeze()
