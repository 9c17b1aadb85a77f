"""Debezium itself, on the same database and under the same options, is the witness: its records and ours are equal, with
their schemas, event by event. Only when it was processed, the version, and what a snapshot's transaction is called may
differ.

Known differences, which these tests leave out: Debezium writes the date `infinity` as a number that overflowed, dates before
Christ of a snapshot by the Julian calendar, money as text without zeros at its end, a tombstone without a key after a
delete in a table that has none, and that a transaction begins with a statement that changes tables, but never that it ends.
"""

from __future__ import annotations

import base64
import json
import math
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from barnabas.connect.cdc.mysql.source import MariadbSource
from barnabas.connect.cdc.postgres.source import PostgresSource
from barnabas.connect.schemas import LOGICAL, Schema, to_primitive
from barnabas.testing.connect import DrivenSource, run_source
from tests.clients.foreign import SHORT_JAVA, build, fingerprint, made, maven, need

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]
SOURCES = Path(__file__).parent / "java"
STORES = {
    "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
    "offset.flush.interval.ms": "1000",
    "schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory",
    "key.converter.schemas.enable": "true",
    "value.converter.schemas.enable": "true",
}
FIRST_WAIT_S = 240
QUIET_S = 8


@contextmanager
def witness(config: dict[str, str], folder: Path) -> Iterator[Path]:
    """Debezium, whose records come into a file, one per line."""
    java, javac = need("java"), need("javac")
    name = f"debezium-{fingerprint(SOURCES, 'pom.xml')}"
    jars = made(name, lambda target: maven(SOURCES / "pom.xml", target, "Debezium"))
    classes = made(
        f"debezium-classes-{fingerprint(SOURCES, '*')}",
        lambda target: build(
            [javac, "-cp", f"{jars}/*", "-d", str(target), str(SOURCES / "Witness.java")], SOURCES
        ),
    )
    file = folder / "witness.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in {"name": "w", **STORES, **config}.items()))
    output, errors = folder / "witness.out", folder / "witness.err"
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            [java, *SHORT_JAVA, "-Xmx512m", "-cp", f"{classes}:{jars}/*", "Witness", str(file)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
        )
        try:
            yield output
        finally:
            process.kill()
            process.wait()


def wait_for_lines(file: Path, count: int, limit_s: float = FIRST_WAIT_S) -> None:
    """Until there are so many, and no more come for a while."""
    deadline = time.monotonic() + limit_s
    while file.read_bytes().count(b"\n") < count:
        assert time.monotonic() < deadline, file.with_suffix(".err").read_text()[-3000:]
        time.sleep(0.2)
    seen, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET_S:
        now = file.stat().st_size
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(0.2)


def in_json(schema: Schema | None, value: Any) -> Any:
    """As Connect's JSON converter writes it."""
    if value is None or schema is None:
        return None
    if schema.name in LOGICAL:
        value = to_primitive(schema, value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if schema.type == "struct":
        return {field.name: in_json(field.schema, value.get(field.name)) for field in schema.fields}
    if schema.type == "array":
        return [in_json(schema.items, item) for item in value]
    assert not isinstance(value, Decimal)
    return value


def schema_in_json(schema: Schema, field: str | None = None) -> dict[str, Any]:
    """As Connect's JSON converter writes it."""
    described: dict[str, Any] = {
        "type": {"float32": "float", "float64": "double"}.get(schema.type, schema.type)
    }
    if schema.type == "struct":
        described["fields"] = [schema_in_json(one.schema, one.name) for one in schema.fields]
    if schema.items is not None:
        described["items"] = schema_in_json(schema.items)
    described["optional"] = schema.optional
    if schema.name:
        described["name"] = schema.name
    if schema.version:
        described["version"] = schema.version
    if schema.doc:
        described["doc"] = schema.doc
    if schema.parameters:
        described["parameters"] = dict(schema.parameters)
    if schema.has_default:
        described["default"] = in_json(schema.as_optional(), schema.default)
    if field:
        described["field"] = field
    return described


def plain(payload: Any, topic: str) -> Any:
    """Without what may differ."""
    if not isinstance(payload, dict):
        return payload
    fields = {name: value for name, value in payload.items() if name not in ("ts_ms", "ts_us", "ts_ns")}
    source = dict(fields.get("source") or {})
    if source:
        source.pop("version")
        if source["snapshot"] != "false":
            for name in ("ts_ms", "ts_us", "ts_ns", "txId", "lsn", "sequence", "file", "pos"):
                source.pop(name, None)
        fields["source"] = source
    if fields.get("data_collections"):
        fields["data_collections"] = sorted(
            fields["data_collections"], key=lambda row: row["data_collection"]
        )
    if fields.get("ddl"):
        fields["ddl"] = fields["ddl"].partition(" /*")[0].replace("`", "").lower()
        for change in fields["tableChanges"]:
            change.pop("table")
    return fields


def of_witness(file: Path) -> list[tuple[str, Any, Any, Any]]:
    records = []
    for line in file.read_text().splitlines():
        topic, key, value = line.split("\t")
        parts = [json.loads(text) if text != "null" else None for text in (key, value)]
        records.append((topic, *parts))
    return [
        (topic, key and key["payload"], plain(value and value["payload"], topic), value and value["schema"])
        for topic, key, value in records
    ]


def of_ours(source: DrivenSource) -> list[tuple[str, Any, Any, Any]]:
    return [
        (
            record.topic,
            in_json(record.key_schema, record.key),
            plain(in_json(record.value_schema, record.value), record.topic),
            record.value_schema and schema_in_json(record.value_schema),
        )
        for record in source.records
    ]


def compare(theirs: list[tuple[str, Any, Any, Any]], ours: list[tuple[str, Any, Any, Any]]) -> None:
    for number, (want, got) in enumerate(zip(theirs, ours, strict=False)):
        assert got[:3] == want[:3], f"event {number}"
        assert got[3] == want[3], f"schema of event {number}"
    assert len(ours) == len(theirs)


POSTGRES_TABLES = """
CREATE EXTENSION IF NOT EXISTS hstore; CREATE EXTENSION IF NOT EXISTS citext; CREATE EXTENSION IF NOT EXISTS ltree;
DROP SCHEMA IF EXISTS inv CASCADE; CREATE SCHEMA inv;
CREATE TYPE inv.mood AS ENUM ('sad', 'ok', 'happy');
CREATE DOMAIN inv.posint AS int CHECK (value > 0);
CREATE TABLE inv.kinds (id serial PRIMARY KEY, b bool, bi1 bit(1), bi bit(5), vb bit varying(12), s smallint, i int,
 big bigint, r real, d double precision, n numeric(10,2), nn numeric, n0 numeric(5), m money, c char(3), vc varchar(10),
 t text, by bytea, dt date, tm time, tm3 time(3), ttz timetz, ts timestamp, ts3 timestamp(3), ts0 timestamp(0),
 tz timestamptz, tz3 timestamptz(3), iv interval, j json, jb jsonb, x xml, u uuid, p point, ine inet, ci cidr, mac macaddr,
 r4 int4range, tsr tsrange, e inv.mood, h hstore, cit citext, lt ltree, ai int[], at text[], an numeric(5,1)[], ad date[],
 o oid, dom inv.posint NOT NULL DEFAULT 3, def text NOT NULL DEFAULT 'x', tsv tsvector, bx box);
CREATE TABLE inv.nokey (a int, b text);
CREATE TABLE inv.whole (id int PRIMARY KEY, a text, big text); ALTER TABLE inv.whole REPLICA IDENTITY FULL;
CREATE TABLE inv.toast (id int PRIMARY KEY, a text, big text);
INSERT INTO inv.kinds (b,bi1,bi,vb,s,i,big,r,d,n,nn,n0,m,c,vc,t,by,dt,tm,tm3,ttz,ts,ts3,ts0,tz,tz3,iv,j,jb,x,u,p,ine,ci,
 mac,r4,tsr,e,h,cit,lt,ai,at,an,ad,o,tsv,bx) VALUES (true,B'1',B'10101',B'1101',-1,42,1234567890123,1.5,2.25,123.45,1.2345,
 77,'$1,234.56','ab','vc','text','\\xdeadbeef','2020-02-29','12:13:14.123456','12:13:14.123','12:13:14.5+02',
 '2020-01-01 12:00:00.123456','2020-01-01 12:00:00.123','2020-01-01 12:00:00','2020-01-01 12:00:00.120000+02',
 '2020-01-01 12:00:00.1+02','1 year 2 mons 3 days 04:05:06.789','{"a": 1}','{"b": [1]}','<a/>',
 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11','(1,2)','10.0.0.1/8','10.0.0.0/8','08:00:2b:01:02:03','[1,5)',
 '[2020-01-01,2020-01-02)','ok','"a"=>"1","b"=>NULL','CiT','a.b','{1,NULL,3}','{a,"b c",NULL}','{1.5,2.5}','{2020-01-01}',
 12345,'a fat cat','(1,2),(3,4)');
INSERT INTO inv.kinds (ts,tz,nn,r,d) VALUES ('-infinity','infinity','NaN','NaN','Infinity');
INSERT INTO inv.kinds (tz,n,iv) VALUES ('12000-01-01 00:00:00+00',-0.5,'-1 mons +2 days -04:05:06.5');
INSERT INTO inv.nokey VALUES (1,'a'); INSERT INTO inv.whole VALUES (1,'a','x');
INSERT INTO inv.toast VALUES (1,'a',(SELECT string_agg(md5(g::text),'') FROM generate_series(1,200) g))"""
POSTGRES_CHANGES = (
    "INSERT INTO inv.kinds SELECT 10, b,bi1,bi,vb,s,i,big,r,d,n,nn,n0,m,c,vc,t,by,dt,tm,tm3,ttz,ts,ts3,ts0,tz,tz3,iv,j,jb,x,"
    "u,p,ine,ci,mac,r4,tsr,e,h,cit,lt,ai,at,an,ad,o,dom,def,tsv,bx FROM inv.kinds WHERE id = 1",
    "INSERT INTO inv.kinds (id,ts,tz,nn,r,d) VALUES (11,'-infinity','infinity','NaN','NaN','Infinity')",
    "DELETE FROM inv.kinds WHERE id = 2",
    "UPDATE inv.kinds SET id = 20, s = 7 WHERE id = 11",
    "INSERT INTO inv.whole VALUES (2,'b','y'); UPDATE inv.whole SET a='c' WHERE id=2; UPDATE inv.whole SET id=3 WHERE id=2; "
    "DELETE FROM inv.whole WHERE id=3",
    "UPDATE inv.toast SET a='changed' WHERE id=1; UPDATE inv.toast SET id=7 WHERE id=1; DELETE FROM inv.toast WHERE id=7",
    "INSERT INTO inv.nokey VALUES (2,'b')",
    "ALTER TABLE inv.whole ADD COLUMN extra int DEFAULT 5",
    "INSERT INTO inv.whole VALUES (9,'z','y',6)",
    "ALTER TABLE inv.whole DROP COLUMN big",
    "UPDATE inv.whole SET a='q' WHERE id=9",
    "TRUNCATE inv.whole, inv.nokey",
    "INSERT INTO inv.whole VALUES (10,'zz',1)",
    "SELECT pg_logical_emit_message(true,'pre','content')",
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "decimal.handling.mode": "string",
            "time.precision.mode": "connect",
            "binary.handling.mode": "hex",
            "hstore.handling.mode": "json",
            "interval.handling.mode": "string",
            "skipped.operations": "none",
            "tombstones.on.delete": "false",
        },
    ],
)
def test_postgres(postgres, tmp_path, options):
    if options:
        # The largest times are no times of Connect's own types.
        tables = POSTGRES_TABLES.replace("'-infinity','infinity'", "NULL,NULL").replace("'12000-", "'2000-")
        steps = tuple(step.replace("'-infinity','infinity'", "NULL,NULL") for step in POSTGRES_CHANGES)
    else:
        tables, steps = POSTGRES_TABLES, POSTGRES_CHANGES
    postgres.query(tables)
    name = f"w{len(options)}"
    common = {
        "database.hostname": "127.0.0.1",
        "database.port": str(postgres.port),
        "database.user": "me",
        "database.password": "x",
        "database.dbname": "postgres",
        "topic.prefix": "w",
        "plugin.name": "pgoutput",
        "publication.name": name,
        "publication.autocreate.mode": "filtered",
        "schema.include.list": "inv",
        "provide.transaction.metadata": "true",
        **options,
    }
    kind = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "slot.name": f"theirs{len(options)}",
    }
    with (
        witness({**common, **kind}, tmp_path) as output,
        run_source(PostgresSource, {**common, "slot.name": f"ours{len(options)}"}) as source,
    ):
        wait_for_lines(output, 6)
        while len(source.records) < 6:
            source.poll()
        source.poll()
        for step in steps:
            postgres.query(step)
        wait_for_lines(output, 36)
        for _ in range(5):
            source.poll()
        compare(without_begin(of_witness(output)), without_begin(of_ours(source)))


def without_begin(records: list[tuple[str, Any, Any, Any]]) -> list[tuple[str, Any, Any, Any]]:
    """END of a transaction with a logical message names a Java object in Debezium."""
    kept = []
    for topic, key, value, schema in records:
        if topic == "w.transaction" and value["status"] == "END":
            value = {
                **value,
                "data_collections": [c for c in value["data_collections"] if "inv." in c["data_collection"]],
            }
        kept.append((topic, key, value, schema))
    return kept


MARIADB_TABLES = (
    "CREATE TABLE kinds (id int AUTO_INCREMENT PRIMARY KEY, b1 bit(1), b5 bit(5), bo boolean, ti tinyint,"
    " tu tinyint unsigned, si smallint, su smallint unsigned, mi mediumint, mu mediumint unsigned, i int,"
    " iu int unsigned, bi bigint,"
    " bu bigint unsigned, f float, d double, r real, de decimal(10,2), de0 decimal(5), c char(5), vc varchar(20), tx text,"
    " lt longtext, bin binary(3), vb varbinary(5), bl blob, j json, e enum('a','b','c'), s set('x','y','z'), y year,"
    " ts timestamp NULL, ts6 timestamp(6) NULL, dt date, tm time, tm3 time(3), tm6 time(6), d0 datetime, d3 datetime(3),"
    " d6 datetime(6), nn varchar(5) NOT NULL DEFAULT 'q', nd int NOT NULL DEFAULT 7, ntx text NOT NULL,"
    " nts timestamp NOT NULL DEFAULT current_timestamp, u uuid) DEFAULT CHARSET utf8mb4",
    "INSERT INTO kinds VALUES (1,b'1',b'10101',true,-1,255,-2,65535,-3,16777215,-4,4294967295,-5,1844674407370955161,1.5,"
    "2.25,3.5,123.45,77,'ab','vc','text','long','abc','vb',x'deadbeef','{\"a\": 1}','b','x,z',2020,'2020-01-01 12:00:00',"
    "'2020-01-01 12:00:00.123456','2020-02-29','12:13:14','-12:13:14.123','100:00:00.123456','2020-01-01 12:00:00',"
    "'2020-01-01 12:00:00.123','2020-01-01 12:00:00.123456','w',8,'t','2020-01-01 00:00:00',"
    "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11')",
    "INSERT INTO kinds (id,ntx,nts) VALUES (2,'','2020-01-01 00:00:00')",
    "CREATE TABLE nokey (a int, b varchar(5))",
    "INSERT INTO nokey VALUES (1,'x')",
    "CREATE TABLE p2 (a int, b varchar(5), c int, PRIMARY KEY (b,a))",
    "INSERT INTO p2 VALUES (1,'x',3)",
)
MARIADB_CHANGES = (
    ("INSERT INTO kinds SELECT 10,b1,b5,bo,ti,tu,si,su,mi,mu,i,iu,bi,bu,f,d,r,de,de0,c,vc,tx,lt,bin,vb,bl,j,e,s,y,ts,ts6,dt,"
     "tm,tm3,tm6,d0,d3,d6,nn,nd,ntx,nts,u FROM kinds WHERE id=1",),
    ("INSERT INTO kinds (id,ntx,s,nts) VALUES (11,'','','2020-01-01 00:00:00')",),
    ("INSERT INTO p2 VALUES (2,'y',4),(3,'z',5)", "UPDATE p2 SET c=9 WHERE a=2", "UPDATE p2 SET a=7 WHERE a=3",
     "DELETE FROM p2 WHERE a=7"),
    ("INSERT INTO nokey VALUES (2,'y')",),
    ("UPDATE nokey SET b='z' WHERE a=2",),
    ("DELETE FROM nokey WHERE a=2",),
    ("ALTER TABLE p2 ADD COLUMN extra int DEFAULT 5",),
    ("INSERT INTO p2 (a,b,c) VALUES (20,'k',1)",),
    ("CREATE TABLE late (id int PRIMARY KEY)",),
    ("INSERT INTO late VALUES (1)",),
)  # fmt: skip


def test_mariadb(mariadb, tmp_path):
    mariadb.query("DROP DATABASE IF EXISTS inv", "CREATE DATABASE inv")
    for statement in MARIADB_TABLES:
        mariadb.query("USE inv", statement)
    common = {
        "database.hostname": "127.0.0.1",
        "database.port": str(mariadb.port),
        "database.user": "root",
        "database.password": "",
        "topic.prefix": "m",
        "database.include.list": "inv",
        "provide.transaction.metadata": "true",
    }
    kind = {"connector.class": "io.debezium.connector.mariadb.MariaDbConnector", "database.server.id": "7701"}
    with (
        witness({**common, **kind}, tmp_path) as output,
        run_source(MariadbSource, common) as source,
    ):
        wait_for_lines(output, 4)
        while len(source.records) < 4:
            source.poll()
        source.poll()
        for step in MARIADB_CHANGES:
            mariadb.query("USE inv", *step)
        wait_for_lines(output, 30)
        for _ in range(8):
            source.poll()
        # Debezium's snapshot also tells the schema by statements that it makes itself.
        records = of_witness(output)
        begun = {place for place, record in enumerate(records[1:]) if record[0] == "m"}
        theirs = [
            record
            for place, record in enumerate(records)
            if not (record[0] == "m" and record[2]["source"]["snapshot"] != "false")
            and record[1:3] != (None, None)
            and not (place in begun and record[0] == "m.transaction" and record[2]["status"] == "BEGIN")
        ]
        compare(theirs, of_ours(source))
