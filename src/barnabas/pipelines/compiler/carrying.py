"""Carries rows that are already made (parcels, see direct/parcels.py) through the data frames of a query.

A parcel is a row with an error that says nothing, so that no step changes it, and with two more columns: the parcel, and the
number of records in it. Everywhere else in the compiler it is a row like others.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from barnabas.pipelines.direct.program import PARCEL, PARCEL_ROWS

METRICS: Final = "barnabas"
"""The name of the observation that counts rows and failed rows of each micro-batch."""
_PARCEL: Final = f"_{PARCEL}"
_ROWS: Final = f"_{PARCEL_ROWS}"


def carried(data: DataFrame, rows: DataFrame, columns: list[Column]) -> DataFrame:
    """The opened rows with the columns of parcels, if the source's rows have them. columns: of the opened rows."""
    if PARCEL not in rows.columns:
        return data
    error = F.struct(
        F.lit("").alias("step"), F.lit("").alias("reason"), F.lit(None).cast("string").alias("output")
    )
    parts = [F.col(PARCEL).alias(_PARCEL), F.col(PARCEL_ROWS).alias(_ROWS)]
    return rows.select(*columns, *parts).withColumn("_error", F.when(F.col(_PARCEL).isNotNull(), error))


def sent_parcel(data: DataFrame) -> dict[str, Column]:
    """The sink's column of parcels, if there are any."""
    return {PARCEL: F.col(_PARCEL)} if _PARCEL in data.columns else {}


def unparcelled(data: DataFrame) -> Column:
    """Whether a row is a record, and no parcel, whose error says nothing."""
    return F.col(_PARCEL).isNull() if _PARCEL in data.columns else F.lit(True)


def parcel_of_first(data: DataFrame, number: int) -> list[Column]:
    """Columns of parcels for the rows of output `number`; null unless it is the first output."""
    if _PARCEL not in data.columns:
        return []
    return [
        (F.col(name) if number == 0 else F.lit(None).cast(kind)).alias(name)
        for name, kind in ((_PARCEL, "binary"), (_ROWS, "int"))
    ]


def parcel_names(data: DataFrame) -> list[str]:
    """The names of the columns of parcels, if there are any."""
    return [_PARCEL, _ROWS] if _PARCEL in data.columns else []


def observed(data: DataFrame, sent: Column, failed: Column) -> DataFrame:
    """`data`, observed to count the rows for which `sent` and `failed` are true; a parcel counts as its records."""
    if _PARCEL not in data.columns:
        counts = F.count(F.when(sent, 1)), F.count(F.when(failed, 1))
    else:
        counts = (
            F.sum(F.when(sent, F.coalesce(F.col(_ROWS), F.lit(1)))),
            F.count(F.when(failed & F.col(_PARCEL).isNull(), 1)),
        )
    return data.observe(METRICS, counts[0].alias("rows"), counts[1].alias("failed"))
