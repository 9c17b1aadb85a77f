"""A database that is away for a while, in a server: the pipeline says what it waits for, goes on, and loses nothing."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipelines.conftest import send
from tests.pipelines.test_server import Server, until
from tests.support.databases import NO_POSTGRES, POSTGRES, Postgres

pytestmark = [
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not POSTGRES, reason=NO_POSTGRES),
]


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    folder = Path(tempfile.mkdtemp(prefix="barnabas-pg-"))
    server = Postgres(folder)
    yield server
    server.stop("immediate")
    shutil.rmtree(folder)


def test_a_database_that_is_away(bootstrap, client, new_topic, tmp_path, postgres):
    source = new_topic(2)
    postgres.query("CREATE TABLE rows (id bigint)")
    url = f"postgresql+psycopg://me@127.0.0.1:{postgres.port}/postgres"
    text = (
        f"pipeline: {source}\nsource: {{topic: {source}}}\nsteps: [parse: {{json: {{id: long}}}}]\n"
        f'outputs: [database: {{url: "{url}", table: rows}}]\n'
    )
    sent: list[int] = []

    def feed() -> None:
        for partition in range(2):
            ids = range(len(sent), len(sent) + 20)
            send(client, source, [b'{"id": %d}' % number for number in ids], partition)
            sent.extend(ids)

    def stored() -> list[int]:
        return sorted(row[0] for row in postgres.query("SELECT id FROM rows"))

    server = Server(tmp_path / "pipelines", bootstrap)
    server.start()

    def status():
        return server.call("GET", f"/pipelines/{source}")[1]

    try:
        assert server.call("POST", "/pipelines", text)[0] == 201
        feed()
        until(lambda: stored() == sent)
        postgres.stop("immediate")
        feed()
        until(lambda: status()["waiting"])
        assert "waiting for a target since" in status()["waiting"]
        assert "Connection refused" in status()["waiting"]
        until(lambda: status()["restarts"] >= 4)
        failures = len(status()["failures"])
        feed()
        until(lambda: status()["restarts"] >= 6)
        assert len(status()["failures"]) == failures
        postgres.start()
        until(lambda: stored() == sent)
        until(lambda: status()["waiting"] is None)
        assert status()["state"] == "running"
    finally:
        server.stop(signal.SIGKILL)
