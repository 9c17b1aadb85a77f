"""The JDBC source against PostgreSQL, MariaDB and SQLite themselves."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from decimal import Decimal

import pytest

pytest.importorskip("sqlalchemy")

from barnabas.connect.errors import ConnectError, OptionError, RetriableError
from barnabas.connect.jdbc.source import JdbcSource
from barnabas.connect.plugins import find_plugin
from barnabas.testing.connect import run_source
from tests.connect.databases import Database, opened


@pytest.fixture(params=["postgresql", pytest.param("mariadb", marks=pytest.mark.soak), "sqlite"])
def database(request) -> Database:
    return opened(request.param, request)


DRIVERS = "CREATE TABLE driver (id bigint PRIMARY KEY, name varchar(50), last_update timestamp NULL)"


def lesson(database: Database, **more: str) -> dict[str, str]:
    """The lesson's configuration."""
    return {
        "connection.url": database.url,
        "mode": "timestamp",
        "timestamp.column.name": "last_update",
        "table.whitelist": "driver",
        "validate.non.null": "false",
        "topic.prefix": "truckng_",
        **more,
    }


def insert(database: Database, *rows: tuple[int, str, str]) -> None:
    database.query(*(f"INSERT INTO driver VALUES ({i}, '{name}', '{at}')" for i, name, at in rows))


def test_the_lesson(database):
    database.query(DRIVERS)
    insert(
        database,
        (10, "George Vetticaden", "2017-10-02 05:50:52"),
        (11, "Jamie Engesser", "2017-10-02 05:50:53"),
    )
    with run_source(JdbcSource, lesson(database)) as source:
        first = source.poll()
        assert [(record.topic, record.value) for record in first] == [
            (
                "truckng_driver",
                {
                    "id": i,
                    "name": name,
                    "last_update": dt.datetime(2017, 10, 2, 5, 50, second, tzinfo=dt.UTC),
                },
            )
            for i, name, second in ((10, "George Vetticaden", 52), (11, "Jamie Engesser", 53))
        ]
        assert [(field.name, field.schema.type) for field in first[0].value_schema.fields] == [
            ("id", "int64"),
            ("name", "string"),
            ("last_update", "int64"),
        ]
        assert not source.poll()
        database.query(
            "UPDATE driver SET name = 'G. Vetticaden', last_update = '2017-10-02 16:47:08' WHERE id = 10"
        )
        assert [record.value["name"] for record in source.poll()] == ["G. Vetticaden"]
        assert set(source.offsets) == {
            json.dumps({"protocol": "1", "table": database.path.format("driver")}, sort_keys=True)
        }


@pytest.mark.parametrize("key", ["PRIMARY KEY", ""])
def test_rows_of_one_time_are_not_lost_when_a_poll_ends_between_them(database, key):
    database.query(DRIVERS.replace("PRIMARY KEY", key))
    insert(database, *((i, "x", "2020-01-01 00:00:00") for i in range(7)), (7, "y", "2020-01-01 00:00:01"))
    with run_source(JdbcSource, lesson(database, **{"batch.max.rows": "3"})) as source:
        source.poll()
        source.poll(commit=False)
        source.restart()
        while source.poll():
            pass
        assert [record.value["id"] for record in source.records] == list(range(8))


@pytest.mark.parametrize("mode", ["incrementing", "timestamp+incrementing"])
def test_modes_with_a_counter(database, mode):
    database.query(DRIVERS)
    insert(database, *((i, "x", "2020-01-01 00:00:00") for i in (3, 1, 2)))
    options = lesson(database, mode=mode, **{"incrementing.column.name": "id", "batch.max.rows": "2"})
    with run_source(JdbcSource, options) as source:
        assert [record.value["id"] for record in source.poll()] == [1, 2]
        source.restart()
        assert [record.value["id"] for record in source.poll()] == [3]
        source.poll()
        insert(database, (4, "x", "2020-01-01 00:00:00"))
        assert [record.value["id"] for record in source.poll()] == [4]
        database.query("UPDATE driver SET last_update = '2020-01-02 00:00:00' WHERE id = 1")
        again = [record.value["id"] for record in source.poll() + source.poll()]
        assert again == ([1] if "timestamp" in mode else [])


def test_bulk_and_query(database):
    database.query(DRIVERS)
    insert(database, (1, "a", "2020-01-01 00:00:00"), (2, "b", "2020-01-01 00:00:00"))
    bulk = lesson(database, mode="bulk", **{"poll.interval.ms": "0"})
    with run_source(JdbcSource, bulk) as source:
        polls = [[record.value["id"] for record in source.poll()] for _ in range(4)]
        assert polls == [[1, 2], [], [1, 2], []]
        assert source.offsets == {}
    query = lesson(
        database,
        mode="incrementing",
        query="SELECT d.id, d.name AS who FROM driver d WHERE d.name <> 'x'",
        **{"incrementing.column.name": "id", "table.whitelist": "", "topic.prefix": "asked"},
    )
    with run_source(JdbcSource, query) as source:
        assert [(r.topic, r.value) for r in source.poll()] == [
            ("asked", {"id": 1, "who": "a"}),
            ("asked", {"id": 2, "who": "b"}),
        ]
        source.restart()
        assert not source.poll()


def test_chosen_tables_and_new_ones(database):
    database.query("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)")
    common = {
        "connection.url": database.url,
        "mode": "incrementing",
        "topic.prefix": "",
        "schema.pattern": "jdbc",
    }
    with run_source(JdbcSource, {**common, "table.blacklist": "b"}) as source:
        names = [partition["table"] for partition in source.connector.partitions()]
        assert names == [database.path.format("a")]
        database.query("CREATE TABLE c (id int PRIMARY KEY)")
        names = [partition["table"] for partition in source.connector.partitions()]
        assert names == [database.path.format("a"), database.path.format("c")]


@pytest.mark.parametrize(
    ("mapping", "want"),
    [
        ("none", [Decimal("1.50"), Decimal(7)]),
        ("precision_only", [Decimal("1.50"), 7]),
        ("best_fit", [1.5, 7]),
        ("best_fit_eager_double", [1.5, 7]),
    ],
)
def test_numeric_mapping(database, mapping, want):
    database.query(
        "CREATE TABLE n (id int PRIMARY KEY, price decimal(10,2) NOT NULL, pieces decimal(8,0) NOT NULL)",
        "INSERT INTO n VALUES (1, 1.50, 7)",
    )
    options = {"connection.url": database.url, "mode": "bulk", "topic.prefix": "", "table.whitelist": "n"}
    with run_source(JdbcSource, {**options, "numeric.mapping": mapping}) as source:
        (record,) = source.poll()
        assert [record.value["price"], record.value["pieces"]] == want
        assert not any(field.schema.optional for field in record.value_schema.fields[1:])


def test_types_of_postgres(postgres):
    postgres.query(
        "DROP TABLE IF EXISTS kinds; CREATE TABLE kinds (b bool, s smallint, r real, n numeric, j jsonb, u uuid, "
        "a int[], d date, t time, z timestamptz, y bytea, e inet, i interval)"
    )
    postgres.query(
        """INSERT INTO kinds VALUES (true, -1, 1.5, 1.25, '{"a": 1}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
        '{1,null}', '2020-02-29', '12:13:14', '2020-01-01 12:00+02', '\\xff00', '10.0.0.1', '1 day')"""
    )
    url = f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres"
    options = {
        "connection.url": url,
        "connection.user": "me",
        "mode": "bulk",
        "topic.prefix": "",
        "table.whitelist": "kinds",
    }
    with run_source(JdbcSource, options) as source:
        (record,) = source.poll()
    assert record.value == {
        "b": True,
        "s": -1,
        "r": 1.5,
        "n": Decimal("1.25"),
        "j": '{"a": 1}',
        "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "a": [1, None],
        "d": dt.date(2020, 2, 29),
        "t": dt.time(12, 13, 14),
        "z": dt.datetime(2020, 1, 1, 10, tzinfo=dt.UTC),
        "y": b"\xff\x00",
        "e": "10.0.0.1",
        "i": "1 day",
    }


def test_what_is_wrong_is_said(database):
    database.query(DRIVERS)
    with pytest.raises(OptionError, match=r"timestamp.column.name is needed"):
        run_source(JdbcSource, lesson(database, **{"timestamp.column.name": ""})).__enter__()
    with (
        run_source(JdbcSource, lesson(database, **{"timestamp.column.name": "changed"})) as source,
        pytest.raises(ConnectError, match="has no column changed; its columns are id, name, last_update"),
    ):
        source.poll()
    with (
        run_source(JdbcSource, lesson(database, **{"validate.non.null": "true"})) as source,
        pytest.raises(
            ConnectError, match=r"last_update of .* may be null, .* set validate.non.null to false"
        ),
    ):
        source.poll()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("jdbc:oracle:thin:@db", "no dialect for jdbc:oracle; there are jdbc:postgresql"),
        ("db.example", "neither jdbc:KIND://host:port/database nor a URL"),
        (
            "jdbc:postgresql://127.0.0.1:1/x?user=me&password=secret",
            r"me:\*\*\*@127.0.0.1:1/x cannot be opened",
        ),
        ("jdbc:mysql://127.0.0.1:1/x?user=me&password=secret", r"me:\*\*\*@127.0.0.1:1/x cannot be opened"),
    ],
)
def test_wrong_addresses(url, message):
    options = {"connection.url": url, "mode": "bulk", "topic.prefix": ""}
    with pytest.raises(OptionError, match=message) as caught:
        run_source(JdbcSource, options).__enter__()
    assert "secret" not in str(caught.value)
    assert caught.value.option == "connection.url"


def test_a_database_that_goes_away_is_asked_again_later(database):
    if database.kind == "sqlite":
        pytest.skip("a file does not go away")
    database.query(DRIVERS)
    insert(database, *((i, "x", "2020-01-01 00:00:00") for i in range(5)))
    with run_source(JdbcSource, lesson(database, **{"batch.max.rows": "2"})) as source:
        source.poll()
        running = next(iter(source.connector._running.values()))
        if database.kind == "mariadb":
            database.query(f"KILL {running.connection.connection.driver_connection.thread_id()}")
        else:
            pid = running.connection.connection.driver_connection.info.backend_pid
            database.query(f"SELECT pg_terminate_backend({pid})")
        for _ in range(3):
            with contextlib.suppress(RetriableError):
                source.poll()
        assert [record.value["id"] for record in source.records] == list(range(5))


def test_names():
    for name in (
        "io.confluent.connect.jdbc.JdbcSourceConnector",
        "JdbcSourceConnector",
        "JdbcSource",
        "jdbc-source",
    ):
        assert find_plugin(name).load() is JdbcSource
