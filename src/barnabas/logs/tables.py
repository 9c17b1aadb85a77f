"""Searches the Delta table of a log, the newest hours first. Nothing but the folder is needed: no server and no Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from barnabas.logs.errors import LogError
from barnabas.logs.index import (
    BLOCK_ROWS,
    FOLDER,
    SUFFIX,
    build,
    ends_of,
    index_path,
    milliseconds_of,
    opened,
)
from barnabas.logs.query import Node
from barnabas.logs.rows import COLUMNS, MINUTE_MS, Row

PARTITIONS: Final = ("day", "hour")
HOUR_MS: Final = 3_600_000
STEPS_MAX: Final = 1 << 20
"""So many steps are counted in an array."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of the table. hour: where its hour begins, in ms since 1970."""

    path: Path
    hour: int
    rows: int
    size_bytes: int


@dataclass(slots=True)
class Looked:
    """What a search has cost."""

    files: int = 0
    files_read: int = 0
    rows_read: int = 0


@dataclass(slots=True)
class LogTable:
    """The table in a folder."""

    folder: Path
    looked: Looked = field(default_factory=Looked)

    def files(self, since: int | None = None, until: int | None = None) -> list[DataFile]:
        """The files that may have rows from `since` on and before `until` (ms), the newest first. Raises LogError."""
        actions = self._table().get_add_actions(flatten=True)
        columns = pa.table(actions).to_pydict()
        files = []
        for number, name in enumerate(columns["path"]):
            day, hour = columns["partition.day"][number], columns["partition.hour"][number]
            begins = hour_of(str(day), int(hour or 0))
            if (since is not None and begins + HOUR_MS <= since) or (until is not None and begins >= until):
                continue
            rows, size = columns["num_records"][number] or 0, columns["size_bytes"][number]
            files.append(DataFile(self.folder / name, begins, rows, size))
        return sorted(files, key=lambda file: (-file.hour, file.path.name))

    def _table(self) -> DeltaTable:
        try:
            table = DeltaTable(str(self.folder))
            columns = table.metadata().partition_columns
        except DeltaError as error:
            raise LogError(f"{self.folder} is no Delta table: {error}") from None
        if tuple(columns) != PARTITIONS:
            raise LogError(
                f"{self.folder} is partitioned by {columns or 'nothing'}, not by day and hour: it was not written by a "
                "pipeline of `barnabas logs template`"
            )
        return table

    def search(self, node: Node, since: int | None, until: int | None) -> Iterator[list[Row]]:
        """Rows that match, hour by hour, the newest first. Raises LogError."""
        by_hour: dict[int, list[DataFile]] = {}
        for file in self.files(since, until):
            by_hour.setdefault(file.hour, []).append(file)
        for files in by_hour.values():
            rows: list[Row] = []
            for file in files:
                table = self.matching(file, node, since, until)
                if table is not None:
                    rows += rows_in(table)
            rows.sort(key=lambda row: (row.time, row.offset), reverse=True)
            yield rows

    def histogram(self, node: Node, since: int | None, until: int | None, step_ms: int) -> Counter[int]:
        """How many rows match, by the time (ms) at which a step begins. Raises LogError."""
        histogram: Counter[int] = Counter()
        for file in self.files(since, until):
            counts = self._counted(file, node, since, until, step_ms)
            if counts is not None:
                self.looked.files += 1
                histogram.update(counts)
                continue
            table = self.matching(file, node, since, until, columns=("time",))
            if table is not None:
                histogram.update(by_step(np.asarray(table["time"]), step_ms))
        return histogram

    def _counted(
        self, file: DataFile, node: Node, since: int | None, until: int | None, step_ms: int
    ) -> Counter[int] | None:
        """What the index of a file knows of a histogram without its rows; None if rows have to be read: the query asks for
        more than levels, or a step or the range of times cuts a minute."""
        if step_ms % MINUTE_MS or not columns_of(node) <= {"level"}:
            return None
        index = opened(file.path)
        if index is None:
            return None
        index.close()
        minutes = index.minutes()
        if minutes is None:
            return None
        counts: Counter[int] = Counter()
        for level, minute, count in minutes:
            if any(limit is not None and minute < limit < minute + MINUTE_MS for limit in (since, until)):
                return None
            is_in_time = (since is None or minute >= since) and (until is None or minute < until)
            if is_in_time and node.matches(Row(minute, level, "", "", "", "")):
                counts[minute // step_ms * step_ms] += count
        return counts

    def matching(
        self,
        file: DataFile,
        node: Node,
        since: int | None,
        until: int | None,
        columns: tuple[str, ...] = COLUMNS,
    ) -> pa.Table | None:
        """The rows of a file that match, with these columns; None if there are none. Raises LogError."""
        self.looked.files += 1
        wanted = self._blocks(file, node)
        if wanted is not None and not wanted.any():
            return None
        needed = {"time", *columns, *columns_of(node)}
        try:
            table = self._read(file, needed, wanted)
        except FileNotFoundError:
            return None  # it was compacted or deleted meanwhile; the next search sees what replaced it
        except (OSError, pa.ArrowException) as error:
            raise LogError(f"cannot read {file.path}: {error}") from None
        mask = node.mask(table)
        if since is not None:
            mask = pc.and_(mask, pc.greater_equal(table["time"], since))
        if until is not None:
            mask = pc.and_(mask, pc.less(table["time"], until))
        chosen = table.filter(mask)
        return chosen.select([*columns]) if len(chosen) else None

    def _blocks(self, file: DataFile, node: Node) -> np.ndarray[Any, Any] | None:
        """Which blocks of a file may have matches; None: all, or it is not known."""
        index = opened(file.path)
        if index is None:
            return None
        try:
            blocks = node.blocks(index)
        except (OSError, pa.ArrowException):
            return None
        finally:
            index.close()
        return blocks

    def _read(self, file: DataFile, needed: set[str], wanted: np.ndarray[Any, Any] | None) -> pa.Table:
        """The rows of the wanted blocks."""
        with pq.ParquetFile(file.path) as source:
            names = [name for name in COLUMNS if name in needed and name in source.schema_arrow.names]
            groups, chosen, start = [], [], 0
            for number in range(source.metadata.num_row_groups):
                rows = source.metadata.row_group(number).num_rows
                keep = np.ones(rows, bool) if wanted is None else rows_of(wanted, start, rows)
                if keep.any():
                    groups.append(number)
                    chosen.append(keep)
                start += rows
            table = source.read_row_groups(groups, columns=names)
        self.looked.files_read += 1
        self.looked.rows_read += len(table)
        if wanted is not None and chosen:
            table = table.filter(pa.array(np.concatenate(chosen)))
        return normal(table, needed)

    def offsets(self) -> dict[int, int]:
        """By partition of the topic: the offset after the last one that is in the table. Raises LogError."""
        offsets: dict[int, int] = {}
        for file in self.files():
            for part, offset in ends_in(file.path):
                offsets[part] = max(offsets.get(part, 0), offset + 1)
        return offsets

    def build_indexes(self) -> Iterator[tuple[DataFile, int]]:
        """Index every file that has no index, the newest first; each with the bytes of its index. Raises LogError."""
        wanted = set()
        for file in self.files():
            path = index_path(file.path)
            wanted.add(path)
            if path.exists():
                continue
            try:
                yield file, build(file.path)
            except FileNotFoundError:
                continue
            except (OSError, pa.ArrowException) as error:
                raise LogError(f"cannot index {file.path}: {error}") from None
        for path in self.folder.glob(f"day=*/hour=*/{FOLDER}/*{SUFFIX}"):
            if path not in wanted and not (path.parent.parent / path.name.removesuffix(SUFFIX)).exists():
                path.unlink(missing_ok=True)


def by_step(times: np.ndarray[Any, Any], step_ms: int) -> Counter[int]:
    """How many of the times (ms) there are in each step, by its beginning."""
    steps = times // step_ms
    first = int(steps.min())
    counts = np.bincount(steps - first) if int(steps.max()) - first < STEPS_MAX else None
    if counts is None:  # a file of the table has an hour, unless something else wrote it
        values, counts = np.unique(steps, return_counts=True)
    else:
        values = np.flatnonzero(counts) + first
        counts = counts[counts > 0]
    return Counter(dict(zip((values * step_ms).tolist(), counts.tolist(), strict=True)))


def hour_of(day: str, hour: int) -> int:
    """Where an hour of a day begins, in ms since 1970."""
    begins = datetime.fromisoformat(day[:10]).replace(tzinfo=UTC) + timedelta(hours=hour)
    return int(begins.timestamp() * 1000)


def rows_of(blocks: np.ndarray[Any, Any], start: int, rows: int) -> np.ndarray[Any, Any]:
    """Which of the rows from `start` on are in wanted blocks."""
    numbers = np.arange(start, start + rows) // BLOCK_ROWS
    mask: np.ndarray[Any, Any] = blocks[np.minimum(numbers, len(blocks) - 1)]
    return mask


def normal(table: pa.Table, needed: set[str]) -> pa.Table:
    """The columns as searches want them: times in ms, texts without nulls."""
    for name in needed:
        if name not in table.column_names:
            kind = pa.int64() if name in ("partition", "offset") else pa.string()
            table = table.append_column(name, pa.nulls(len(table), kind))
    for number, name in enumerate(table.column_names):
        column = table[name]
        if name == "time":
            column = milliseconds_of(column)
        elif name in ("partition", "offset"):
            column = pc.fill_null(pc.cast(column, pa.int64()), -1)
        else:
            column = pc.fill_null(column, "")
        table = table.set_column(number, name, column)
    return table


def rows_in(table: pa.Table) -> list[Row]:
    """The rows of a table that was read with all columns."""
    columns = [table[name].to_pylist() for name in Row._fields]
    return [Row(*values) for values in zip(*columns, strict=True)]


def ends_in(file: Path) -> list[tuple[int, int]]:
    """The highest offset of each partition in a file; its index knows it without reading the file."""
    index = opened(file)
    if index is not None:
        index.close()
        return index.ends
    try:
        with pq.ParquetFile(file) as source:
            return [*ends_of(source)]
    except FileNotFoundError:
        return []


def columns_of(node: Any) -> set[str]:
    """The columns that a query reads."""
    columns: set[str] = set()
    if hasattr(node, "columns"):
        columns |= {*node.columns}
    if hasattr(node, "column"):
        columns.add(node.column)
    if hasattr(node, "node"):
        columns |= columns_of(node.node)
    for inner in getattr(node, "nodes", ()):
        columns |= columns_of(inner)
    return columns
