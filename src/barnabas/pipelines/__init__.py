"""Data pipelines on Apache Spark: `Pipeline` in Python, or pipeline files (see spec.py and run.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.pipelines.builder import Pipeline

__all__ = ["Pipeline"]


def __getattr__(name: str) -> Any:
    # Imported on first use: tools that only read records must not wait for the import of PySpark.
    if name == "Pipeline":
        from barnabas.pipelines.builder import Pipeline

        return Pipeline
    raise AttributeError(name)
