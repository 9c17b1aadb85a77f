"""Records archived as they came or as fields, through other checkpoints, with merges: read by Delta's own library,
Arrow and Python's csv."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import sqlite3

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from barnabas.pipelines.delivery.base import Delivery
from barnabas.pipelines.delivery.files import FILES
from barnabas.pipelines.document import from_python
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.run import run_pipeline
from barnabas.pipelines.spec import parse_spec
from barnabas.pipelines.steps.base import Frame
from tests.pipelines.conftest import send
from tests.pipelines.readers import consumed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def rows_of_delta(path) -> list[dict]:
    return pa.table(deltalake.DeltaTable(str(path)).to_pyarrow_table()).to_pylist()


def test_open_json_into_every_target(spark, bootstrap, client, new_topic, tmp_path):
    """`parse: {json: all}`: nothing is dropped, whatever the target."""
    topic = new_topic(1, retention_ms="-1")
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute('CREATE TABLE t (id INTEGER PRIMARY KEY, "Name" TEXT, "order" TEXT, n NUMERIC)')
    spec = parse_spec(
        f"""
pipeline: {topic}
source: {{topic: {topic}}}
steps: [parse: {{json: all}}]
outputs:
  - {{name: delta, files: {{path: {tmp_path}/delta, partition_by: [day]}}}}
  - {{name: json, files: {{path: {tmp_path}/json, format: json}}}}
  - {{name: db, database: {{url: "sqlite:///{tmp_path}/t.db", table: t, key: [id], others: ignore}}}}
"""
    )

    def run(*values):
        send(client, topic, [json.dumps(value).encode() for value in values])
        return run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path / "checkpoints")

    run({"id": 1, "name": "a", "day": "mo/1 %", "n": 1.25}, {"id": 2, "order": {"x": [1]}, "day": None})
    run({"id": 3, "late": True, "day": "p=1ä"}, {"id": 1, "name": "b", "day": "mo/1 %"})
    found = sorted(rows_of_delta(tmp_path / "delta"), key=lambda row: (row["id"], row["name"] or ""))
    empty = {"name": None, "n": None, "order": None, "late": None}
    assert found == [
        {**empty, "id": "1", "name": "a", "day": "mo/1 %", "n": "1.25"},
        {**empty, "id": "1", "name": "b", "day": "mo/1 %"},
        {**empty, "id": "2", "order": '{"x":[1]}', "day": None},
        {**empty, "id": "3", "late": "true", "day": "p=1ä"},
    ]
    assert deltalake.DeltaTable(str(tmp_path / "delta")).metadata().partition_columns == ["day"]
    lines = [json.loads(x) for f in (tmp_path / "json").glob("*.json") for x in f.read_text().splitlines()]
    assert sorted(lines, key=lambda row: json.dumps(row)) == sorted(
        [
            {"id": 1, "name": "a", "day": "mo/1 %", "n": 1.25}, {"id": 2, "order": {"x": [1]}, "day": None},
            {"id": 3, "late": True, "day": "p=1ä"}, {"id": 1, "name": "b", "day": "mo/1 %"},
        ],
        key=lambda row: json.dumps(row),
    )  # fmt: skip
    with sqlite3.connect(tmp_path / "t.db") as connection:
        rows = connection.execute('SELECT id, "Name", "order", n FROM t ORDER BY id').fetchall()
    assert rows == [(1, "b", None, 1.25), (2, None, '{"x": [1]}', None), (3, None, None, None)]
    assert consumed(bootstrap, f"{topic}-dead-letters") == []
    text = f"pipeline: {topic}c\nsource: {{topic: {topic}}}\nsteps: [parse: {{json: all}}]\n"
    refused = parse_spec(f"{text}outputs: [files: {{path: {tmp_path}/csv, format: csv}}]")
    with pytest.raises(PipelineError, match="the columns must be known before"):
        run_pipeline(refused, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path / "checkpoints")


def test_an_archive_outlives_its_checkpoints(spark, bootstrap, client, new_topic, tmp_path):
    """Raw records; a new checkpoint adds to what an older one delivered and touches nothing of it."""
    topic = new_topic(1, retention_ms="-1")
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE t (topic TEXT, offset INTEGER, value TEXT, headers TEXT, "
                           "partition INTEGER, timestamp TEXT, key TEXT)")  # fmt: skip
    spec = parse_spec(
        f"""
pipeline: {topic}
source: {{topic: {topic}, start: earliest}}
outputs:
  - {{name: delta, files: {{path: {tmp_path}/delta}}}}
  - {{name: parquet, files: {{path: {tmp_path}/parquet, format: parquet}}}}
  - {{name: json, files: {{path: {tmp_path}/json, format: json}}}}
  - {{name: db, database: {{url: "sqlite:///{tmp_path}/t.db", table: t}}}}
"""
    )

    def run():
        run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path / "checkpoints")
        tables = rows_of_delta(tmp_path / "delta"), ds.dataset(tmp_path / "parquet").to_table().to_pylist()
        lines = [
            json.loads(x) for f in (tmp_path / "json").glob("*.json") for x in f.read_text().splitlines()
        ]
        with sqlite3.connect(tmp_path / "t.db") as connection:
            db = connection.execute("SELECT offset, value FROM t ORDER BY 1").fetchall()
        found = [sorted((row["offset"], row["value"]) for row in rows) for rows in (*tables, lines)]
        return [*found, db]

    values = [b"%d" % i for i in range(11)]
    send(client, topic, [*values, b"\xff"], key=b"k")
    raw = [*enumerate(values), (11, b"\xff")]
    text = [(i, value.decode()) for i, value in enumerate(values)]
    assert run() == [raw, raw, text, text]
    assert {record.value for record in consumed(bootstrap, f"{topic}-dead-letters")} == {b"\xff"}
    shutil.rmtree(tmp_path / "checkpoints")  # as `restart --from`, or remove and add
    again = run()
    assert again == [sorted(raw * 2), sorted(raw * 2), sorted(text * 2), sorted(text * 2)]
    send(client, topic, [b"last"])
    assert [len(rows) for rows in run()] == [25, 25, 23, 23]


def options_of(**given):
    return FILES.check(from_python(given, "f:1", "files"))


def write(options, frame, batch_id, identity="0f" * 16):
    FILES.write(options, Delivery("q", identity, batch_id), frame)


def test_a_repeated_micro_batch_is_in_the_table_once(spark, tmp_path):
    options = options_of(path=str(tmp_path / "t"), merge={"files": 3})

    def batch(number, columns="id"):
        frame = spark.range(number * 10, number * 10 + 10).selectExpr(*columns.split(";"))
        write(options, Frame(frame, tuple(frame.columns)), number)

    for number in (0, 1, 1, 0, 2, 2, 3):
        batch(number)
    batch(4, "id;cast(id AS string) AS name")
    batch(4, "id;cast(id AS string) AS name")
    rows = rows_of_delta(tmp_path / "t")
    assert sorted(row["id"] for row in rows) == list(range(50))
    assert {row["name"] for row in rows if row["id"] < 40} == {None}
    assert {row["name"] for row in rows if row["id"] >= 40} == {str(n) for n in range(40, 50)}
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    assert table.count() == 50
    assert len(table.file_uris()) == 3  # batches 0 to 2 became one file
    with pytest.raises(Exception, match=r"has field id as .*long.*, not .*string"):
        batch(5, "cast(id AS string) AS id")


@pytest.mark.parametrize("packed", [None, "gzip"])
def test_merged_csv_is_what_it_was(spark, tmp_path, packed):
    options = options_of(
        path=str(tmp_path / "t"),
        format="csv",
        merge={"files": 3},
        **({"compression": packed} if packed else {}),
    )
    values = ["two\nlines", "  padded  ", 'say "hi"', "", None, "a,b", "back\\slash"]
    for number in range(9):
        rows = spark.createDataFrame([(number, value) for value in values], "n int, v string")
        write(options, Frame(rows, ("n", "v")), number)
    files = sorted((tmp_path / "t").glob("[!._]*.csv*"))
    found = []
    for file in files:
        with gzip.open(file, "rt", newline="") if packed else open(file, newline="") as text:
            found += [(int(row["n"]), row["v"]) for row in csv.DictReader(text)]
    assert sorted(found) == sorted((n, value or "") for n in range(9) for value in values)
    assert len(files) < 5


def test_merged_parquet_keeps_columns_and_merges_again(spark, tmp_path):
    options = options_of(path=str(tmp_path / "t"), format="parquet", merge={"files": 3})
    for number in range(14):
        columns = ["id", "id * 2 AS more"] if number % 2 else ["id"]
        rows = spark.range(number * 10, number * 10 + 10).selectExpr(*columns)
        write(options, Frame(rows, tuple(rows.columns)), number)
    files = sorted((tmp_path / "t").glob("*.parquet"))
    tables = [pq.read_table(file).to_pylist() for file in files]
    rows = {row["id"]: row.get("more") for table in tables for row in table}
    assert rows == {n: n * 2 if n // 10 % 2 else None for n in range(140)}
    assert len(files) < 6


def test_exploded_rows_have_ids_of_their_own(spark, bootstrap, client, new_topic, tmp_path):
    from barnabas.pipelines.chain import query_deliverable
    from tests.pipelines.test_steps import rows as records

    spec = parse_spec(
        "pipeline: p\nsource: {topic: in}\nsteps: [parse: {json: {a: 'array<int>'}}, explode: {field: a}]\n"
        "outputs: [elasticsearch: {url: 'http://h', index: i}]"
    )
    made, _, _ = query_deliverable(spec, spec.queries()[0], records(spark, ['{"a": [7, 8]}', '{"a": [9]}']))
    assert [row._identity for row in made.select("_identity").collect()] == [
        "in-2-0-0",
        "in-2-0-1",
        "in-2-1-0",
    ]
