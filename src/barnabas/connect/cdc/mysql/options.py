"""The options of the MySQL and MariaDB connectors, under Debezium's names."""

from __future__ import annotations

from typing import Any, Final

from barnabas.connect.cdc.options import COMMON, LOGIN, patterns
from barnabas.connect.options import Config, ConnectorOption, Importance, Type

SNAPSHOTS: Final = ("initial", "always", "initial_only", "no_data", "never", "schema_only", "when_needed")

OPTIONS: Final = (
    *LOGIN,
    ConnectorOption("database.port", Type.INT, 3306, Importance.HIGH, "The server's port.", lo=1, hi=65535),
    ConnectorOption(
        "database.server.id",
        Type.LONG,
        None,
        Importance.HIGH,
        "The number by which the server knows this reader; no other replica may have it. Empty: one by chance.",
        lo=1,
        hi=(1 << 32) - 1,
    ),
    ConnectorOption(
        "database.ssl.mode",
        default="preferred",
        choices=("disabled", "preferred", "required", "verify_ca", "verify_identity"),
        doc="Whether the connection is encrypted and the server is checked.",
    ),
    ConnectorOption("database.ssl.ca", default=None, doc="File with the certificates of authorities."),
    *(option for option in COMMON if option.name != "time.precision.mode"),
    ConnectorOption(
        "time.precision.mode",
        default="adaptive_time_microseconds",
        choices=("adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"),
        doc="What dates and times become. connect: Connect's own types, milliseconds.",
    ),
    patterns("database.include.list", "Only tables of these databases."),
    patterns("database.exclude.list", "Not the tables of these databases."),
    ConnectorOption(
        "include.schema.changes",
        Type.BOOLEAN,
        True,
        doc="Whether statements that change tables go to the topic that is named as topic.prefix.",
    ),
    ConnectorOption(
        "snapshot.mode",
        default="initial",
        choices=SNAPSHOTS,
        doc="initial: rows that are there, once, then changes. always: at each start. initial_only: no changes. no_data "
        "(never, schema_only): changes only. when_needed: again if the server has removed what was not read.",
    ),
    ConnectorOption(
        "bigint.unsigned.handling.mode",
        default="long",
        choices=("long", "precise"),
        doc="What BIGINT UNSIGNED becomes: int64, or Decimal for numbers above 2^63-1.",
    ),
)


def connection_of(config: Config) -> dict[str, Any]:
    """The arguments of PyMySQL."""
    arguments: dict[str, Any] = {
        "host": config["database.hostname"],
        "port": config["database.port"],
        "user": config["database.user"],
        "password": config["database.password"] or "",
        "charset": "utf8mb4",
        "connect_timeout": 10,
    }
    mode = config["database.ssl.mode"]
    if mode in ("required", "verify_ca", "verify_identity"):
        arguments["ssl"] = {"ca": config["database.ssl.ca"], "check_hostname": mode == "verify_identity"}
        arguments["ssl_verify_cert"] = mode.startswith("verify")
    elif mode == "disabled":
        arguments["ssl_disabled"] = True
    return arguments
