"""The MongoDB connectors with the server that BARNABAS_TEST_MONGODB names, or with the stand-in nx-27017.

The stand-in has change streams of collections, with resume tokens; its events lack some fields that a real server's have. No
real server was at hand where these tests were written.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pymongo")

import pymongo
from bson import ObjectId

from barnabas.connect.errors import ConnectError, OptionError
from barnabas.connect.mongodb.sink import MongoSink
from barnabas.connect.mongodb.source import MongoSource
from barnabas.connect.mongodb.texts import FORMATS
from barnabas.connect.plugins import find_plugin
from barnabas.connect.schemas import INT32, STRING, struct
from barnabas.testing.connect import DrivenSource, run_sink, run_source
from tests.support.databases import new_folder, wait_for_port
from tests.support.process import free_port

NAMES = iter(range(10_000))
STAND_IN = Path(sys.executable).with_name("nx-27017")


@pytest.fixture(scope="session")
def mongodb() -> Iterator[str]:
    """The address of a server."""
    if "BARNABAS_TEST_MONGODB" in os.environ:
        yield os.environ["BARNABAS_TEST_MONGODB"]
        return
    if not STAND_IN.exists():
        pytest.skip("no MongoDB: name one in BARNABAS_TEST_MONGODB, or pip install nx-27017")
    folder, port = new_folder("mongo"), free_port()
    process = subprocess.Popen(
        [
            str(STAND_IN),
            "--db",
            "memory",
            "-p",
            str(port),
            "--log-file",
            str(folder / "log"),
            "--threaded",
            "--pid-file",
            str(folder / "pid"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for_port(port, process)
        yield f"mongodb://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


class Collection:
    """A collection of its own per test."""

    def __init__(self, uri: str) -> None:
        self.uri, self.name = uri, f"c{next(NAMES)}"
        self.client = pymongo.MongoClient(uri)
        self.all = self.client["shop"][self.name]

    def config(self, **more: str) -> dict[str, str]:
        return {"connection.uri": self.uri, "database": "shop", "collection": self.name, **more}

    def documents(self) -> list[dict]:
        return sorted(self.all.find({}), key=lambda document: str(document["_id"]))


@pytest.fixture
def collection(mongodb) -> Iterator[Collection]:
    started = Collection(mongodb)
    yield started
    started.client.close()


def poll_until(source: DrivenSource, count: int) -> None:
    for _ in range(100):
        if len(source.records) >= count:
            return
        source.poll()
    raise AssertionError(f"{len(source.records)} records, not {count}")


def test_documents_then_changes(collection):
    collection.all.insert_many([{"_id": n, "name": f"n{n}"} for n in range(5)])
    options = {"startup.mode": "copy_existing", "topic.prefix": "m", "poll.max.batch.size": "2"}
    with run_source(MongoSource, collection.config(**options)) as source:
        poll_until(source, 2)
        source.restart()
        poll_until(source, 5)
        source.poll()
        collection.all.insert_one({"_id": 9, "name": "new"})
        poll_until(source, 6)
        source.restart()
        collection.all.delete_one({"_id": 9})
        poll_until(source, 7)
        events = [json.loads(record.value) for record in source.records]
        assert [event["operationType"] for event in events] == ["insert"] * 6 + ["delete"]
        assert [event["fullDocument"]["_id"] for event in events[:6]] == [0, 1, 2, 3, 4, 9]
        assert {record.topic for record in source.records} == {f"m.shop.{collection.name}"}
        assert json.loads(source.records[0].key) == {"_id": {"_id": 0, "copyingData": True}}


def test_documents_alone(collection):
    options = {
        "publish.full.document.only": "true",
        "output.json.formatter": "com.mongodb.kafka.connect.source.json.formatter.SimplifiedJson",
        "topic.namespace.map": f'{{"shop.{collection.name}": "people"}}',
    }
    with run_source(MongoSource, collection.config(**options)) as source:
        source.poll()
        collection.all.insert_one({"_id": "x", "tags": ["a"]})
        poll_until(source, 1)
        (record,) = source.records
        assert record.topic == "people"
        assert json.loads(record.value) == {"_id": "x", "tags": ["a"]}


def test_forms_of_json():
    document = {
        "_id": ObjectId("652f3c2e1f1d2a0001abcdef"),
        "at": dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
        "n": 1,
    }
    assert {name: json.loads(write(document)) for name, write in FORMATS.items()} == {
        "DefaultJson": {"_id": {"$oid": "652f3c2e1f1d2a0001abcdef"}, "at": {"$date": 1577836800000}, "n": 1},
        "ExtendedJson": {
            "_id": {"$oid": "652f3c2e1f1d2a0001abcdef"},
            "at": {"$date": {"$numberLong": "1577836800000"}},
            "n": {"$numberInt": "1"},
        },
        "SimplifiedJson": {"_id": "652f3c2e1f1d2a0001abcdef", "at": "2020-01-01T00:00:00.000Z", "n": 1},
    }


def test_a_pipeline_chooses(collection):
    options = {"pipeline": '[{"$match": {"operationType": "insert"}}]'}
    with run_source(MongoSource, collection.config(**options)) as source:
        source.poll()
        collection.all.insert_one({"_id": 1})
        collection.all.delete_one({"_id": 1})
        collection.all.insert_one({"_id": 2})
        poll_until(source, 2)
        assert [json.loads(record.value)["operationType"] for record in source.records] == [
            "insert",
            "insert",
        ]


def test_sink_replaces_by_id(collection):
    options = {"document.id.strategy": "ProvidedInKeyStrategy", "delete.on.null.values": "true"}
    with run_sink(MongoSink, collection.config(**options)) as sink:
        schema, key = struct({"name": STRING, "n": INT32}), struct({"_id": INT32})
        sink.put(
            [
                sink.record("t", {"name": "a", "n": 1}, {"_id": 1}, schema, key),
                sink.record("t", {"name": "b", "n": 2}, {"_id": 2}, schema, key),
                sink.record("t", '{"name": "c", "n": 3}', {"_id": 1}),
            ]
        )
        sink.put([sink.record("t", None, {"_id": 2}), sink.record("t", "no document", {"_id": 3})])
        assert str(sink.reported[0][1]).startswith("the value is no document")
    assert collection.documents() == [{"_id": 1, "name": "c", "n": 3}]


def test_sink_by_business_keys_and_offsets(collection):
    options = {
        "document.id.strategy": "com.mongodb.kafka.connect.sink.processor.id.strategy.PartialValueStrategy",
        "document.id.strategy.partial.value.projection.list": "code",
        "document.id.strategy.partial.value.projection.type": "allowlist",
        "writemodel.strategy": "com.mongodb.kafka.connect.sink.writemodel.strategy.ReplaceOneBusinessKeyStrategy",
    }
    with run_sink(MongoSink, collection.config(**options)) as sink:
        sink.put([sink.record("t", {"code": "x", "n": 1}), sink.record("t", {"code": "x", "n": 2})])
    assert [(document["code"], document["n"]) for document in collection.documents()] == [("x", 2)]
    collection.all.delete_many({})
    with run_sink(MongoSink, collection.config(**{"document.id.strategy": "KafkaMetaDataStrategy"})) as sink:
        records = [sink.record("t", {"n": 1})]
        sink.put(records)
        sink.put(records)
    assert collection.documents() == [{"_id": "t#0#0", "n": 1}]


def test_sink_reports_what_is_refused(collection):
    with run_sink(
        MongoSink, collection.config(**{"writemodel.strategy": "InsertOneDefaultStrategy"})
    ) as sink:
        sink.put([sink.record("t", {"_id": n}) for n in (1, 2, 1, 3)])
        assert [record.offset for record, _ in sink.reported] == [2]
    assert [document["_id"] for document in collection.documents()] == [1, 2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"connection.uri": "mongodb://me:secret@127.0.0.1:1/?connectTimeoutMS=300&serverSelectionTimeoutMS=300"},
         "mongodb://127.0.0.1:1/.* cannot be reached"),
        ({"database": ""}, "database is needed with collection"),
        ({"pipeline": "{"}, "it is not JSON"),
        ({"startup.mode": "now"}, "must be one of: latest"),
        ({"output.json.formatter": "X"}, "there are DefaultJson"),
    ],
)  # fmt: skip
def test_wrong_options(options, message):
    config = {"connection.uri": "mongodb://127.0.0.1:1", "database": "a", "collection": "b", **options}
    with pytest.raises(OptionError, match=message) as caught:
        run_source(MongoSource, config).__enter__()
    assert "secret" not in str(caught.value)


def test_a_resume_token_that_is_too_old_says_what_to_do():
    from pymongo.errors import OperationFailure

    from barnabas.connect.mongodb.reader import Reader, Watched

    reader = Reader(Watched("mongodb://me:secret@db/"))
    error = reader.failed(OperationFailure("Resume of change stream was not possible", 286), "reading")
    reader.close()
    assert isinstance(error, ConnectError)
    assert str(error).startswith(
        "mongodb://db/: the changes after the stored resume token are not kept any more"
    )
    assert "startup.mode=copy_existing" in str(error)


def test_names():
    for name, cls in (
        ("com.mongodb.kafka.connect.MongoSourceConnector", MongoSource),
        ("MongoSource", MongoSource),
        ("mongodb-source", MongoSource),
        ("com.mongodb.kafka.connect.MongoSinkConnector", MongoSink),
        ("mongodb-sink", MongoSink),
    ):
        assert find_plugin(name).load() is cls
