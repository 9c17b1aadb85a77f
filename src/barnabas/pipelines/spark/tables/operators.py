"""The operators on tables, as functions of data frames.

A table is a stream of signed rows: `SIGN` is 1 for a row that is in the table from now on, -1 for one that is not any more.
An update is both, the old row and the new one. `CHANGE` names the record that caused it, and `ID` identifies the row: no
two rows of a table have the same. Change.java says in which order the operators see changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)

from barnabas.pipelines.plan.aggregates import RESULT
from barnabas.pipelines.spark.exact_json import json_text
from barnabas.pipelines.spark.frame import CHANGE, ID, SIGN, quoted
from barnabas.pipelines.spark.private import by_key, java_array, row_encoder, with_state
from barnabas.pipelines.spark.tables.classes import new_object

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BAD: Final = "_bad"
STATE: Final = "_state"
RIGHT: Final = "_right."
THERE: Final = "_there"
"""Whether a pair has a left row."""


def kept_table(rows: DataFrame) -> DataFrame:
    """The records of a topic as changes of its newest records by key. Records without a key, which are an error, pass."""
    record = F.struct(*[F.col(name) for name in rows.columns])
    gone = F.col("value").isNull() & F.col("key").isNotNull()
    keyed = rows.select(
        F.col("key").alias("k"),
        F.lit(0).alias("side"),
        F.when(gone, -1).otherwise(1).alias("sign"),
        _cause("timestamp", "topic", "partition", "offset").alias("change"),
        F.when(~gone, record).alias("record"),
    )
    spark, kind = rows.sparkSession, keyed.schema["record"].dataType
    keep = new_object(spark, "Keep", row_encoder(spark, kind))
    changes = with_state(keyed, "k", keep, _result(keyed, StructField("record", kind)))
    return changes.select(F.col("sign").alias(SIGN), F.col("change").alias(CHANGE), "record.*")


@dataclass(frozen=True, slots=True)
class Past:
    """at: when a row of a stream wants the rows of a table. history: how long earlier ones are kept, in seconds."""

    at: Column
    history: float


def joined(
    left: DataFrame,
    right: DataFrame,
    on: Sequence[tuple[Column, Column]],
    kind: str,
    *,
    stream: bool,
    past: Past | None = None,
) -> DataFrame:
    """Pairs of the rows of two tables, or of a stream (left) and a table, whose keys in `on` are equal. kind: inner, left,
    right or full. The columns of the right side are called `_right.NAME`; those of a missing side are null. Pairs of tables
    have SIGN and CHANGE. past: of a stream, if it meets the rows that the table had at a time."""
    spark = left.sparkSession
    keys = [F.struct(*[pair[side].alias(f"k{i}") for i, pair in enumerate(on)]) for side in (0, 1)]
    packed = [F.struct(*[F.col(quoted(name)) for name in data.columns]) for data in (left, right)]
    own = [
        data.select(packed[side].alias("row")).schema["row"].dataType
        for side, data in enumerate((left, right))
    ]

    def sided(data: DataFrame, side: int, key: Column) -> DataFrame:
        plain = stream and side == 0
        at = "_timestamp" if past is None else past.at
        cause = _cause(at, "_topic", "_partition", "_offset") if plain else F.col(CHANGE)
        rows = [F.lit(None).cast(kind).alias(name) for name, kind in zip(("l", "r"), own, strict=True)]
        rows[side] = packed[side].alias(("l", "r")[side])
        return data.select(
            key.alias("k"),
            F.lit(side).alias("side"),
            (F.lit(1) if plain else F.col(SIGN)).alias("sign"),
            cause.alias("change"),
            (F.lit(None).cast("binary") if plain else F.col(ID)).alias("id"),
            *rows,
        )

    both = sided(left, 0, keys[0]).union(sided(right, 1, keys[1]))
    encoders = [row_encoder(spark, kind) for kind in own]
    how = [kind in ("left", "full"), kind in ("right", "full")]
    if past is None:
        operator = new_object(spark, "Join", *encoders, stream, *how)
    else:
        names = {"from": LongType(), "id": BinaryType(), "gone": BooleanType(), "row": own[1]}
        version = StructType([StructField(name, type_) for name, type_ in names.items()])
        history_us = str(round(past.history * 1_000_000))
        operator = new_object(spark, "AsOf", row_encoder(spark, version), how[0], history_us)
    fields = [StructField("l", own[0]), StructField("r", own[1])]
    pairs = with_state(both, "k", operator, _result(both, *fields))
    columns = [F.col("l")[name].alias(name) for name in left.columns if name not in (SIGN, CHANGE)]
    columns += [F.col("r")[name].alias(RIGHT + name) for name in right.columns]
    marks = [] if stream else [F.col("sign").alias(SIGN), F.col("change").alias(CHANGE)]
    return pairs.select(*columns, F.col("l").isNotNull().alias(THERE), *marks)


@dataclass(frozen=True, slots=True)
class Total:
    """An aggregate of groups. function: as Totals.java calls it. value: null counts for nothing. kind: the type of a sum or
    an average. kept: which of the kept values are its own; None if it needs none. best: whether it is the least or the
    greatest value."""

    function: str
    value: Column
    kind: str
    kept: int | None = None

    @property
    def best(self) -> bool:
        """Whether it is the least or the greatest value."""
        return self.function in ("min", "max")

    def result(self, value: DataType) -> DataType:
        """The type of the result. value: that of the value."""
        if self.function in ("list", "set"):
            return ArrayType(value)
        if self.best:
            return value
        if self.function in ("count", "distinct"):
            return LongType()
        return DataType.fromDDL(self.kind)


Before = Callable[[StructType], "DataFrame"]
"""Loads what groups kept before a query began. It is given the type of what is told of a group (STATE), and returns a data
frame with these columns."""


def totalled(
    rows: DataFrame,
    groups: Mapping[str, Column],
    totals: Sequence[Total],
    *,
    each: bool,
    kept_state: bool = False,
    before: Before | None = None,
) -> DataFrame:
    """The results of the rows' groups, as a table with SIGN, CHANGE, the columns of the groups, `RESULT` with the number of
    each aggregate, and BAD: the number of one whose result does not fit its type, else null. each: whether every change
    makes a result, not only the last of a micro-batch. kept_state: whether each result says in STATE what its group
    keeps, as JSON, null for one that is gone; a group then has a result for every micro-batch that concerns it."""
    spark, signed = rows.sparkSession, SIGN in rows.columns
    key = F.struct(
        *[column.alias(f"g{i}") for i, column in enumerate(groups.values())] or [F.lit(0).alias("g")]
    )
    cause = F.col(CHANGE) if signed else _cause("_timestamp", "_topic", "_partition", "_offset")
    keyed = rows.select(
        key.alias("k"),
        F.lit(0).alias("side"),
        (F.col(SIGN) if signed else F.lit(1)).alias("sign"),
        cause.alias("change"),
        F.struct(*[total.value.alias(f"v{i}") for i, total in enumerate(totals)]).alias("values"),
    )
    kinds = [keyed.schema["values"].dataType[f"v{i}"].dataType for i in range(len(totals))]
    kept = {total.kept: kind for total, kind in zip(totals, kinds, strict=True) if total.kept is not None}
    encoders = [row_encoder(spark, StructType([StructField("v", kept[i])])) for i in range(len(kept))]
    best = [StructField(f"b{i}", kind) for i, kind in enumerate(kinds) if totals[i].best]
    state = [
        StructField("rows", LongType()),
        StructField("sums", BinaryType()),
        StructField("best", StructType([*best, StructField("there", BooleanType())])),
    ]
    calls = " ".join(
        f"{total.function}:{i}:{-1 if total.kept is None else total.kept}:{total.kind}"
        for i, total in enumerate(totals)
    )
    operator = new_object(
        spark,
        "Totals",
        row_encoder(spark, StructType(state)),
        java_array(spark, "java.lang.Object", encoders),
        calls,
        each,
        kept_state,
    )
    results = [StructField(f"r{i}", totals[i].result(kind)) for i, kind in enumerate(kinds)]
    fields = [
        StructField("key", keyed.schema["k"].dataType),
        StructField("result", StructType([*results, StructField("bad", IntegerType())])),
    ]
    pairs = [StructType([StructField("v", kept[i]), StructField("n", LongType())]) for i in range(len(kept))]
    values = [StructField(f"v{i}", ArrayType(pair)) for i, pair in enumerate(pairs)]
    whole = StructType([*state, *values])
    if kept_state:
        fields.append(StructField("state", whole))
    group = StructType([StructField("k", keyed.schema["k"].dataType), StructField("state", whole)])
    known = None if before is None else _by_task(before(group))
    made_rows = with_state(keyed, "k", operator, _result(keyed, *fields), known)
    columns = [F.col("key")[f"g{i}"].alias(name) for i, name in enumerate(groups)]
    columns += [F.col("result")[f"r{i}"].alias(f"{RESULT}{i}") for i in range(len(totals))]
    columns.append(F.col("result")["bad"].alias(BAD))
    if kept_state:
        whole_group = F.struct(F.col("key").alias("k"), F.col("state"))
        columns.append(F.when(F.col("state").isNotNull(), json_text(made_rows, whole_group)).alias(STATE))
    return made_rows.select(F.col("sign").alias(SIGN), F.col("change").alias(CHANGE), *columns)


def _by_task(known: DataFrame) -> DataFrame:
    """What groups kept before a query began, as Totals.java wants it: with one key for all groups of a task.

    Spark makes a program for each key of an initial state, which takes milliseconds, but not for each row.
    """
    tasks = F.lit(int(str(known.sparkSession.conf.get("spark.sql.shuffle.partitions"))))
    task = F.pmod(F.hash("k"), tasks).alias("task")
    placed = known.select("k", task, F.struct("k", "state").alias("group"))
    return placed.select(F.first("k").over(Window.partitionBy("task")).alias("k"), "task", "group")


def net(rows: DataFrame, key: Column, passes: Column) -> DataFrame:
    """The last row of each key in a micro-batch, and all rows for which `passes` is true. rows: with SIGN and CHANGE."""
    names = [name for name in rows.columns if name not in (SIGN, CHANGE)]
    keyed = rows.select(
        key.alias("k"),
        passes.cast("int").alias("side"),
        F.col(SIGN).alias("sign"),
        F.col(CHANGE).alias("change"),
        F.struct(*[F.col(quoted(name)) for name in names]).alias("row"),
    )
    last = by_key(keyed, "k", new_object(rows.sparkSession, "Net"))
    return last.select(*[F.col("row")[name].alias(name) for name in names])


def _cause(timestamp: Column | str, topic: str, partition: str, offset: str) -> Column:
    at = F.coalesce(F.unix_micros(timestamp), F.lit(0))
    place = [F.coalesce(F.col(partition), F.lit(0)), F.coalesce(F.col(offset).cast("bigint"), F.lit(0))]
    return F.struct(
        at.alias("at"),
        F.coalesce(F.col(topic), F.lit("")).alias("topic"),
        place[0].alias("partition"),
        place[1].alias("offset"),
        F.lit(0).alias("seq"),
    )


def _result(keyed: DataFrame, *fields: StructField) -> StructType:
    return StructType([StructField("sign", IntegerType()), keyed.schema["change"], *fields])
