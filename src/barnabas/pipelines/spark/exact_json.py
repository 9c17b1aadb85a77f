"""JSON text of Spark's values without loss: times keep their microseconds.

Spark writes every time with the digits of one pattern. These functions write three digits of a second where that is
exact, and six where it is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from barnabas.pipelines.spark.frame import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPTIONS: Final = {"ignoreNullFields": "false"}
SECONDS: Final = "yyyy-MM-dd'T'HH:mm:ss"
ENDINGS: Final[dict[type[DataType], str]] = {TimestampType: "XXX", TimestampNTZType: ""}


def json_object(data: DataFrame, names: Iterable[str]) -> Column:
    """The columns of these names as a JSON object."""
    columns = [exact(F.col(quoted(name)), data.schema[name].dataType).alias(name) for name in names]
    return F.to_json(F.struct(*columns), OPTIONS)


def json_text(data: DataFrame, column: Column) -> Column:
    """An object or an array as JSON."""
    return F.to_json(exact(column, data.select(column).schema[0].dataType), OPTIONS)


def exact(column: Column, kind: DataType) -> Column:
    """A value with every time in it as text, from which it can be read again."""
    if not _has_time(kind):
        return column
    if isinstance(kind, ArrayType):
        of_elements = kind.elementType
        return F.transform(column, lambda element: exact(element, of_elements))
    if isinstance(kind, MapType):
        of_keys, of_values = kind.keyType, kind.valueType
        values = F.transform_values(column, lambda _, value: exact(value, of_values))
        return F.transform_keys(values, lambda key, _: exact(key, of_keys)) if _has_time(of_keys) else values
    if isinstance(kind, StructType):
        fields = [exact(column.getField(f.name), f.dataType).alias(f.name) for f in kind.fields]
        return F.when(column.isNotNull(), F.struct(*fields))
    ending = ENDINGS[type(kind)]
    return F.when(
        F.unix_micros(column.cast("timestamp")) % 1000 == 0, F.date_format(column, f"{SECONDS}.SSS{ending}")
    ).otherwise(F.date_format(column, f"{SECONDS}.SSSSSS{ending}"))


def _has_time(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_time(kind.elementType)
    if isinstance(kind, MapType):
        return _has_time(kind.keyType) or _has_time(kind.valueType)
    if isinstance(kind, StructType):
        return any(_has_time(field.dataType) for field in kind.fields)
    return type(kind) in ENDINGS
