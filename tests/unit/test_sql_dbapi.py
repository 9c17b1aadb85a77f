"""Connections of PEP 249, a dialect of SQLAlchemy, a command of notebooks: what a server's answers become."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from barnabas import sql
from barnabas.sql.dbapi import filled, literal
from barnabas.sql.magic import run, statements_of

HEADER = b'{"queryId": "q", "columnNames": ["A", "B", "C"], "columnTypes": ["INTEGER", "TIMESTAMP", "DECIMAL(4, 2)"]}\n'
ANSWERS = {
    "/query-stream": HEADER + b"[1, 1000, 1.50]\n[2, null, null]\n",
    "/ksql": b'[{"@type": "tables", "tables": [{"name": "T", "topic": "t"}], "warnings": []}]',
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        refused = "nope" in body
        self.send_response(400 if refused else 200)
        self.end_headers()
        self.wfile.write(b'{"message": "there is no column NOPE"}' if refused else ANSWERS[self.path])

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_rows_have_pythons_types(url: str) -> None:
    with sql.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM t WHERE a = ?", [1])
        assert [column[:2] for column in cursor.description or []] == [
            ("A", "INTEGER"), ("B", "TIMESTAMP"), ("C", "DECIMAL(4, 2)"),
        ]  # fmt: skip
        at = datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)
        assert cursor.fetchone() == (1, at, Decimal("1.50"))
        assert cursor.fetchall() == [(2, None, None)]
        assert cursor.execute("SHOW TABLES").fetchall() == [("T", "t")]


def test_what_the_server_refuses_is_a_programming_error(url: str) -> None:
    cursor = sql.connect(url).cursor()
    with pytest.raises(sql.ProgrammingError, match="there is no column NOPE"):
        cursor.execute("SELECT nope FROM t")
    with pytest.raises(sql.OperationalError, match="no SQL server answers"):
        sql.connect("http://127.0.0.1:1").cursor().execute("SHOW TABLES")
    with pytest.raises(sql.InterfaceError, match="is not a URL"):
        sql.connect("localhost:8088")
    with pytest.raises(sql.InterfaceError, match="has no rows"):
        sql.connect(url).cursor().fetchone()


def test_parameters_are_written_as_values() -> None:
    text = filled("SELECT '?', a FROM t WHERE b = ? AND c = ?", ["it's", None])
    assert text == "SELECT '?', a FROM t WHERE b = 'it''s' AND c = NULL"
    values = [True, 3, 1.5, Decimal("2.50"), b"\x01", [1, "x"], {"k": 1}, datetime.date(2021, 1, 2)]
    assert [literal(value) for value in values] == [
        "TRUE", "3", "1.5E0", "2.50", "TO_BYTES('01', 'hex')", "ARRAY[1, 'x']", "MAP('k' := 1)", "'2021-01-02'",
    ]  # fmt: skip
    for statement, parameters in (("a = ?", []), ("a", [1])):
        with pytest.raises(sql.InterfaceError):
            filled(statement, parameters)
    with pytest.raises(sql.DataError):
        literal(object())


def test_a_cell_of_a_notebook_shows_rows_as_they_come(url: str) -> None:
    shown: list[str] = []

    class Cell:
        def __init__(self, text: str) -> None:
            shown.append(text)

        def update(self, text: str) -> None:
            shown.append(text)

    names, rows, into = run(f"--url {url} --limit 1 --into frame", "SHOW TABLES; SELECT * FROM t;", Cell)
    assert (names, rows[0][0], len(rows), into) == (["A", "B", "C"], 1, 1, "frame")
    assert "<td>1</td>" in shown[-1]
    assert statements_of("SELECT ';' FROM a; SHOW TABLES;") == ["SELECT ';' FROM a", "SHOW TABLES"]


def test_sqlalchemy_reads_tables(url: str) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    from sqlalchemy.dialects import registry

    registry.register("barnabas", "barnabas.sql.alchemy", "Dialect")
    engine = sqlalchemy.create_engine(url.replace("http://", "barnabas://") + "?start=earliest&timeout_s=5")
    with engine.connect() as connection:
        table = sqlalchemy.table("t", sqlalchemy.column("a", sqlalchemy.Integer))
        rows = connection.execute(sqlalchemy.select(table.c.a).where(table.c.a == 1).limit(2)).fetchall()
        assert [row[0] for row in rows] == [1, 2]
    assert set(sqlalchemy.inspect(engine).get_table_names()) == {"t"}
