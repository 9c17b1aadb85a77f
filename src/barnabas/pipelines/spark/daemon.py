"""The process from which Spark forks its Python workers: it has imported what they need.

PySpark's own forks first and imports then: half a second of CPU time and 50 MB for each worker. Memory that a worker does
not write to is shared with this process. No module may start a thread when it is imported: threads do not survive a fork.

Spark calls it as it calls its own: `python -m MODULE WORKER`.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from typing import Final

THREADLESS: Final[Mapping[str, str]] = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""With these, NumPy and PyArrow start no threads when they are imported."""
WORKER: Final = "pyspark.worker"
IN_ALL: Final = ("barnabas.pipelines.spark.topics.source", "barnabas.pipelines.spark.topics.sink")
IN_TASKS: Final = (
    "barnabas.pipelines.direct.parcels",
    "barnabas.pipelines.spark.feeds.reading",
    "barnabas.pipelines.spark.topics.typed",
    "pyspark.sql.conversion",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.worker.write_into_data_source",
)
OPTIONAL: Final = ("pandas",)
"""PySpark imports these in tasks where they are installed."""


def preload(worker: str) -> None:
    """Imports what workers of this kind (a module of PySpark) need."""
    for name, value in THREADLESS.items():
        os.environ.setdefault(name, value)
    for module in (worker, *IN_ALL, *(IN_TASKS if worker == WORKER else ())):
        importlib.import_module(module)
    for module in OPTIONAL if worker == WORKER else ():
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module)


def main() -> None:
    """Imports the modules, then does what PySpark's daemon does."""
    preload(sys.argv[1] if len(sys.argv) > 1 else WORKER)
    # Collections of garbage in the workers would write to every object, and so copy all shared memory.
    gc.collect()
    gc.freeze()
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
