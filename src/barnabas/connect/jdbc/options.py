"""The options of the JDBC source, as Confluent documents them, and what is wrong with their combinations."""

from __future__ import annotations

from typing import Any, Final
from zoneinfo import ZoneInfo

from barnabas.connect.options import Config, ConnectorOption, Importance, Type, not_empty

MODES: Final = ("bulk", "incrementing", "timestamp", "timestamp+incrementing")
BATCH_ROWS: Final = 2000


def is_zone(value: Any) -> str | None:
    """A rule: the name of a time zone."""
    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError):
        return "it is not the name of a time zone, like UTC or Europe/Prague"
    return None


CONNECTION: Final = (
    ConnectorOption(
        "connection.url",
        importance=Importance.HIGH,
        doc="JDBC URL of the database: jdbc:postgresql://host/database, jdbc:mysql://host/database, "
        "jdbc:mariadb://..., jdbc:sqlite:FILE; or a URL of SQLAlchemy.",
        check=not_empty,
    ),
    ConnectorOption("connection.user", default=None, importance=Importance.HIGH, doc="User of the database."),
    ConnectorOption(
        "connection.password", Type.PASSWORD, None, Importance.HIGH, "Password of the database's user."
    ),
    ConnectorOption(
        "db.timezone", default="UTC", doc="Time zone of the database's times without zones.", check=is_zone
    ),
    ConnectorOption(
        "dialect.name",
        default="",
        importance=Importance.LOW,
        doc="Accepted as it is in other connectors' configurations; the dialect is the URL's.",
    ),
)

SOURCE: Final = (
    *CONNECTION,
    ConnectorOption(
        "mode",
        importance=Importance.HIGH,
        choices=MODES,
        doc="bulk: all rows every time. incrementing: rows whose column is larger than before. timestamp: rows changed "
        "since. timestamp+incrementing: both, which also tells rows of the same time apart.",
    ),
    ConnectorOption(
        "incrementing.column.name",
        default="",
        doc="The column whose values grow. Empty: the column of the table that counts by itself.",
    ),
    ConnectorOption(
        "timestamp.column.name",
        Type.LIST,
        [],
        doc="Columns with the time of the last change; of several the first that is not null counts.",
    ),
    ConnectorOption(
        "timestamp.initial",
        Type.LONG,
        None,
        Importance.LOW,
        "Where to begin, in ms since 1970; -1: now. Without it, all rows are read.",
    ),
    ConnectorOption(
        "validate.non.null",
        Type.BOOLEAN,
        True,
        Importance.LOW,
        "Refuse tables whose incrementing or timestamp column may be null: such rows are never read.",
    ),
    ConnectorOption("table.whitelist", Type.LIST, [], doc="The tables to read; all others are left out."),
    ConnectorOption("table.blacklist", Type.LIST, [], doc="The tables to leave out."),
    ConnectorOption("table.types", Type.LIST, ["TABLE"], Importance.LOW, "TABLE, VIEW, or both."),
    ConnectorOption(
        "schema.pattern",
        default=None,
        doc="Only tables of schemas like this, with % and _ as in LIKE.",
    ),
    ConnectorOption(
        "catalog.pattern",
        default=None,
        doc="The name of the database, which the URL has anyway.",
    ),
    ConnectorOption(
        "query",
        default="",
        doc="Read this query instead of tables; its records go to the topic topic.prefix.",
    ),
    ConnectorOption(
        "query.suffix", default="", importance=Importance.LOW, doc="Appended to every query that is made."
    ),
    ConnectorOption(
        "numeric.mapping",
        default=None,
        importance=Importance.LOW,
        choices=("none", "precision_only", "best_fit", "best_fit_eager_double"),
        doc="What NUMERIC becomes. none: Decimal. precision_only: integers if there are no digits after the point. "
        "best_fit: integers or float64 where the digits fit. best_fit_eager_double: float64 whenever there are digits "
        "after the point.",
    ),
    ConnectorOption(
        "numeric.precision.mapping",
        Type.BOOLEAN,
        False,
        Importance.LOW,
        "The older name of numeric.mapping=precision_only.",
    ),
    ConnectorOption(
        "quote.sql.identifiers",
        default="always",
        choices=("always", "never"),
        doc="Whether names are quoted in queries.",
    ),
    ConnectorOption(
        "topic.prefix", importance=Importance.HIGH, doc="Topics are named by this and the table's name."
    ),
    ConnectorOption(
        "poll.interval.ms",
        Type.INT,
        5000,
        Importance.HIGH,
        "How long to wait when nothing was new; in mode bulk, between two readings.",
        lo=0,
    ),
    ConnectorOption(
        "batch.max.rows",
        Type.INT,
        BATCH_ROWS,
        Importance.LOW,
        "Rows of one poll, and so of one transaction.",
        lo=1,
    ),
    ConnectorOption(
        "table.poll.interval.ms",
        Type.LONG,
        60_000,
        Importance.LOW,
        "Accepted; new tables are looked for about every minute.",
    ),
    ConnectorOption(
        "timestamp.delay.interval.ms",
        Type.LONG,
        0,
        doc="Rows younger than this wait, so that transactions that began earlier can commit.",
        lo=0,
    ),
)


def wrong_source(config: Config) -> dict[str, str]:
    """What is wrong with the options together, by option."""
    mode, wrong = config["mode"], {}
    if "timestamp" in mode and not config["timestamp.column.name"]:
        wrong["timestamp.column.name"] = f"timestamp.column.name is needed in mode {mode}"
    if config["query"] and (config["table.whitelist"] or config["table.blacklist"]):
        wrong["query"] = "query goes without table.whitelist and table.blacklist: it reads what it says"
    if config["table.whitelist"] and config["table.blacklist"]:
        wrong["table.blacklist"] = "table.whitelist and table.blacklist exclude each other"
    if config["query"] and mode.endswith("incrementing") and not config["incrementing.column.name"]:
        wrong["incrementing.column.name"] = "incrementing.column.name is needed with a query"
    return wrong


def numeric_mapping(config: Config) -> str:
    """What NUMERIC becomes, by the newer or the older option."""
    chosen: str | None = config["numeric.mapping"]
    if chosen:
        return chosen
    return "precision_only" if config["numeric.precision.mapping"] else "none"
