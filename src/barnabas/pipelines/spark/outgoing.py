"""What a pipeline writes for its rows: the JSON of their fields, their identity, and the headers of dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from barnabas.pipelines.spark.exact_json import OPTIONS, json_object
from barnabas.pipelines.spark.frame import OPEN, OPEN_TYPE, ROW, Frame

if TYPE_CHECKING:
    from barnabas.pipelines.plan.pipeline import PipelineSpec

HEADER_PREFIX: Final = "barnabas."
HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"
DOCUMENT: Final = "_document"
IDENTITY: Final = "_identity"


def json_value(frame: Frame) -> Column:
    """All fields as a JSON object; the record's own value if no step has made fields."""
    if not frame.fields and not frame.open:
        return F.col("_value")
    declared = json_object(frame.data, frame.fields)
    if not frame.open:
        return declared
    rest = F.to_json(F.coalesce(F.col(OPEN), F.create_map().cast(OPEN_TYPE)), OPTIONS)
    if not frame.fields:
        return rest
    # Two objects become one: `{"a":1}` and `{"b":2}` become `{"a":1,"b":2}`.
    joined = F.concat(
        F.substr(declared, F.lit(1), F.length(declared) - 1), F.lit(","), F.substr(rest, F.lit(2))
    )
    return F.when(rest == "{}", declared).otherwise(joined)


def dead_columns(spec: PipelineSpec) -> dict[str, Column]:
    """The sink's columns for a record that goes to the dead letters."""
    return {
        "topic": F.lit(spec.dead_letters),
        "key": F.col("_key"),
        "value": F.col("_value"),
        "headers": dead_headers(spec.name),
        "timestamp": F.col("_timestamp"),
    }


def dead_headers(pipeline: str) -> Column:
    """The record's own headers, then the pipeline, step and reason of the failure, and the record's topic, partition
    and offset; also the output, if the record failed only there."""
    origin = {
        "pipeline": F.lit(pipeline),
        "step": F.col("_error")["step"],
        "reason": F.col("_error")["reason"],
        "topic": F.col("_topic"),
        "partition": F.col("_partition").cast("string"),
        "offset": F.col("_offset").cast("string"),
    }
    entries = [
        F.struct(F.lit(HEADER_PREFIX + name).alias("key"), value.cast("binary").alias("value"))
        for name, value in origin.items()
    ]
    output = F.col("_error")["output"]
    entry = F.struct(F.lit(f"{HEADER_PREFIX}output").alias("key"), output.cast("binary").alias("value"))
    nothing = F.array().cast(HEADERS_TYPE)
    own = F.coalesce(F.col("_headers"), nothing)
    failed = F.when(output.isNotNull(), F.array(entry).cast(HEADERS_TYPE)).otherwise(nothing)
    return F.concat(own, F.array(*entries).cast(HEADERS_TYPE), failed)


def identified(rows: DataFrame, identity: str | None) -> DataFrame:
    """Rows with a column for their document's id, ready for `deliver_batch`.

    identity: Spark SQL for the id; default topic, partition and offset (and the index in each array that was exploded),
    which are the same whenever the record is delivered. A row that comes from no single record has its key as id,
    with the time of the timer that made it, if one did.
    """
    exploded = [ROW] if ROW in rows.columns else []
    place = F.concat_ws("-", "_topic", "_partition", "_offset", *exploded)
    if "_offset" in rows.columns:  # the output's own aggregate leaves none
        own = F.concat_ws("-", F.col("_key").cast("string"), *exploded)
        place = F.when(F.col("_offset").isNull(), own).otherwise(place)
    return rows.withColumn(IDENTITY, place if identity is None else F.expr(identity).cast("string"))
