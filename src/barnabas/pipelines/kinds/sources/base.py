"""How a kind of source is defined: its entries in a pipeline file, their check before Spark starts, and its rows.

Rows have those columns of the data source `barnabas` (`columns.BASE_COLUMNS` and headers) that the source can fill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.pipelines.entries.document import Item
from barnabas.pipelines.entries.shapes import Group

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.pipelines.plan.sources import Source


@dataclass(frozen=True, slots=True)
class Reading:
    """How a query reads a source. settings: options of the data source `barnabas` for brokers, group and stop file.
    checkpoint: the query's. number: the index of the source among those of the query. stream: whether the rows are a
    stream; if not, they are the records that exist now."""

    settings: Mapping[str, str] = field(default_factory=dict)
    checkpoint: str = ""
    number: int = 0
    stream: bool = True


@dataclass(frozen=True, slots=True)
class SourceKind:
    """One kind of source.

    shape: the entries that it accepts. marks: the entries of which every source of this kind has one. check: makes a
    Source of the entries (raises PipelineError). rows: makes a data frame. topics: whether it is read from brokers.
    table: whether it has only the newest record of each key. empty: makes a data frame with the same columns and no
    rows, for planning.
    """

    name: str
    doc: str
    shape: Group
    marks: tuple[str, ...]
    check: Callable[[Item, Mapping[str, Item]], Source]
    rows: Callable[[SparkSession, Source, Reading], DataFrame]
    empty: Callable[[SparkSession, Source], DataFrame]
    topics: bool = False
    table: bool = False
