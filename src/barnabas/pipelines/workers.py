"""What keeps Spark's Python workers quick from task to task."""

from __future__ import annotations

import gc
from typing import Final

_IMPORTING_TASKS: Final = 4
"""A worker's first tasks import modules, some of them late and some only when it reads or when it writes."""
_tasks_seen = 0


def settle() -> None:
    """Says that a task begins: what this process has imported by then is left out of collections of garbage.

    PySpark's daemon collects garbage after every task, through everything that was ever imported: 15 ms and more
    on each of a micro-batch's workers, which costs more than the work itself when batches are small.
    """
    global _tasks_seen
    if _tasks_seen < _IMPORTING_TASKS:
        _tasks_seen += 1
        gc.freeze()
