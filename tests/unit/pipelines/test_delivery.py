"""Targets without Spark: what goes over the wire, what is retried, what comes back as refused."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
import threading
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pytest
import sqlalchemy as sa

from barnabas.pipelines.databases.rows import Store
from barnabas.pipelines.entries.document import from_python
from barnabas.pipelines.kinds.targets import TARGETS
from barnabas.pipelines.kinds.targets.base import DeliveryError, Refused, Task
from barnabas.pipelines.kinds.targets.database import named
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.spark.frame import DELETED, RECORD_COLUMNS
from barnabas.pipelines.spark.outgoing import DOCUMENT, IDENTITY

TASK = Task("p.q", 7, 0)


class StandIn:
    """A server that answers as it is told and keeps what it was sent: (method, path, body)."""

    def __init__(self, answer):
        self.requests: list[tuple[str, str, bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                outer.requests.append((self.command, self.path, body))
                status, text = answer(self.command, self.path, body)
                payload = text.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            do_POST = do_GET

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def stand_in():
    servers = []

    def make(answer):
        servers.append(StandIn(answer))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


def array_of(values):
    """As Spark would send them: what Arrow has no type for as text."""
    try:
        return pa.array(values)
    except (OverflowError, pa.ArrowException):
        whole = all(value is None or isinstance(value, int) for value in values)
        return pa.array(values, pa.decimal128(38, 0)) if whole else pa.array([str(value) for value in values])


def batch_of(*documents, ids=None, gone=None):
    """Rows as a task gets them: record columns, error, document, identity, then the fields; and which are deletes."""
    count = len(documents)
    columns = {name: pa.array([None] * count, pa.binary()) for name in RECORD_COLUMNS}
    kind = pa.struct([("step", pa.string()), ("reason", pa.string()), ("output", pa.string())])
    columns["_error"] = pa.array([None] * count, kind)
    columns[DOCUMENT] = pa.array([json.dumps(d, default=str) for d in documents])
    columns[IDENTITY] = pa.array(ids or [f"t-0-{i}" for i in range(count)])
    for name in documents[0]:
        columns[name] = array_of([d.get(name) for d in documents])
    if gone is not None:
        columns[DELETED] = pa.array([i in gone for i in range(count)])
    return pa.record_batch(columns)


def options_of(kind, **options):
    return TARGETS[kind].check(from_python(options, "f:1", kind))


def deliver(kind, options, *batches, task=TASK):
    return [refused for _, refused in TARGETS[kind].deliver(options, task, iter(batches))]


# --- Elasticsearch --------------------------------------------------------------------------------


def test_bulk_with_refused_and_busy_items(stand_in):
    busy = iter([True])

    def answer(method, path, body):
        if path == "/":
            return 200, "{}"
        items = []
        for line in body.splitlines()[::2]:
            identity = json.loads(line)["index"]["_id"]
            if identity == "t-0-1":
                error = {
                    "type": "mapper_parsing_exception",
                    "reason": "failed to parse",
                    "caused_by": {"reason": "x"},
                }
                items.append({"index": {"status": 400, "error": error}})
            elif identity == "t-0-2" and next(busy, False):
                items.append({"index": {"status": 429, "error": {"type": "rejected"}}})
            else:
                items.append({"index": {"status": 201}})
        return 200, json.dumps({"errors": True, "items": items})

    server = stand_in(answer)
    options = options_of("elasticsearch", url=server.url, index="logs")
    TARGETS["elasticsearch"].reach(options)
    refused = deliver("elasticsearch", options, batch_of({"a": 1}, {"a": 2}, {"a": 3}))
    assert refused == [[Refused(1, "mapper_parsing_exception: failed to parse (x)")]]
    first, second = [body for method, path, body in server.requests if path == "/_bulk"]
    assert first.splitlines()[:2] == [b'{"index": {"_index": "logs", "_id": "t-0-0"}}', b'{"a": 1}']
    assert len(second.splitlines()) == 2


def test_overload_is_retried_and_then_fails_the_task(stand_in):
    answers = iter([(503, "later"), (429, "later"), (200, '{"items": [{"index": {"status": 201}}]}')])
    server = stand_in(lambda *_: next(answers, (503, "down")))
    options = options_of("elasticsearch", url=server.url, index="logs", deadline_s=1)
    assert deliver("elasticsearch", options, batch_of({"a": 1})) == [[]]
    with pytest.raises(DeliveryError, match=r"127.0.0.1:\d+ answered 503: down"):
        deliver("elasticsearch", options, batch_of({"a": 1}))


def test_a_server_that_is_not_there():
    options = options_of("elasticsearch", url="http://user:secret@127.0.0.1:1", index="logs")
    with pytest.raises(
        PipelineError, match=r"elasticsearch: http://127\.0\.0\.1:1 does not answer"
    ) as caught:
        TARGETS["elasticsearch"].reach(options)
    assert "secret" not in str(caught.value)


# --- ClickHouse -----------------------------------------------------------------------------------


def test_clickhouse_takes_out_bad_rows(stand_in):
    def answer(method, path, body):
        if method == "GET":
            return 200, "a Int32"
        for number, line in enumerate(body.splitlines(), 1):
            if not isinstance(json.loads(line)["a"], int):
                return 400, f"Code: 27. Cannot parse input: expected number: (at row {number})"
        return 200, ""

    server = stand_in(answer)
    options = options_of("clickhouse", url=server.url, table="db.t")
    TARGETS["clickhouse"].reach(options)
    batch = batch_of({"a": 1}, {"a": 2}, {"a": 3})
    bad = pa.array([json.dumps({"a": v}) for v in (1, "x", 3)])
    batch = batch.set_column(batch.schema.get_field_index(DOCUMENT), DOCUMENT, bad)
    ((refused,),) = deliver("clickhouse", options, batch)
    assert refused.row == 1
    posts = [(path, body) for method, path, body in server.requests if method == "POST"]
    assert posts[-1][1] == b'{"a": 1}\n{"a": 3}\n'
    first, second = [re.search("insert_deduplication_token=([^&]*)", path)[1] for path, _ in posts]
    assert [token.startswith("p.q-7-0-0-") for token in (first, second)] == [True, True]
    assert first != second
    deliver("clickhouse", options, batch)
    again = [path for method, path, _ in server.requests if method == "POST"][2:]
    assert again == [path for path, _ in posts]  # the same records are the same inserts


@pytest.mark.parametrize(
    ("problem", "row"),
    [
        ("Code: 27. DB::Exception: Cannot parse input: before: '(at row 1)\"}': (at row 2)\n: While", 2),
        ("Code: 469. DB::Exception: Constraint `c` for table db.t is violated at row 3. Expression: "
         "(a < 10). Column values: a = 'is violated at row 1.'. (VIOLATED_CONSTRAINT)", 3),
    ],
)  # fmt: skip
def test_clickhouse_quotes_rows_in_its_errors(stand_in, problem, row):
    answers = iter([(400, problem), (200, "")])
    server = stand_in(lambda *_: next(answers))
    options = options_of("clickhouse", url=server.url, table="t")
    ((refused,),) = deliver("clickhouse", options, batch_of({"a": 1}, {"a": 2}, {"a": 3}))
    assert refused.row == row - 1


def test_clickhouse_without_its_table(stand_in):
    server = stand_in(lambda *_: (404, "Table db.t does not exist"))
    with pytest.raises(PipelineError, match=r"clickhouse: http://\S+ answered: Table db\.t does not exist"):
        TARGETS["clickhouse"].reach(options_of("clickhouse", url=server.url, table="db.t"))


def test_deletes_of_documents(stand_in):
    """A document that is gone already is no error; a delete without an id is refused."""
    status = {"index": 201, "delete": 404}

    def answer(method, path, body):
        actions = [json.loads(line) for line in body.splitlines()]
        kinds = [next(iter(a)) for a in actions if next(iter(a)) in status]
        return 200, json.dumps({"items": [{kind: {"status": status[kind]}} for kind in kinds]})

    server = stand_in(answer)
    options = options_of("elasticsearch", url=server.url, index="i", id="name")
    batch = batch_of({"name": "a"}, {"name": "b"}, {"name": None}, ids=["a", "b", None], gone={1, 2})
    assert deliver("elasticsearch", options, batch) == [
        [Refused(2, "a delete needs the document's id, and name is null")]
    ]
    (request,) = server.requests
    assert [json.loads(line) for line in request[2].splitlines()] == [
        {"index": {"_index": "i", "_id": "a"}},
        {"name": "a"},
        {"delete": {"_index": "i", "_id": "b"}},
    ]


# --- databases ------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path):
    path = str(tmp_path / "out.db")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
        connection.execute("CREATE TABLE plain (id INTEGER, name TEXT NOT NULL)")
    return path


def rows_in(path, table):
    with sqlite3.connect(path) as connection:
        return connection.execute(f"SELECT id, name FROM {table} ORDER BY id").fetchall()


def test_upsert_by_key(database):
    options = options_of("database", driver="sqlite3", connect={"database": database}, table="t", key=["id"])
    TARGETS["database"].reach(options)
    batch = batch_of({"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 1, "name": "b"})
    for _ in range(2):
        assert deliver("database", options, batch) == [[Refused(1, "NOT NULL constraint failed: t.name")]]
    assert rows_in(database, "t") == [(1, "b")]


def test_deletes_by_key_keep_their_place_among_the_rows(database):
    options = options_of("database", driver="sqlite3", connect={"database": database}, table="t", key=["id"])
    rows = [
        (1, "a"),
        (2, "b"),
        (1, None),
        (3, "c"),
        (2, None),
        (2, "again"),
        (None, None),
        (9, None),
        (4, None),
    ]
    batch = batch_of(*[{"id": i, "name": name} for i, name in rows], gone={2, 4, 6, 7})
    for _ in range(2):
        assert deliver("database", options, batch) == [
            [
                Refused(6, "a delete needs its key, and id is null"),
                Refused(8, "NOT NULL constraint failed: t.name"),
            ]
        ]
        assert rows_in(database, "t") == [(2, "again"), (3, "c")]
    unknown = batch_of({"name": "x"}, gone={0})
    assert deliver("database", options, unknown) == [[Refused(0, "a delete needs its key, and id is null")]]


def test_rows_without_a_key_are_added_once(database):
    options = options_of("database", driver="sqlite3", connect={"database": database}, table="plain")
    TARGETS["database"].reach(options)
    batch = batch_of({"id": 1, "name": "a"})
    for task in (TASK, TASK, Task("p.q", 8, 0)):
        assert deliver("database", options, batch, task=task) == [[]]
    assert rows_in(database, "plain") == [(1, "a"), (1, "a")]


def test_what_was_refused_is_refused_again_when_the_batch_is_repeated(database):
    """The dead letters are written after the table's transaction, so the process may end in between."""
    options = options_of("database", driver="sqlite3", connect={"database": database}, table="plain")
    TARGETS["database"].reach(options)
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 3, "name": "c"}, {"id": 4, "name": None}]
    batches = [batch_of(*rows[:1]), batch_of(*rows[1:])]
    bad = "NOT NULL constraint failed: plain.name"
    for _ in range(3):
        assert deliver("database", options, *batches) == [[], [Refused(0, bad), Refused(2, bad)]]
    assert deliver("database", options, batch_of(*rows)) == [[Refused(1, bad), Refused(3, bad)]], (
        "cut otherwise"
    )
    assert deliver("database", options, batch_of(rows[0]), task=Task("p.q", 8, 0)) == [[]]
    assert rows_in(database, "plain") == [(1, "a"), (1, "a"), (3, "c")]
    with sqlite3.connect(database) as connection:
        assert not connection.execute("SELECT * FROM barnabas_refusals").fetchall(), "of the batch before"


def test_a_database_that_refuses(database):
    options = options_of("database", driver="sqlite3", connect={"database": database}, table="absent")
    with pytest.raises(PipelineError, match="database: no such table: absent"):
        TARGETS["database"].reach(options)
    options = options_of("database", driver="sqlite3", connect={"database": database}, table="t", key=["idd"])
    with pytest.raises(PipelineError, match="table t has no column 'idd'; did you mean 'id'"):
        TARGETS["database"].reach(options)


def test_names_decimals_and_what_does_not_fit(tmp_path):
    """Names that SQL keeps for itself or that have capitals, values that SQLite has no type for."""
    path = str(tmp_path / "out.db")
    with sqlite3.connect(path) as connection:
        connection.execute(
            'CREATE TABLE "group" ("order" INTEGER PRIMARY KEY, "createdAt" TEXT, price NUMERIC)'
        )
    for key, table in ([["order"], "group"], [[], "GROUP"]):
        options = options_of("database", url=f"sqlite:///{path}", table=table, key=key)
        TARGETS["database"].reach(options)
        first = 1 if key else 10
        rows = [{"order": first + i, "createdAt": "x", "Price": Decimal("12.50")} for i in range(3)]
        rows += [{"order": 1 << 70, "createdAt": "y", "Price": None}, {**rows[0], "createdAt": "z"}]
        (refused,) = deliver("database", options, batch_of(*rows), task=Task("q", 1, 0, table))
        assert [r.row for r in refused] == ([3] if key else [3, 4])
    with sqlite3.connect(path) as connection:
        rows_stored = connection.execute(
            'SELECT "order", "createdAt", price FROM "group" ORDER BY 1'
        ).fetchall()
    assert rows_stored == [
        (1, "z", 12.5), (2, "x", 12.5), (3, "x", 12.5), (10, "x", 12.5), (11, "x", 12.5), (12, "x", 12.5),
    ]  # fmt: skip
    options = options_of("database", url=f"sqlite:///{path}", table="group")
    with pytest.raises(DeliveryError, match="table group has no column 'nope' for field nope"):
        deliver("database", options, batch_of({"nope": 1}), task=Task("q", 2, 0, "x"))


def test_open_fields_go_to_the_columns_that_there_are(database):
    options = options_of("database", url=f"sqlite:///{database}", table="t", key=["id"])
    documents = [{"id": 1, "name": "a"}, {"id": "2", "name": {"x": 1.50}}, {"id": "x"}, {"id": 3, "more": 1}]
    batch = batch_of(*documents).select(range(len(RECORD_COLUMNS) + 3))
    task = Task("q", 1, 0, "i", open=True)
    reasons = [
        (r.row, r.reason) for refused in deliver("database", options, batch, task=task) for r in refused
    ]
    assert reasons == [(2, "id is x, not int"), (3, "table t has no column for field more")]
    assert rows_in(database, "t") == [(1, "a"), (2, '{"x": 1.5}')]
    ignoring = options_of("database", url=f"sqlite:///{database}", table="t", key=["id"], others="ignore")
    (refused,) = deliver("database", ignoring, batch_of({"id": 4, "name": "n", "more": 1}), task=task)
    assert refused == []
    assert rows_in(database, "t")[-1] == (4, "n")


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("elasticsearch", {"url": "host:9200", "index": "x"}, "is not a URL like http://host:9200"),
        ("elasticsearch", {"url": "http://h", "index": "Up"}, "index is 'Up'; an index name is lower case"),
        ("clickhouse", {"url": "http://h", "table": "a b"}, "table is 'a b', not a name"),
        ("database", {"table": "t"}, "database needs one of url"),
        (
            "database",
            {"table": "t", "driver": "nosuchdriver"},
            "the driver is 'nosuchdriver'; allowed: MySQLdb",
        ),
        ("database", {"table": "t", "driver": "json"}, "the driver is 'json'"),
        ("database", {"table": "t", "jdbc": "x", "key": ["a"]}, "key does not go with jdbc"),
        ("files", {"path": "x", "format": "xls"}, "format is 'xls'; allowed: csv, delta, json"),
        ("files", {"path": "x", "merge": {"files": 1}}, "is 1, not a number from 2 up"),
        ("console", {"lines": 3}, "console has no entry 'lines'"),
    ],
)
def test_what_is_refused(kind, options, message):
    with pytest.raises(PipelineError) as caught:
        options_of(kind, **options)
    assert message in str(caught.value)


def test_a_table_is_found_by_its_exact_name_first(tmp_path):
    """PostgreSQL may have accounts beside "Accounts"; SQLite has no two names that differ just in case."""
    assert named(["Accounts", "accounts"], "accounts") == "accounts"
    assert named(["Accounts", "x"], "accounts") == "Accounts"
    assert named(["Accounts", "ACCOUNTS"], "accounts") is None


def test_times_that_no_database_has_are_refused_one_by_one(tmp_path):
    """Milliseconds that were read as seconds are times after the year 9999, which stopped the whole output."""
    path = str(tmp_path / "out.db")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, at TEXT, day TEXT)")
    options = options_of("database", driver="sqlite3", connect={"database": path}, table="events", key=["id"])
    batch = batch_of({"id": 1}, {"id": 2}, {"id": 3})
    batch = batch.append_column(
        "at", pa.array([0, 1_700_000_000_000 * 1_000_000, None], pa.timestamp("us", "UTC"))
    )
    batch = batch.append_column("day", pa.array([0, 1, 2**31 - 1], pa.int32()).cast(pa.date32()))
    ((first, second),) = deliver("database", options, batch)
    assert (first.row, second.row) == (1, 2)
    assert first.reason.startswith("at: the time is outside of the years 1 to 9999")
    assert second.reason.startswith("day: the time is outside of the years 1 to 9999")
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT id FROM events").fetchall() == [(1,)]


class Deadlock(Exception):
    sqlstate = "40P01"


def test_a_transaction_that_ends_in_a_deadlock_is_repeated_with_all_its_rows(database, monkeypatch):
    options = options_of("database", driver="sqlite3", connect={"database": database}, table="plain")
    TARGETS["database"].reach(options)
    failures = [sa.exc.OperationalError("INSERT", None, Deadlock()) for _ in range(2)]
    add = Store.add

    def add_or_fail(self, columns, rows):
        if rows[0][0] == 2 and failures:
            raise failures.pop()
        return add(self, columns, rows)

    monkeypatch.setattr(Store, "add", add_or_fail)
    batches = [batch_of({"id": 1, "name": "a"}), batch_of({"id": 2, "name": "b"})]
    assert deliver("database", options, *batches) == [[], []]
    assert rows_in(database, "plain") == [(1, "a"), (2, "b")]
