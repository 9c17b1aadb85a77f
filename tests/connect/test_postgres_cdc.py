"""Changes of a real PostgreSQL: snapshot and stream, across restarts, and when the slot's history is gone."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from decimal import Decimal

import psycopg
import pytest

from barnabas.connect.cdc.postgres.source import PostgresSource
from barnabas.connect.errors import ConnectError, OptionError, RetriableError
from barnabas.connect.plugins import find_plugin
from barnabas.connect.records import SourceRecord
from barnabas.testing.connect import DrivenSource, run_source

NAMES = iter(range(10_000))


class Schema:
    """A schema of its own per test, with a slot of the same name."""

    def __init__(self, server) -> None:
        self.server, self.name = server, f"inv{next(NAMES)}"
        self.run(f"CREATE SCHEMA {self.name}")

    def run(self, *statements: str) -> None:
        """All in one transaction."""
        with psycopg.connect(self.server.dsn) as connection:
            connection.execute(f"SET search_path = {self.name}, public")
            for statement in statements:
                connection.execute(statement)

    def config(self, **more: str) -> dict[str, str]:
        return {
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": "me",
            "database.dbname": "postgres",
            "topic.prefix": "w",
            "schema.include.list": self.name,
            "slot.name": self.name,
            "publication.name": self.name,
            "publication.autocreate.mode": "filtered",
            **more,
        }

    def drop(self) -> None:
        with psycopg.connect(self.server.dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s",
                [self.name],
            )
            for _ in range(100):
                try:
                    connection.execute(
                        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
                        [self.name],
                    )
                    break
                except psycopg.errors.ObjectInUse:
                    connection.execute("SELECT pg_sleep(0.05)")
            connection.execute(f"DROP PUBLICATION IF EXISTS {self.name}")
            connection.execute(f"DROP SCHEMA {self.name} CASCADE")


@pytest.fixture
def schema(postgres) -> Iterator[Schema]:
    own = Schema(postgres)
    yield own
    own.drop()


def said(source: DrivenSource) -> list[tuple]:
    """Operation, key and the row after (or None for tombstones) of all records."""
    return [
        ("tombstone", record.key)
        if record.value is None
        else (record.value["op"], record.key, record.value["after"])
        for record in source.records
    ]


def polled(source: DrivenSource) -> list[SourceRecord]:
    """What a poll brings, tried again as a worker does: a server that is busy keeps the slot of a connection that has just
    been closed."""
    give_up = time.monotonic() + 120
    while True:
        try:
            return source.poll()
        except RetriableError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.1)


def poll_until(source: DrivenSource, count: int) -> None:
    """A stream that has just begun may bring nothing to many polls."""
    give_up = time.monotonic() + 120
    while len(source.records) < count:
        assert time.monotonic() < give_up, f"{len(source.records)} records, not {count}"
        polled(source)


PEOPLE = "CREATE TABLE people (id int PRIMARY KEY, name text)"


def test_rows_then_changes(schema):
    schema.run(PEOPLE, "INSERT INTO people VALUES (1, 'a'), (2, 'b')")
    with run_source(PostgresSource, schema.config(**{"skipped.operations": "none"})) as source:
        poll_until(source, 2)
        schema.run("INSERT INTO people VALUES (3, 'c')", "UPDATE people SET name = 'A' WHERE id = 1")
        schema.run(
            "UPDATE people SET id = 9 WHERE id = 2", "DELETE FROM people WHERE id = 3", "TRUNCATE people"
        )
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
        assert {record.topic for record in source.records} == {f"w.{schema.name}.people"}
        assert [record.value["source"]["snapshot"] for record in source.records if record.value][:3] == [
            "first",
            "last",
            "false",
        ]
        gone, insert = source.records[4], source.records[6]
        assert [(h.key, h.value) for h in gone.headers] == [("__debezium.newkey", {"id": 9})]
        assert [(h.key, h.value) for h in insert.headers] == [("__debezium.oldkey", {"id": 2})]
        envelope = gone.value_schema
        assert (envelope.name, envelope.version) == (f"w.{schema.name}.people.Envelope", 2)
        assert [field.name for field in envelope.fields] == [
            "before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns",
        ]  # fmt: skip


def test_each_change_once_across_restarts_within_a_transaction(schema):
    schema.run(PEOPLE)
    with run_source(PostgresSource, schema.config(**{"max.batch.size": "3"})) as source:
        source.poll()
        schema.run(
            *(f"INSERT INTO people VALUES ({i}, 'x')" for i in range(10)),
            "UPDATE people SET id = 10 WHERE id = 0",
        )
        schema.run(
            "COPY people FROM PROGRAM 'seq 20 29 | sed s/$/\\\\ty/'"
        )  # many rows at one place of the log
        give_up = time.monotonic() + 120  # a stream that has just begun may bring nothing to its first poll
        while len(source.records) < 23 and time.monotonic() < give_up:
            source.poll(commit=False)
            source.restart()
            before = len(source.records)
            while len(source.records) == before and time.monotonic() < give_up:
                polled(source)
            source.restart()
        keys = [record.key["id"] for record in source.records if record.value and record.value["op"] == "c"]
        assert keys == [*range(10), 10, *range(20, 30)]
        assert len(source.records) == 23


def test_no_gap_between_rows_and_changes(schema):
    schema.run(PEOPLE, "INSERT INTO people SELECT g, 'x' FROM generate_series(1, 500) g")
    go_on = threading.Event()
    written: list[int] = []

    def write() -> None:
        number = 1000
        with psycopg.connect(schema.server.dsn, autocommit=True) as connection:
            while not go_on.is_set():
                connection.execute(f"INSERT INTO {schema.name}.people VALUES (%s, 'new')", [number])
                written.append(number)
                number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with run_source(PostgresSource, schema.config(**{"snapshot.fetch.size": "50"})) as source:
            for _ in range(15):
                source.poll()
            go_on.set()
            writer.join()
            poll_until(source, 500 + len(written))
            keys = [record.key["id"] for record in source.records]
            assert sorted(keys) == [*range(1, 501), *written]
    finally:
        go_on.set()
        writer.join()


def test_an_interrupted_snapshot_goes_on_and_ends_with_the_right_rows(schema):
    schema.run(PEOPLE, "INSERT INTO people SELECT g, 'x' FROM generate_series(1, 30) g")
    with run_source(PostgresSource, schema.config(**{"snapshot.fetch.size": "10"})) as source:
        source.poll()
        schema.run(
            "UPDATE people SET name = 'changed' WHERE id IN (5, 25)", "DELETE FROM people WHERE id = 26"
        )
        source.restart()
        poll_until(source, 33)
        assert [
            record.key["id"] for record in source.records if record.value and record.value["op"] == "r"
        ] == [*range(1, 26), *range(27, 31)]
        rows = {}
        for record in source.records:
            rows[record.key["id"]] = record.value and record.value["after"] and record.value["after"]["name"]
        assert rows == {**dict.fromkeys(range(1, 31), "x"), 5: "changed", 25: "changed", 26: None}


def test_a_slot_that_was_there_before_sends_nothing_twice(schema):
    schema.run(PEOPLE)
    schema.server.query(f"CREATE PUBLICATION {schema.name} FOR TABLE {schema.name}.people")
    schema.server.query(f"SELECT pg_create_logical_replication_slot('{schema.name}', 'pgoutput')")
    schema.run("INSERT INTO people VALUES (1, 'a')")
    with run_source(PostgresSource, schema.config()) as source:
        source.poll()
        schema.run("INSERT INTO people VALUES (2, 'b')")
        poll_until(source, 2)
        source.poll()
        assert [(op, key) for op, key, _ in said(source)] == [("r", {"id": 1}), ("c", {"id": 2})]


def test_what_was_stored_is_confirmed(schema):
    schema.run(PEOPLE)
    with run_source(PostgresSource, schema.config()) as source:
        source.poll()
        schema.run("INSERT INTO people VALUES (1, 'a')")
        poll_until(source, 1)
        source.poll()
        (offset,) = source.offsets.values()
        for _ in range(50):
            source.poll()
            ((confirmed,),) = schema.server.query(
                f"SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = '{schema.name}'"
            )
            if confirmed == offset["lsn_commit"]:
                return
        raise AssertionError((confirmed, offset))


def test_changes_of_the_schema(schema):
    schema.run(PEOPLE)
    with run_source(PostgresSource, schema.config()) as source:
        source.poll()
        schema.run("INSERT INTO people VALUES (1, 'a')")
        schema.run("ALTER TABLE people ADD COLUMN age int DEFAULT 5", "INSERT INTO people VALUES (2, 'b', 6)")
        schema.run("ALTER TABLE people DROP COLUMN name", "ALTER TABLE people ALTER age TYPE bigint")
        schema.run("INSERT INTO people VALUES (3, 7)")
        poll_until(source, 3)
        rows = [
            (record.value["after"], dict(record.value_schema.by_name)["after"].schema)
            for record in source.records
        ]
        assert [row for row, _ in rows][1:] == [{"id": 2, "name": "b", "age": 6}, {"id": 3, "age": 7}]
        assert [field.schema.type for field in rows[2][1].fields] == ["int32", "int64"]
        schema.run("CREATE TABLE late (id int PRIMARY KEY)")
        source.restart()  # a publication of chosen tables follows when the connector starts
        source.poll()
        schema.run("INSERT INTO late VALUES (1)")
        poll_until(source, 4)
        assert source.records[-1].topic == f"w.{schema.name}.late"


def test_large_values_that_did_not_change(schema):
    large = "(SELECT string_agg(md5(g::text), '') FROM generate_series(1, 200) g)"
    schema.run(
        "CREATE TABLE t (id int PRIMARY KEY, a text, big text)",
        "CREATE TABLE f (id int PRIMARY KEY, a text, big text)",
        "ALTER TABLE f REPLICA IDENTITY FULL",
        f"INSERT INTO t VALUES (1, 'a', {large})",
        f"INSERT INTO f VALUES (1, 'a', {large})",
    )
    with run_source(PostgresSource, schema.config()) as source:
        poll_until(source, 2)
        schema.run("UPDATE t SET a = 'b'", "UPDATE f SET a = 'b'")
        poll_until(source, 4)
        short, full = source.records[2:]
        assert short.value["before"] is None
        assert short.value["after"]["big"] == "__debezium_unavailable_value"
        assert len(full.value["before"]["big"]) == len(full.value["after"]["big"]) == 6400


def test_options_for_columns_keys_and_types(schema):
    schema.run(
        "CREATE TABLE t (a int NOT NULL, b int NOT NULL, secret text, n numeric(5,2), ts timestamp, y bytea)",
        "INSERT INTO t VALUES (1, 2, 'x', 1.50, '2020-01-01 12:00:00.5', '\\xff')",
    )
    options = {
        "column.exclude.list": r".*\.secret",
        "message.key.columns": r".*\.t:b,a",
        "decimal.handling.mode": "string",
        "time.precision.mode": "connect",
        "binary.handling.mode": "hex",
    }
    with run_source(PostgresSource, schema.config(**options)) as source:
        poll_until(source, 1)
        (record,) = source.records
        assert record.key == {"b": 2, "a": 1}
        row = record.value["after"]
        assert list(row) == ["a", "b", "n", "ts", "y"]
        assert (row["n"], row["ts"].isoformat(), row["y"]) == (
            "1.50",
            "2020-01-01T12:00:00.500000+00:00",
            "ff",
        )


def test_transactions_and_heartbeats(schema):
    schema.run(PEOPLE)
    options = {"provide.transaction.metadata": "true", "heartbeat.interval.ms": "1"}
    with run_source(PostgresSource, schema.config(**options)) as source:
        source.poll()
        schema.run("INSERT INTO people VALUES (1, 'a')", "INSERT INTO people VALUES (2, 'b')")
        poll_until(source, 5)
        records = [record for record in source.records if not record.topic.startswith("__debezium-heartbeat")]
        assert [record.topic for record in records] == [
            "w.transaction",
            *[f"w.{schema.name}.people"] * 2,
            "w.transaction",
        ]
        begin, first, second, end = (record.value for record in records)
        assert (begin["status"], end["status"], end["event_count"]) == ("BEGIN", "END", 2)
        assert [v["transaction"]["total_order"] for v in (first, second)] == [1, 2]
        beat = next(record for record in source.records if record.topic == "__debezium-heartbeat.w")
        assert beat.key == {"serverName": "w"}


def test_a_lost_slot_is_an_error_that_says_what_to_do(schema):
    schema.run(PEOPLE, "INSERT INTO people VALUES (1, 'a')")
    with run_source(PostgresSource, schema.config()) as source:
        poll_until(source, 1)
        source.poll()
        source.connector.stop()
        schema.server.query(f"SELECT pg_drop_replication_slot('{schema.name}')")
        source.restart()
        with pytest.raises(
            ConnectError, match=r"does not exist any more, but changes were read up to .*new snapshot"
        ):
            source.poll()
        schema.server.query(f"SELECT pg_create_logical_replication_slot('{schema.name}', 'pgoutput')")
        with pytest.raises(ConnectError, match=r"was read up to .* by something else"):
            source.poll()


def test_when_needed_reads_again(schema):
    schema.run(PEOPLE, "INSERT INTO people VALUES (1, 'a')")
    with run_source(PostgresSource, schema.config(**{"snapshot.mode": "when_needed"})) as source:
        poll_until(source, 1)
        source.poll()
        source.connector.stop()
        schema.server.query(f"SELECT pg_drop_replication_slot('{schema.name}')")
        schema.run("INSERT INTO people VALUES (2, 'b')")
        source.restart()
        poll_until(source, 3)
        schema.run("INSERT INTO people VALUES (3, 'c')")
        poll_until(source, 4)
        assert [(op, key["id"]) for op, key, _ in said(source)] == [("r", 1), ("r", 1), ("r", 2), ("c", 3)]


def test_a_cut_connection_costs_nothing(schema):
    schema.run(PEOPLE)
    with run_source(PostgresSource, schema.config()) as source:
        source.poll()
        source.poll()
        for number in range(3):
            schema.server.query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'barnabas w'"
            )
            schema.run(f"INSERT INTO people VALUES ({number}, 'x')")
            for _ in range(50):
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
        ({"database.port": "1"}, "postgresql://127.0.0.1:1/postgres: connecting: connection failed"),
        ({"database.dbname": "nowhere"}, 'database "nowhere" does not exist'),
        ({"schema.exclude.list": "x"}, "exclude each other"),
        ({"table.include.list": "a("}, "'a\\(' is not a regular expression"),
        ({"slot.name": "My Slot"}, "lower-case letters"),
        ({"message.key.columns": "x"}, "'x' is not like TABLE:COLUMN"),
        ({"snapshot.mode": "sometimes"}, "must be one of: initial"),
    ],
)
def test_wrong_options(schema, options, message):
    with pytest.raises(OptionError, match=message):
        run_source(PostgresSource, schema.config(**options)).__enter__()


def test_a_user_who_may_not_replicate(schema):
    schema.server.query("DROP ROLE IF EXISTS weak; CREATE ROLE weak LOGIN")
    with pytest.raises(OptionError, match="user weak may not replicate: ALTER ROLE weak REPLICATION"):
        run_source(PostgresSource, schema.config(**{"database.user": "weak"})).__enter__()


def test_values_of_many_types(schema):
    schema.run(
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        "CREATE TABLE k (b bit(5), n numeric, m money, z timestamptz, i interval, j jsonb, p point, e mood,"
        " a numeric(5,1)[], d date, nan float8, r int4range)",
        """INSERT INTO k VALUES (B'10101', 1.2345, '$1,234.50', '2020-01-01 12:00:00.12+02',
        '1 year 2 mons 3 days 04:05:06.789', '{"a": 1}', '(1,2)', 'happy', '{1.5,NULL}', '0044-03-15 BC', 'NaN', '[1,5)')""",
    )
    with run_source(PostgresSource, schema.config()) as source:
        source.poll()
        schema.run("INSERT INTO k SELECT * FROM k")
        poll_until(source, 2)
        read, created = (record.value["after"] for record in source.records)
        assert read.pop("nan") != created.pop("nan")  # NaN both
        assert read == created
        assert read == {
            "b": b"\x15",
            "n": {"scale": 4, "value": b"09"},
            "m": Decimal("1234.50"),
            "z": "2020-01-01T10:00:00.120000Z",
            "i": 37091106789000,
            "j": '{"a": 1}',
            "p": {"x": 1.0, "y": 2.0, "wkb": b"\1\1\0\0\0\0\0\0\0\0\0\xf0?\0\0\0\0\0\0\0@", "srid": None},
            "e": "happy",
            "a": [Decimal("1.5"), None],
            "d": -735160,
            "r": "[1,5)",
        }


def test_names():
    for name in ("io.debezium.connector.postgresql.PostgresConnector", "PostgresConnector", "postgres-cdc"):
        assert find_plugin(name).load() is PostgresSource


SIGNALS = "CREATE TABLE signals (id text PRIMARY KEY, type text, data text)"


def asked(schema: Schema, kind: str, table: str, **more: object) -> str:
    data = {"data-collections": [f"{schema.name}.{table}"], "type": "incremental", **more}
    return f"INSERT INTO signals VALUES ('{kind}-{table}-{next(NAMES)}', '{kind}', '{json.dumps(data)}')"


def signalling(schema: Schema, **more: str) -> dict[str, str]:
    return schema.config(
        **{
            "snapshot.mode": "no_data",
            "signal.data.collection": f"{schema.name}.signals",
            "incremental.snapshot.chunk.size": "10",
            **more,
        }
    )


def rows_of(schema: Schema, table: str) -> dict[int, str]:
    return dict(schema.server.query(f"SELECT id, v FROM {schema.name}.{table}"))


def test_a_signal_reads_a_table_again_while_it_changes(schema):
    """The last event of each key is the row that is there, whatever changed while chunks were read and across restarts."""
    schema.run(
        SIGNALS,
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE TABLE other (id int PRIMARY KEY, v text)",
    )
    schema.run("INSERT INTO t SELECT n, 'old' FROM generate_series(1, 95) n")
    with run_source(PostgresSource, signalling(schema)) as source:
        source.poll()
        schema.run(asked(schema, "execute-snapshot", "t"))
        state: dict[int, str] = {}
        seen: list[int] = []
        turn = 0
        while turn < 60:
            turn += 1
            if (
                turn <= 12
            ):  # a row before the chunk that is read, in it, and behind it; a new one, and one that goes
                schema.run(
                    f"UPDATE t SET v = 'new {turn}' WHERE id IN ({turn}, {turn * 7 % 95 + 1})",
                    f"DELETE FROM t WHERE id = {96 - turn}",
                    f"INSERT INTO t VALUES ({1000 + turn}, 'late')",
                )
            if turn in (5, 9):
                source.poll(commit=False)
                source.restart()
            for record in polled(source):
                if record.value is None:
                    continue
                value = record.value
                if value["op"] == "r":
                    assert value["source"]["snapshot"] == "incremental"
                    seen.append(value["after"]["id"])
                if value["op"] == "d":
                    state.pop(value["before"]["id"], None)
                else:
                    state[value["after"]["id"]] = value["after"]["v"]
            last = json.loads(json.dumps(next(iter(source.offsets.values()))))
            if turn > 12 and "incremental" not in last and len(state) == len(rows_of(schema, "t")):
                break
        assert state == rows_of(schema, "t")
        assert len(seen) == len(set(seen))


def test_a_row_that_changes_between_its_reading_and_the_mark_is_not_told_as_it_was(schema):
    schema.run(
        SIGNALS,
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT n, 'old' FROM generate_series(1, 5) n",
        """CREATE FUNCTION race() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             UPDATE t SET v = 'raced' WHERE id = 3; DELETE FROM t WHERE id = 4; RETURN NEW; END $$""",
        """CREATE TRIGGER race BEFORE INSERT ON signals FOR EACH ROW WHEN (NEW.type = 'snapshot-window-close')
             EXECUTE FUNCTION race()""",
        f"ALTER FUNCTION race() SET search_path = {schema.name}",
    )
    with run_source(PostgresSource, signalling(schema)) as source:
        source.poll()
        schema.run(asked(schema, "execute-snapshot", "t"))
        records = source.poll_until(6)
        assert source.poll() == []
    events = [
        (r.value["op"], (r.value["after"] or r.value["before"])["id"]) for r in records if r.value is not None
    ]
    assert events == [("u", 3), ("d", 4), ("r", 1), ("r", 2), ("r", 5)]


def test_signals_with_conditions_and_stops(schema, caplog):
    schema.run(
        SIGNALS, "CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE keyless (id int, v text)"
    )
    schema.run("INSERT INTO t SELECT n, 'v' || n FROM generate_series(1, 30) n")
    with run_source(PostgresSource, signalling(schema)) as source:
        source.poll()
        only = [{"data-collection": f"{schema.name}.t", "filter": "id % 10 = 0"}]
        schema.run(asked(schema, "execute-snapshot", "t", **{"additional-conditions": only}))
        records = source.poll_until(3)
        assert [record.value["after"]["id"] for record in records] == [10, 20, 30]
        schema.run(
            asked(schema, "execute-snapshot", "nothing"),
            asked(schema, "execute-snapshot", "keyless"),
            asked(schema, "execute-snapshot", "t"),
            asked(schema, "stop-snapshot", "t"),
            "INSERT INTO signals VALUES ('x', 'execute-snapshot', 'no JSON')",
            "INSERT INTO t VALUES (31, 'after')",
        )
        records = source.poll_until(1)
        assert [record.value["op"] for record in records] == ["c"]
        assert source.poll() == []
    logged = [(record.message, getattr(record, "reason", "")) for record in caplog.records]
    assert ("a signal names no captured table", "") in logged
    assert any(message == "a table cannot be read" and "primary key" in reason for message, reason in logged)
    assert any(message == "signal not understood" for message, _ in logged)
