"""The options of the PostgreSQL connector, under Debezium's names."""

from __future__ import annotations

import re
from typing import Any, Final

from barnabas.connect.cdc.options import COMMON, LOGIN, PLACEHOLDER, patterns
from barnabas.connect.options import Config, ConnectorOption, Importance, Type, not_empty

SNAPSHOTS: Final = ("initial", "always", "initial_only", "no_data", "never", "when_needed")


def is_slot_name(value: Any) -> str | None:
    """A rule: PostgreSQL's."""
    if re.fullmatch(r"[a-z0-9_]{1,63}", value or ""):
        return None
    return "a slot's name has lower-case letters, digits and _, at most 63 of them"


OPTIONS: Final = (
    *LOGIN,
    ConnectorOption("database.port", Type.INT, 5432, Importance.HIGH, "The server's port.", lo=1, hi=65535),
    ConnectorOption("database.dbname", importance=Importance.HIGH, doc="The database.", check=not_empty),
    ConnectorOption(
        "database.sslmode",
        default="prefer",
        choices=("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
        doc="Whether the connection is encrypted and the server is checked.",
    ),
    ConnectorOption("database.sslrootcert", default=None, doc="File with the certificates of authorities."),
    ConnectorOption("database.sslcert", default=None, doc="File with the client's certificate."),
    ConnectorOption("database.sslkey", default=None, doc="File with the client's key."),
    *COMMON,
    patterns("schema.include.list", "Only tables of these schemas."),
    patterns("schema.exclude.list", "Not the tables of these schemas."),
    ConnectorOption(
        "plugin.name",
        default="pgoutput",
        choices=("pgoutput", "decoderbufs"),
        doc="The output plug-in. Only pgoutput, which every server has, can be read; decoderbufs is read as pgoutput.",
    ),
    ConnectorOption(
        "slot.name",
        default="debezium",
        check=is_slot_name,
        doc="The replication slot, which keeps the server's log until it has been read. A slot has one reader.",
    ),
    ConnectorOption(
        "slot.drop.on.stop",
        Type.BOOLEAN,
        False,
        doc="Whether the slot is dropped when the connector ends. Changes until the next start are lost then.",
    ),
    ConnectorOption(
        "publication.name", default="dbz_publication", doc="The publication that the slot sends."
    ),
    ConnectorOption(
        "publication.autocreate.mode",
        default="all_tables",
        choices=("all_tables", "filtered", "disabled", "no_tables"),
        doc="What a publication that is missing is made for. filtered: for the captured tables; it follows them.",
    ),
    ConnectorOption(
        "snapshot.mode",
        default="initial",
        choices=SNAPSHOTS,
        doc="initial: rows that are there, once, then changes. always: at each start. initial_only: no changes. no_data "
        "(never): changes only. when_needed: again if the slot is gone.",
    ),
    ConnectorOption(
        "snapshot.select.statement.overrides",
        Type.LIST,
        [],
        Importance.LOW,
        "Tables (schema.table) of which a snapshot reads what snapshot.select.statement.overrides.TABLE selects.",
    ),
    ConnectorOption(
        "hstore.handling.mode",
        default="json",
        choices=("json", "map"),
        doc="What hstore becomes: JSON, or a map.",
    ),
    ConnectorOption(
        "interval.handling.mode",
        default="numeric",
        choices=("numeric", "string"),
        doc="What intervals become: microseconds, or text like P1Y2M3DT4H5M6S.",
    ),
    ConnectorOption(
        "money.fraction.digits", Type.INT, 2, Importance.LOW, "Digits of money after the point.", lo=0
    ),
    ConnectorOption(
        "include.unknown.datatypes",
        Type.BOOLEAN,
        False,
        doc="Whether columns of types that are not known are captured, as the bytes of their texts.",
    ),
    ConnectorOption(
        "unavailable.value.placeholder",
        default=PLACEHOLDER,
        importance=Importance.LOW,
        doc="Stands for large values that have not changed and are therefore not sent.",
    ),
)


def connection_of(config: Config) -> dict[str, Any]:
    """The parameters of libpq."""
    arguments = {
        "host": config["database.hostname"],
        "port": config["database.port"],
        "dbname": config["database.dbname"],
        "user": config["database.user"],
        "password": config["database.password"],
        "sslmode": config["database.sslmode"],
        "sslrootcert": config["database.sslrootcert"],
        "sslcert": config["database.sslcert"],
        "sslkey": config["database.sslkey"],
        "application_name": f"barnabas {config['topic.prefix']}",
        "connect_timeout": 10,
    }
    return {name: value for name, value in arguments.items() if value is not None}
