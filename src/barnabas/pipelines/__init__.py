"""Data pipelines on Apache Spark: `Pipeline` in Python, or pipeline files (`fronts/yaml`); both become a plan (`plan/`).

`register` makes the data source and sink `barnabas` known to any Spark session; `write_each_batch` is for `foreachBatch`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from barnabas.pipelines.compiler.queries import write_each_batch
    from barnabas.pipelines.pipeline import Pipeline
    from barnabas.pipelines.spark.topics.source import register

__all__ = ["Pipeline", "register", "write_each_batch"]

_PLACES: Final = {
    "Pipeline": "pipeline",
    "register": "spark.topics.source",
    "write_each_batch": "compiler.queries",
}


def __getattr__(name: str) -> Any:
    # Imported on first use: tools that only read records must not wait for the import of PySpark.
    if name in _PLACES:
        return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    raise AttributeError(name)
