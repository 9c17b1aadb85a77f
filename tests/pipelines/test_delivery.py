"""Deliveries from topics: files that stay few and whole, rows that replace each other, refused rows."""

from __future__ import annotations

import json
import sqlite3

import pytest

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.kinds.targets.base import Delivery
from barnabas.pipelines.kinds.targets.files import _write
from barnabas.pipelines.serving.run import run_pipeline
from barnabas.pipelines.spark.frame import Frame
from tests.pipelines.conftest import records_of, send

pytestmark = pytest.mark.spark


def test_to_files_and_a_database(spark, bootstrap, client, new_topic, tmp_path):
    source = new_topic(1, retention_ms="-1")
    with sqlite3.connect(tmp_path / "out.db") as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT NOT NULL, day TEXT, tags TEXT)")
        connection.execute("CREATE TABLE sums (day TEXT PRIMARY KEY, n INTEGER)")
    spec = parse_spec(
        f"""
pipeline: {source}
source: {{topic: {source}}}
steps:
  - parse: {{json: {{id: int, name: string, day: string, tags: "array<string>"}}}}
outputs:
  - name: archive
    files: {{path: {tmp_path}/archive, format: json, partition_by: [day]}}
  - name: rows
    database: {{driver: sqlite3, connect: {{database: {tmp_path}/out.db}}, table: t, key: [id]}}
  - name: sums
    database: {{driver: sqlite3, connect: {{database: {tmp_path}/out.db}}, table: sums, key: [day]}}
    aggregate: {{by: [day], compute: {{n: count(*)}}}}
""",
        "x.yaml",
    )

    def run(*values):
        send(client, source, [json.dumps(v).encode() if isinstance(v, dict) else v for v in values])
        return run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path / "checkpoints")

    run({"id": 1, "name": "a", "day": "mo", "tags": ["x"]}, {"id": 2, "name": None, "day": "tu"}, b"bad")
    run({"id": 1, "name": "b", "day": "mo"})
    metadata = (tmp_path / "checkpoints" / source / "archive" / "metadata").read_text()
    identity = json.loads(metadata)["id"].replace("-", "")
    files = sorted(p.relative_to(tmp_path / "archive") for p in (tmp_path / "archive").glob("day=*/*.json"))
    assert [f"{f.parent}/{f.name}" for f in files] == [
        f"day=mo/part-{identity}-0000000000-0.json",
        f"day=mo/part-{identity}-0000000001-0.json",
        f"day=tu/part-{identity}-0000000000-1.json",
    ]
    lines = [json.loads(line) for f in files for line in (tmp_path / "archive" / f).read_text().splitlines()]
    assert sorted((row["id"], row["name"]) for row in lines if row["name"]) == [(1, "a"), (1, "b")]
    with sqlite3.connect(tmp_path / "out.db") as connection:
        assert connection.execute("SELECT * FROM t").fetchall() == [(1, "b", "mo", None)]
        assert connection.execute("SELECT * FROM sums ORDER BY day").fetchall() == [("mo", 2), ("tu", 1)]
    dead = {
        row["value"]: {h["key"]: h["value"].decode() for h in row["headers"]}
        for row in records_of(client, f"{source}-dead-letters")
    }
    assert set(dead) == {b"bad", json.dumps({"id": 2, "name": None, "day": "tu"}).encode()}
    refused = dead[json.dumps({"id": 2, "name": None, "day": "tu"}).encode()]
    assert refused["barnabas.step"] == "deliver database"
    assert refused["barnabas.reason"] == "NOT NULL constraint failed: t.name"
    assert dead[b"bad"]["barnabas.step"] == "1 parse"


def test_a_repeated_batch_and_many_small_files(spark, tmp_path):
    options = {
        "path": str(tmp_path / "out"), "format": "parquet", "partition_by": ["p"], "compression": None,
        "header": True, "rows_per_file": 1000, "merge": {"files": 3, "below_bytes": 1 << 20}, "storage": {},
    }  # fmt: skip

    def write(batch_id, count=4):
        rows = spark.range(count).selectExpr(f"{batch_id} * 100 + id AS id", "id % 2 AS p")
        _write(options, Delivery("q", "0f" * 16, batch_id), Frame(rows, ("id", "p")))

    def there():
        return sorted(row.id for row in spark.read.parquet(options["path"]).select("id").collect())

    def files():
        return sorted(p.name for p in (tmp_path / "out" / "p=0").glob("*.parquet"))

    write(0)
    write(1, 8)
    write(1)
    assert there() == [0, 1, 2, 3, 100, 101, 102, 103]
    assert len(files()) == 2
    write(2)
    write(3)  # three older files in each folder: they become one
    assert there() == [batch * 100 + i for batch in range(4) for i in range(4)]
    assert len(files()) == 2
    write(3)
    write(4)
    assert there() == [batch * 100 + i for batch in range(5) for i in range(4)]


def test_to_the_console(spark, bootstrap, client, new_topic, tmp_path, capsys):
    source = new_topic(1, retention_ms="-1")
    send(client, source, [b'{"a": 1}', b'{"a": 2}', b'{"a": 3}'])
    text = (
        f"pipeline: {source}\nsource: {{topic: {source}}}\nsteps: [parse: {{json: all}}]\n"
        "outputs: [{console: {rows: 2}}]\n"
    )
    run_pipeline(parse_spec(text), once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
    assert capsys.readouterr().out == '{"a":1}\n{"a":2}\n' + f"... more in batch 0 of {source}.console\n"
