"""Records without a value as deletes: out of a keyed table, on into a topic; and where they are refused."""

from __future__ import annotations

import json
import sqlite3

import pytest

from barnabas.pipelines.compiler.checking import check_plan
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.run import run_pipeline
from tests.pipelines.conftest import send
from tests.pipelines.readers import consumed

pytestmark = pytest.mark.spark

TEXT = """
pipeline: {t}
source: {{topic: {t}, tombstones: deletes}}
steps:
  - parse: {{json: {{name: string}}}}
  - metadata: {{id: key}}
  - convert: {{id: int}}
  - filter: name <> 'left out'
outputs:
  - {{topic: {t}-out}}
  - {{topic: {t}-named, key: "concat('n', id)", value: name}}
  - name: rows
    steps: [deduplicate: {{by: [id, name], within: 1 hour}}]
    database: {{url: "sqlite:///{path}", table: t, key: [id]}}
"""


def test_tombstones_delete(spark, bootstrap, client, new_topic, tmp_path):
    t = new_topic(1)
    with sqlite3.connect(tmp_path / "t.db") as database:
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
        database.execute("INSERT INTO t VALUES (7, 'older')")
    records = [
        (b"1", b'{"name": "a"}'), (b"2", b'{"name": "b"}'), (b"1", None), (b"7", None), (b"8", b"bad"), (b"x", None),
        (b"2", None), (b"2", b'{"name": "again"}'), (b"3", b'{"name": "c"}'), (b"9", b'{"name": "left out"}'),
    ]  # fmt: skip
    for key, value in records:
        send(client, t, [value], key=key)
    spec = parse_spec(TEXT.format(t=t, path=tmp_path / "t.db"))
    run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
    with sqlite3.connect(tmp_path / "t.db") as database:
        assert database.execute("SELECT id, name FROM t ORDER BY id").fetchall() == [(2, "again"), (3, "c")]
    out = [(r.key, r.value and json.loads(r.value)) for r in consumed(bootstrap, f"{t}-out")]
    assert sorted(key for key, value in out if value is None) == [b"1", b"2", b"7"]
    assert dict(out) == {
        b"1": None,
        b"7": None,
        b"2": {"name": "again", "id": 2},
        b"3": {"name": "c", "id": 3},
    }
    named = [(r.key, r.value) for r in consumed(bootstrap, f"{t}-named")]
    assert dict(named) == {b"n1": None, b"n7": None, b"n2": b"again", b"n3": b"c"}
    letters = {(r.key, r.value, r.header("step")) for r in consumed(bootstrap, f"{t}-dead-letters")}
    assert letters == {(b"8", b"bad", "1 parse"), (b"x", None, "3 convert")}


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ("files: {path: /tmp/a}", "files cannot delete rows with these options, and records may be deletes"),
        ("database: {url: 'sqlite:///t.db', table: t}", "database cannot delete"),
        ("elasticsearch: {url: 'http://h', index: i}", "elasticsearch cannot delete"),
        ("topic: o\n    aggregate: {compute: {n: count(*)}}", "cannot be subtracted from results"),
    ],
)
def test_where_deletes_are_refused(spark, outputs, message):
    text = (
        "pipeline: p\nsource:\n  topic: t\n  tombstones: deletes\nsteps: [parse: {json: {a: int}}]\n"
        f"outputs:\n  - {outputs}\n"
    )
    with pytest.raises(PipelineError, match=rf"^f:[78]: .*{message}"):
        check_plan(spark, parse_spec(text, "f"))
