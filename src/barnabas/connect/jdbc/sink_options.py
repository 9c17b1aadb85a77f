"""The options of the JDBC sink, as Confluent documents them."""

from __future__ import annotations

from typing import Final

from barnabas.connect.jdbc.options import CONNECTION
from barnabas.connect.options import Config, ConnectorOption, Importance, Type

SINK: Final = (
    *CONNECTION,
    ConnectorOption(
        "insert.mode",
        default="insert",
        importance=Importance.HIGH,
        choices=("insert", "upsert", "update"),
        doc="insert: adds rows. upsert: replaces the row with the same key, or adds one. update: only changes rows "
        "that exist.",
    ),
    ConnectorOption(
        "batch.size",
        Type.INT,
        3000,
        doc="Rows of one transaction at most, if the worker hands that many over.",
        lo=1,
    ),
    ConnectorOption(
        "delete.enabled",
        Type.BOOLEAN,
        False,
        doc="Whether a record without a value deletes the row with its key; pk.mode must be record_key.",
    ),
    ConnectorOption(
        "table.name.format",
        default="${topic}",
        doc="The table of a topic; points separate database, schema and table.",
    ),
    ConnectorOption(
        "pk.mode",
        default="none",
        importance=Importance.HIGH,
        choices=("none", "kafka", "record_key", "record_value"),
        doc="Where primary keys come from. kafka: topic, partition and offset, so that a repeated record changes nothing.",
    ),
    ConnectorOption(
        "pk.fields",
        Type.LIST,
        [],
        doc="The key's columns: three names with kafka; with record_key one name for a key that is no struct, or the key's "
        "fields; with record_value the value's fields.",
    ),
    ConnectorOption(
        "fields.whitelist", Type.LIST, [], doc="The value's fields to store; empty: all of them."
    ),
    ConnectorOption(
        "auto.create",
        Type.BOOLEAN,
        False,
        doc="Whether a table that is missing is created from the records' schema.",
    ),
    ConnectorOption(
        "auto.evolve",
        Type.BOOLEAN,
        False,
        doc="Whether columns that are missing are added. Nothing is ever dropped or changed.",
    ),
    ConnectorOption(
        "quote.sql.identifiers",
        default="always",
        choices=("always", "never"),
        doc="Accepted; names are quoted where that is needed.",
    ),
    ConnectorOption(
        "max.retries", Type.INT, 10, doc="Accepted; while the database is away, the task waits for it.", lo=0
    ),
    ConnectorOption("retry.backoff.ms", Type.INT, 3000, doc="Accepted, see max.retries.", lo=0),
)

KAFKA_COLUMNS: Final = ("__connect_topic", "__connect_partition", "__connect_offset")


def wrong_sink(config: Config) -> dict[str, str]:
    """What is wrong with the options together, by option."""
    mode, fields, wrong = config["pk.mode"], config["pk.fields"], {}
    if config["insert.mode"] in ("upsert", "update") and mode == "none":
        wrong["pk.mode"] = f"insert.mode {config['insert.mode']} needs a key: pk.mode is none"
    if config["delete.enabled"] and mode != "record_key":
        wrong["delete.enabled"] = (
            f"a record without a value has only its key: pk.mode must be record_key, not {mode}"
        )
    if mode == "kafka" and len(fields) not in (0, 3):
        wrong["pk.fields"] = (
            "with pk.mode kafka there are three columns, for topic, partition and offset; or leave it empty"
        )
    return wrong
