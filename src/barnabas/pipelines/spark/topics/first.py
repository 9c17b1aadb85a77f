"""Stores a query's first offsets in its checkpoint before the query begins.

Spark's offset log holds only the ends of micro-batches. Without the first offsets, a query that dies before its first
micro-batch is committed would look up `latest`, a time or a consumer group again, and skip records that came in
between. Spark's own Kafka source also stores its first offsets in the checkpoint's folder `sources`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.client.errors import ClientError
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.spark.folders import Folder, local_path
from barnabas.pipelines.spark.topics.offsets import Planner, StreamOffset
from barnabas.pipelines.spark.topics.options import SourceOptions, source_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTE: Final = "sources/{}/barnabas-first.json"


def first_offsets(
    spark: SparkSession, location: str, settings: Mapping[str, str], number: int = 0
) -> StreamOffset | None:
    """The first offsets of the query with this checkpoint; None if they are not stored, but a micro-batch is committed.

    On the query's first start they are looked up and stored. settings: the source's options. number: which of the
    query's sources it is. Raises PipelineError.
    """
    folder, note = Folder(spark, location), NOTE.format(number)
    try:
        if folder.exists(note):
            kept: StreamOffset = folder.read_note(note)
            return kept
        if folder.names("commits"):
            return None
        planner = Planner(source_options(settings))
        try:
            offset = planner.initial()
        finally:
            planner.close()
        folder.write_note(note, offset)
    except ClientError as error:
        raise PipelineError(str(error)) from error
    except Exception as error:
        from barnabas.pipelines.spark.frame import spark_reason

        raise PipelineError(f"the checkpoint {location} cannot be used: {spark_reason(error)}") from error
    return offset


def kept_offset(options: SourceOptions, planner: Planner) -> StreamOffset:
    """The first offsets for a program that sets the source's option `checkpointLocation`; looked up and stored if
    missing.

    Runs in the source's process, which has no access to Java. A query's sources are distinguished by the topics and the
    start that they are given.
    """
    assert options.checkpoint is not None
    import pyarrow.fs as pafs

    asked = repr((options.topics, options.pattern, options.assigned, options.starting))
    name = f"barnabas-{hashlib.sha256(asked.encode()).hexdigest()[:12]}.json"
    local = local_path(options.checkpoint)
    url = str(local.absolute()) if local is not None else options.checkpoint.replace("s3a://", "s3://", 1)
    system, root = pafs.FileSystem.from_uri(url)
    folder = f"{root.rstrip('/')}/sources"
    path = f"{folder}/{name}"
    if system.get_file_info(path).type == pafs.FileType.File:
        with system.open_input_stream(path) as kept:
            offset: StreamOffset = json.loads(kept.read())
        return offset
    first = planner.initial()
    system.create_dir(folder, recursive=True)
    fresh = f"{folder}/.{name}.{os.getpid()}"
    with system.open_output_stream(fresh) as out:
        out.write(json.dumps(first).encode())
    system.move(fresh, path)
    return first
