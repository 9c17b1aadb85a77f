"""Changes of a real MariaDB: snapshot and log, across restarts, and when the log is gone."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from decimal import Decimal

import pytest

pytest.importorskip("pymysqlreplication")

import pymysql

from barnabas.connect.cdc.mysql.ddl import Statement, statement_of
from barnabas.connect.cdc.mysql.source import MariadbSource, MysqlSource
from barnabas.connect.errors import ConnectError, OptionError, RetriableError
from barnabas.connect.plugins import find_plugin
from barnabas.testing.connect import DrivenSource, run_source

NAMES = iter(range(10_000))


class Database:
    """A database of its own per test."""

    def __init__(self, server) -> None:
        self.server, self.name = server, f"inv{next(NAMES)}"
        server.query(f"CREATE DATABASE {self.name}")

    def run(self, *statements: str) -> None:
        """All in one transaction, if they do not end it."""
        self.server.query(f"USE {self.name}", *statements)

    def config(self, **more: str) -> dict[str, str]:
        return {
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": "root",
            "topic.prefix": "m",
            "database.include.list": self.name,
            "include.schema.changes": "false",
            **more,
        }


@pytest.fixture
def database(mariadb) -> Iterator[Database]:
    own = Database(mariadb)
    yield own
    mariadb.query(f"DROP DATABASE {own.name}")


def poll_until(source: DrivenSource, count: int) -> None:
    for _ in range(100):
        if len(source.records) >= count:
            return
        source.poll()
    raise AssertionError(f"{len(source.records)} records, not {count}")


def said(source: DrivenSource) -> list[tuple]:
    """Operation, key and the row after (or None for tombstones) of all records."""
    return [
        ("tombstone", record.key)
        if record.value is None
        else (record.value["op"], record.key, record.value["after"])
        for record in source.records
    ]


PEOPLE = "CREATE TABLE people (id int PRIMARY KEY, name varchar(20))"


def test_rows_then_changes(database):
    database.run(PEOPLE, "INSERT INTO people VALUES (1, 'a'), (2, 'b')")
    with run_source(MariadbSource, database.config(**{"skipped.operations": "none"})) as source:
        poll_until(source, 2)
        database.run("INSERT INTO people VALUES (3, 'c')", "UPDATE people SET name = 'A' WHERE id = 1")
        database.run("UPDATE people SET id = 9 WHERE id = 2", "DELETE FROM people WHERE id = 3")
        database.run("TRUNCATE people")
        poll_until(source, 10)
        assert said(source) == [
            ("r", {"id": 1}, {"id": 1, "name": "a"}),
            ("r", {"id": 2}, {"id": 2, "name": "b"}),
            ("c", {"id": 3}, {"id": 3, "name": "c"}),
            ("u", {"id": 1}, {"id": 1, "name": "A"}),
            ("d", {"id": 2}, None),
            ("tombstone", {"id": 2}),
            ("c", {"id": 9}, {"id": 9, "name": "b"}),
            ("d", {"id": 3}, None),
            ("tombstone", {"id": 3}),
            ("t", None, None),
        ]
        update = source.records[3].value
        assert update["before"] == {"id": 1, "name": "a"}
        assert (update["source"]["connector"], update["source"]["table"]) == ("mariadb", "people")
        assert update["source"]["gtid"].startswith("0-1-")


def test_each_change_once_across_restarts_within_a_transaction(database):
    database.run(PEOPLE)
    with run_source(MariadbSource, database.config(**{"max.batch.size": "3"})) as source:
        source.poll()
        database.run(
            *(f"INSERT INTO people VALUES ({i}, 'x')" for i in range(6)),
            "UPDATE people SET id = 10 WHERE id = 0",
            f"INSERT INTO people VALUES {', '.join(f'({i}, NULL)' for i in range(20, 26))}",
        )
        database.run("INSERT INTO people VALUES (30, 'y')")
        for _ in range(30):
            source.poll(commit=False)
            source.restart()
            source.poll()
            source.restart()
            if len(source.records) >= 16:
                break
        keys = [record.key["id"] for record in source.records if record.value and record.value["op"] == "c"]
        assert keys == [*range(6), 10, *range(20, 26), 30]
        assert len(source.records) == 16


@pytest.mark.soak
def test_no_gap_between_rows_and_changes(database):
    database.run(PEOPLE, f"INSERT INTO people VALUES {', '.join(f'({i}, NULL)' for i in range(300))}")
    go_on = threading.Event()
    written: list[int] = []

    def write() -> None:
        connection = pymysql.connect(
            host="127.0.0.1", port=database.server.port, user="root", database=database.name, autocommit=True
        )
        number = 1000
        with connection, connection.cursor() as cursor:
            while not go_on.is_set():
                cursor.execute("INSERT INTO people VALUES (%s, 'new')", [number])
                written.append(number)
                number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with run_source(MariadbSource, database.config(**{"snapshot.fetch.size": "50"})) as source:
            for _ in range(8):
                source.poll()
            go_on.set()
            writer.join()
            poll_until(source, 300 + len(written))
            assert sorted(record.key["id"] for record in source.records) == [*range(300), *written]
    finally:
        go_on.set()
        writer.join()


def test_an_interrupted_snapshot_goes_on_and_ends_with_the_right_rows(database):
    database.run(PEOPLE, f"INSERT INTO people VALUES {', '.join(f'({i}, NULL)' for i in range(1, 31))}")
    with run_source(MariadbSource, database.config(**{"snapshot.fetch.size": "10"})) as source:
        source.poll()
        database.run("UPDATE people SET name = 'new' WHERE id IN (5, 25)", "DELETE FROM people WHERE id = 26")
        source.restart()
        poll_until(source, 33)
        rows = {}
        for record in source.records:
            rows[record.key["id"]] = record.value and record.value["after"] and record.value["after"]["name"]
        assert rows == {**dict.fromkeys(range(1, 31)), 5: "new", 25: "new"}


def test_changes_of_the_schema(database):
    database.run(PEOPLE)
    with run_source(MariadbSource, database.config(**{"include.schema.changes": "true"})) as source:
        source.poll()
        database.run("INSERT INTO people VALUES (1, 'a')")
        database.run(
            "ALTER TABLE people ADD COLUMN age int NOT NULL DEFAULT 5",
            "INSERT INTO people VALUES (2, 'b', 6)",
        )
        database.run("ALTER TABLE people DROP COLUMN name", "CREATE TABLE late (id int PRIMARY KEY)")
        database.run("INSERT INTO late VALUES (1)", "DROP TABLE late")
        poll_until(source, 7)
        rows = [
            (r.topic.rpartition(".")[2], r.value.get("after"), r.value.get("ddl", "")[:12])
            for r in source.records
        ]
        assert rows == [
            ("people", {"id": 1, "name": "a"}, ""),
            ("m", None, "ALTER TABLE "),
            ("people", {"id": 2, "name": "b", "age": 6}, ""),
            ("m", None, "ALTER TABLE "),
            ("m", None, "CREATE TABLE"),
            ("late", {"id": 1}, ""),
            ("m", None, "DROP TABLE `"),
        ]
        assert source.records[5].key == {"id": 1}
        change = source.records[1]
        assert (change.topic, change.key) == ("m", {"databaseName": database.name})
        (change_of_table,) = change.value["tableChanges"]
        assert (change_of_table["type"], change_of_table["id"]) == ("ALTER", f'"{database.name}"."people"')
        assert change_of_table["table"]["primaryKeyColumnNames"] == ["id"]


def test_values(database):
    database.run(
        "CREATE TABLE k (id int PRIMARY KEY, b bit(5), tu tinyint unsigned, bu bigint unsigned, de decimal(10,2),"
        " bin binary(3),"
        " e enum('a','b'), s set('x','y','z'), y year, ts timestamp(3) NULL, d date, tm time(3), dt datetime(6), u uuid,"
        " j json, tx text, neg time(6))",
        "INSERT INTO k VALUES (1, b'10101', 255, 18446744073709551615, 1.50, x'610000', 'b', 'z,x', 2020,"
        " '2020-01-01 12:00:00.5', '2020-02-29', '-12:13:14.123', '2020-01-01 12:00:00.123456',"
        " 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{\"a\": 1}', 'ü', '-00:00:59.25')",
    )
    options = {"bigint.unsigned.handling.mode": "precise"}
    with run_source(MariadbSource, database.config(**options)) as source:
        poll_until(source, 1)
        database.run("CREATE TABLE copied LIKE k")
        database.run("INSERT INTO copied SELECT * FROM k", "UPDATE copied SET s = ''")
        poll_until(source, 3)
        read, created, updated = (record.value["after"] for record in source.records)
        assert read == created
        assert updated["s"] == ""
        assert read == {
            "id": 1,
            "b": b"\x15",
            "tu": 255,
            "bu": Decimal(18446744073709551615),
            "de": Decimal("1.50"),
            "bin": b"a\0\0",
            "e": "b",
            "s": "x,z",
            "y": 2020,
            "ts": "2020-01-01T12:00:00.500Z",
            "d": 18321,
            "tm": -43994123000,
            "dt": 1577880000123456,
            "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "j": '{"a": 1}',
            "tx": "ü",
            "neg": -59250000,
        }


def purge(database: Database, last: str) -> None:
    """Remove the logs before one. The server keeps those that it still sends to somebody, and notices only after a
    while that a reader has gone."""
    give_up = time.monotonic() + 120
    while True:
        database.server.query(f"PURGE BINARY LOGS TO '{last}'")
        ((first, *_), *_) = database.server.query("SHOW BINARY LOGS")
        if first == last:
            return
        assert time.monotonic() < give_up, f"{first} stays"
        time.sleep(0.1)


def test_a_log_that_was_removed_is_an_error_that_says_what_to_do(database):
    database.run(PEOPLE, "INSERT INTO people VALUES (1, 'a')")
    with run_source(MariadbSource, database.config()) as source:
        poll_until(source, 1)
        source.connector.stop()
        database.run("INSERT INTO people VALUES (2, 'b')")
        for _ in range(3):
            database.server.query("FLUSH BINARY LOGS")
        ((last, _, *_),) = database.server.query("SHOW MASTER STATUS")
        purge(database, last)
        source.restart()
        with pytest.raises(
            ConnectError, match=r"has removed the part of its binary log that comes next .* new snapshot"
        ):
            source.poll()
    options = database.config(**{"snapshot.mode": "when_needed"})
    with run_source(MariadbSource, options, source.offsets) as again:
        poll_until(again, 2)
        database.run("INSERT INTO people VALUES (3, 'c')")
        poll_until(again, 3)
        assert [(op, key["id"]) for op, key, _ in said(again)] == [("r", 1), ("r", 2), ("c", 3)]


def test_a_cut_connection_costs_nothing(database):
    database.run(PEOPLE)
    with run_source(MariadbSource, database.config()) as source:
        source.poll()
        source.poll()
        for number in range(3):
            for row in database.server.query("SHOW PROCESSLIST"):
                if row[4] == "Binlog Dump":
                    database.server.query(f"KILL {row[0]}")
            database.run(f"INSERT INTO people VALUES ({number}, 'x')")
            for _ in range(30):
                try:
                    source.poll()
                except RetriableError:
                    continue
                if len(source.records) > number:
                    break
        assert [record.key["id"] for record in source.records] == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"database.port": "1"}, "mariadb://127.0.0.1:1: connecting: Can't connect"),
        ({"database.password": "wrong"}, "Access denied for user 'root'"),
        ({"database.exclude.list": "x"}, "exclude each other"),
        ({"time.precision.mode": "adaptive"}, "must be one of: adaptive_time_microseconds"),
    ],
)
def test_wrong_options(database, options, message):
    with pytest.raises(OptionError, match=message):
        run_source(MariadbSource, database.config(**options)).__enter__()


def test_settings_that_are_wrong_are_said(database):
    database.server.query("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    try:
        with pytest.raises(
            OptionError, match="binlog_row_metadata is MINIMAL: SET GLOBAL binlog_row_metadata = 'FULL'"
        ):
            run_source(MariadbSource, database.config()).__enter__()
    finally:
        database.server.query("SET GLOBAL binlog_row_metadata = 'FULL'")


def test_statements_are_understood():
    for text, want in (
        ("ALTER TABLE `a b`.t ADD x int", ("ALTER", "a b", "t")),
        ("create /* why */ table if not exists t (id int)", ("CREATE", "db", "t")),
        ("TRUNCATE t", ("TRUNCATE", "db", "t")),
        ("DROP TABLE IF EXISTS `x`.`y` /* generated by server */", ("DROP", "x", "y")),
        ("CREATE UNIQUE INDEX i ON t (a)", ("ALTER", "db", "t")),
        ("DROP DATABASE z", ("DROP", "z", None)),
    ):
        assert statement_of("db", text) == Statement(text, *want)
    assert statement_of("db", "FLUSH TABLES") is None


def test_names():
    for name, cls in (
        ("io.debezium.connector.mysql.MySqlConnector", MysqlSource),
        ("mysql-cdc", MysqlSource),
        ("io.debezium.connector.mariadb.MariaDbConnector", MariadbSource),
        ("mariadb-cdc", MariadbSource),
    ):
        assert find_plugin(name).load() is cls


SIGNALS = "CREATE TABLE signals (id varchar(99) PRIMARY KEY, type varchar(32), data text)"


def asked(database: Database, kind: str, table: str, **more: object) -> str:
    data = {"data-collections": [f"{database.name}.{table}"], "type": "incremental", **more}
    return f"INSERT INTO signals VALUES ('{kind}-{table}-{next(NAMES)}', '{kind}', '{json.dumps(data)}')"


def signalling(database: Database, **more: str) -> dict[str, str]:
    return database.config(
        **{
            "snapshot.mode": "no_data",
            "signal.data.collection": f"{database.name}.signals",
            "incremental.snapshot.chunk.size": "10",
            **more,
        }
    )


def test_a_signal_reads_a_table_again_while_it_changes(database):
    """The last event of each key is the row that is there, whatever changed while chunks were read and across restarts."""
    database.run(
        SIGNALS,
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(20))",
        f"INSERT INTO t VALUES {', '.join(f'({n}, 0)' for n in range(1, 46))}",
    )
    with run_source(MariadbSource, signalling(database)) as source:
        source.poll()
        database.run(asked(database, "execute-snapshot", "t"))
        read: list[int] = []
        for turn in range(1, 40):
            if (
                turn <= 4
            ):  # a row before the chunk that is read, in it, and behind it; a new one, and one that goes
                database.run(
                    f"UPDATE t SET v = 'new {turn}' WHERE id IN ({turn}, {turn * 7 % 45 + 1})",
                    f"DELETE FROM t WHERE id = {46 - turn}",
                    f"INSERT INTO t VALUES ({1000 + turn}, 'late')",
                )
            if turn == 3:
                source.poll(commit=False)
                source.restart()
            source.poll()
            state: dict[int, str] = {}
            for record in source.records:
                if record.value is not None:
                    row = record.value["after"]
                    state |= {} if row is None else {row["id"]: row["v"]}
                    if row is None:
                        state.pop(record.key["id"], None)
            read = [r.key["id"] for r in source.records if r.value is not None and r.value["op"] == "r"]
            offset = json.loads(json.dumps(next(iter(source.offsets.values()))))
            if turn > 4 and "incremental" not in offset:
                break
        assert state == dict(database.server.query(f"SELECT id, v FROM {database.name}.t"))
        assert len(read) == len(set(read)) > 20
        marks = {r.value["source"]["snapshot"] for r in source.records if r.value and r.value["op"] == "r"}
        assert marks == {"incremental"}


def test_a_row_that_changes_while_its_chunk_is_read_is_not_told_as_it_was(database):
    database.run(
        SIGNALS,
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(20))",
        "INSERT INTO t VALUES (1, 'old'), (2, 'old'), (3, 'old'), (4, 'old')",
        """CREATE TRIGGER race BEFORE INSERT ON signals FOR EACH ROW BEGIN IF NEW.type = 'snapshot-window-close' THEN
             UPDATE t SET v = 'raced' WHERE id = 2; DELETE FROM t WHERE id = 3; END IF; END""",
    )
    with run_source(MariadbSource, signalling(database)) as source:
        source.poll()
        database.run(asked(database, "execute-snapshot", "t"))
        records = source.poll_until(5)
        events = [(r.value["op"], r.key["id"]) for r in records if r.value is not None]
        assert events == [("u", 2), ("d", 3), ("r", 1), ("r", 4)]


def test_signals_with_conditions_and_what_cannot_be_read(database, caplog):
    database.run(
        SIGNALS,
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(20))",
        "CREATE TABLE keyless (id int)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    with run_source(MariadbSource, signalling(database)) as source:
        source.poll()
        condition = {"data-collection": f"{database.name}.t", "filter": "id % 2 = 1"}
        database.run(
            asked(database, "execute-snapshot", "keyless"),
            asked(database, "execute-snapshot", "t", **{"additional-conditions": [condition]}),
        )
        assert [record.key["id"] for record in source.poll_until(2)] == [1, 3]
        assert "a table cannot be read" in caplog.text
