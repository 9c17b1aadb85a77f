"""Sinks into Delta Lake and Iceberg tables, which readers that we did not write read back; and objects of the S3 sink
into topics again."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pytest

from barnabas.connect import schemas
from barnabas.connect.errors import ConnectError, RetriableError
from barnabas.connect.kinds.s3 import S3Sink
from barnabas.connect.kinds.s3_source import S3Source
from barnabas.connect.lake.delta import DeltaSink
from barnabas.connect.lake.iceberg import IcebergSink
from barnabas.connect.options import Config
from barnabas.testing.connect import run_sink, run_source
from tests.support.process import free_port

AT = dt.datetime(2026, 1, 2, 3, 4, 5, 678000, dt.UTC)
ORDER = schemas.struct(
    {
        "id": schemas.INT64,
        "price": schemas.decimal(2),
        "at": schemas.TIMESTAMP_SCHEMA,
        "day": schemas.DATE_SCHEMA,
        "tags": schemas.array(schemas.STRING),
        "by": schemas.map_of(schemas.STRING, schemas.INT32),
        "place": schemas.struct({"city": schemas.OPTIONAL_STRING}),
    }
)


def order(id: int) -> dict[str, Any]:
    return {
        "id": id,
        "price": Decimal("1.50"),
        "at": AT,
        "day": AT.date(),
        "tags": ["a"],
        "by": {"x": 1},
        "place": {"city": "Ulm"},
    }


class Delta:
    kind = DeltaSink

    def __init__(self, folder: Path) -> None:
        self.path = folder / "orders"
        self.config = {"table.path": f"{folder}/${{topic}}"}
        self.open: Config = {}
        self.strict = {"auto.create": "false"}
        self.fixed = {"auto.evolve": "false"}

    def rows(self) -> list[dict[str, Any]]:
        return sorted(
            deltalake.DeltaTable(self.path).to_pyarrow_table().to_pylist(), key=lambda row: row["id"]
        )

    def commits(self) -> int:
        return len(deltalake.DeltaTable(self.path).history())


class Iceberg:
    kind = IcebergSink

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("pyiceberg")
        self.catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}",
        }
        self.config = {f"iceberg.catalog.{name}": value for name, value in self.catalog.items()}
        self.config |= {
            "iceberg.tables": "shop.orders",
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.tables.evolve-schema-enabled": "true",
        }
        self.strict = {"iceberg.tables.auto-create-enabled": "false"}
        self.fixed = {"iceberg.tables.evolve-schema-enabled": "false"}

    def table(self) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog("iceberg", **self.catalog).load_table("shop.orders")

    def rows(self) -> list[dict[str, Any]]:
        return sorted(self.table().scan().to_arrow().to_pylist(), key=lambda row: row["id"])

    def commits(self) -> int:
        return len(self.table().metadata.snapshots)


@pytest.fixture(params=[Delta, Iceberg], ids=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return request.param(tmp_path)


def test_records_are_rows_with_their_types_each_once(lake: Any) -> None:
    with run_sink(lake.kind, lake.config, [("orders", 0), ("orders", 1)]) as sink:
        records = [sink.record("orders", order(n), value_schema=ORDER, partition=n % 2) for n in range(4)]
        sink.put(records)
        assert sink.flush() == {("orders", 0): 2, ("orders", 1): 2}
        sink.restart()
        sink.put(records)  # as after a failure before offsets were committed
        sink.put([sink.record("orders", order(9), value_schema=ORDER)])
        sink.flush()
    rows = lake.rows()
    assert [row["id"] for row in rows] == [0, 1, 2, 3, 9]
    assert rows[0] | {"by": dict(rows[0]["by"])} == order(0)
    assert lake.commits() == 2


def test_a_call_that_is_repeated_adds_its_records_once(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.connect.lake.sink.RECORDS_MAX", 2)
    with run_sink(lake.kind, lake.config, [("orders", 0)]) as sink:
        connector: Any = sink.connector
        commit, stored = connector.commit, connector.stored

        def fail(*_: Any) -> Any:
            raise RetriableError("away")

        first = [sink.record("orders", {"id": n}) for n in range(2)]
        monkeypatch.setattr(sink.connector, "stored", fail)
        with pytest.raises(RetriableError):
            sink.put(first)
        monkeypatch.setattr(sink.connector, "stored", stored)
        sink.put(first)
        second = [sink.record("orders", {"id": n}) for n in range(2, 4)]
        monkeypatch.setattr(sink.connector, "commit", fail)
        with pytest.raises(RetriableError):
            sink.put(second)
        monkeypatch.setattr(sink.connector, "commit", commit)
        sink.put(second)
        sink.flush()
    assert [row["id"] for row in lake.rows()] == [0, 1, 2, 3]


def test_fields_that_come_later_are_columns_and_those_of_no_value_null(lake: Any) -> None:
    with run_sink(lake.kind, lake.config, [("orders", 0)]) as sink:
        sink.put(
            [sink.record("orders", {"id": 1, "note": None}), sink.record("orders", {"id": 2, "name": "b"})]
        )
        sink.flush()
        sink.put([sink.record("orders", {"id": 3, "count": 7}), sink.record("orders", None)])
        sink.flush()
    assert lake.rows() == [
        {"id": 1, "name": None, "count": None},
        {"id": 2, "name": "b", "count": None},
        {"id": 3, "name": None, "count": 7},
    ]


def test_what_cannot_be_stored_says_why(lake: Any) -> None:
    with run_sink(lake.kind, {**lake.config, **lake.strict}, [("orders", 0)]) as sink:
        sink.put([sink.record("orders", "text")])
        assert "not a struct or an object" in str(sink.reported[0][1])
        sink.put([sink.record("orders", {"id": 1})])
        with pytest.raises(ConnectError, match=r"there is no (Delta|Iceberg) table .*create it"):
            sink.flush()
    with run_sink(lake.kind, {**lake.config, **lake.fixed}, [("orders", 0)]) as sink:
        sink.put([sink.record("orders", {"id": 1})])
        sink.flush()
        sink.put([sink.record("orders", {"id": 2, "name": "b"})])
        with pytest.raises(ConnectError, match="has no column name"):
            sink.flush()
    with run_sink(lake.kind, lake.config, [("other", 0)]) as sink:
        sink.put([sink.record("orders", {"id": "a word"}, partition=7)])
        with pytest.raises(ConnectError, match=r"orders"):
            sink.flush()


def test_delta_tables_are_read_by_duckdb(tmp_path: Path) -> None:
    lake = Delta(tmp_path)
    with run_sink(DeltaSink, {**lake.config, "partition.by": "kind"}, [("orders", 0)]) as sink:
        sink.put([sink.record("orders", {"id": n, "kind": "ab"[n % 2]}) for n in range(4)])
        sink.flush()
    duckdb.register("made", deltalake.DeltaTable(lake.path).to_pyarrow_table())
    assert duckdb.sql("SELECT kind, sum(id) FROM made GROUP BY 1 ORDER BY 1").fetchall() == [
        ("a", 2),
        ("b", 4),
    ]
    assert sorted(path.name for path in lake.path.glob("kind=*")) == ["kind=a", "kind=b"]


def test_records_choose_their_iceberg_table(tmp_path: Path) -> None:
    lake = Iceberg(tmp_path)
    more = {"iceberg.tables.dynamic-enabled": "true", "iceberg.tables.route-field": "to"}
    with run_sink(IcebergSink, {**lake.config, **more}, [("orders", 0)]) as sink:
        sink.put(
            [
                sink.record("orders", {"id": 1, "to": "Shop.Orders"}),
                sink.record("orders", {"id": 2, "to": "x"}),
            ]
        )
        sink.flush()
        assert "field to is 'x'" in str(sink.reported[0][1])
    assert [row["id"] for row in lake.rows()] == [1]


@pytest.mark.parametrize("format", ["JsonFormat", "AvroFormat", "ParquetFormat", "StringFormat"])
def test_objects_of_the_sink_become_the_same_records_in_the_same_partitions(
    tmp_path: Path, format: str
) -> None:
    place = {"s3.bucket.name": "b", "store.url": f"file://{tmp_path}", "format.class": format}
    schema = schemas.struct({"id": schemas.INT64})
    text = format == "StringFormat"
    with run_sink(S3Sink, {**place, "flush.size": "2"}, [("t", 0), ("t", 1)]) as sink:
        for n in range(8):
            value = f"line {n}" if text else {"id": n}
            sink.put([sink.record("t", value, value_schema=None if text else schema, partition=n % 2)])
    (tmp_path / "b" / "topics" / "t" / "note.txt").write_text("not an object of the sink")
    with run_source(S3Source, {**place, "record.batch.max.size": "1"}) as source:
        first = source.poll()
        source.restart()
        records = [*first, *source.poll_until(6)]
        assert source.poll() == []
    rows = sorted((r.partition, r.value if text else r.value["id"]) for r in records)
    assert rows == sorted((n % 2, f"line {n}" if text else n) for n in range(8))
    assert {r.topic for r in records} == {"t"}
    with run_source(S3Source, {**place, "topic.regex.list": "u.*"}) as source:
        assert source.connector.partitions() == []


@pytest.mark.soak
def test_objects_come_and_go_through_a_server(tmp_path: Path) -> None:
    """moto answers as S3 does."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", free_port())
    server.start()
    host, port = server.get_host_and_port()
    try:
        import boto3

        place = {
            "s3.bucket.name": "bucket",
            "store.url": f"http://{host}:{port}",
            "aws.access.key.id": "x",
            "aws.secret.access.key": "y",
        }
        login = {"aws_access_key_id": "x", "aws_secret_access_key": "y", "region_name": "us-west-2"}
        client = boto3.client("s3", endpoint_url=place["store.url"], **login)
        client.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        with run_sink(S3Sink, {**place, "flush.size": "2"}, [("t", 0)]) as sink:
            sink.put([sink.record("t", {"id": n}) for n in range(4)])
        names = [row["Key"] for row in client.list_objects_v2(Bucket="bucket")["Contents"]]
        assert names == [f"topics/t/partition=0/t+0+{n:010d}.json" for n in (0, 2)]
        with run_source(S3Source, place) as source:
            assert [record.value["id"] for record in source.poll_until(4)] == [0, 1, 2, 3]
    finally:
        server.stop()
