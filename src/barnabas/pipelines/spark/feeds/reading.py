"""What tasks do with the ranges of a feed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from barnabas.pipelines.spark.topics.offsets import Range
from barnabas.pipelines.spark.topics.options import SourceOptions
from barnabas.pipelines.spark.topics.source import read_task


class Reading:
    """Reads, in a task, the ranges that it gets as rows, see `Feed.tasks`."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column(0).to_pylist():
                yield from read_task(self.options, tuple(Range(*part) for part in json.loads(text)))
