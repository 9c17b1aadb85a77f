"""Values of expressions over fields, with SQL's logic of three values: Spark's expressions, see spark/."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.pipelines.plan.interpret.spark.compute import computed
from barnabas.pipelines.plan.interpret.spark.values import Failed, Misfit, NotInterpreted, Value

__all__ = ["Failed", "NotInterpreted", "Value", "evaluated"]


def evaluated(text: str, fields: Mapping[str, Value]) -> Value:
    """The value of an expression. Raises NotInterpreted, or Failed where Spark's would raise an error."""
    if (name := text.strip().strip("`")) in fields:
        return fields[name]  # it may be a word of SQL, like `at`
    try:
        return computed(text)(fields)
    except (Misfit, ValueError, OverflowError, TypeError) as error:
        raise Failed(f"{text}: {error}") from error
