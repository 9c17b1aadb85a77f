"""The options that all connectors of change data have, under Debezium's names."""

from __future__ import annotations

import re
from typing import Any, Final

from barnabas.connect.options import ConnectorOption, Importance, Type, not_empty

PLACEHOLDER: Final = "__debezium_unavailable_value"


def are_patterns(value: Any) -> str | None:
    """A rule: a list of regular expressions."""
    for pattern in value or []:
        try:
            re.compile(pattern)
        except re.error as error:
            return f"{pattern!r} is not a regular expression: {error}"
    return None


def patterns(name: str, doc: str) -> ConnectorOption:
    """A list of patterns, each of which matches whole names."""
    return ConnectorOption(name, Type.LIST, [], Importance.MEDIUM, doc, check=are_patterns)


def is_topic_prefix(value: Any) -> str | None:
    """A rule: what topics may be named by."""
    if not value:
        return "a name for this server; it begins the names of all topics"
    return (
        None
        if re.fullmatch(r"[\w.\-]+", value, re.ASCII)
        else "only letters, digits, '.', '-' and '_' are allowed"
    )


COMMON: Final = (
    ConnectorOption(
        "topic.prefix",
        importance=Importance.HIGH,
        doc="A name for the server; topics are named PREFIX.SCHEMA.TABLE.",
        check=is_topic_prefix,
    ),
    patterns("table.include.list", "Only these tables: regular expressions for schema.table."),
    patterns("table.exclude.list", "Not these tables."),
    patterns("column.include.list", "Only these columns: regular expressions for schema.table.column."),
    patterns("column.exclude.list", "Not these columns."),
    ConnectorOption(
        "message.key.columns",
        default=None,
        doc="Other keys than the primary ones: TABLE:COLUMN,COLUMN;TABLE:COLUMN with regular expressions for tables.",
    ),
    ConnectorOption(
        "tombstones.on.delete",
        Type.BOOLEAN,
        True,
        doc="Whether a delete is followed by a record without a value.",
    ),
    ConnectorOption(
        "skipped.operations",
        Type.LIST,
        ["t"],
        Importance.LOW,
        "Which changes are left out: c, u, d, t (truncate), or none.",
        choices=("c", "u", "d", "t", "none"),
    ),
    ConnectorOption(
        "provide.transaction.metadata",
        Type.BOOLEAN,
        False,
        Importance.LOW,
        "Whether events tell their transaction, and a topic when transactions begin and end.",
    ),
    ConnectorOption(
        "topic.transaction",
        default="transaction",
        importance=Importance.LOW,
        doc="The end of that topic's name.",
    ),
    ConnectorOption(
        "heartbeat.interval.ms",
        Type.INT,
        0,
        doc="How often a record goes to the heartbeat topic, even if nothing changes; 0: never.",
        lo=0,
    ),
    ConnectorOption(
        "topic.heartbeat.prefix",
        default="__debezium-heartbeat",
        importance=Importance.LOW,
        doc="The heartbeat topic is this, a point, and topic.prefix.",
    ),
    ConnectorOption(
        "heartbeat.action.query",
        default=None,
        doc="A statement that is run in the database at each heartbeat.",
    ),
    ConnectorOption(
        "snapshot.fetch.size", Type.INT, 2000, Importance.LOW, "Rows that a snapshot reads at a time.", lo=1
    ),
    ConnectorOption("max.batch.size", Type.INT, 2048, Importance.LOW, "Events of one poll at most.", lo=1),
    ConnectorOption(
        "decimal.handling.mode",
        default="precise",
        choices=("precise", "double", "string"),
        doc="What exact numbers become: Decimal, float64, or text.",
    ),
    ConnectorOption(
        "time.precision.mode",
        default="adaptive",
        choices=(
            "adaptive",
            "adaptive_time_microseconds",
            "connect",
            "isostring",
            "microseconds",
            "nanoseconds",
        ),
        doc="What dates and times become. adaptive: as precise as the column. connect: Connect's own types, milliseconds.",
    ),
    ConnectorOption(
        "binary.handling.mode",
        default="bytes",
        choices=("bytes", "base64", "base64-url-safe", "hex"),
        doc="What bytes become: bytes, or text.",
    ),
    ConnectorOption(
        "signal.data.collection",
        default=None,
        doc="The table (schema.table, with columns id, type, data) whose inserts are signals, like execute-snapshot.",
    ),
    ConnectorOption(
        "incremental.snapshot.chunk.size",
        Type.INT,
        1024,
        doc="Rows of a chunk of an incremental snapshot.",
        lo=1,
    ),
    ConnectorOption(
        "topic.delimiter", default=".", importance=Importance.LOW, doc="Between the parts of topics' names."
    ),
    ConnectorOption(
        "poll.interval.ms", Type.INT, 100, Importance.LOW, "How long to wait when nothing changed.", lo=0
    ),
)

LOGIN: Final = (
    ConnectorOption(
        "database.hostname", importance=Importance.HIGH, doc="The database server.", check=not_empty
    ),
    ConnectorOption(
        "database.user", importance=Importance.HIGH, doc="A user who may replicate.", check=not_empty
    ),
    ConnectorOption("database.password", Type.PASSWORD, None, Importance.HIGH, "That user's password."),
)
