"""Upserts into a real PostgreSQL (the server of Debian's package postgresql), killed and restarted in between."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.run import run_pipeline
from tests.pipelines.conftest import records_of, send
from tests.pipelines.jars import libraries
from tests.support.process import free_port

psycopg = pytest.importorskip("psycopg")
BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not BINARIES, reason="no PostgreSQL server: apt install postgresql"),
]


class Postgres:
    """A server over a folder of its own; it refuses to run as root, so then as nobody."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.user = "nobody" if os.getuid() == 0 else None
        if self.user:
            os.chown(folder, pwd.getpwnam(self.user).pw_uid, -1)
        self._run("initdb", "-D", str(folder / "data"), "-U", "me", "-A", "trust", "--no-sync")
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(BINARIES[-1].with_name(program)), *arguments]
        done = subprocess.run(
            command, user=self.user, cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-o", options, "-l", "log", "-w", "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", mode, "-w", "stop")

    def query(self, sql: str) -> list[tuple]:
        with psycopg.connect(self.dsn) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    @property
    def dsn(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=me dbname=postgres"


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    folder = Path(tempfile.mkdtemp(prefix="barnabas-pg-"))
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
    told = {h["key"]: h["value"].decode() for h in dead["headers"]}
    assert dead["value"] == b'{"id": 100, "name": "too long"}'
    assert "value too long" in told["barnabas.reason"]

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
