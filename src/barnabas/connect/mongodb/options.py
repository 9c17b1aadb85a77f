"""The options of MongoDB's own connectors."""

from __future__ import annotations

import json
from typing import Any, Final

from barnabas.connect.mongodb.texts import FORMATS
from barnabas.connect.options import ConnectorOption, Importance, Type

CONNECTION: Final = (
    ConnectorOption(
        "connection.uri",
        Type.PASSWORD,
        "mongodb://localhost:27017",
        Importance.HIGH,
        "The address of the deployment, with user and password.",
    ),
)


def is_pipeline(value: Any) -> str | None:
    """A rule: a list of stages as JSON."""
    try:
        stages = json.loads(value or "[]")
    except ValueError as error:
        return f"it is not JSON: {error}"
    return (
        None
        if isinstance(stages, list) and all(isinstance(stage, dict) for stage in stages)
        else "it is no list of stages"
    )


def is_map(value: Any) -> str | None:
    """A rule: an object of texts as JSON."""
    try:
        mapping = json.loads(value or "{}")
    except ValueError as error:
        return f"it is not JSON: {error}"
    return (
        None
        if isinstance(mapping, dict) and all(isinstance(t, str) for t in mapping.values())
        else "it is no map of texts"
    )


def is_formatter(value: Any) -> str | None:
    """A rule: one of MongoDB's."""
    return None if value.rpartition(".")[2] in FORMATS else f"there are {', '.join(FORMATS)}"


SOURCE: Final = (
    *CONNECTION,
    ConnectorOption("database", default="", doc="The database; empty: all."),
    ConnectorOption("collection", default="", doc="The collection; empty: all of the database."),
    ConnectorOption(
        "pipeline",
        default="[]",
        doc="Stages that events go through in the server, as a list in JSON.",
        check=is_pipeline,
    ),
    ConnectorOption("topic.prefix", default="", doc="Topics are PREFIX.DATABASE.COLLECTION."),
    ConnectorOption(
        "topic.suffix", default="", importance=Importance.LOW, doc="At the end of topics' names."
    ),
    ConnectorOption(
        "topic.separator", default=".", importance=Importance.LOW, doc="Between the parts of topics' names."
    ),
    ConnectorOption(
        "topic.namespace.map",
        default="",
        doc='Topics for namespaces, as JSON: {"db.collection": "topic", "*": "topic"}.',
        check=is_map,
    ),
    ConnectorOption(
        "publish.full.document.only",
        Type.BOOLEAN,
        False,
        doc="Whether values are documents instead of events.",
    ),
    ConnectorOption(
        "publish.full.document.only.tombstone.on.delete",
        Type.BOOLEAN,
        False,
        doc="Whether a delete is then a record without a value; otherwise it is left out.",
    ),
    ConnectorOption(
        "change.stream.full.document",
        default="",
        choices=("", "default", "updateLookup", "whenAvailable", "required"),
        doc="What updates have besides what changed: updateLookup, the document as it is when the event is read.",
    ),
    ConnectorOption(
        "change.stream.full.document.before.change",
        default="",
        choices=("", "default", "off", "whenAvailable", "required"),
        doc="Whether events have the document before (pre-images must be kept for the collection).",
    ),
    ConnectorOption(
        "startup.mode",
        default="latest",
        choices=("latest", "timestamp", "copy_existing"),
        doc="Where to begin: now, at a time, or after copying the documents that are there.",
    ),
    ConnectorOption(
        "startup.mode.timestamp.start.at.operation.time",
        Type.LONG,
        None,
        Importance.LOW,
        "That time, in s since 1970.",
    ),
    ConnectorOption(
        "copy.existing", Type.BOOLEAN, False, Importance.LOW, "The older name of startup.mode=copy_existing."
    ),
    ConnectorOption(
        "poll.max.batch.size", Type.INT, 1000, Importance.LOW, "Events of one poll at most.", lo=1
    ),
    ConnectorOption("poll.await.time.ms", Type.LONG, 5000, Importance.LOW, "Accepted."),
    ConnectorOption(
        "output.json.formatter",
        default="com.mongodb.kafka.connect.source.json.formatter.DefaultJson",
        importance=Importance.LOW,
        doc="How documents are written: DefaultJson, ExtendedJson or SimplifiedJson.",
        check=is_formatter,
    ),
    ConnectorOption(
        "output.format.key",
        default="json",
        choices=("json", "bson"),
        doc="What keys are: texts of JSON, or BSON.",
    ),
    ConnectorOption(
        "output.format.value",
        default="json",
        choices=("json", "bson"),
        doc="What values are: texts of JSON, or BSON.",
    ),
    ConnectorOption(
        "poll.interval.ms", Type.INT, 100, Importance.LOW, "How long to wait when nothing changed.", lo=0
    ),
)

STRATEGIES: Final = (
    "DefaultWriteModelStrategy",
    "InsertOneDefaultStrategy",
    "ReplaceOneDefaultStrategy",
    "ReplaceOneBusinessKeyStrategy",
    "UpdateOneTimestampsStrategy",
    "UpdateOneBusinessKeyTimestampStrategy",
    "DeleteOneDefaultStrategy",
    "DeleteOneBusinessKeyStrategy",
)
IDS: Final = (
    "BsonOidStrategy",
    "KafkaMetaDataStrategy",
    "FullKeyStrategy",
    "ProvidedInKeyStrategy",
    "ProvidedInValueStrategy",
    "PartialKeyStrategy",
    "PartialValueStrategy",
    "UuidStrategy",
)


def is_strategy(value: Any) -> str | None:
    """A rule: one of MongoDB's strategies of writing."""
    return None if value.rpartition(".")[2] in STRATEGIES else f"there are {', '.join(STRATEGIES)}"


def is_id(value: Any) -> str | None:
    """A rule: one of MongoDB's strategies of ids."""
    return None if value.rpartition(".")[2] in IDS else f"there are {', '.join(IDS)}"


SINK: Final = (
    *CONNECTION,
    ConnectorOption("database", importance=Importance.HIGH, doc="The database."),
    ConnectorOption("collection", default="", doc="The collection; empty: named as the topic."),
    ConnectorOption(
        "writemodel.strategy",
        default="DefaultWriteModelStrategy",
        doc="How records are written: replaced by their _id, inserted, updated, ... (MongoDB's class names).",
        check=is_strategy,
    ),
    ConnectorOption(
        "document.id.strategy",
        default="BsonOidStrategy",
        doc="Where an _id comes from (MongoDB's class names).",
        check=is_id,
    ),
    ConnectorOption(
        "document.id.strategy.overwrite.existing",
        Type.BOOLEAN,
        False,
        doc="Whether an _id in the value is replaced.",
    ),
    ConnectorOption(
        "document.id.strategy.partial.value.projection.list",
        Type.LIST,
        [],
        doc="The fields of PartialValueStrategy.",
    ),
    ConnectorOption(
        "document.id.strategy.partial.value.projection.type",
        default="",
        choices=("", "allowlist", "blocklist"),
        doc="Or not.",
    ),
    ConnectorOption(
        "document.id.strategy.partial.key.projection.list",
        Type.LIST,
        [],
        doc="The fields of PartialKeyStrategy.",
    ),
    ConnectorOption(
        "document.id.strategy.partial.key.projection.type",
        default="",
        choices=("", "allowlist", "blocklist"),
        doc="Or not.",
    ),
    ConnectorOption(
        "delete.on.null.values",
        Type.BOOLEAN,
        False,
        doc="Whether a record without a value deletes by its key.",
    ),
    ConnectorOption("max.batch.size", Type.INT, 0, Importance.LOW, "Records of one write; 0: all.", lo=0),
    ConnectorOption(
        "bulk.write.ordered", Type.BOOLEAN, True, Importance.LOW, "Whether the order of records counts."
    ),
)
