"""What a kind of source is: its entries in a file, what is done before Spark starts, and its rows.

Rows have the columns of the data source `barnabas` (`columns.BASE_COLUMNS` and headers), as far as there is something to
put into them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.pipelines.document import Item
from barnabas.pipelines.shapes import Group

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.pipelines.model import Source


@dataclass(frozen=True, slots=True)
class Reading:
    """How a query reads a source. settings: options of the data source `barnabas` for its brokers, its group and its stop.
    checkpoint: the query's. number: which of the query's sources this is. stream: what comes, else what is there."""

    settings: Mapping[str, str] = field(default_factory=dict)
    checkpoint: str = ""
    number: int = 0
    stream: bool = True


@dataclass(frozen=True, slots=True)
class SourceKind:
    """One kind of source.

    shape: what its entry may hold. given: the entries of which one says that a source is of this kind. check: the entry to
    a Source (raises PipelineError). rows: a data frame. topics: whether brokers have it. table: whether it is the newest
    record of each key. empty: the same columns without any row, to plan with.
    """

    name: str
    doc: str
    shape: Group
    given: tuple[str, ...]
    check: Callable[[Item, Mapping[str, Item]], Source]
    rows: Callable[[SparkSession, Source, Reading], DataFrame]
    empty: Callable[[SparkSession, Source], DataFrame]
    topics: bool = False
    table: bool = False
