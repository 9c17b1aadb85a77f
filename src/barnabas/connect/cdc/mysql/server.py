"""What the connector asks a server: its settings, its tables, where its log is. Errors say what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pymysql

from barnabas.connect.errors import ConnectError, RetriableError

OWN: Final = ("information_schema", "performance_schema", "mysql", "sys")
AWAY: Final = (2002, 2003, 2006, 2013, 2055, 1040, 1053, 1077, 1079, 1205, 1213, 1927)
"""Errors of a server that is not there, busy or stopping."""
PURGED: Final = (1236, 1373)
COLUMNS: Final = """
SELECT COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, EXTRA, CHARACTER_SET_NAME
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION"""
KEY: Final = """
SELECT COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND CONSTRAINT_NAME = 'PRIMARY' ORDER BY ORDINAL_POSITION"""


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """type: as information_schema says it, like int(10) unsigned."""

    name: str
    type: str
    optional: bool
    default: str | None
    extra: str = ""
    charset: str | None = None


@dataclass(frozen=True, slots=True)
class TableFacts:
    database: str
    name: str
    columns: tuple[ColumnFacts, ...]
    key: tuple[str, ...]

    @property
    def path(self) -> str:
        """database.table"""
        return f"{self.database}.{self.name}"


@dataclass(frozen=True, slots=True)
class Position:
    """Where something is in the binary log."""

    file: str
    pos: int


def connect(arguments: Mapping[str, Any], **more: Any) -> Any:
    """A connection whose times are in UTC."""
    connection = pymysql.connect(**{**arguments, "autocommit": True, **more})
    with connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
    return connection


def ask(connection: Any, text: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
    """All rows of a query."""
    with connection.cursor() as cursor:
        cursor.execute(text, values)
        return list(cursor.fetchall())


def is_mariadb(connection: Any) -> bool:
    return "mariadb" in str(connection.get_server_info()).lower()


def wrong_settings(connection: Any) -> str | None:
    """Why the server's log cannot be read, as a sentence that says what to do."""
    variables = {
        name.lower(): str(value)
        for name, value in ask(connection, "SHOW GLOBAL VARIABLES WHERE Variable_name IN "
                               "('log_bin', 'binlog_format', 'binlog_row_image', 'binlog_row_metadata')")
    }  # fmt: skip
    if variables.get("log_bin", "OFF") not in ("ON", "1"):
        return "the server writes no binary log: start it with --log-bin"
    wanted = {"binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
    for name, value in wanted.items():
        if variables.get(name, value if name != "binlog_row_metadata" else "missing").upper() != value:
            if name not in variables:
                return "the server's log does not name columns: MySQL 8.0.1 or MariaDB 10.5 is needed"
            return f"the server's {name} is {variables[name]}: SET GLOBAL {name} = '{value}', and connect its sessions anew"
    grants = " ".join(str(row[0]) for row in ask(connection, "SHOW GRANTS")).upper()
    if not any(
        right in grants for right in ("ALL PRIVILEGES ON *.*", "REPLICATION SLAVE", "REPLICATION REPLICA")
    ):
        return "the user may not read the log: GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO the user"
    return None


def failed(error: Exception, where: str, doing: str) -> ConnectError:
    """What to raise for an error of the server: whether it is away, refuses, or has removed its log."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1]) if number and len(error.args) > 1 else str(error)
    message = f"{where}: {doing}: {text} ({number})" if number else f"{where}: {doing}: {text}"
    if number in PURGED:
        return Purged(
            f"{where}: the server has removed the part of its binary log that comes next ({text}): changes since then "
            "cannot be known. Delete the connector's offsets and start it again: it reads a new snapshot. "
            "snapshot.mode=when_needed does this by itself. "
            "To avoid it, keep the log for longer (binlog_expire_logs_seconds)"
        )
    if number in AWAY or isinstance(error, (OSError, pymysql.err.InterfaceError)) or not number:
        return RetriableError(message)
    return ConnectError(message)


class Purged(ConnectError):
    """What was not read is gone."""


def tables(connection: Any) -> list[tuple[str, str]]:
    """Database and name of all tables."""
    rows = ask(
        connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE' ORDER BY 1, 2",
    )
    return [(row[0], row[1]) for row in rows if row[0] not in OWN]


def table_facts(connection: Any, database: str, name: str) -> TableFacts:
    """A table as it is now; without columns if it is gone."""
    columns = tuple(
        ColumnFacts(
            row[0],
            _text(row[1]),
            row[2] == "YES",
            None if row[3] is None else _text(row[3]),
            row[4] or "",
            row[5],
        )
        for row in ask(connection, COLUMNS, [database, name])
    )
    key = tuple(row[0] for row in ask(connection, KEY, [database, name]))
    return TableFacts(database, name, columns, key)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def position(connection: Any) -> Position:
    """The end of the log. Raises ConnectError without one."""
    for question in ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"):
        try:
            rows = ask(connection, question)
        except pymysql.err.ProgrammingError:
            continue
        if rows:
            return Position(str(rows[0][0]), int(rows[0][1]))
    raise ConnectError("the server has no binary log: start it with --log-bin")


def begin_snapshot(connection: Any) -> Position:
    """Begins a transaction that sees all tables as of one place in the log, and returns that place.

    MariaDB tells it without a lock. MySQL is kept from writing for a moment, which needs the right RELOAD.
    """
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if is_mariadb(connection):
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
            variables = {str(name).lower(): value for name, value in cursor.fetchall()}
            return Position(
                str(variables["binlog_snapshot_file"]), int(variables["binlog_snapshot_position"])
            )
        cursor.execute("FLUSH TABLES WITH READ LOCK")
        try:
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            return position(connection)
        finally:
            cursor.execute("UNLOCK TABLES")


def quoted(name: str) -> str:
    """A name in backquotes."""
    return "`" + name.replace("`", "``") + "`"
