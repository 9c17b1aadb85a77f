"""Connectors without brokers, beside real servers where there are some."""

from __future__ import annotations

import csv
import gzip
import http.server
import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas.connect import ConnectError, RetriableError, schemas
from barnabas.connect.errors import OptionError
from barnabas.connect.kinds.datagen import QUICKSTARTS, Datagen
from barnabas.connect.kinds.elasticsearch import ElasticsearchSink
from barnabas.connect.kinds.http import HttpSink, HttpSource
from barnabas.connect.kinds.redis import RedisSink
from barnabas.connect.kinds.s3 import S3Sink
from barnabas.connect.kinds.spooldir import SpoolDir, SpoolDirCsv
from barnabas.connect.plugins import BUILT_IN
from barnabas.testing.connect import run_sink, run_source
from tests.support.cluster import until


def test_every_connector_has_sound_options() -> None:
    for plugin in BUILT_IN:
        kind = plugin.load()
        names = [option.name for option in kind.definition().options]
        assert len(set(names)) == len(names), plugin.class_name


@pytest.mark.parametrize("quickstart", sorted(QUICKSTARTS))
def test_made_up_records_suit_their_schemas_and_are_the_same_again(quickstart: str) -> None:
    config = {"kafka.topic": "t", "quickstart": quickstart, "max.interval": "0", "iterations": "20"}
    with run_source(Datagen, config) as source, run_source(Datagen, config) as again:
        generated = source.poll_until(20)
        assert [record.value for record in generated] == [record.value for record in again.poll_until(20)]
        assert source.poll() == []
        for record in generated:
            schemas.check(record.value_schema, record.value)
            assert record.key is not None


def test_schemas_with_properties_make_records() -> None:
    about = {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "id", "type": "string", "arg.properties": {"regex": "[A-C]{2}-\\d{3}"}},
            {"name": "tags", "type": {"type": "array", "items": "int"}},
            {"name": "n", "type": ["null", "long"]},
        ],
    }
    config = {"kafka.topic": "t", "schema.string": json.dumps(about), "max.interval": "0", "iterations": "5"}
    with run_source(Datagen, config) as source:
        values = [record.value for record in source.poll_until(5)]
        assert all(len(value["id"]) == 6 and value["id"][2] == "-" for value in values)
    with pytest.raises(OptionError, match="quickstart is 'nothing'"):
        run_source(Datagen, {"kafka.topic": "t", "quickstart": "nothing"}).__enter__()


def _folders(place: Path) -> dict[str, str]:
    for name in ("in", "done", "bad"):
        (place / name).mkdir()
    return {
        "topic": "t",
        "input.path": str(place / "in"),
        "finished.path": str(place / "done"),
        "error.path": str(place / "bad"),
        "batch.size": "2",
    }


def test_files_of_a_folder_are_read_once_and_put_away(tmp_path: Path) -> None:
    config = _folders(tmp_path)
    with (tmp_path / "in" / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "name"], ["1", "Ann, B."], ["2", 'say "x"'], ["3", ""]])
    (tmp_path / "in" / "b.jsonl").write_text('{"id": 4}\n\n{"id": 5}\n')
    pq.write_table(pa.table({"id": [6]}), tmp_path / "in" / "c.parquet")
    avro = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]}
    with (tmp_path / "in" / "d.avro").open("wb") as out:
        fastavro.writer(out, fastavro.parse_schema(avro), [{"id": 7}])
    (tmp_path / "in" / "e.txt").write_text("eight\n")
    with run_source(SpoolDir, {**config, "key.fields": "id"}) as source:
        assert [record.value["name"] for record in source.poll(commit=False)] == ["Ann, B.", 'say "x"']
        source.restart()
        assert [record.key for record in source.poll()] == [{"id": "1"}, {"id": "2"}]
        source.restart()
        assert source.poll()[0].value == {"id": "3", "name": ""}
        assert (tmp_path / "done" / "a.csv").exists()
        values = [record.value for record in source.poll_until(5)]
        assert values == [{"id": 4}, {"id": 5}, {"id": 6}, {"id": 7}, "eight"]
        assert source.poll() == []
    assert sorted(path.name for path in (tmp_path / "done").iterdir()) == [
        "a.csv",
        "b.jsonl",
        "c.parquet",
        "d.avro",
        "e.txt",
    ]


def test_a_file_that_cannot_be_read_is_an_error_or_is_put_aside(tmp_path: Path) -> None:
    config = _folders(tmp_path)
    (tmp_path / "in" / "a.csv").write_text("id,name\n1\n")
    (tmp_path / "in" / "b.csv").write_text("id\n2\n")
    with run_source(SpoolDirCsv, config) as source, pytest.raises(ConnectError, match="line 2 has 1 values"):
        source.poll()
    with run_source(SpoolDirCsv, {**config, "halt.on.error": "false"}) as source:
        assert [record.value for record in source.poll_until(1)] == [{"id": "2"}]
    assert (tmp_path / "bad" / "a.csv").exists()


class _Web(http.server.BaseHTTPRequestHandler):
    """Stores what is posted, and serves it; `answers` are statuses for the next posts."""

    posted: ClassVar[list[tuple[str, bytes, dict[str, str]]]] = []
    answers: ClassVar[list[int]] = []
    busy: ClassVar[list[int]] = []
    documents: ClassVar[list[tuple[str, Any]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.answers.pop(0) if self.answers else 200
        if status == 200:
            self.posted.append((self.path, body, dict(self.headers)))
        self._answer(status, self._bulk(body) if self.path == "/_bulk" and status == 200 else b"{}")

    def _bulk(self, body: bytes) -> bytes:
        """As Elasticsearch answers; `busy` are the places of documents that are refused with 429."""
        lines = [json.loads(line) for line in body.splitlines()]
        items = []
        for place, (action, document) in enumerate(zip(lines[::2], lines[1::2], strict=True)):
            status = 429 if place in self.busy else 200
            if status == 200:
                self.documents.append((action["index"]["_id"], document))
            items.append({"index": {"status": status, "error": {"type": "es_rejected_execution_exception"}}})
        self.busy.clear()
        return json.dumps({"errors": True, "items": items}).encode()

    def do_GET(self) -> None:
        after = int(self.path.partition("after=")[2] or 0)
        rows = [{"id": number, "name": f"n{number}"} for number in range(after + 1, min(after + 3, 6))]
        self._answer(200, json.dumps({"data": {"rows": rows}}).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def web() -> Iterator[str]:
    _Web.posted, _Web.answers, _Web.busy, _Web.documents = [], [], [], []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Web)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_records_are_posted_alone_or_together(web: str) -> None:
    config = {
        "http.url": f"{web}/in?x=1",
        "http.authorization.type": "static",
        "http.headers.authorization": "Bearer t",
    }
    with run_sink(HttpSink, config) as sink:
        sink.put([sink.record("t", {"id": 1}), sink.record("t", "text")])
        assert [(path, body) for path, body, _ in _Web.posted] == [
            ("/in?x=1", b'{"id":1}'),
            ("/in?x=1", b"text"),
        ]
        assert _Web.posted[0][2]["Authorization"] == "Bearer t"
        _Web.answers = [503]
        with pytest.raises(RetriableError, match="503"):
            sink.put([sink.record("t", 1)])
        _Web.answers = [422]
        sink.put([sink.record("t", 1)])
        assert "422" in str(sink.reported[0][1])
    with run_sink(HttpSink, {"http.url": web, "batching.enabled": "true"}) as sink:
        sink.put([sink.record("t", 1), sink.record("t", 2)])
        assert _Web.posted[-1][1] == b"[1,2]"
    with pytest.raises(OptionError):
        run_sink(HttpSink, {"http.url": "nowhere"}).__enter__()


def test_a_url_is_asked_for_what_comes_after_the_last_offset(web: str) -> None:
    config = {
        "url": f"{web}/rows?after=${{offset}}",
        "topic": "t",
        "initial.offset": "0",
        "records.pointer": "/data/rows",
        "offset.pointer": "/id",
        "key.pointer": "/name",
    }
    with run_source(HttpSource, config) as source:
        assert [record.value["id"] for record in source.poll()] == [1, 2]
        source.restart()
        assert [record.key for record in source.poll_until(3)] == ["n3", "n4", "n5"]
        assert source.poll() == []
    with (
        run_source(HttpSource, {**config, "records.pointer": "/none"}) as source,
        pytest.raises(ConnectError, match="no records"),
    ):
        source.poll()


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    command = shutil.which("redis-server")
    if command is None:
        pytest.skip("redis-server is not installed (Debian: redis-server)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [command, "--port", str(port), "--bind", "127.0.0.1", "--save", ""], stdout=subprocess.DEVNULL
    )
    import redis

    client = redis.Redis(port=port)

    def answers() -> bool:
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False

    until(answers, "redis answers")
    client.close()
    yield f"redis://127.0.0.1:{port}"
    server.terminate()
    server.wait()


def test_records_are_kept_in_redis(redis_url: str) -> None:
    import redis

    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        with run_sink(RedisSink, {"redis.uri": redis_url, "redis.key": "${topic}:"}) as sink:
            sink.put([sink.record("t", {"id": 1}, "a"), sink.record("t", "x", "b"), sink.record("t", "x")])
            assert client.get("t:a") == '{"id":1}'
            assert "no key" in str(sink.reported[0][1])
            sink.put([sink.record("t", None, "a")])
            assert client.get("t:a") is None
        with run_sink(
            RedisSink, {"redis.uri": redis_url, "redis.command": "HSET", "redis.ttl.s": "100"}
        ) as sink:
            sink.put([sink.record("t", {"id": 1, "name": None}, 7)])
            assert client.hgetall("7") == {"id": "1"}
            assert 0 < client.ttl("7") <= 100
        with run_sink(RedisSink, {"redis.uri": redis_url, "redis.command": "XADD"}) as sink:
            sink.put([sink.record("stream", {"id": 1})])
            assert client.xlen("stream") == 1
    with pytest.raises(OptionError, match="does not answer"):
        run_sink(RedisSink, {"redis.uri": "redis://127.0.0.1:9"}).__enter__()


def _objects(place: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()
    }


def test_objects_are_named_by_offsets_and_written_once(tmp_path: Path) -> None:
    config = {"s3.bucket.name": "b", "store.url": f"file://{tmp_path}", "flush.size": "2"}
    with run_sink(S3Sink, config) as sink:
        records = [sink.record("events", {"id": number}) for number in range(3)]
        sink.put(records)
        assert sink.flush() == {("events", 0): 2}
        before = _objects(tmp_path)
        assert before == {"b/topics/events/partition=0/events+0+0000000000.json": b'{"id":0}\n{"id":1}\n'}
        sink.restart()
        sink.put(records)
        assert _objects(tmp_path) == before
        sink.put([sink.record("events", {"id": 3})])
        assert sink.flush() == {("events", 0): 4}
    named = {
        **config,
        "partitioner.class": "FieldPartitioner",
        "partition.field.name": "kind",
        "s3.compression.type": "gzip",
    }
    with run_sink(S3Sink, {**named, "topics.dir": "fields"}) as sink:
        sink.put([sink.record("events", {"kind": kind}) for kind in ("a", "b", "a", "b")])
        sink.put([sink.record("events", {})])
        assert "lacks one of the fields" in str(sink.reported[0][1])
    objects = _objects(tmp_path / "b" / "fields")
    assert (
        gzip.decompress(objects["events/kind=a/events+0+0000000000.json.gz"])
        == b'{"kind":"a"}\n{"kind":"a"}\n'
    )


@pytest.mark.parametrize("format", ["AvroFormat", "ParquetFormat"])
def test_objects_by_hour_are_read_by_others(tmp_path: Path, format: str) -> None:
    config = {
        "s3.bucket.name": "b",
        "store.url": f"file://{tmp_path}",
        "flush.size": "2",
        "format.class": f"io.confluent.connect.s3.format.avro.{format}",
        "partitioner.class": "TimeBasedPartitioner",
        "path.format": "'year'=YYYY/'hour'=HH",
    }
    schema = schemas.struct({"id": schemas.INT64, "price": schemas.decimal(2)}, "order")
    with run_sink(S3Sink, config) as sink:
        from decimal import Decimal

        rows = [{"id": number, "price": Decimal("1.50")} for number in range(2)]
        sink.put(
            [sink.record("orders", row, value_schema=schema, timestamp_ms=1506923052012) for row in rows]
        )
    (name, data), *_ = _objects(tmp_path).items()
    assert name.startswith("b/topics/orders/year=2017/hour=05/orders+0+0000000000.")
    if format == "AvroFormat":
        (tmp_path / "file").write_bytes(data)
        with (tmp_path / "file").open("rb") as file:
            assert list(fastavro.reader(file)) == rows
    else:
        assert pq.read_table(tmp_path / name).to_pylist() == rows


def test_wrong_options_of_objects_are_refused(tmp_path: Path) -> None:
    config = {
        "s3.bucket.name": "b",
        "flush.size": "1",
        "format.class": "Csv",
        "store.url": f"file://{tmp_path}",
    }
    with pytest.raises(OptionError, match=r"format\.class must be one of"):
        run_sink(S3Sink, config).__enter__()


def test_only_documents_that_a_busy_server_refused_are_sent_again_and_the_last_one_of_an_id_stays_the_last(
    web: str,
) -> None:
    with run_sink(ElasticsearchSink, {"connection.url": web, "batch.size": "4"}) as sink:
        keys = ["a", "b", "a", "c", "d", "e"]
        records = [sink.record("t", {"n": n}, key) for n, key in enumerate(keys)]
        _Web.busy = [0]
        with pytest.raises(RetriableError, match="too busy for 2 documents"):
            sink.put(records)
        assert _Web.documents == [("b", {"n": 1}), ("a", {"n": 2}), ("c", {"n": 3})]
        _Web.answers = [429]
        with pytest.raises(RetriableError, match="answers 429"):
            sink.put(records)
        sink.put(records)
        assert _Web.documents[3:] == [("a", {"n": 0}), ("a", {"n": 2}), ("d", {"n": 4}), ("e", {"n": 5})]


def test_posts_before_one_that_failed_are_not_repeated(web: str) -> None:
    with run_sink(HttpSink, {"http.url": web}) as sink:
        records = [sink.record("t", number) for number in range(4)]
        _Web.answers = [200, 200, 429, 503]
        for _ in range(2):
            with pytest.raises(RetriableError):
                sink.put(records)
        sink.put(records)
        assert [body for _, body, _ in _Web.posted] == [b"0", b"1", b"2", b"3"]
        sink.put([sink.record("t", 4)])
        assert _Web.posted[-1][1] == b"4"


def test_documents_are_lines_of_a_bulk(web: str) -> None:
    with run_sink(ElasticsearchSink, {"connection.url": web}) as sink:
        sink.connector.stop()
        sink.connector.start(
            {**sink.connector.config, "connection.url": ["http://127.0.0.1:9"]}, sink.context
        )
        with pytest.raises(RetriableError, match="does not answer"):
            sink.put([sink.record("T", {"id": 1}, "a")])
        sink.put([sink.record("T", {"id": 1}), sink.record("T", None, "a"), sink.record("T", "text", "a")])
        complaints = [str(error) for _, error in sink.reported]
        assert [text[:30] for text in complaints] == [
            "the record has no key for the ",
            "the value is null; behavior.on",
            "a str is no document",
        ]


@pytest.mark.parametrize(
    ("kind", "config", "reason"),
    [
        (ElasticsearchSink, {"connection.url": "localhost:9200"}, "'localhost:9200' is not a URL"),
        (ElasticsearchSink, {"connection.url": "http://127.0.0.1:9"}, "does not answer"),
        (RedisSink, {"redis.uri": "127.0.0.1"}, "redis.uri: Redis URL must specify"),
        (HttpSink, {"http.url": "ftp://x", "http.authorization.type": "none"}, "'ftp://x' is not a URL"),
    ],
)
def test_addresses_that_are_none_are_refused_at_once(kind: Any, config: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError) as raised:
        run_sink(kind, config).__enter__()
    assert reason in str(raised.value)
