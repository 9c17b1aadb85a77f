"""Whole records in Spark. Pipeline files have no such steps; fronts in Python make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql import functions as F

from barnabas.pipelines.plan.whole import RECORD, SendHeaders, WholeRecord
from barnabas.pipelines.spark.frame import SENT, Frame
from barnabas.pipelines.spark.outgoing import HEADERS_TYPE


def _read(frame: Frame, step: WholeRecord) -> Frame:
    checksum = F.crc32(F.coalesce(F.col("_key"), F.lit(b"")))
    columns = {
        "topic": F.col("_topic"),
        "partition": F.col("_partition"),
        "offset": F.col("_offset"),
        "at": F.unix_millis(F.col("_timestamp")),
        "key": F.col("_key"),
        "value": F.col("_value"),
        "headers": F.expr("if(size(_headers) > 0, to_json(transform(_headers, h -> array(h.key, base64(h.value)))), null)"),
        "task": checksum % F.lit(step.tasks),
    }  # fmt: skip
    return frame.put({name: column.cast(RECORD[name]) for name, column in columns.items()}, step)


def _send(frame: Frame, step: SendHeaders) -> Frame:
    headers = F.expr(
        f"transform(from_json(`{step.of}`, 'array<array<string>>'), "
        "h -> named_struct('key', h[0], 'value', unbase64(h[1])))"
    )
    return Frame(
        frame.data.withColumn(SENT, headers.cast(HEADERS_TYPE)), frame.fields, frame.open, frame.sparing
    )


WHOLE_STEPS: Final[Mapping[str, Callable[[Frame, Any], Frame]]] = {
    WholeRecord.kind: _read,
    SendHeaders.kind: _send,
}
