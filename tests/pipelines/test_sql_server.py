"""A SQL server through its command, curl's requests and its shell: statements, queries that follow, lookups, and a kill."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from websockets.sync.client import connect

from tests.pipelines.test_server import Server, until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


class SqlServer(Server):
    """`barnabas sql start` in a process of its own."""

    words = ("sql", "start", "--data")

    def statements(self, text: str, **properties: str) -> list[dict]:
        status, answer = self.call(
            "POST", "/ksql", json.dumps({"ksql": text, "streamsProperties": properties})
        )
        assert status == 200, answer
        return answer

    def refused(self, text: str) -> str:
        status, answer = self.call("POST", "/ksql", json.dumps({"ksql": text}))
        assert (status, answer["@type"]) == (400, "statement_error")
        return str(answer["message"])

    def rows(self, text: str, **properties: str) -> list[list]:
        """The rows of a query that ends."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request("POST", "/query-stream", json.dumps({"sql": text, "properties": properties}))
        answer = connection.getresponse()
        lines = [json.loads(line) for line in answer.read().splitlines()]
        connection.close()
        if answer.status != 200:
            return []
        return [line for line in lines[1:] if isinstance(line, list)]

    def shell(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "BARNABAS_SQL": f"http://127.0.0.1:{self.port}"}
        command = [sys.executable, "-m", "barnabas", "sql", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=120, check=False
        )


@pytest.fixture
def server(tmp_path: Path, bootstrap: str) -> Iterator[SqlServer]:
    started = SqlServer(tmp_path / "sql", bootstrap)
    started.start()
    yield started
    started.stop(signal.SIGKILL)


def http2_and_a_websocket(server: SqlServer) -> list[list]:
    """The row that is inserted, as a query through HTTP/2 and one through a WebSocket show it."""
    url, query = f"http://127.0.0.1:{server.port}", "SELECT who, s FROM totals WHERE who = 'dora';"
    with httpx.Client(http1=False, http2=True, timeout=120) as client:
        lines = ['{"target": "clicks"}', '{"who": "dora", "n": 5}', '{"who": "x", "m": 1}']
        acks = client.post(
            f"{url}/inserts-stream", content="\n".join(lines), headers={"accept": "application/json"}
        )
        assert (acks.http_version, [ack["status"] for ack in acks.json()]) == ("HTTP/2", ["ok", "error"])

        def rows() -> list:
            answer = client.post(f"{url}/query-stream", content=json.dumps({"sql": query}))
            return [json.loads(line) for line in answer.text.splitlines()][1:]

        row_lines = until(rows)
    request = quote(json.dumps({"ksql": query}))
    with connect(f"ws://127.0.0.1:{server.port}/ws/query?request={request}") as socket:
        columns, row = list(socket)
    assert [column["name"] for column in json.loads(columns)] == ["WHO", "S"]
    return [*row_lines, json.loads(row)["row"]["columns"]]


EARLIEST = {"auto.offset.reset": "earliest"}


def test_from_the_first_statement_to_a_kill_and_back(server: SqlServer, new_topic) -> None:
    topic = new_topic()
    server.statements(
        f"CREATE STREAM clicks (who VARCHAR KEY, url STRING, n INT) WITH (kafka_topic='{topic}', value_format='JSON');"
    )
    for who, n in (("anna", 1), ("ben", 20), ("anna", 300)):
        server.statements(f"INSERT INTO clicks (who, url, n) VALUES ('{who}', '/', {n});")
    assert "did you mean CLICKS?" in server.refused("CREATE STREAM y AS SELECT * FROM clics;")
    assert "Kafka topic does not exist" in server.refused(
        "CREATE STREAM z (a INT) WITH (kafka_topic='no-such-topic');"
    )
    (answer,) = server.statements(
        f"CREATE TABLE totals WITH (kafka_topic='{topic}-totals') AS SELECT who, COUNT(*) AS c, SUM(n) AS s FROM clicks "
        "GROUP BY who EMIT CHANGES;",
        **EARLIEST,
    )
    query = answer["commandStatus"]["queryId"]

    def totals() -> dict[str, list]:
        return {row[0]: row[1:] for row in server.rows("SELECT * FROM totals;")}

    assert until(lambda: len(totals()) == 2 and totals(), 300) == {"anna": [2, 301], "ben": [1, 20]}
    assert server.rows("SELECT s FROM totals WHERE who = 'anna';") == [[301]]

    # A query that follows: what is there, then what comes; its topic and pipeline are gone afterwards.
    rows: list[list] = []
    follow = "SELECT who, n FROM clicks WHERE n > 5 EMIT CHANGES LIMIT 3;"
    thread = threading.Thread(target=lambda: rows.extend(server.rows(follow, **EARLIEST)))
    thread.start()
    server.statements("INSERT INTO clicks (who, n) VALUES ('carl', 4000);")
    thread.join(300)
    assert sorted(rows) == [["anna", 300], ["ben", 20], ["carl", 4000]]
    until(lambda: [row["name"] for row in server.call("GET", "/pipelines")[1]] == [query])

    until(lambda: "carl" in totals())
    assert http2_and_a_websocket(server) == [["dora", 5], ["dora", 5]]
    until(lambda: "dora" in totals())
    server.stop(signal.SIGKILL)
    server.start()
    assert totals() == {"anna": [2, 301], "ben": [1, 20], "carl": [1, 4000], "dora": [1, 5]}
    server.statements("INSERT INTO clicks (who, n) VALUES ('ben', 1);")
    until(lambda: totals()["ben"] == [2, 21])

    shown = server.shell("--output", "csv", "-e", "SELECT who, s FROM totals WHERE who = 'ben';")
    assert shown.stdout.splitlines() == ["WHO,S", "ben,21"]
    wrong = server.shell("-e", "SELECT * FRM totals;")
    assert (wrong.returncode, wrong.stderr.splitlines()[1:]) == (1, ["SELECT * FRM totals;", "         ^^^"])
    assert f"it is read by {query}" in server.refused("DROP STREAM clicks;")
    server.statements(f"TERMINATE {query}; DROP TABLE totals; DROP STREAM clicks;")
    assert server.statements("SHOW STREAMS;")[0]["streams"] == []
