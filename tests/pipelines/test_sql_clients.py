"""ksqlDB's clients in Python and JavaScript, two of PyPI and two of npm, against a SQL server: statements, lookups, queries
that follow, rows that are inserted."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.foreign import fetch_or_skip, made, need
from tests.pipelines.test_server import until
from tests.pipelines.test_sql_server import EARLIEST, SqlServer

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]

PACKAGES = ("ksql==0.10.2", "ksqldb==1.0.1", "six")
NODE_PACKAGES = ("ksqldb-client@1.0.5", "ksqldb-js@1.1.2")
OLD_CLIENT = """
import json, sys, types
# `ksql` imports it for HTTP/2, and no version of it runs on this Python.
sys.modules["hyper"] = types.SimpleNamespace(HTTPConnection=None)
from ksql import KSQLAPI
client = KSQLAPI(sys.argv[1])
said = client.ksql("SHOW TABLES;")[0]["tables"][0]["name"]
client.create_stream("more", ["who varchar key", "n int"], sys.argv[2])
text, properties = "SELECT who, n FROM more EMIT CHANGES LIMIT 2;", json.loads(sys.argv[3])
rows = client.query(text, stream_properties=properties, return_objects=True)
print(json.dumps([client.get_ksql_version(), said, list(rows)]))
"""


IN_NODE = """
const KsqldbClient = require("ksqldb-client");
const Ksqldb = require("ksqldb-js");
const port = Number(process.argv[1]);

async function main() {
  const client = new KsqldbClient({ host: "http://127.0.0.1", port });
  await client.connect();
  const streams = await client.listStreams();
  const inserted = await client.insertInto("clicks", { who: "ada", n: 4 });
  const pushed = [];
  const sql = "SELECT who, n FROM clicks EMIT CHANGES LIMIT 2;";
  const properties = { "auto.offset.reset": "earliest" };
  await client.streamQuery(sql, (data) => pushed.push(...(data.rows || [])), { properties });
  let pulled;
  for (let turn = 0; turn < 600; turn++) {
    pulled = await client.query("SELECT who, s FROM totals WHERE who = 'ada';");
    if (JSON.stringify(pulled.data.rows) === JSON.stringify([{ WHO: "ada", S: 7 }])) break;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  await client.disconnect();
  const other = new Ksqldb({ ksqldbURL: `http://127.0.0.1:${port}` });
  const rows = await other.pull("SELECT who, s FROM totals WHERE who = 'ada';");
  const tables = await other.ksql("SHOW TABLES;");
  console.log(JSON.stringify({ streams, inserted, pushed, pulled: pulled.data, rows, tables }));
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
"""


@pytest.fixture(scope="module")
def packages() -> Path:
    """Where both are installed."""

    def install(folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps"]
        fetch_or_skip(
            [*command, "--target", str(folder), *PACKAGES], folder, "pip cannot fetch ksqlDB's clients"
        )

    return made("ksql-clients", install)


@pytest.fixture
def server(tmp_path: Path, bootstrap: str) -> Iterator[SqlServer]:
    made = SqlServer(tmp_path / "sql", bootstrap)
    made.start()
    yield made
    made.stop(signal.SIGKILL)


def test_both_clients(server: SqlServer, packages: Path, new_topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(packages))
    import ksqldb  # type: ignore[import-not-found]

    topic, url = new_topic(1), f"http://127.0.0.1:{server.port}"
    client = ksqldb.KSQLdbClient(url)
    client.ksql(
        f"CREATE STREAM clicks (who VARCHAR KEY, n INT) WITH (kafka_topic='{topic}', value_format='JSON');"
    )
    client.ksql(
        f"CREATE TABLE totals WITH (kafka_topic='{topic}-t') AS SELECT who, SUM(n) AS s FROM clicks GROUP BY who "
        "EMIT CHANGES;",
        EARLIEST,
    )
    acks = client.inserts_stream("clicks", [{"who": "ada", "n": 1}, {"who": "ada", "n": 2}])
    assert [ack["status"] for ack in acks] == ["ok", "ok"]

    def totals() -> list[Any]:
        return client.query_sync("SELECT * FROM totals WHERE who = 'ada';", timeout=120)[1:]

    assert until(lambda: totals() == [["ada", 3]], 300)
    assert {row["name"] for row in client.get_properties()} >= {"auto.offset.reset"}

    async def follow() -> tuple[str, list[Any]]:
        name, rows = "", []
        async for row in client.query_async("SELECT * FROM clicks EMIT CHANGES;", EARLIEST, timeout=300):
            if isinstance(row, dict):
                name = row["queryId"]
                continue
            rows.append(row)
            if len(rows) == 2:
                break
        return name, rows

    name, rows = asyncio.run(follow())
    assert sorted(rows) == [["ada", 1], ["ada", 2]]
    assert client.close_query(name) in (True, False)  # its connection may have ended it before

    command = [sys.executable, "-W", "ignore", "-c", OLD_CLIENT, url, topic, json.dumps(EARLIEST)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=400, check=False, env={"PYTHONPATH": str(packages)}
    )
    assert done.returncode == 0, done.stderr
    _, table, found = json.loads(done.stdout)
    assert table == "TOTALS"
    assert found == [{"WHO": "ada", "N": 1}, {"WHO": "ada", "N": 2}]


def node_modules() -> Path:
    """A folder with ksqldb-client and ksqldb-js."""
    npm = need("npm")

    def install(folder: Path) -> None:
        command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", str(folder)]
        fetch_or_skip([*command, *NODE_PACKAGES], folder, "npm cannot fetch ksqlDB's clients")

    return made("ksql-node-clients", install)


def rows_of(answer: Any) -> list[Any]:
    """The lines of an answer: the client gives them as one text, or as a list if it could read them."""
    return [json.loads(line) for line in answer.splitlines()] if isinstance(answer, str) else list(answer)


def test_both_clients_of_npm(server: SqlServer, new_topic) -> None:
    topic, node, folder = new_topic(1), need("node"), node_modules()
    server.statements(
        f"CREATE STREAM clicks (who VARCHAR KEY, n INT) WITH (kafka_topic='{topic}', value_format='JSON');"
        f"CREATE TABLE totals WITH (kafka_topic='{topic}-t') AS SELECT who, SUM(n) AS s FROM clicks GROUP BY who "
        "EMIT CHANGES; INSERT INTO clicks (who, n) VALUES ('ada', 3);",
        **EARLIEST,
    )
    environment = {**os.environ, "NODE_PATH": str(folder / "node_modules")}
    done = subprocess.run(
        [node, "-e", IN_NODE, "--", str(server.port)],
        capture_output=True, text=True, timeout=400, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert [stream["name"] for stream in result["streams"]] == ["CLICKS"]
    assert sorted(row["N"] for row in result["pushed"]) == [3, 4]
    assert result["pulled"]["rows"] == [{"WHO": "ada", "S": 7}]
    assert [row for row in rows_of(result["rows"]) if isinstance(row, list)] == [["ada", 7]]
    assert [table["name"] for table in result["tables"]["tables"]] == ["TOTALS"]
