"""The SQL page over a real server: statements, rows that follow, queries with rates, a query that is ended."""

from __future__ import annotations

import json
import signal
import uuid
from pathlib import Path

import pytest

import requests
from tests.console.conftest import WAIT_S, ConsoleProcess, running
from tests.pipelines.test_server import until
from tests.pipelines.test_sql_server import SqlServer


def test_without_a_server_the_page_says_what_to_start(console: ConsoleProcess) -> None:
    assert "--sql URL" in console.page("/sql", 404)


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_from_a_statement_to_rows_that_follow(bootstrap: str, tmp_path: Path) -> None:
    topic = f"clicks-{uuid.uuid4().hex[:8]}"
    server = SqlServer(tmp_path / "sql", bootstrap)
    server.start()
    try:
        with running(bootstrap, tmp_path / "log", "--sql", f"http://127.0.0.1:{server.port}") as console:
            source = f"kafka_topic='{topic}', value_format='JSON', partitions=1"
            text = f"CREATE STREAM clicks (who VARCHAR KEY, n INT) WITH ({source});"
            text += "CREATE STREAM big AS SELECT who, n * 2 AS twice FROM clicks WHERE n > 2 EMIT CHANGES;"
            answer = console.send("/sql", {"sql": text, "start": "earliest"}, 200).text
            assert "Stream created" in answer
            assert "Created query with ID CSAS_BIG_1" in answer
            for n in (1, 2, 3, 4):
                console.post("/sql", {"sql": f"INSERT INTO clicks (who, n) VALUES ('anna', {n});"})
            refused = console.post("/sql", {"sql": "SELECT m FROM clicks EMIT CHANGES;"}, 400)
            assert "there is no column M" in refused["message"]
            query = {"sql": "SELECT who, twice FROM big EMIT CHANGES LIMIT 2;", "start": "earliest"}
            lines = requests.get(f"{console.api}/sql/search", params=query, timeout=300).text.splitlines()
            events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
            assert [row for one in events for row in one.get("rows", [])] == [["anna", 6], ["anna", 8]]
            assert events[-1]["event"] == "done"

            def lag() -> object:
                [row] = console.data("/sql")["queries"]
                return (row["id"], row["state"], row["lag"]) == ("CSAS_BIG_1", "RUNNING", 0)

            until(lag)
            # A query that nobody reads any more ends on the server.
            with requests.get(
                f"{console.api}/sql/search",
                params={**query, "sql": query["sql"].replace(" LIMIT 2", "")},
                timeout=WAIT_S,
                stream=True,
            ) as following:
                rows = following.iter_lines()
                assert next(rows)
                until(lambda: len(server.call("GET", "/pipelines")[1]) == 2)
            until(lambda: len(server.call("GET", "/pipelines")[1]) == 1)
            console.send("/sql/act", {"query": "CSAS_BIG_1", "action": "terminate"})
            assert console.data("/sql")["queries"] == []
    finally:
        server.stop(signal.SIGKILL)
