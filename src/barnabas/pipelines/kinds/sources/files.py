"""Lines of the files in a folder, also of files that arrive later: each line is a record.

    {files: {path: data/in}}       {files: {path: "logs/*/access.log.gz"}, encoding: latin1}

A file is read only once, so it must be complete: move it into the folder instead of writing it there. The checkpoint
notes which files have been read. A record's topic is the file's path, its timestamp the file's modification time; it
has no key and no offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from barnabas.pipelines.entries.document import Item
from barnabas.pipelines.entries.shapes import Group, Number, Text
from barnabas.pipelines.kinds.sources.base import Reading, SourceKind
from barnabas.pipelines.kinds.sources.topics import ENCODING, encoding_name
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.sources import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHAPE: Final = Group(
    {
        "files": Group(
            {
                "path": Text("a folder, or a pattern of paths, on any file system that Spark reaches"),
                "files_per_trigger": Number("how many files a micro-batch reads at most; default 1000"),
            },
            "lines of files that are put into a folder",
            required=("path",),
        ),
        "encoding": ENCODING,
    },
    required=("files",),
)
COLUMNS: Final = "value binary, topic string, timestamp timestamp"


def _check(item: Item, entries_: Mapping[str, Item]) -> Source:
    entries = entries_["files"].mapping()
    limit = entries["files_per_trigger"].number() if "files_per_trigger" in entries else 1000
    return Source(
        encoding=encoding_name(entries_["encoding"]) if "encoding" in entries_ else None,
        where=entries_["files"].where,
        kind="files",
        settings={"path": entries["path"].text(), "files_per_trigger": limit},
    )


def _rows(spark: SparkSession, source: Source, reading: Reading) -> DataFrame:
    from barnabas.pipelines.spark.frame import spark_reason

    reader = spark.readStream if reading.stream else spark.read
    path, limit = source.settings["path"], source.settings["files_per_trigger"]
    try:
        lines = reader.format("text").option("maxFilesPerTrigger", limit).load(path)
    except Exception as error:
        raise PipelineError(f"{source.where}: files {path}: {spark_reason(error)}") from error
    return lines.select(
        F.col("value").cast("binary").alias("value"),
        F.col("_metadata.file_path").alias("topic"),
        F.col("_metadata.file_modification_time").alias("timestamp"),
    )


def _empty(spark: SparkSession, source: Source) -> DataFrame:
    return spark.createDataFrame([], COLUMNS)


FILES: Final = SourceKind("files", "lines of files", SHAPE, ("files",), _check, _rows, _empty)
