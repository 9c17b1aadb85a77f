"""Tables without a key: what a repeated micro-batch adds when it is divided among tasks in another way."""

from __future__ import annotations

import sqlite3
from itertools import pairwise

import pyarrow as pa
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from barnabas.pipelines.entries.document import from_python
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.kinds.targets import TARGETS
from barnabas.pipelines.kinds.targets.base import DeliveryError, Task, keeps_order
from barnabas.pipelines.spark.frame import RECORD_COLUMNS
from barnabas.pipelines.spark.outgoing import DOCUMENT, IDENTITY

SIZES = {("a", 0): 12, ("a", 1): 5, ("b", 0): 7}
"""How many records of each partition the micro-batch has."""


def rows_of(pair, first, end):
    """Two rows of every third record, and none of every fifth, as steps that explode and filter leave them."""
    for offset in range(first, end):
        for nth in range(0 if offset % 5 == 4 else 2 if offset % 3 == 2 else 1):
            yield (*pair, offset, nth)


def batch_of(rows):
    count = len(rows)
    columns = {name: pa.array([None] * count, pa.binary()) for name in RECORD_COLUMNS}
    columns["_topic"] = pa.array([row[0] for row in rows], pa.string())
    columns["_partition"] = pa.array([row[1] for row in rows], pa.int32())
    columns["_offset"] = pa.array([row[2] for row in rows], pa.int64())
    kind = pa.struct([("step", pa.string()), ("reason", pa.string()), ("output", pa.string())])
    columns["_error"] = pa.array([None] * count, kind)
    columns[DOCUMENT] = pa.array([None] * count, pa.string())
    columns[IDENTITY] = pa.array([None] * count, pa.string())
    # The table refuses every record whose offset ends in 7.
    columns["place"] = pa.array([None if row[2] % 10 == 7 else "-".join(map(str, row)) for row in rows])
    return pa.record_batch(columns)


@st.composite
def divisions(draw):
    """Ranges of all partitions, each a task or a part of one."""
    ranges = []
    for pair, size in SIZES.items():
        cuts = draw(st.sets(st.integers(1, size - 1), max_size=3))
        edges = [0, *sorted(cuts), size]
        ranges += [(pair, a, b) for a, b in pairwise(edges)]
    ends = sorted(draw(st.sets(st.integers(1, len(ranges) - 1), max_size=4))) if len(ranges) > 1 else []
    return [ranges[a:b] for a, b in pairwise([0, *ends, len(ranges)])]


def deliver(options, task, rows):
    """The refused rows, by their ids."""
    half = len(rows) // 2
    batches = [batch_of(rows[:half]), batch_of(rows[half:])]
    results = list(TARGETS["database"].deliver(options, task, iter(batches)))
    return [
        (rows[:half], rows[half:])[i][row.row] for i, (_, refused) in enumerate(results) for row in refused
    ]


@settings(max_examples=examples(100))
@given(first=divisions(), second=divisions(), data=st.data())
def test_each_row_is_stored_once_however_the_batch_is_divided(tmp_path_factory, first, second, data):
    options = table_in(tmp_path_factory.mktemp("ledger"))
    committed = data.draw(st.sets(st.integers(0, len(first) - 1)))
    for batch_id in (6, 7):
        for part in sorted(committed):
            rows = [row for pair, a, b in first[part] for row in rows_of(pair, a, b)]
            deliver(options, Task("p.q", batch_id, part, "id", in_order=True), rows)
        refused = []
        for part, ranges in enumerate(second):
            rows = [row for pair, a, b in ranges for row in rows_of(pair, a, b)]
            refused += deliver(options, Task("p.q", batch_id, part, "id", in_order=True), rows)
        every = [row for pair, size in SIZES.items() for row in rows_of(pair, 0, size)]
        assert sorted(refused) == sorted(row for row in every if row[2] % 10 == 7)
        stored = sorted("-".join(map(str, row)) for row in every if row[2] % 10 != 7)
        assert stored_in(options) == sorted(stored * (batch_id - 5))


def test_rows_of_no_record_are_known_by_their_task_and_number(tmp_path):
    options = table_in(tmp_path)
    rows = [("", -1, place, 0) for place in range(4)]
    task = Task("p.q", 7, 3, "id")
    for _ in range(2):
        assert deliver(options, task, rows) == []
    assert len(stored_in(options)) == 4
    with pytest.raises(DeliveryError, match="part 3 of micro-batch 7 has 3 rows, and 4 were stored"):
        deliver(options, task, rows[:3])
    assert len(stored_in(options)) == 4


def test_notes_of_an_earlier_version_are_refused_and_not_mistaken(tmp_path):
    options = table_in(tmp_path)
    with sqlite3.connect(options["connect"]["database"]) as connection:
        connection.execute("CREATE TABLE barnabas_batches (query TEXT, batch INT, part INT)")
        connection.execute("INSERT INTO barnabas_batches VALUES ('id', 7, 0)")
    rows = list(rows_of(("a", 0), 0, 3))
    with pytest.raises(DeliveryError, match="micro-batch 7 was stored in part by an earlier version"):
        deliver(options, Task("p.q", 7, 1, "id", in_order=True), rows)
    assert deliver(options, Task("p.q", 8, 1, "id", in_order=True), rows) == []


def test_a_process_asks_once_whether_there_are_notes_of_an_earlier_version(tmp_path):
    options = table_in(tmp_path)
    asked = []

    def note(connection, cursor, statement, parameters, context, many):
        asked.extend([statement] if "barnabas_batches" in statement + str(parameters) else [])

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        for batch_id in range(3):
            for part in range(2):
                deliver(options, Task("p.q", batch_id, part, "id", in_order=True), [("a", part, batch_id, 0)])
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
    assert len(asked) <= 2, asked  # SQLAlchemy looks for the table and for a view of its name
    assert len(stored_in(options)) == 6


PLAN = """
pipeline: p
sources:
  a: {topic: a, steps: [parse: {json: {id: int}}]}
  b: {topic: b, steps: [parse: {json: {id: int}}]}
  again: {topic: a, steps: [parse: {json: {id: int}}]}
  folder: {files: {path: /tmp/none}}
relations:
  both: {union: [a, b]}
  twice: {union: [both, again]}
  same: {union: [a, both]}
outputs:
  - {topic: o1, from: a}
  - {topic: o2, from: both}
  - {topic: o3, from: twice}
  - {topic: o4, from: same}
  - {topic: o5, from: folder}
  - {topic: o6, from: a, aggregate: {by: [id], compute: {n: count(*)}}}
"""


def test_only_outputs_whose_records_are_read_once_keep_their_order():
    spec = parse_spec(PLAN, "p.yaml")
    assert [keeps_order(spec, output.name) for output in spec.outputs] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


def table_in(folder):
    path = str(folder / "out.db")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE plain (place TEXT NOT NULL)")
    given_options = {"driver": "sqlite3", "connect": {"database": path}, "table": "plain"}
    options = TARGETS["database"].check(from_python(given_options, "f:1", "database"))
    TARGETS["database"].reach(options)
    return options


def stored_in(options):
    with sqlite3.connect(options["connect"]["database"]) as connection:
        return sorted(row[0] for row in connection.execute("SELECT place FROM plain"))
