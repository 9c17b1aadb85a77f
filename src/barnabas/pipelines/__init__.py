"""Data pipelines on Apache Spark: `Pipeline` in Python, or pipeline files (see spec.py and run.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.pipelines.builder import Pipeline

__all__ = ["Pipeline"]


def __getattr__(name: str) -> Any:
    # Found on first use: tools that only look at records must not wait for PySpark.
    if name == "Pipeline":
        from barnabas.pipelines.builder import Pipeline

        return Pipeline
    raise AttributeError(name)
