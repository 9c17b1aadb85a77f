"""Prints documents to the terminal, each on a line, for trying things out: `console: {rows: 20}`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import functions as F

from barnabas.pipelines.entries.document import Item
from barnabas.pipelines.entries.shapes import Group, Number
from barnabas.pipelines.kinds.targets.base import Delivery, TargetKind
from barnabas.pipelines.spark.frame import Frame

SHAPE: Final = Group(
    {"rows": Number("how many documents of a micro-batch are shown; default 20")}, "the terminal"
)


def _check(item: Item) -> Mapping[str, Any]:
    entries = SHAPE.open(item)
    return {"rows": entries["rows"].number() if "rows" in entries else 20}


def _reach(options: Mapping[str, Any]) -> None:
    """The terminal is always there."""


def _write(options: Mapping[str, Any], delivery: Delivery, frame: Frame) -> None:
    limit = options["rows"]
    rows = frame.data.select(F.col("_document").alias("text")).limit(limit + 1).collect()
    for row in rows[:limit]:
        print(row["text"])
    if len(rows) > limit:
        print(f"... more in batch {delivery.batch_id} of {delivery.query}")
    sys.stdout.flush()


CONSOLE: Final = TargetKind(
    "console", "a repeated batch is printed again", SHAPE, _check, _reach, write=_write
)
