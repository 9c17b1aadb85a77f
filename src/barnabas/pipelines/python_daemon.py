"""Spark's Python daemon with this package imported in advance: each Python worker is a copy of it, ready at once.

Spark forks a Python worker for every plan, write and commit of a micro-batch and imports what it needs in each of
them, a quarter of a second of CPU time. Its own daemon imports nothing in advance because threads do not survive a
fork. What is imported here starts none, but jemalloc's (of pyarrow), which looks after its own forks.

Run by Spark itself: `spark.python.daemon.module`.
"""

from __future__ import annotations

import gc
import os
import warnings


def main() -> None:
    # Must be said before numpy is imported, whose OpenBLAS would otherwise start a thread per core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import pyspark.worker  # noqa: F401
    from pyspark.daemon import manager

    import barnabas.pipelines.sink
    import barnabas.pipelines.source  # noqa: F401

    # From Python 3.12 on, a fork beside any thread is warned of.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*multi-threaded.*")
    gc.collect()
    gc.freeze()  # collections in the workers leave alone what they share with this process
    manager()


if __name__ == "__main__":
    main()
