"""What of a micro-batch a database table without a key already has: notes in two tables beside it.

A micro-batch that was stored in part is repeated after a failure. Which of its rows are stored is decided by the ranges
of offsets that they come from, not by the numbers of Spark's tasks: the repeated micro-batch may be divided among its
tasks in another way (`minPartitions` or the number of cores has changed). Rows that come from no single record (of an
aggregate or a join) are identified by their task and their number; Spark keeps that division in the checkpoint.

    barnabas_deliveries   a row for each range of offsets that a task stored, with its number of rows
    barnabas_refusals     a row for each row that the database refused, with the reason

Both are written in the transaction that stores the rows, so they are true whatever happens. Spark repeats only the last
micro-batch of a query, so each task deletes the notes of those before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import sqlalchemy as sa

from barnabas.pipelines.kinds.targets.base import DeliveryError, Refused, Task

NOTES: Final = sa.MetaData()


def _note_columns() -> list[sa.Column[Any]]:
    """The columns that both tables begin with. topic: empty for rows that come from no single record."""
    return [
        sa.Column("query", sa.String(200), primary_key=True),
        sa.Column("batch", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("part", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("topic", sa.String(249), primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
    ]


DELIVERIES: Final = sa.Table(
    "barnabas_deliveries",
    NOTES,
    *_note_columns(),
    sa.Column("first_offset", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("last_offset", sa.BigInteger, nullable=False),
    sa.Column("row_count", sa.BigInteger, nullable=False),
)
REFUSALS: Final = sa.Table(
    "barnabas_refusals",
    NOTES,
    *_note_columns(),
    sa.Column("place", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("nth", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("reason", sa.Text, nullable=False),
)
"""place: the record's offset, or the number of a row that comes from no record. nth: among the rows of one record."""
BEFORE: Final = "barnabas_batches"
"""The table in which versions before these notes recorded deliveries, by the numbers of tasks."""

_without_older: set[str] = set()

Pair = tuple[str, int]
RowId = tuple[str, int, int, int]
"""Topic, partition, place and nth of a row."""
NO_RECORD: Final = ("", -1)


def has_older_notes(connection: sa.Connection, database: str) -> bool:
    """Whether a database has the table BEFORE. If it has not, this process does not ask again: nothing creates that table
    any more, and the question takes longer than the rest of a small task. database: a text that identifies it."""
    if database in _without_older:
        return False
    is_there = sa.inspect(connection).has_table(BEFORE)
    if not is_there:
        _without_older.add(database)
    return is_there


@dataclass(slots=True)
class Spread:
    """The offsets from `first` to `last`, how many rows they gave, and how many of these were not stored before."""

    first: int
    last: int
    rows: int = 0
    fresh: int = 0

    def add(self, offset: int) -> None:
        """Counts a row of this offset."""
        self.first, self.last = min(self.first, offset), max(self.last, offset)
        self.rows += 1


@dataclass(frozen=True, slots=True)
class Sorted:
    """A batch, with the indices of rows that are still to be stored, and the refusals of rows that were delivered before.
    ids: of all rows."""

    ids: list[RowId]
    fresh: list[int]
    refused: list[Refused]


@dataclass(slots=True)
class Ledger:
    """The notes about one task's part of a micro-batch, within the connection's transaction. older: whether the database
    has the notes of an earlier version, see `has_older_notes`."""

    connection: sa.Connection
    task: Task
    older: bool
    _stored: dict[Pair, list[tuple[int, int]]] = field(default_factory=dict)
    _stored_rows: int | None = None
    _reasons: dict[RowId, str] = field(default_factory=dict)
    _spreads: dict[Pair, Spread] = field(default_factory=dict)
    _refusals: list[tuple[RowId, str]] = field(default_factory=list)
    _last: tuple[str, int, int] = ("", -1, -1)
    _nth: int = 0

    def __post_init__(self) -> None:
        """Reads what was noted about this micro-batch. Raises DeliveryError for notes of an earlier version."""
        columns = DELIVERIES.c
        mine = (columns.query == self.task.identity, columns.batch == self.task.batch_id)
        for row in self.connection.execute(sa.select(DELIVERIES).where(*mine)):
            if row.topic:
                pair = (row.topic, row.partition)
                self._stored.setdefault(pair, []).append((row.first_offset, row.last_offset))
            elif row.part == self.task.part:
                self._stored_rows = row.row_count
        reasons = REFUSALS.c
        mine = (reasons.query == self.task.identity, reasons.batch == self.task.batch_id)
        for row in self.connection.execute(sa.select(REFUSALS).where(*mine)):
            if row.topic or row.part == self.task.part:
                self._reasons[row.topic, row.partition, row.place, row.nth] = row.reason
        if self.older and not self._stored and self._stored_rows is None:
            self._refuse_older_notes()

    def _refuse_older_notes(self) -> None:
        before = sa.table(BEFORE, sa.column("query"), sa.column("batch"))
        mine = (before.c.query == self.task.identity, before.c.batch == self.task.batch_id)
        if self.connection.execute(sa.select(before.c.batch).where(*mine)).first() is not None:
            raise DeliveryError(
                f"micro-batch {self.task.batch_id} was stored in part by an earlier version, which noted only the numbers "
                f"of its tasks (table {BEFORE}): let that version finish it, or start again with new checkpoints"
            )

    def sort(self, batch: pa.RecordBatch) -> Sorted:
        """Which rows of the next batch are still to be stored."""
        ids = list(self._ids(batch))
        fresh: list[int] = []
        refused: list[Refused] = []
        for place, row_id in enumerate(ids):
            if self._is_stored(row_id):
                if (reason := self._reasons.get(row_id)) is not None:
                    refused.append(Refused(place, reason))
            else:
                fresh.append(place)
                self._spreads[row_id[:2]].fresh += 1
        return Sorted(ids, fresh, refused)

    def _ids(self, batch: pa.RecordBatch) -> Iterator[RowId]:
        if not self.task.in_order:
            begin = sum(spread.rows for spread in self._spreads.values())
            for place in range(begin, begin + batch.num_rows):
                self._spread(NO_RECORD, place)
                yield (*NO_RECORD, place, 0)
            return
        names = batch.schema.names
        columns = [
            batch.column(names.index(name)).to_pylist() for name in ("_topic", "_partition", "_offset")
        ]
        for record in zip(*columns, strict=True):
            topic, partition, offset = record
            self._nth = self._nth + 1 if record == self._last else 0
            self._last = record
            self._spread((topic, partition), offset)
            yield topic, partition, offset, self._nth

    def _spread(self, pair: Pair, offset: int) -> None:
        spread = self._spreads.get(pair)
        if spread is None:
            spread = self._spreads[pair] = Spread(offset, offset)
        spread.add(offset)

    def _is_stored(self, row_id: RowId) -> bool:
        topic, partition, offset, _ = row_id
        if not topic:
            return self._stored_rows is not None
        return any(first <= offset <= last for first, last in self._stored.get((topic, partition), ()))

    def note_refused(self, sorted_rows: Sorted, refused: list[Refused]) -> None:
        """Notes rows that the database refused now, in case the micro-batch is repeated."""
        self._refusals += [(sorted_rows.ids[row.row], row.reason) for row in refused]

    def close(self) -> None:
        """Writes the notes, after the last batch. Raises DeliveryError if another number of rows was stored before."""
        total = sum(spread.rows for spread in self._spreads.values())
        if self._stored_rows is not None and self._stored_rows != total:
            raise DeliveryError(
                f"part {self.task.part} of micro-batch {self.task.batch_id} has {total} rows, and {self._stored_rows} were "
                "stored when it was delivered before: the pipeline was changed in between; start again with new checkpoints"
            )
        for table in (DELIVERIES, REFUSALS):
            columns = table.c
            before = (columns.query == self.task.identity, columns.part == self.task.part)
            self.connection.execute(sa.delete(table).where(*before, columns.batch < self.task.batch_id))
        note = {"query": self.task.identity, "batch": self.task.batch_id, "part": self.task.part}
        for row in self._covered():
            # It covers what a range with the same beginning covers: that one's rows came before the new ones.
            same = [DELIVERIES.c[n] == (note | row)[n] for n in (*note, "topic", "partition", "first_offset")]
            self.connection.execute(sa.delete(DELIVERIES).where(*same))
            self.connection.execute(sa.insert(DELIVERIES), note | row)
        if self._refusals:
            names = ("topic", "partition", "place", "nth")
            rows = [
                note | dict(zip(names, row_id, strict=True)) | {"reason": why}
                for row_id, why in self._refusals
            ]
            self.connection.execute(sa.insert(REFUSALS), rows)

    def _covered(self) -> Iterator[dict[str, Any]]:
        for (topic, partition), spread in self._spreads.items():
            if not spread.fresh:
                continue
            yield {
                "topic": topic,
                "partition": partition,
                "first_offset": spread.first,
                "last_offset": spread.last,
                "row_count": spread.rows,
            }
