"""Fields with declared types: their schema in Spark, and numbers that their types cannot hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from barnabas.pipelines.kinds.steps.exact_numbers import is_kept
from barnabas.pipelines.spark.frame import Frame, complaint, fail, first_of, quoted, spark_reason

if TYPE_CHECKING:
    from barnabas.pipelines.plan.places import Place

MARK: Final = "\x01"
"""Separates the groups of a match; records whose text contains it go to the dead letters."""
CORRUPT: Final = "_corrupt"


def spark_schema(frame: Frame, fields: Mapping[str, str], step: Place) -> str:
    """A schema of these fields that Spark accepts. Raises PipelineError."""
    for name, kind in fields.items():
        try:
            frame.data.select(F.lit(None).cast(kind))
        except Exception as error:
            fail(step, f"the type of {name} is {kind!r}: {spark_reason(error)}")
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in fields.items())


def declared_kinds(frame: Frame, fields: Mapping[str, str]) -> dict[str, str]:
    """Spark's own names of the declared types."""
    return {name: frame.kind(F.lit(None).cast(kind)) for name, kind in fields.items()}


def inexact_reason(kinds: Mapping[str, str], raw: Column, parsed: Column) -> Column | None:
    """The reason to refuse a record with a number that its type cannot hold. raw: the values as text."""
    return first_of(
        F.when(
            ~is_kept(F.trim(raw[name]), parsed[name], kind),
            complaint(f"{name} is ", raw[name], f", which {kind} cannot hold exactly"),
        )
        for name, kind in kinds.items()
    )


def without(frame: Frame, name: str) -> Frame:
    """The frame without the field that was split."""
    if name in frame.fields:
        return replace(frame, data=frame.data.drop(name), fields=tuple(f for f in frame.fields if f != name))
    return frame.forget([name])
