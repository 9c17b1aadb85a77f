"""How MongoDB's sink makes writes of records: where an _id comes from, and what is done with the document. No I/O."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import bson
from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateOne

from barnabas.connect.errors import DataError
from barnabas.connect.mongodb.texts import loads
from barnabas.connect.options import Config
from barnabas.connect.records import SinkRecord

Write = DeleteOne | InsertOne[Any] | ReplaceOne[Any] | UpdateOne


def document_of(value: Any, what: str) -> dict[str, Any]:
    """A key or value as a document. Raises DataError."""
    if isinstance(value, Mapping):
        return {str(name): _storable(item) for name, item in value.items()}
    try:
        if isinstance(value, (bytes, bytearray)):
            raw = bytes(value)
            document = bson.decode(raw) if raw[:1] != b"{" else loads(raw.decode())
        elif isinstance(value, str):
            document = loads(value)
        else:
            raise DataError(f"the {what} is {type(value).__name__}, not a struct, a text of JSON, or BSON")
    except (ValueError, bson.errors.BSONError) as error:
        raise DataError(f"the {what} is no document: {error}") from error
    if not isinstance(document, Mapping):
        raise DataError(f"the {what} is JSON, but not an object: {str(document)[:60]}")
    return dict(document)


def _storable(value: Any) -> Any:
    """Values that BSON has."""
    if isinstance(value, Mapping):
        return {str(name): _storable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_storable(item) for item in value]
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    if isinstance(value, dt.time):
        return value.isoformat()
    return bson.Decimal128(value) if type(value).__name__ == "Decimal" else value


def _projected(document: Mapping[str, Any], config: Config, part: str) -> dict[str, Any]:
    names = config[f"document.id.strategy.partial.{part}.projection.list"]
    blocked = config[f"document.id.strategy.partial.{part}.projection.type"] == "blocklist"
    return {name: value for name, value in document.items() if (name in names) != blocked}


def _provided(document: Mapping[str, Any], what: str) -> Any:
    if document.get("_id") is None:
        raise DataError(f"the {what} has no _id")
    return document["_id"]


MakeId = Callable[[SinkRecord, Mapping[str, Any], Config], Any]
IDS: Final[Mapping[str, MakeId]] = {
    "BsonOidStrategy": lambda _, __, ___: bson.ObjectId(),
    "UuidStrategy": lambda _, __, ___: str(uuid.uuid4()),
    "KafkaMetaDataStrategy": lambda r, _, __: f"{r.original_topic}#{r.original_partition}#{r.offset}",
    "FullKeyStrategy": lambda r, _, __: document_of(r.key, "key"),
    "ProvidedInKeyStrategy": lambda r, _, __: _provided(document_of(r.key, "key"), "key"),
    "ProvidedInValueStrategy": lambda _, d, __: _provided(d, "value"),
    "PartialKeyStrategy": lambda r, _, c: _projected(document_of(r.key, "key"), c, "key"),
    "PartialValueStrategy": lambda _, d, c: _projected(d, c, "value"),
}


def write_of(record: SinkRecord, config: Config) -> Write | None:
    """The write of a record; None if there is nothing to do. Raises DataError."""
    strategy = config["writemodel.strategy"].rpartition(".")[2]
    make_id = IDS[config["document.id.strategy"].rpartition(".")[2]]
    if record.value is None:
        if not config["delete.on.null.values"]:
            return None
        return DeleteOne({"_id": make_id(record, {}, config)})
    document = document_of(record.value, "value")
    if "_id" not in document or config["document.id.strategy.overwrite.existing"]:
        document = {
            "_id": make_id(record, document, config),
            **{k: v for k, v in document.items() if k != "_id"},
        }
    key = document["_id"]
    if strategy.startswith("DeleteOne"):
        return DeleteOne(_business(key) if "BusinessKey" in strategy else {"_id": key})
    if strategy == "InsertOneDefaultStrategy":
        return InsertOne(document)
    rest = {name: value for name, value in document.items() if name != "_id"}
    now = dt.datetime.now(dt.UTC)
    if strategy == "ReplaceOneBusinessKeyStrategy":
        return ReplaceOne(_business(key), rest, upsert=True)
    if strategy == "UpdateOneTimestampsStrategy":
        return UpdateOne({"_id": key}, _stamped(rest, now), upsert=True)
    if strategy == "UpdateOneBusinessKeyTimestampStrategy":
        return UpdateOne(_business(key), _stamped(rest, now), upsert=True)
    return ReplaceOne({"_id": key}, document, upsert=True)


def _stamped(rest: Mapping[str, Any], now: dt.datetime) -> dict[str, Any]:
    return {"$set": {**rest, "_modifiedTS": now}, "$setOnInsert": {"_insertedTS": now}}


def _business(key: Any) -> dict[str, Any]:
    if not isinstance(key, Mapping):
        raise DataError(
            "a business key needs document.id.strategy PartialValueStrategy or PartialKeyStrategy"
        )
    return dict(key)
