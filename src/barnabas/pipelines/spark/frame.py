"""What steps work on: a frame with the fields of each row, the record that they came from, and the first error.

Fields are plain columns with their own names. Undeclared fields (of JSON of any shape) are in one more column,
`_open`, a map of names to variants, until a step uses one by its name. The names of the columns for the record
itself and the error begin with an underscore. Once `_error` is set, later steps do not change the row, and the
output sends the original record to the dead-letter topic. No step drops a row that has an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NoReturn

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from barnabas.pipelines.plan.errors import PipelineError, suggestion
from barnabas.pipelines.spark.private import each, referenced_columns, try_eval

if TYPE_CHECKING:
    from barnabas.pipelines.plan.expressions import Expression
    from barnabas.pipelines.plan.places import Place

RECORD_COLUMNS: Final = ("_key", "_value", "_topic", "_partition", "_offset", "_timestamp", "_headers")
ROW: Final = "_row"
"""Which of the rows that were made of one record this is; the column exists only after an explode."""
ERROR_TYPE: Final = "struct<step:string,reason:string,output:string>"
"""The first error of a row: the step, the reason, and the output that it is for; null for all outputs."""
TEXT: Final = "_text"
"""The record's value as text; null where its bytes are not text in the source's encoding."""
SENT: Final = "_sent"
"""The headers that the record is sent with; `_headers` are the original ones, for the dead letters."""
DELETED: Final = "_deleted"
"""Whether the record is a tombstone that stands for a delete; exists only if a source's tombstones are deletes."""
SIGN: Final = "_sign"
"""In the rows of a table: 1 for a row that is in it from now on, -1 for one that is not any more."""
CHANGE: Final = "_change"
"""In the rows of a table: the record that caused the change, and the row's number among its changes."""
CHANGE_TYPE: Final = "struct<at:bigint,topic:string,partition:int,offset:bigint,seq:int>"
ID: Final = "_row_id"
"""In the rows of a table: what identifies the row."""
OPEN: Final = "_open"
OPEN_TYPE: Final = "map<string,variant>"
UNKNOWN_NAMES_MAX: Final = 100

NOT_TEXT: Final = (
    "the value is not text in the source's encoding (UTF-8 unless source.encoding names another): 0x"
)
RESERVED: Final = "names that begin with an underscore are for the record's own columns"

Reason = Callable[[Mapping[str, Column]], Column | None]


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows between two steps. fields: the declared columns of the result, in order. open: whether there are
    undeclared fields. sparing: rows that stand for a delete get null for new fields, and no error: they have no
    value."""

    data: DataFrame
    fields: tuple[str, ...] = ()
    open: bool = False
    sparing: bool = False

    @property
    def deletes(self) -> bool:
        """Whether rows may stand for a delete."""
        return DELETED in self.data.columns

    @property
    def signed(self) -> bool:
        """Whether it is a table: rows are changes, with SIGN, CHANGE and ID."""
        return SIGN in self.data.columns

    def _complained(self, data: DataFrame, reason: Column, step: Place) -> DataFrame:
        """The rows with an error where there is a reason."""
        return flag(data, F.when(~F.col(DELETED), reason) if self.sparing else reason, step)

    def source(self, name: str | None, step: Place) -> Column:
        """The field of this name, or the record's value as text without a name. An open field is a variant, null in
        rows that do not have it. Raises PipelineError if there is no such field."""
        if name is None:
            return F.col(TEXT)
        if name in self.fields:
            return F.col(quoted(name))
        if self.open:
            return F.col(OPEN)[name]
        near = suggestion(name, self.fields) if self.fields else "a parse step makes the first ones"
        fail(step, f"there is no field {name!r} at this point; {near}")

    def readable(self, name: str | None, step: Place) -> Frame:
        """If the record's value is the source (no `name`): the frame with an error in rows whose bytes are not text;
        deletes, which have no value, are spared."""
        if name is not None:
            return self
        bad = F.col("_value").isNotNull() & F.col(TEXT).isNull()
        data = flag(self.data, F.when(bad, complaint(NOT_TEXT, _bytes_shown("_value"))), step)
        return replace(self, data=data, sparing=self.deletes)

    def text(self, name: str | None, step: Place) -> Column:
        """A field, or the record's value, as text, see `source`. Raises PipelineError."""
        return self.source(name, step).cast("string")

    def kind(self, column: Column) -> str:
        """Spark's name of an expression's type."""
        return str(self.data.select(column.alias("x")).schema["x"].dataType.simpleString())

    def put(
        self,
        columns: Mapping[str, Column],
        step: Place,
        reason: Reason | None = None,
        *,
        attempted: bool = False,
    ) -> Frame:
        """Adds or replaces fields.

        reason: makes, of the new columns, a column with what is wrong in a row, null if nothing is. In a row with an
        error, new or old, the fields become null. Every expression is evaluated once per row: Spark keeps a
        projection of its own for what is used more than once. attempted: whether the columns come from `attempt`.
        """
        alive = F.col("_error").isNull()
        if self.sparing:
            alive = alive & ~F.col(DELETED)
        wanted = alive & always() if attempted else alive
        fresh = {name: f"_new_{i}" for i, name in enumerate(columns)}
        data = self.data.withColumns(
            {fresh[name]: F.when(wanted, column) for name, column in columns.items()}
        )
        if reason is not None:
            why = reason({name: F.col(fresh[name]) for name in columns})
            if why is not None:
                data = self._complained(data, why, step)
        inner = {name: F.col(fresh[name])["v"] if attempted else F.col(fresh[name]) for name in columns}
        data = data.withColumns({name: F.when(alive, value) for name, value in inner.items()})
        data = data.drop(*fresh.values())
        added = tuple(name for name in columns if name not in self.fields)
        frame = replace(self, data=data, fields=self.fields + added)
        return frame.forget(added) if self.open and added else frame

    def forget(self, names: Iterable[str]) -> Frame:
        """Removes names from the open fields."""
        gone = F.array(*[F.lit(name) for name in names])
        left = each("map_filter", F.col(OPEN), lambda key, _: ~F.array_contains(gone, key))
        return replace(self, data=self.data.withColumn(OPEN, left))

    def spread(self, more: Column, step: Place, reason: Reason | None = None) -> Frame:
        """Adds a map of names to variants to the open fields; new values replace old ones of the same name."""
        data = self.data if self.open else self.data.withColumn(OPEN, F.lit(None).cast(OPEN_TYPE))
        alive = F.col("_error").isNull()
        data = data.withColumn("_more", F.when(alive, more))
        if reason is not None:
            why = reason({"": F.col("_more")})
            if why is not None:
                data = self._complained(data, why, step)
        old = each("map_filter", F.col(OPEN), lambda key, _: ~F.map_contains_key(F.col("_more"), key))
        merged = (
            F.when(F.col("_more").isNull(), F.col(OPEN))
            .when(F.col(OPEN).isNull(), F.col("_more"))
            .otherwise(F.map_concat(old, F.col("_more")))
        )
        frame = replace(self, data=data.withColumn(OPEN, F.when(alive, merged)).drop("_more"), open=True)
        return frame.forget(self.fields) if self.fields else frame

    def declare(self, names: Iterable[str], step: Place) -> Frame:
        """Makes columns of these open fields; declared fields are not changed. Raises PipelineError."""
        frame = self
        names = tuple(names)
        for name in names:
            if name.startswith("_") and name not in self.fields:
                fail(step, f"{name!r} cannot become a field of its own: {RESERVED}; rename it first")
        wanted = {name: frame.source(name, step) for name in names if name not in frame.fields}
        return frame.put(wanted, step) if wanted else frame


def flag(data: DataFrame, reason: Column, step: Place) -> DataFrame:
    """Sets `_error` where there is a reason and none was set before."""
    data = data.withColumn("_reason", reason)
    output = F.lit(step.output).cast("string").alias("output")
    error = F.struct(F.lit(step.label).alias("step"), F.col("_reason").alias("reason"), output)
    fresh = F.col("_error").isNull() & F.col("_reason").isNotNull()
    return data.withColumn("_error", F.when(fresh, error).otherwise(F.col("_error"))).drop("_reason")


def fail(step: Place, message: str) -> NoReturn:
    """Raises PipelineError with the step's line in the file."""
    raise PipelineError(
        f"{step.where}: step {step.label}: {message}" if step.where else f"{step.label}: {message}"
    )


def quoted(name: str) -> str:
    """A column name in quotes for Spark, so that dots belong to the name."""
    return "`" + name.replace("`", "``") + "`"


def _bytes_shown(name: str) -> Column:
    """The first bytes of a binary column, for a message."""
    return F.hex(F.substring(name, 1, 20))


def short(column: Column, chars: int = 80) -> Column:
    """A value for a message: its first characters as text."""
    return F.substring(column.cast("string"), 1, chars)


def complaint(*parts: Column | str) -> Column:
    """A message made of text and values; null is shown as `null`."""
    shown = [F.lit(p) if isinstance(p, str) else F.coalesce(short(p), F.lit("null")) for p in parts]
    return F.concat(*shown)


def first_of(reasons: Iterable[Column]) -> Column | None:
    """The first reason that is not null; None when there are none at all."""
    columns = list(reasons)
    return F.coalesce(*columns) if columns else None


def expression(frame: Frame, wanted: Expression, step: Place) -> tuple[Frame, Column]:
    """A Spark SQL expression over the fields, analyzed now so that mistakes are reported before anything runs.

    Open fields in it become columns (variants) of the frame that is returned with it. Raises PipelineError.
    """
    sql, step = wanted.text, replace(step, where=wanted.where or step.where)
    for _ in range(UNKNOWN_NAMES_MAX):
        try:
            column = F.expr(sql)
            frame.data.select(column)
            return frame, column
        except AnalysisException as error:
            name = unknown_name(error)
            if name is not None and not frame.open:
                near = suggestion(name, frame.fields) if frame.fields else "a parse step makes the first ones"
                fail(step, f"{sql!r}: there is no field {name!r} at this point; {near}")
            if name is None or name in frame.fields:
                fail(step, f"{sql!r}: {spark_reason(error)}")
            frame = frame.declare([name], step)
        except Exception as error:
            fail(step, f"{sql!r}: {spark_reason(error)}")
    fail(step, f"{sql!r} names more than {UNKNOWN_NAMES_MAX} fields")


def computed(frame: Frame, name: str, wanted: Expression, step: Place, kind: str | None = None) -> Frame:
    """The frame with a field `name` made by a Spark SQL expression (as type `kind`).

    A row for which it fails (a cast, an overflow, a division by zero, raise_error, ...) gets an error that shows the
    fields in the expression. A result that is null is not an error. Raises PipelineError.
    """
    frame, column = expression(frame, wanted, step)
    if kind is not None:
        column = column.cast(kind)
    if wanted.cannot_fail:
        return frame.put({name: column}, step)
    references = referenced_columns(frame.data, column)
    named = [field for field in frame.fields if field in references]
    shown: list[Column | str] = []
    for field in named:
        shown += [f"{', ' if shown else ' with '}{field} = ", F.col(quoted(field))]

    def reason(new: Mapping[str, Column]) -> Column:
        return F.when(new[name].isNull(), complaint(f"cannot compute {wanted.text}", *shown))

    return frame.put({name: attempt(column)}, step, reason, attempted=True)


def attempt(column: Column) -> Column:
    """A struct of one value `v`; null if the expression raises an error. In ANSI mode nothing becomes null or wrong
    without an error."""
    return try_eval(F.struct(column.alias("v")))


def always() -> Column:
    """A condition that is always true, which Spark does not know: it moves nothing out of a branch that may not be
    taken. A part of an expression that occurs twice would be moved out of the `attempt`, where an error fails the
    query."""
    return F.coalesce(F.col("_offset") >= F.lit(-1), F.lit(True))


def kept(data: DataFrame, condition: Column) -> DataFrame:
    """The rows for which a condition is true. Spark would check it before the steps, and for that evaluate them all
    once more, if the condition were deterministic."""
    asked = condition & (F.rand(0) + 1 > 0)  # Spark would replace `rand() >= 0` by true
    return data.withColumn("_kept", asked).where(F.col("_kept")).drop("_kept")


def unknown_name(error: AnalysisException) -> str | None:
    """The column that Spark could not find, as it was written (of a path the first name); None for another error."""
    if not str(error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
        return None
    text = str((error.getMessageParameters() or {}).get("objectName", ""))
    match = re.match(r"`((?:[^`]|``)+)`", text)
    return match[1].replace("``", "`") if match else None


def spark_reason(error: Exception) -> str:
    """The first useful line of a Spark error."""
    text = str(error).split(" SQLSTATE")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def java_reason(error: Exception) -> str:
    """The first line of a Java exception's message, without its class."""
    first = str(getattr(error, "java_exception", error)).splitlines()[0]
    return first.rpartition("Exception: ")[2]
