"""What a record needs in bytes is the same for a batch of rows as for each of them."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from barnabas.pipelines.formats.columns import ARROW_TYPES
from barnabas.pipelines.spark.topics import sink
from barnabas.pipelines.spark.topics.refusing import RECORD_OVERHEAD, headers_size, record_sizes

TEXTS = st.none() | st.text("aé€", max_size=5)
BYTES = st.none() | st.binary(max_size=30)
ROWS = st.fixed_dictionaries(
    {
        "key": BYTES,
        "value": BYTES,
        "headers": st.none() | st.lists(st.fixed_dictionaries({"key": TEXTS, "value": BYTES}), max_size=3),
    }
)


@given(st.lists(ROWS, min_size=1, max_size=8), st.integers(0, 8))
def test_sizes_of_records(rows, start):
    schema = pa.schema([(name, ARROW_TYPES[name]) for name in ("key", "value", "headers")])
    batch = pa.RecordBatch.from_pylist(rows, schema).slice(start)
    want = [
        RECORD_OVERHEAD + len(row["key"] or b"") + len(row["value"] or b"") + headers_size(row["headers"])
        for row in rows[start:]
    ]
    sizes = record_sizes(batch, -1)
    assert sizes is not None
    assert sizes.to_pylist() == want
    if want:
        assert record_sizes(batch, sum(want)) is None


@given(st.lists(st.integers(0, 9), max_size=12))
def test_gathered_batches_have_the_same_rows(counts):
    batches = [
        pa.RecordBatch.from_pydict({"value": [str(n)] * n}, pa.schema([("value", pa.string())]))
        for n in counts
    ]
    gathered = list(sink.gathered(batches))
    values = [value for batch in gathered for value in batch["value"].to_pylist()]
    assert values == [str(n) for n in counts for _ in range(n)]
    assert len(gathered) <= 1


def test_no_batch_that_is_gathered_grows_without_end():
    large = pa.RecordBatch.from_pydict({"value": [b"x" * sink.GATHERED_BYTES]})
    small = pa.RecordBatch.from_pydict({"value": [b"x"] * (sink.GATHERED_ROWS // 16)})
    gathered = list(sink.gathered([large, *[small] * 17, large]))
    assert [batch.num_rows for batch in gathered] == [1, 4096, 256, 1]


def test_batches_of_many_rows_of_one_topic_stay_alone():
    """In order with the others."""
    many = pa.RecordBatch.from_pydict({"value": [b"x"] * sink.LONE_ROWS})
    marked = many.replace_schema_metadata({sink.ONE_TOPIC: b""})
    small = pa.RecordBatch.from_pydict({"value": [b"x"]})
    gathered = list(sink.gathered([small, small, marked, marked, small]))
    assert [batch.num_rows for batch in gathered] == [2, sink.LONE_ROWS, sink.LONE_ROWS, 1]
    assert len(list(sink.gathered([many] * 8))) == 1


def test_a_large_batch_is_not_copied_together_with_what_came_before():
    """Nor could it be, near the 2 GB that a column of Arrow can hold."""
    large = pa.RecordBatch.from_pydict({"value": [b"x" * sink.GATHERED_BYTES]})
    small = pa.RecordBatch.from_pydict({"value": [b"x"]})
    assert list(map(id, sink.gathered([small, large, small]))) == [id(small), id(large), id(small)]
