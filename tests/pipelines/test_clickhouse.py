"""Deliveries to a real ClickHouse engine (26.x): chdb, embedded, behind a stand-in of ClickHouse's HTTP interface.

The engine reads, refuses, deduplicates and stores; HTTP, the password and 503 are the stand-in's
(clickhouse_server.py). chdb-core is 180 MB, so no extra of ours brings it: pip install chdb-core.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.run import run_pipeline
from tests.pipelines.conftest import records_of, send
from tests.support.process import free_port

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        importlib.util.find_spec("chdb") is None,
        reason="no ClickHouse engine: pip install chdb-core (180 MB)",
    ),
]
DEDUPLICATED = "ENGINE = MergeTree ORDER BY tuple() SETTINGS non_replicated_deduplication_window = 100"


class ClickHouse:
    """The engine over a folder of its own, asked through the same HTTP as by the deliveries."""

    def __init__(self, folder: Path) -> None:
        self.place = f"127.0.0.1:{free_port()}"
        self.url = f"http://me:secret@{self.place}"
        program = Path(__file__).with_name("clickhouse_server.py")
        with (folder / "log").open("wb") as log:
            command = [sys.executable, str(program), self.place.rpartition(":")[2], str(folder / "data")]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        give_up = time.monotonic() + 120
        while True:
            try:
                self.asked()
                return
            except OSError:
                ended = self.process.poll() is not None or time.monotonic() > give_up
                assert not ended, (folder / "log").read_text()
                time.sleep(0.05)

    def _call(self, path: str, method: str) -> bytes:
        login = {"Authorization": "Basic " + base64.b64encode(b"me:secret").decode()}
        body = b"" if method == "POST" else None
        with urlopen(
            Request(f"http://{self.place}{path}", body, login, method=method), timeout=120
        ) as answer:
            content: bytes = answer.read()
            return content

    def query(self, sql: str) -> list[dict[str, Any]]:
        return [json.loads(row) for row in self._call("/?query=" + quote(sql), "POST").splitlines()]

    def asked(self) -> list[dict[str, Any]]:
        asked_queries: list[dict[str, Any]] = json.loads(self._call("/stand-in", "GET"))
        return asked_queries

    def be_busy(self, times: int) -> None:
        self._call(f"/stand-in?busy={times}", "PUT")


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouse]:
    server = ClickHouse(tmp_path_factory.mktemp("clickhouse"))
    server.query("CREATE DATABASE db")
    yield server
    server.process.kill()
    server.process.wait()


@pytest.fixture
def run(bootstrap: str, tmp_path: Path, clickhouse: ClickHouse):
    """Runs a pipeline from a topic of JSON to tables: run(topic, types, table, ...)."""

    def start(topic: str, types: str, *tables: str, checkpoints: str = "a", url: str = clickhouse.url):
        outputs = "".join(
            f'  - {{name: {table.replace(".", "-")}, clickhouse: {{url: "{url}", table: {table}}}}}\n'
            for table in tables
        )
        text = f"pipeline: {topic}\nsource: {{topic: {topic}}}\nsteps: [parse: {{json: {{{types}}}}}]\n"
        spec = parse_spec(f"{text}outputs:\n{outputs}", "p.yaml")
        return run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path / checkpoints)

    return start


TYPES = {  # a field: Spark's type, ClickHouse's type, what is sent, what is found
    "small": ("smallint", "Int16", -7, -7),
    "number": ("int", "Int32", 2**31 - 1, 2**31 - 1),
    "big": ("bigint", "Int64", -(2**63), -(2**63)),
    "ratio": ("double", "Float64", 0.1, 0.1),
    "single": ("float", "Float32", 1.5, 1.5),
    "ok": ("boolean", "Bool", True, True),
    "amount": ("decimal(20,2)", "Decimal(20, 2)", 123456789012345678.25, "123456789012345678.25"),
    "day": ("date", "Date", "2024-02-29", "2024-02-29"),
    "at": ("timestamp", "DateTime64(3, 'UTC')", "2024-02-29T12:00:00.123Z", "2024-02-29 12:00:00.123"),
    "text": ("string", "String", 'zwölf "\\" \n 12', 'zwölf "\\" \n 12'),
    "none": ("string", "Nullable(String)", None, None),
    "raw": ("binary", "String", "AP8=", "AP8="),
    "tags": ("array<string>", "Array(String)", ["a", "b"], ["a", "b"]),
    "inner": ("struct<k:int,v:string>", "Tuple(k Int32, v String)", {"k": 1, "v": "x"}, {"k": 1, "v": "x"}),
    "counts": ("map<string,int>", "Map(String, Int32)", {"a": 1}, {"a": 1}),
    "any": ("variant", "String", {"deep": [1, 2]}, '{"deep":[1,2]}'),
    "kept": ("struct<k:int>", "String", {"k": 1}, '{"k":1}'),
}


def test_all_types_and_a_repeated_batch(spark, client, new_topic, clickhouse, run):
    topic = new_topic(1)
    columns = ", ".join(f"{name} {row[1]}" for name, row in TYPES.items())
    clickhouse.query(f"CREATE TABLE db.types ({columns}) {DEDUPLICATED}")
    clickhouse.query("CREATE TABLE plain (number Int32) ENGINE = MergeTree ORDER BY number")
    clickhouse.query("CREATE TABLE newest (number Int32) ENGINE = ReplacingMergeTree ORDER BY number")
    types = ", ".join(f'{name}: "{row[0]}"' for name, row in TYPES.items())
    sent = json.dumps({name: row[2] for name, row in TYPES.items()}).replace(
        "1.2345678901234568e+17", "123456789012345678.25"
    )
    send(client, topic, [sent.encode()])
    tables = ("db.types", "plain", "newest")
    run(topic, types, *tables)
    expected = {name: row[3] for name, row in TYPES.items()}
    query = "SELECT * FROM db.types SETTINGS output_format_json_quote_decimals = 1"
    assert clickhouse.query(query) == [expected]
    run(topic, types, *tables, checkpoints="the same batch once more")
    assert clickhouse.query(query) == [expected]
    assert len(clickhouse.query("SELECT * FROM plain")) == 2
    assert len(clickhouse.query("SELECT * FROM newest FINAL")) == 1
    inserts = [asked["settings"] for asked in clickhouse.asked() if "async_insert" in asked["settings"]]
    assert len({settings["insert_deduplication_token"] for settings in inserts}) == len(inserts) / 2 == 3
    assert {settings["async_insert"] for settings in inserts} == {"0"}


def test_rows_that_do_not_fit_are_dead_letters(spark, client, new_topic, clickhouse, run):
    topic = new_topic(1)
    clickhouse.query(f"CREATE TABLE fit (n Int32, s String, CONSTRAINT low CHECK n < 10) {DEDUPLICATED}")
    values = [b'{"n": 1}', b'{"n": "(at row 1)"}', b'{"n": 50, "s": "is violated at row 1."}', b'{"n": 4}']
    send(client, topic, values)
    run(topic, "n: variant, s: string", "fit")
    dead = {
        row["value"]: {h["key"]: h["value"].decode() for h in row["headers"]}
        for row in records_of(client, f"{topic}-dead-letters")
    }
    assert {row["n"] for row in clickhouse.query("SELECT n FROM fit")} == {1, 4}
    assert set(dead) == {values[1], values[2]}
    assert {headers["barnabas.step"] for headers in dead.values()} == {"deliver clickhouse"}
    assert "(at row 2)" in dead[values[1]]["barnabas.reason"]
    assert "Constraint `low` for table" in dead[values[2]]["barnabas.reason"]
    run(topic, "n: variant, s: string", "fit", checkpoints="once more")
    assert sorted(row["n"] for row in clickhouse.query("SELECT n FROM fit")) == [1, 4]


def test_a_refused_batch_is_not_passed_over(spark, client, new_topic, clickhouse, run):
    topic = new_topic(1)
    clickhouse.query("CREATE VIEW later AS SELECT 1 AS n")
    send(client, topic, [b'{"n": 1}', b'{"n": 2}'])
    for _ in range(2):
        with pytest.raises(PipelineError) as caught:
            run(topic, "n: int", "later")
        problem = str(caught.value)
        assert f"http://{clickhouse.place} answered 501: Code: 48. DB::Exception:" in problem
        assert "\n" not in problem
        assert "secret" not in problem
    send(client, topic, [b'{"n": 3}'])
    clickhouse.query("DROP VIEW later")
    clickhouse.query(f"CREATE TABLE later (n Int32) {DEDUPLICATED}")
    run(topic, "n: int", "later")
    assert sorted(row["n"] for row in clickhouse.query("SELECT n FROM later")) == [1, 2, 3]


def test_wrong_password_and_unknown_table(spark, client, new_topic, clickhouse, run):
    topic = new_topic(1)
    wrong = clickhouse.url.replace("secret", "guessed")
    with pytest.raises(
        PipelineError, match=r"clickhouse: http://\S+ answered: .*Authentication failed"
    ) as caught:
        run(topic, "n: int", "db.types", url=wrong)
    assert "guessed" not in str(caught.value)
    with pytest.raises(
        PipelineError, match=r"clickhouse: http://\S+ answered: .*Table db.none does not exist"
    ):
        run(topic, "n: int", "db.none")
    with pytest.raises(
        PipelineError, match=r"clickhouse: http://\S+ answered: .*Database none does not exist"
    ):
        run(topic, "n: int", "none.t")


def test_a_busy_server_is_asked_again(spark, client, new_topic, clickhouse, run):
    topic = new_topic(1)
    clickhouse.query(f"CREATE TABLE busy (n Int32) {DEDUPLICATED}")
    send(client, topic, [b'{"n": 1}', b'{"n": 2}'])
    before = len(clickhouse.asked())
    clickhouse.be_busy(3)
    run(topic, "n: int", "busy")
    statuses = [asked["status"] for asked in clickhouse.asked()[before:]]
    assert statuses == [503, 503, 503, 200, 200]
    assert sorted(row["n"] for row in clickhouse.query("SELECT n FROM busy")) == [1, 2]
