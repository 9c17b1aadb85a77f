"""What steps work on: a frame of fields beside the record they came from, and the first thing that went wrong.

Fields are plain columns under their own names. The record itself and the error are columns that begin with an
underscore. Once `_error` is set the later steps leave the row alone; the output sends it to the dead-letter
topic as it came. No step drops a row that has an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.utils import AnalysisException

from barnabas.pipelines.document import Item, suggestion
from barnabas.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from barnabas.pipelines.spec import Step

RECORD_COLUMNS: Final = ("_key", "_value", "_topic", "_partition", "_offset", "_timestamp", "_headers")
ERROR_TYPE: Final = "struct<step:string,reason:string>"
RECORD_TEXT: Final = "_value"


@dataclass(frozen=True, slots=True)
class Frame:
    """Rows under way. fields: the columns that are part of the result, in order."""

    data: DataFrame
    fields: tuple[str, ...] = ()

    def source(self, name: str | None, step: Step) -> Column:
        """A field, or the record's value as text when no name is given. Raises PipelineError."""
        if name is None:
            return F.col(RECORD_TEXT).cast("string")
        if name not in self.fields:
            fail(
                step,
                f"there is no field {name!r} at this point; {suggestion(name, self.fields or ('(none)',))}",
            )
        return F.col(quoted(name))

    def put(
        self, columns: Mapping[str, Column], error: Column | None = None, step: Step | None = None
    ) -> Frame:
        """New or replaced fields; `error` is a reason where something is wrong, null elsewhere.

        Where a row has an error, before or now, the fields stay what they are or become null.
        """
        named = {name: F.when(F.col("_error").isNull(), column) for name, column in columns.items()}
        data = self.data.withColumns(named)
        if error is not None:
            assert step is not None
            data = flag(self.data, error, step).withColumns(named)
        added = tuple(name for name in columns if name not in self.fields)
        return replace(self, data=data, fields=self.fields + added)


def flag(data: DataFrame, reason: Column, step: Step) -> DataFrame:
    """Sets `_error` where there is a reason and none was set before."""
    made = F.struct(F.lit(step.label).alias("step"), reason.alias("reason"))
    fresh = F.col("_error").isNull() & reason.isNotNull()
    return data.withColumn("_error", F.when(fresh, made).otherwise(F.col("_error")))


def fail(step: Step, message: str) -> Any:
    """Raises PipelineError at the step's place in the file."""
    raise PipelineError(
        f"{step.where}: step {step.label}: {message}" if step.where else f"{step.label}: {message}"
    )


def quoted(name: str) -> str:
    """A column name for Spark, dots and all."""
    return "`" + name.replace("`", "``") + "`"


def short(column: Column, chars: int = 80) -> Column:
    """A value for a message: text, cut."""
    return F.substring(column.cast("string"), 1, chars)


def expression(frame: Frame, sql: str, step: Step) -> Column:
    """A Spark SQL expression over the fields, tried out now so that a slip shows before anything runs."""
    return checked(frame.data, sql, f"{step.where}: step {step.label}")


def checked(data: DataFrame, sql: str, where: str) -> Column:
    """An expression that Spark accepts on this data. Raises PipelineError with Spark's reason in one line."""
    try:
        column = F.expr(sql)
        data.select(column)
    except Exception as error:
        raise PipelineError(f"{where}: {sql!r}: {spark_reason(error)}") from error
    return column


def spark_reason(error: Exception) -> str:
    """The first useful line of a Spark error."""
    text = str(error)
    if isinstance(error, AnalysisException):
        text = text.split(" SQLSTATE")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


@dataclass(frozen=True, slots=True)
class StepRule:
    """One kind of step. check: file entry to options (raises PipelineError); apply: compiles it."""

    name: str
    doc: str
    check: Callable[[Item], Mapping[str, Any]]
    apply: Callable[[Frame, Step], Frame]
