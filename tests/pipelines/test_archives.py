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

from barnabas.pipelines.compiler.checking import check_plan
from barnabas.pipelines.entries.document import from_python
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.kinds.targets.base import Delivery
from barnabas.pipelines.kinds.targets.files import FILES
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.run import run_pipeline
from barnabas.pipelines.spark.frame import Frame
from tests.pipelines.conftest import send
from tests.pipelines.readers import consumed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def rows_of_delta(path) -> list[dict]:
    return pa.table(deltalake.DeltaTable(str(path)).to_pyarrow_table()).to_pylist()


VALUES = [
    {"id": 1, "name": "two\nlines", "day": "mo/1 %", "n": 1.25},
    {"id": 2, "name": "  padded  ", "day": "mo/1 %", "n": 2},
    {"id": 3, "order": {"x": [1]}, "day": None},
    {"id": 1, "name": 'say "hi", back\\slash', "day": "p=1ä", "n": 3.5},
    {"id": 4, "order": 1, "day": None, "late": True},
]
"""One in each micro-batch; not all have the same fields."""


def test_open_json_into_every_target(spark, bootstrap, client, new_topic, tmp_path):
    """`parse: {json: all}`: nothing is dropped, whatever the target, and merging files (those that were merged before,
    too) changes nothing in them."""
    topic = new_topic(1)
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute('CREATE TABLE t (id INTEGER PRIMARY KEY, "Name" TEXT, "order" TEXT, n NUMERIC)')
    text = f"""
pipeline: {topic}
source: {{topic: {topic}, options: {{maxOffsetsPerTrigger: 1}}}}
steps: [parse: {{json: all}}]
outputs:
  - {{name: delta, files: {{path: {tmp_path}/delta, partition_by: [day]}}}}
  - {{name: json, files: {{path: {tmp_path}/json, format: json, merge: {{files: 2}}}}}}
  - {{name: parquet, files: {{path: {tmp_path}/parquet, format: parquet, merge: {{files: 2}}}}}}
  - {{name: csv, steps: [keep: [id, name]], files: {{path: {tmp_path}/csv, format: csv, merge: {{files: 2}}}}}}
  - {{name: db, database: {{url: "sqlite:///{tmp_path}/t.db", table: t, key: [id], others: ignore}}}}
"""
    send(client, topic, [json.dumps(value).encode() for value in VALUES])
    run_pipeline(parse_spec(text), once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path / "checkpoints")
    names = sorted({name for value in VALUES for name in value})
    as_text = [{name: as_column(value.get(name)) for name in names} for value in VALUES]
    assert in_order(rows_of_delta(tmp_path / "delta")) == in_order(as_text)
    assert deltalake.DeltaTable(str(tmp_path / "delta")).metadata().partition_columns == ["day"]

    json_files = list((tmp_path / "json").glob("[!_.]*.json"))
    lines = [json.loads(line) for file in json_files for line in file.read_text().splitlines()]
    assert in_order(lines) == in_order(VALUES)
    parquet = list((tmp_path / "parquet").glob("*.parquet"))
    rows = [row for file in parquet for row in pq.read_table(file).to_pylist()]
    assert in_order(rows) == in_order([{n: as_column(v) for n, v in value.items()} for value in VALUES])
    csv_files = list((tmp_path / "csv").glob("[!_.]*.csv"))
    csv_rows = [row for file in csv_files for row in rows_of_csv(file)]
    assert in_order(csv_rows) == in_order(
        [{"id": str(value["id"]), "name": value.get("name", "")} for value in VALUES]
    )
    # The newest micro-batch stays alone, and so does a file of other fields.
    assert [len(files) for files in (json_files, parquet, csv_files)] == [2, 3, 2]
    with sqlite3.connect(tmp_path / "t.db") as connection:
        stored = connection.execute('SELECT id, "Name", "order", n FROM t ORDER BY id').fetchall()
    assert stored == [
        (1, 'say "hi", back\\slash', None, 3.5), (2, "  padded  ", None, 2), (3, None, '{"x": [1]}', None),
        (4, None, "1", None),
    ]  # fmt: skip
    assert consumed(bootstrap, f"{topic}-dead-letters") == []
    with pytest.raises(PipelineError, match="the columns must be known"):
        check_plan(spark, parse_spec(text.replace("steps: [keep: [id, name]], ", "")))


def as_column(value: object) -> str | None:
    """A value of open JSON as a column of text."""
    plain = value is None or isinstance(value, str)
    return value if plain else json.dumps(value, separators=(",", ":"))


def in_order(rows: list[dict]) -> list[dict]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def rows_of_csv(file) -> list[dict]:
    with gzip.open(file, "rt", newline="") if file.suffix == ".gz" else open(file, newline="") as text:
        return list(csv.DictReader(text))


@pytest.mark.soak
def test_an_archive_outlives_its_checkpoints(spark, bootstrap, client, new_topic, tmp_path):
    """Raw records; a new checkpoint adds to what an older one delivered and touches nothing of it."""
    topic = new_topic(1)
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
  - {{name: db, database: {{url: "sqlite:///{tmp_path}/t.db", table: t}}}}
"""
    )

    def run():
        run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path / "checkpoints")
        tables = rows_of_delta(tmp_path / "delta"), ds.dataset(tmp_path / "parquet").to_table().to_pylist()
        with sqlite3.connect(tmp_path / "t.db") as connection:
            db = connection.execute("SELECT offset, value FROM t ORDER BY 1").fetchall()
        return [*(sorted((row["offset"], row["value"]) for row in rows) for rows in tables), db]

    values = [b"%d" % i for i in range(11)]
    send(client, topic, [*values, b"\xff"], key=b"k")
    raw = [*enumerate(values), (11, b"\xff")]
    text = [(i, value.decode()) for i, value in enumerate(values)]
    assert run() == [raw, raw, text]
    assert {record.value for record in consumed(bootstrap, f"{topic}-dead-letters")} == {b"\xff"}
    shutil.rmtree(tmp_path / "checkpoints")  # as `restart --from`, or remove and add
    send(client, topic, [b"last"])
    assert run() == [
        sorted([*raw * 2, (12, b"last")]), sorted([*raw * 2, (12, b"last")]), sorted([*text * 2, (12, "last")])
    ]  # fmt: skip


def options_of(**options):
    return FILES.check(from_python(options, "f:1", "files"))


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


def test_merged_csv_that_is_packed_is_what_it_was(spark, tmp_path):
    options = options_of(path=str(tmp_path / "t"), format="csv", merge={"files": 2}, compression="gzip")
    values = ["two\nlines", "  padded  ", 'say "hi"', "", None, "a,b", "back\\slash"]
    name = "two\nwords"
    for number in range(4):
        rows = spark.createDataFrame([(number, value) for value in values], f"n int, `{name}` string")
        write(options, Frame(rows, ("n", name)), number)
    files = sorted((tmp_path / "t").glob("[!._]*.csv*"))
    csv_rows = [(int(row["n"]), row[name]) for file in files for row in rows_of_csv(file)]
    assert sorted(csv_rows) == sorted((n, value or "") for n in range(4) for value in values)
    assert len(files) == 2


def test_exploded_rows_have_ids_of_their_own(spark, bootstrap, client, new_topic, tmp_path):
    from barnabas.pipelines.compiler.outputs import query_deliverable
    from tests.pipelines.test_steps import rows as records

    spec = parse_spec(
        "pipeline: p\nsource: {topic: in}\nsteps: [parse: {json: {a: 'array<int>'}}, explode: {field: a}]\n"
        "outputs: [elasticsearch: {url: 'http://h', index: i}]"
    )
    deliverable, _, _ = query_deliverable(
        spec, spec.queries()[0], records(spark, ['{"a": [7, 8]}', '{"a": [9]}'])
    )
    assert [row._identity for row in deliverable.select("_identity").collect()] == [
        "in-2-0-0",
        "in-2-0-1",
        "in-2-1-0",
    ]
