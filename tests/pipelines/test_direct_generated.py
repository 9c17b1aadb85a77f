"""Generated pipelines over generated records: what is made without Spark is what Spark's expressions make, to the byte."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from barnabas.pipelines.compiler.outputs import query_rows
from barnabas.pipelines.direct.parcels import opened_parcel, packer
from barnabas.pipelines.direct.planning import direct_program
from barnabas.pipelines.direct.program import PARCEL, Program
from barnabas.pipelines.formats.columns import ARROW_TYPES, BASE_COLUMNS, arrow_schema
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.spark.session.start import adopt_session
from tests.support.generated_pipelines import pipeline

pytestmark = pytest.mark.spark
COLUMNS = ("topic", "key", "value", "headers", "timestamp")
HEADERS = [
    None,
    None,
    None,
    [{"key": "trace", "value": b"x"}],
    [{"key": "trace", "value": b"y"}, {"key": "other", "value": None}],
    [{"key": "trace", "value": b"\xff"}],
    [{"key": "trace", "value": b"x"}, {"key": "trace", "value": b"y"}],
    [{"key": "trace", "value": b"\xff"}, {"key": "trace", "value": b"y"}],
]


def source_rows(values: list[bytes | None], chance: random.Random) -> pa.RecordBatch:
    """Records as they are read from a topic."""
    schema, n = arrow_schema((*BASE_COLUMNS, "headers")), len(values)
    columns = {
        "key": [chance.choice([None, b"k", b"", "é\n".encode(), b"\xff"]) for _ in values],
        "value": values,
        "topic": ["t"] * n,
        "partition": [3] * n,
        "offset": range(n),
        "timestamp": [1_700_000_000_000_000 + 1000 * i for i in range(n)],
        "timestampType": [0] * n,
        "headers": [chance.choice(HEADERS) for _ in values],
    }
    arrays = [pa.array(columns[name], ARROW_TYPES[name]) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def made_directly(program: Program, rows: pa.RecordBatch) -> tuple[dict[int, list[tuple]], set[int]]:
    """What is made of each record, by offset; and the offsets of those that are left to Spark."""
    rows_by_offset: dict[int, list[tuple]] = {}
    left: set[int] = set()
    for packed in packer(program.text()).packed(rows, "t", 3):
        for row in range(packed.num_rows):
            parcel = packed.column(PARCEL)[row]
            if not parcel.is_valid:
                left.add(packed.column("offset")[row].as_py())
                continue
            for piece in opened_parcel(parcel.as_buffer()):
                for packed_row in piece.to_pylist():
                    rows_by_offset.setdefault(packed_row["origin"]["offset"], []).append(
                        (packed_row["origin"]["output"], *(packed_row[name] for name in COLUMNS))
                    )
    return rows_by_offset, left


def plain(value: Any) -> Any:
    """A value of a row of Spark, as pyarrow shows it."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [{"key": row["key"], "value": plain(row["value"])} for row in value]
    return value


def made_by_spark(spark, spec, query, rows: pa.RecordBatch) -> dict[int, list[tuple]]:
    """What Spark makes of each record, by offset."""
    rows_by_offset: dict[int, list[tuple]] = {}
    table = pa.Table.from_batches([rows])
    data = query_rows(spec, query, spark.createDataFrame(table))
    for row in data.toArrow().to_pylist():
        cells = (row["origin"]["output"], *(plain(row[name]) for name in COLUMNS))
        rows_by_offset.setdefault(row["origin"]["offset"], []).append(cells)
    return rows_by_offset


def compare(spark, seed: int, count: int) -> tuple[int, int]:
    """Records made directly, and those left to Spark, of one generated pipeline; (0, 0) if it needs Spark."""
    chance = random.Random(seed)
    text, record = pipeline(chance)
    rows = source_rows([record(chance) if chance.random() < 0.98 else None for _ in range(count)], chance)
    try:
        spec = parse_spec(text)
        query = chance.choice([query for query in spec.queries() if not query.only_dead])
        program = direct_program(spec, query)
    except PipelineError:
        return 0, 0
    if program is None:
        return 0, 0
    directly, left = made_directly(program, rows)
    try:
        expected = made_by_spark(spark, spec, query, rows)
    except PipelineError:  # refused when it is planned, so it never runs
        return 0, 0
    values = rows.column("value")
    for offset in range(count):
        if offset in left:
            continue
        ours, theirs = directly.get(offset, []), expected.get(offset, [])
        assert sorted(map(repr, ours)) == sorted(map(repr, theirs)), f"seed {seed}, {values[offset]}\n{text}"
    return count - len(left), len(left)


def test_generated_pipelines(spark) -> None:
    adopt_session(spark)
    totals = [compare(spark, seed, 400) for seed in range(3)]
    direct, left = (sum(column) for column in zip(*totals, strict=True))
    assert direct > 300, totals
    assert left > 20, totals


@pytest.mark.soak
def test_a_hundred_thousand_records(spark) -> None:
    adopt_session(spark)
    direct = seed = 0
    while direct < 100_000:
        direct += compare(spark, 1000 + seed, 1000)[0]
        seed += 1
