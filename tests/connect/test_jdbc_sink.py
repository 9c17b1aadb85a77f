"""The JDBC sink into PostgreSQL, MariaDB and SQLite themselves."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

pytest.importorskip("sqlalchemy")

from barnabas.connect.errors import ConnectError, OptionError, RetriableError
from barnabas.connect.jdbc.sink import JdbcSink
from barnabas.connect.plugins import find_plugin
from barnabas.connect.schemas import (
    BOOLEAN,
    BYTES,
    DATE_SCHEMA,
    FLOAT64,
    INT32,
    INT64,
    OPTIONAL_STRING,
    STRING,
    TIMESTAMP_SCHEMA,
    Schema,
    decimal,
    struct,
)
from barnabas.testing.connect import DrivenSink, run_sink
from tests.connect.databases import Database, opened

PERSON = struct({"id": INT64, "name": OPTIONAL_STRING}, "person")
KEY = struct({"id": INT64})


@pytest.fixture(params=["postgresql", pytest.param("mariadb", marks=pytest.mark.soak), "sqlite"])
def database(request) -> Database:
    return opened(request.param, request)


def config(database: Database, **more: str) -> dict[str, str]:
    return {"connection.url": database.url, "auto.create": "true", **more}


def person(sink: DrivenSink, id: int, name: str | None, topic: str = "people"):
    return sink.record(topic, {"id": id, "name": name}, {"id": id}, PERSON, KEY)


def gone(sink: DrivenSink, id: int):
    return sink.record("people", None, {"id": id}, None, KEY)


def test_inserts(database):
    with run_sink(JdbcSink, config(database, **{"table.name.format": "t_${topic}"})) as sink:
        sink.put([person(sink, 1, "a"), person(sink, 1, "b"), person(sink, 2, None)])
    assert database.query("SELECT id, name FROM t_people ORDER BY id, name") == [
        (1, "a"),
        (1, "b"),
        (2, None),
    ]


@pytest.mark.parametrize("mode", ["record_key", "record_value"])
def test_upserts(database, mode):
    options = {"insert.mode": "upsert", "pk.mode": mode, "pk.fields": "id"}
    with run_sink(JdbcSink, config(database, **options)) as sink:
        sink.put([person(sink, 1, "a"), person(sink, 2, "b"), person(sink, 1, "c")])
        sink.put([person(sink, 2, "d")])
        sink.restart()
        sink.put([person(sink, 2, "d")])
    assert database.query("SELECT id, name FROM people ORDER BY id") == [(1, "c"), (2, "d")]


def test_deletes(database):
    options = {"insert.mode": "upsert", "pk.mode": "record_key", "delete.enabled": "true"}
    with run_sink(JdbcSink, config(database, **options)) as sink:
        sink.put([gone(sink, 5)])  # before there is a table
        sink.put(
            [person(sink, 1, "a"), person(sink, 2, "b"), gone(sink, 1), person(sink, 3, "c"), gone(sink, 4)]
        )
        sink.put([gone(sink, 2), person(sink, 2, "again"), gone(sink, 3)])
        assert not sink.reported
    assert database.query("SELECT id, name FROM people") == [(2, "again")]


def test_updates_change_only_what_is_there(database):
    database.query(
        "CREATE TABLE people (id bigint PRIMARY KEY, name varchar(20))", "INSERT INTO people VALUES (1, 'a')"
    )
    options = {"insert.mode": "update", "pk.mode": "record_key"}
    with run_sink(JdbcSink, config(database, **options)) as sink:
        sink.put([person(sink, 1, "b"), person(sink, 2, "c")])
    assert database.query("SELECT id, name FROM people") == [(1, "b")]


def test_keys_by_offset_make_repeats_harmless(database):
    options = {"insert.mode": "upsert", "pk.mode": "kafka"}
    with run_sink(JdbcSink, config(database, **options)) as sink:
        records = [person(sink, 1, "a"), person(sink, 1, "b")]
        sink.put(records)
        sink.put(records)
    assert database.query(
        "SELECT __connect_topic, __connect_partition, __connect_offset, name FROM people"
    ) == [
        ("people", 0, 0, "a"),
        ("people", 0, 1, "b"),
    ]


def test_a_key_that_is_no_struct(database):
    options = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "code"}
    with run_sink(JdbcSink, config(database, **options)) as sink:
        value = struct({"n": INT32})
        sink.put(
            [
                sink.record("codes", {"n": 1}, "x", value, STRING),
                sink.record("codes", {"n": 2}, "x", value, STRING),
            ]
        )
    assert database.query("SELECT code, n FROM codes") == [("x", 2)]


def test_columns_are_added(database):
    with run_sink(JdbcSink, config(database, **{"auto.evolve": "true"})) as sink:
        sink.put([person(sink, 1, "a")])
        wider = struct({"id": INT64, "name": OPTIONAL_STRING, "age": INT32.as_optional()})
        sink.put([sink.record("people", {"id": 2, "name": "b", "age": 7}, None, wider)])
        strict = struct({"id": INT64, "must": INT32})
        with pytest.raises(
            ConnectError, match="no column must, and it cannot be added: rows that are there have no value"
        ):
            sink.put([sink.record("people", {"id": 3, "must": 1}, None, strict)])
    assert database.query("SELECT id, name, age FROM people ORDER BY id") == [(1, "a", None), (2, "b", 7)]


def test_refused_records_are_reported_and_the_others_stored(database):
    database.query("CREATE TABLE people (id bigint PRIMARY KEY, name varchar(20) NOT NULL)")
    with run_sink(JdbcSink, config(database)) as sink:
        sink.put(
            [person(sink, 1, "a"), person(sink, 2, None), person(sink, 1, "again"), person(sink, 3, "c")]
        )
        assert sorted(record.offset for record, _ in sink.reported) == [1, 2]
        assert all(str(error).startswith("table people: ") for _, error in sink.reported)
        sink.put([sink.record("people", "text"), sink.record("people", None)])
        assert [str(error).partition(":")[0] for _, error in sink.reported[2:]] == [
            "the value is str, not a struct with fields",
            "the record has no value; delete.enabled says that such a record deletes its row",
        ]
    assert database.query("SELECT id, name FROM people ORDER BY id") == [(1, "a"), (3, "c")]


def test_values(database):
    schema = struct(
        {
            "id": INT32,
            "flag": BOOLEAN,
            "ratio": FLOAT64,
            "price": decimal(2),
            "day": DATE_SCHEMA,
            "at": TIMESTAMP_SCHEMA,
            "raw": BYTES,
            "dbz_day": Schema("int32", name="io.debezium.time.Date", version=1),
            "dbz_at": Schema("int64", name="io.debezium.time.MicroTimestamp", version=1),
            "nested": struct({"a": INT32}),
        }
    )
    at = dt.datetime(2020, 2, 29, 12, 13, 14, 500_000, tzinfo=dt.UTC)
    value = {
        "id": 1,
        "flag": True,
        "ratio": 1.5,
        "price": Decimal("12.50"),
        "day": dt.date(2020, 2, 29),
        "at": at,
        "raw": b"\0\xff",
        "dbz_day": 18321,
        "dbz_at": int(at.timestamp() * 1e6),
        "nested": {"a": 1},
    }
    with run_sink(JdbcSink, config(database)) as sink:
        sink.put([sink.record("v", value, None, schema)])
        assert not sink.reported
    (row,) = database.query("SELECT * FROM v")
    local = at.replace(tzinfo=None)
    if database.kind == "sqlite":
        day, moment = "2020-02-29", local.isoformat(" ")
        assert row == (1, 1, 1.5, 12.5, day, moment, b"\0\xff", day, moment, '{"a": 1}')
    else:
        assert (row[0], bool(row[1]), *row[2:6], bytes(row[6]), *row[7:9]) == (
            1, True, 1.5, Decimal("12.50"), dt.date(2020, 2, 29), local, b"\0\xff", dt.date(2020, 2, 29), local,
        )  # fmt: skip


def test_without_schemas(database):
    with run_sink(JdbcSink, config(database, **{"fields.whitelist": "id,name"})) as sink:
        sink.put([sink.record("people", {"id": 1, "name": "a", "other": 1.5})])
    assert database.query("SELECT * FROM people") == [(1, "a")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"insert.mode": "upsert"}, "insert.mode upsert needs a key: pk.mode is none"),
        ({"delete.enabled": "true"}, "pk.mode must be record_key, not none"),
        ({"pk.mode": "kafka", "pk.fields": "a"}, "three columns"),
    ],
)
def test_wrong_options(tmp_path, options, message):
    with pytest.raises(OptionError, match=message):
        run_sink(JdbcSink, {"connection.url": f"jdbc:sqlite:{tmp_path / 'x'}", **options}).__enter__()


def test_missing_tables_and_columns_are_said(database):
    with run_sink(JdbcSink, config(database, **{"auto.create": "false"})) as sink:
        with pytest.raises(ConnectError, match=r"has no table people; create it, or set auto.create to true"):
            sink.put([person(sink, 1, "a")])
        database.query("CREATE TABLE people (id bigint)")
        with pytest.raises(
            ConnectError, match=r"table people has no column name; add it, .* auto.evolve to true"
        ):
            sink.put([person(sink, 1, "a")])


def test_a_database_that_goes_away_is_asked_again(database):
    if database.kind == "sqlite":
        pytest.skip("a file does not go away")
    with run_sink(JdbcSink, config(database)) as sink:
        sink.put([person(sink, 1, "a")])
        driver = sink.connector._connection.connection.driver_connection
        if database.kind == "mariadb":
            database.query(f"KILL {driver.thread_id()}")
        else:
            database.query(f"SELECT pg_terminate_backend({driver.info.backend_pid})")
        with pytest.raises(RetriableError):
            sink.put([person(sink, 2, "b")])
        sink.put([person(sink, 2, "b")])
    assert database.query("SELECT id FROM people ORDER BY id") == [(1,), (2,)]


def test_names():
    for name in ("io.confluent.connect.jdbc.JdbcSinkConnector", "JdbcSinkConnector", "jdbc-sink"):
        assert find_plugin(name).load() is JdbcSink
