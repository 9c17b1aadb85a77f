"""A small pipeline that runs without a broker, while Java writes the class archive (see class_archive.py)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from barnabas.pipelines.compiler.outputs import query_rows
from barnabas.pipelines.formats.columns import BASE_COLUMNS, arrow_schema, ddl_schema
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.spark.private import stop_java
from barnabas.pipelines.spark.session.class_archive import TRAINING_SECONDS_MAX
from barnabas.pipelines.spark.session.start import JVM_QUICK, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

LINE = b'10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 203 "-" "x"'


class RehearsalReader(DataSourceStreamReader):
    """Reads two rows, once."""

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        return {"at": 2}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(i) for i in range(start["at"], end["at"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(BASE_COLUMNS)
        values = [None, LINE, "t", 0, partition.value, 0, 0]
        arrays = [pa.array([value], field.type) for value, field in zip(values, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class RehearsalWriter(DataSourceStreamArrowWriter):
    """Reads its rows and discards them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class Rehearsal(DataSource):
    """Replaces the source and sink `barnabas`."""

    @classmethod
    def name(cls) -> str:
        return "rehearsal"

    def schema(self) -> str:
        return ddl_schema(BASE_COLUMNS)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return RehearsalReader()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return RehearsalWriter()


def exercise(spark: SparkSession, folder: Path) -> None:
    """Runs a parsing and an aggregating query over a few rows, with checkpoints in `folder`."""
    spark.dataSource.register(Rehearsal)
    spec = parse_spec(REHEARSAL, "rehearsal")
    for query in spec.queries():
        rows = query_rows(spec, query, spark.readStream.format("rehearsal").load())
        writer = rows.writeStream.option("checkpointLocation", str(folder / query.name)).trigger(
            availableNow=True
        )
        if query.output.aggregate is None:
            running = writer.format("rehearsal").start()
        else:
            running = writer.outputMode("update").foreachBatch(lambda batch, _: batch.collect()).start()
        running.awaitTermination()
    spark.range(10).agg(F.sum("id")).collect()


REHEARSAL = """
pipeline: rehearsal
source: {topic: t}
steps:
  - parse: {pattern: combined-log}
  - convert: {status: int, body_bytes_sent: long}
  - time: {field: time, format: "dd/MMM/yyyy:HH:mm:ss Z"}
  - unescape: [path, referer, user_agent]
  - drop: [ident, remote_user]
outputs:
  - topic: lines
  - topic: counts
    aggregate:
      window: {of: time, every: 1 hour, as: hour}
      by: [status]
      compute: {requests: count(*)}
"""


def train(path: str) -> None:
    """Runs a small pipeline, so that Java writes the classes that pipelines need into an archive at `path`."""
    folder = Path(path).parent
    options = f"{JVM_QUICK} -Xlog:disable -Xlog:all=off -XX:ArchiveClassesAtExit={path}"
    spark = start_session("barnabas-training", conf={"spark.driver.extraJavaOptions": options})
    exercise(spark, folder)
    wait = stop_java(spark)  # Java writes the archive when it ends
    wait(TRAINING_SECONDS_MAX)


if __name__ == "__main__":
    train(sys.argv[1])
