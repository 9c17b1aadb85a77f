"""Upserts into a real PostgreSQL (the server of Debian's package postgresql), killed and restarted in between."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.run import run_pipeline
from tests.pipelines.conftest import records_of, send
from tests.pipelines.jars import libraries
from tests.support.databases import NO_POSTGRES, POSTGRES, Postgres, new_folder

psycopg = pytest.importorskip("psycopg")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not POSTGRES, reason=NO_POSTGRES),
]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    folder = new_folder("pg")
    server = Postgres(folder)
    yield server
    server.stop("immediate")
    shutil.rmtree(folder)


def test_upserts(spark, bootstrap, client, new_topic, tmp_path, postgres):
    source = new_topic(2, retention_ms="-1")
    postgres.query("CREATE TABLE t (id int PRIMARY KEY, name varchar(3), at timestamptz, amount numeric)")
    spec = parse_spec(
        f"""
pipeline: {source}
source: {{topic: {source}}}
steps:
  - parse: {{json: {{id: int, name: string, at: timestamp, amount: "decimal(10,2)"}}}}
outputs:
  - database: {{driver: psycopg, connect: {{conninfo: "{postgres.dsn}"}}, table: t, key: [id]}}
""",
        "x.yaml",
    )

    def run():
        return run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)

    rows = [
        b'{"id": %d, "name": "n%d", "at": "2024-05-01T12:00:00Z", "amount": 1.25}' % (i, i % 10)
        for i in range(99)
    ]
    send(client, source, rows, 0)
    send(client, source, [b'{"id": 100, "name": "too long"}', b'{"id": 101, "name": "ok"}'], 1)
    assert run().failed == 0  # what the database refuses is known only after the steps
    assert postgres.query("SELECT count(*), sum(amount), min(at) = '2024-05-01 12:00+00' FROM t") == [
        (100, 123.75, True)
    ]
    (dead,) = records_of(client, f"{source}-dead-letters")
    headers = {h["key"]: h["value"].decode() for h in dead["headers"]}
    assert dead["value"] == b'{"id": 100, "name": "too long"}'
    assert "value too long" in headers["barnabas.reason"]

    send(client, source, [b'{"id": 5, "name": "new"}'], 0)
    postgres.stop("immediate")
    with pytest.raises(PipelineError, match="database: connection failed"):
        run()
    postgres.start()
    run()
    assert postgres.query("SELECT name FROM t WHERE id = 5") == [("new",)]
    assert postgres.query("SELECT count(*) FROM t") == [(100,)]


@pytest.mark.soak
@pytest.mark.java
@pytest.mark.timeout(600)
def test_through_jdbc(bootstrap, client, new_topic, tmp_path, postgres):
    """With PostgreSQL's own driver, given to Spark with --conf; without it one line says what is missing."""
    (jar,) = libraries().glob("postgresql-*.jar")
    source = new_topic(1, retention_ms="-1")
    postgres.query("CREATE TABLE j (id int, name text, at timestamptz)")
    file = tmp_path / "p.yaml"
    file.write_text(
        f"pipeline: {source}\nsource: {{topic: {source}}}\n"
        "steps: [parse: {json: {id: int, name: string, at: timestamp}}]\n"
        f'outputs: [{{database: {{jdbc: "jdbc:postgresql://127.0.0.1:{postgres.port}/postgres", table: j, '
        "properties: {user: me, driver: org.postgresql.Driver}}}]\n"
    )
    send(client, source, [b'{"id": 1, "name": "a", "at": "2024-05-01T12:00:00Z"}', b"bad", b'{"id": 2}'])

    def run(*more: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "barnabas", "pipeline", "run", str(file), "--once", "-b", bootstrap]
        return subprocess.run(
            [*command, "--checkpoints", str(tmp_path), *more], capture_output=True, text=True, check=False
        )

    missing = run()
    assert missing.returncode == 1
    assert "ClassNotFoundException: org.postgresql.Driver" in missing.stderr.splitlines()[-1]
    done = run("--conf", f"spark.jars={jar}")
    assert done.returncode == 0, done.stderr
    assert postgres.query("SELECT id, name, at = '2024-05-01 12:00+00' FROM j ORDER BY id") == [
        (1, "a", True),
        (2, None, None),
    ]
    assert [row["value"] for row in records_of(client, f"{source}-dead-letters")] == [b"bad"]
