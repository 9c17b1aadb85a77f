"""Views without Spark: what SQLite stores, in which order, and what lookups find; files that are damaged or full."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.pipelines.kinds.targets.view_changelog import json_fragments
from barnabas.pipelines.views.columns import BadKey, Column, parsed_time, time_text
from barnabas.pipelines.views.lookup import ROWS_MAX, Asked, NothingYet, Reader, TooSlow, row_json
from barnabas.pipelines.views.store import (
    Note,
    ViewDamaged,
    ViewError,
    ViewFile,
    ViewShape,
    ViewUnwritable,
    put_aside,
)

HOUR_US = 3_600_000_000
SHAPE = ViewShape(
    "orders/totals",
    "id",
    (
        Column("customer", "string", True),
        Column("n", "bigint", True),
        Column("hour", "timestamp", True),
        Column('the "total"', "double"),
    ),
    "hour",
    HOUR_US,
)


def rows_of(page) -> list[dict]:
    return [json.loads(text) for text in page.rows]


def written(path: Path, rows, shape: ViewShape = SHAPE, batch: int = 0) -> None:
    with ViewFile(path) as file, file.transaction():
        file.adopt(shape)
        file.put(shape, rows)
        file.set_note(Note(batch, {"orders": {"0": 7}}, 1_000))


@pytest.fixture
def orders(tmp_path: Path) -> Reader:
    """Three customers, two numbers, three hours each."""
    path = tmp_path / "view.sqlite"
    written(
        path,
        [
            (customer, n, hour * HOUR_US, 1.5 * hour)
            for customer in ("A", "B", "C")
            for n in (9, 10)
            for hour in (0, 1, 2)
        ],
    )
    return Reader(path)


def test_rows_by_key_by_its_beginning_by_range_and_by_window(orders):
    whole = orders.find(Asked(("A", "9")))
    assert whole.note == Note(0, {"orders": {"0": 7}}, 1_000)
    assert rows_of(whole)[1] == {"customer": "A", "n": 9, "hour": "1970-01-01T01:00:00Z", 'the "total"': 1.5}
    assert len(whole.rows) == 3
    assert [row["n"] for row in rows_of(orders.find(Asked(("B",))))] == [9, 9, 9, 10, 10, 10]
    # Numbers have the order of numbers: 9 comes before 10.
    assert [row["n"] for row in rows_of(orders.find(Asked(("B",), low="9", high="10")))] == [9, 9, 9]
    assert {row["customer"] for row in rows_of(orders.find(Asked(low="AB", high="C")))} == {"B"}
    one = Asked(("A", "9"), window="1970-01-01T01:59:59.999999+00:00")
    assert [row["hour"] for row in rows_of(orders.find(one))] == ["1970-01-01T01:00:00Z"]
    some = orders.find(Asked(window="1970-01-01T01:00:00Z/1970-01-01T02:00:00Z"))
    assert {row["hour"] for row in rows_of(some)} == {"1970-01-01T01:00:00Z"}
    assert len(some.rows) == 6
    assert len(orders.find(Asked()).rows) == 18
    assert orders.find(Asked(("Z",))).rows == []


@pytest.mark.parametrize("asked", [Asked(limit=4), Asked(window="1970-01-01/1970-01-02", limit=4)])
def test_pages_are_all_rows_each_once(orders, asked):
    seen, after = [], None
    for _ in range(10):
        page = orders.find(Asked(window=asked.window, limit=asked.limit, after=after))
        seen += page.rows
        after = page.next
        if after is None:
            break
    assert len(seen) == len(set(seen)) == 18


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (Asked(("A", "x")), "'x' is no value of n, which is bigint (64 bits), like 42"),
        (Asked(("A", "1", "2")), "the key has 2 fields (customer string, n bigint), and 3 values are given"),
        (Asked(("A", "1"), low="2"), "the key is whole, so there is no range"),
        (Asked(window="noon"), "window is 'noon'; it is a time like 2026-01-31T12:00:00Z"),
        (Asked(after="%%"), "after is '%%', not the `next` of an earlier answer"),
        (Asked(after="WzFd"), "after is 'WzFd', not the `next` of an earlier answer"),
    ],
)
def test_what_cannot_be_looked_up_is_told_with_what_a_key_looks_like(orders, asked, reason):
    with pytest.raises(BadKey, match="^" + "".join("\\" + c if c in "().*|" else c for c in reason)):
        orders.find(asked)


def test_names_and_values_are_escaped(tmp_path):
    hostile = '"; DROP TABLE rows; --'
    shape = ViewShape("p/v", "id", (Column(hostile, "string", True), Column("ROWID", "string")))
    written(tmp_path / "v", [(hostile, hostile)], shape)
    reader = Reader(tmp_path / "v")
    assert rows_of(reader.find(Asked((hostile,)))) == [{hostile: hostile, "ROWID": hostile}]
    assert reader.find(Asked(("' OR 1=1 --",))).rows == []


MOMENTS = st.datetimes(timezones=st.just(UTC))
EXAMPLES = {
    "string": st.text(st.characters(exclude_categories=("Cs",)), max_size=8),
    "bigint": st.integers(-(1 << 63), (1 << 63) - 1),
    "smallint": st.integers(-(1 << 15), (1 << 15) - 1),
    "double": st.floats(allow_nan=False).map(lambda x: x + 0.0),
    "boolean": st.booleans(),
    "binary": st.binary(max_size=6),
    "timestamp": MOMENTS,
    "date": st.dates(),
    "decimal(9,3)": st.decimals(-999_999, 999_999, places=3, allow_nan=False),
}
ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "smallint": pa.int16(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "decimal(9,3)": pa.decimal128(9, 3),
}


def as_text(value) -> str:
    """A value as a user writes it."""
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    return (
        str(value).lower()
        if isinstance(value, bool)
        else repr(value)
        if isinstance(value, float)
        else str(value)
    )


@given(st.data())
def test_every_type_keeps_its_order_and_is_found_by_its_text(data):
    kind = data.draw(st.sampled_from(sorted(EXAMPLES)))
    values = data.draw(st.lists(EXAMPLES[kind], min_size=1, max_size=8, unique_by=as_text))
    column = Column("k", kind, True)
    stored = column.stored(pa.chunked_array([pa.array(values, ARROW[kind])]))
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE t ({column.declaration}, n INTEGER, PRIMARY KEY (k)) WITHOUT ROWID")
    rows = list(dict(zip(stored, range(len(stored)), strict=True)).items())
    connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    in_order = [values[n] for (n,) in connection.execute("SELECT n FROM t ORDER BY k")]
    if kind == "string":
        # SQLite compares bytes of UTF-8, which have the order of code points.
        assert in_order == sorted(in_order, key=lambda text: text.encode())
    else:
        assert in_order == sorted(in_order)
    for value, kept in zip(values, stored, strict=True):
        assert column.parse(as_text(value)) == kept
        fragment = column.fragment(kept)
        json.loads(fragment)
        assert column.from_fragment(fragment) == kept
    connection.close()


@given(st.data())
def test_a_record_of_the_changelog_becomes_the_row_that_it_was_made_of(data):
    kinds = data.draw(st.lists(st.sampled_from(sorted(EXAMPLES)), min_size=1, max_size=4))
    columns = [Column(f"f{n}", kind, n == 0) for n, kind in enumerate(kinds)]
    columns.append(Column("nested", "struct<a:decimal(38,2)>"))
    row = []
    for column in columns[:-1]:
        value = data.draw(st.none() | EXAMPLES[column.kind])
        row += column.stored(pa.chunked_array([pa.array([value], ARROW[column.kind])]))
    row.append('{"a":12345678901234567890123456789012345.60}')
    shape = ViewShape("p/v", "id", tuple(columns))
    fragments = json_fragments(row_json(shape, row))
    assert [column.from_fragment(fragments[column.name]) for column in columns] == row


def test_nulls_not_a_number_and_decimals_of_any_size(tmp_path):
    columns = (
        Column("k", "bigint", True),
        Column("x", "double"),
        Column("d", "decimal(38,2)"),
        Column("f", "float"),
    )
    shape = ViewShape("p/v", "id", columns)
    arrays = {
        "k": pa.array([None, 1], pa.int64()),
        "x": pa.array([float("nan"), float("-inf")]),
        "d": pa.array([Decimal("12345678901234567890.10"), None], pa.decimal128(38, 2)),
        "f": pa.array([0.1, None], pa.float32()),
    }
    rows = list(zip(*[c.stored(pa.chunked_array([arrays[c.name]])) for c in columns], strict=True))
    written(tmp_path / "v", rows, shape)
    assert Reader(tmp_path / "v").find(Asked()).rows == [
        '{"k":1,"x":"-Infinity","d":null,"f":null}',
        '{"k":null,"x":"NaN","d":12345678901234567890.10,"f":0.1}',
    ]
    assert len(Reader(tmp_path / "v").find(Asked(low="0")).rows) == 1  # null is in no range


def test_times_are_texts_where_there_are_some():
    assert time_text(parsed_time("2026-01-31T13:00:00.25+01:00")) == "2026-01-31T12:00:00.250000Z"
    assert Column("t", "timestamp").fragment(1 << 60) == str(1 << 60)
    assert Column("t", "date").fragment(1 << 40) == str(1 << 40)


# --- files -----------------------------------------------------------------------------------------------


def test_old_windows_are_deleted_after_the_newest_but_a_time_in_the_future_does_not_count(tmp_path):
    path = tmp_path / "v"
    written(path, [("A", 1, hour * HOUR_US, 0.0) for hour in range(10)])
    with ViewFile(path) as file, file.transaction():
        # The newest window ends at 10:00. Kept are those that end after 07:00.
        old = file.expired(SHAPE, 3 * HOUR_US, 1_000 * HOUR_US)
        assert [key[2] // HOUR_US for key in old] == [0, 1, 2, 3, 4, 5, 6]
        file.remove(SHAPE, old)
        file.put(SHAPE, [("A", 1, 5_000 * HOUR_US, 0.0)])
        assert file.expired(SHAPE, 3 * HOUR_US, 10 * HOUR_US) == []
    assert len(Reader(path).find(Asked()).rows) == 4


def test_a_reader_sees_whole_micro_batches_and_is_not_kept_waiting(orders):
    with ViewFile(orders.path) as file, file.transaction():
        file.put(SHAPE, [("A", 9, 0, 99.0), ("D", 9, 0, 99.0)])
        file.set_note(Note(1, {}, 2_000))
        during = orders.find(Asked())
        assert (during.note.batch, len(during.rows)) == (0, 18)
    after = orders.find(Asked())
    assert (after.note.batch, len(after.rows)) == (1, 19)


def test_what_fails_in_a_transaction_leaves_nothing(orders):
    def fails():
        yield ("E", 9, 0, 99.0)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        written(orders.path, fails(), batch=1)
    assert orders.find(Asked(("E",))).rows == []
    assert orders.find(Asked()).note.batch == 0


def test_columns_come_and_go_but_the_key_stays(orders):
    grown = ViewShape("orders/totals", "id", (*SHAPE.columns[:3], Column("count", "bigint")), "hour", HOUR_US)
    with ViewFile(orders.path) as file, file.transaction():
        file.adopt(grown)
    assert list(rows_of(orders.find(Asked()))[0]) == ["customer", "n", "hour", "count"]
    other = ViewShape("orders/totals", "id", (Column("customer", "string", True), Column("count", "bigint")))
    with pytest.raises(ViewError, match="has another key now: customer string, and its file"):  # noqa: SIM117
        with ViewFile(orders.path) as file, file.transaction():
            file.adopt(other)


def test_there_is_nothing_before_the_first_micro_batch(tmp_path):
    with pytest.raises(NothingYet):
        Reader(tmp_path / "v").find(Asked())
    ViewFile(tmp_path / "v").close()
    with pytest.raises(NothingYet):
        Reader(tmp_path / "v").find(Asked())


def test_another_file_under_the_name_is_read_at_once(orders, tmp_path):
    assert orders.find(Asked()).rows
    put_aside(orders.path, 1)
    written(orders.path, [("Z", 1, 0, 0.0)], batch=3)
    assert [row["customer"] for row in rows_of(orders.find(Asked()))] == ["Z"]


@pytest.mark.parametrize("kept_bytes", [100, 4096, 20_000])
def test_a_cut_file_is_told_by_name(tmp_path, kept_bytes):
    path = tmp_path / "v"
    written(path, [(f"customer {n}", n, 0, 0.0) for n in range(2_000)])
    with path.open("r+b") as raw:
        raw.truncate(kept_bytes)
    with pytest.raises(ViewDamaged, match=str(path)):
        ViewFile(path)
    with pytest.raises(ViewDamaged, match=str(path)):
        Reader(path).find(Asked())


FULL = """
import resource, sys
from pathlib import Path
from tests.unit.pipelines.test_views import written
from barnabas.pipelines.views.store import ViewUnwritable
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
path = Path(sys.argv[1])
try:
    written(path, [(f"customer {n}", n, 0, 0.0) for n in range(50_000)], batch=1)
except ViewUnwritable as error:
    print(error)
"""


def test_a_file_that_cannot_grow_is_told_by_name_and_stays_as_it_was(tmp_path):
    path = tmp_path / "v"
    written(path, [("A", 1, 0, 0.0)])
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, timeout=120, check=True
    )
    assert str(path) in done.stdout
    page = Reader(path).find(Asked())
    assert (page.note.batch, len(page.rows)) == (0, 1)


def test_a_full_database_is_told_by_name(tmp_path):
    path = tmp_path / "v"

    def put(file: ViewFile):
        with file.transaction():
            file.adopt(SHAPE)
            file.put(SHAPE, [(f"customer {n}", n, 0, 0.0) for n in range(50_000)])

    with ViewFile(path) as file:
        file._connection.execute("PRAGMA max_page_count = 50")
        with pytest.raises(ViewUnwritable, match=f"the file {path} cannot grow: the disk is full"):
            put(file)


def test_a_lookup_is_bounded_in_time(orders, monkeypatch):
    written(orders.path, [(f"customer {n}", n, 0, 0.0) for n in range(30_000)], batch=1)
    monkeypatch.setattr("barnabas.pipelines.views.lookup.SECONDS_MAX", -1.0)
    with pytest.raises(TooSlow, match="name the key"):
        orders.find(Asked(limit=ROWS_MAX))


KILLED = """
import sys
from pathlib import Path
from barnabas.pipelines.views.store import Note, ViewFile
from tests.unit.pipelines.test_views import SHAPE
path, batch = Path(sys.argv[1]), 0
while True:
    batch += 1
    with ViewFile(path) as file, file.transaction():
        file.adopt(SHAPE)
        file.put(SHAPE, [(f"customer {n}", n, 0, float(batch)) for n in range(3_000)])
        file.set_note(Note(batch))
    print(batch, flush=True)
"""


def test_a_writer_may_be_killed_at_any_time(tmp_path):
    path = tmp_path / "v"
    reader = Reader(path)
    for turns in (1, 2, 3):
        writer = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True
        )
        try:
            batches = [int(writer.stdout.readline()) for _ in range(turns)]
        finally:
            writer.kill()
            writer.wait(60)
            writer.stdout.close()
        page = reader.find(Asked(limit=ROWS_MAX))
        assert page.note.batch >= batches[-1]
        assert {row['the "total"'] for row in rows_of(page)} == {float(page.note.batch)}
        assert len(page.rows) == 3_000
