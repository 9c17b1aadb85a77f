"""What the connector needs of a server: its settings, a publication and a slot. Errors say what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg import sql

from barnabas.connect.cdc.postgres.pgoutput import lsn_number
from barnabas.connect.errors import ConnectError, RetriableError

VERSION_MIN: Final = 100_000


def failed(error: psycopg.Error, where: str, doing: str) -> ConnectError:
    """What to raise for an error of the server: whether it is away, or refuses."""
    text = f"{where}: {doing}: {' '.join(str(error).split())}"
    state = error.sqlstate or ""
    away = state[:2] in ("08", "53", "57") or state in ("55006", "40001")
    if away or (isinstance(error, psycopg.OperationalError) and not state and not _refused(text)):
        return RetriableError(text)
    return ConnectError(text)


def _refused(text: str) -> bool:
    """Errors while connecting have no state."""
    return any(
        word in text for word in ("password", "pg_hba", "does not exist", "no permission", "not permitted")
    )


def wrong_settings(connection: psycopg.Connection[Any]) -> str | None:
    """Why the server cannot stream changes, as a sentence that says what to do."""
    if connection.info.server_version < VERSION_MIN:
        return f"PostgreSQL {connection.info.server_version // 10_000} has no pgoutput; 10 or later is needed"
    row = connection.execute("SELECT current_setting('wal_level')").fetchone()
    if row is not None and row[0] != "logical":
        return (
            f"the server's wal_level is {row[0]}, but changes are only in its log with logical: "
            "ALTER SYSTEM SET wal_level = logical, and restart it"
        )
    row = connection.execute(
        "SELECT rolreplication OR rolsuper, current_user::text FROM pg_roles WHERE rolname = current_user"
    ).fetchone()
    if row is not None and not row[0]:
        rds = connection.execute(
            "SELECT 1 FROM pg_roles WHERE rolname = 'rds_replication' AND pg_has_role(oid, 'member')"
        )
        if rds.fetchone() is None:
            return f"user {row[1]} may not replicate: ALTER ROLE {row[1]} REPLICATION"
    return None


def ensure_publication(
    connection: psycopg.Connection[Any], name: str, mode: str, tables: Sequence[tuple[str, str]]
) -> None:
    """Makes the publication if it is missing, or lets it follow the captured tables. Raises ConnectError."""
    publication = connection.execute(
        "SELECT puballtables FROM pg_publication WHERE pubname = %s", [name]
    ).fetchone()
    listed = sql.SQL(", ").join(sql.Identifier(*table) for table in tables)
    root = sql.SQL(
        " WITH (publish_via_partition_root = true)" if connection.info.server_version >= 130_000 else ""
    )
    if publication is not None:
        if mode == "filtered" and not publication[0]:
            _follow(connection, name, tables)
        return
    if mode == "disabled":
        raise ConnectError(
            f"there is no publication {name}, and publication.autocreate.mode is disabled: "
            f"CREATE PUBLICATION {name} FOR TABLE ..."
        )
    if mode == "filtered":
        if not tables:
            raise ConnectError("no table is captured: see table.include.list and schema.include.list")
        statement = sql.SQL("CREATE PUBLICATION {} FOR TABLE {}").format(sql.Identifier(name), listed)
    else:
        rest = "" if mode == "no_tables" else " FOR ALL TABLES"
        statement = sql.SQL("CREATE PUBLICATION {}" + rest).format(sql.Identifier(name))
    try:
        connection.execute(statement + root)
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConnectError(
            f"the user may not create publication {name} ({error.diag.message_primary}): create it as the tables' owner, or "
            "set publication.autocreate.mode to filtered for tables that the user owns"
        ) from error


def _follow(connection: psycopg.Connection[Any], name: str, tables: Sequence[tuple[str, str]]) -> None:
    rows = connection.execute(
        "SELECT schemaname::text, tablename::text FROM pg_publication_tables WHERE pubname = %s", [name]
    ).fetchall()
    missing = set(tables) - {(row[0], row[1]) for row in rows}
    if missing:
        connection.execute(
            sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(
                sql.Identifier(name), sql.SQL(", ").join(sql.Identifier(*table) for table in sorted(missing))
            )
        )


def slot_position(connection: psycopg.Connection[Any], name: str) -> int | None:
    """Up to where a slot was confirmed; None if there is no such slot. Raises ConnectError for one that cannot be used."""
    has_status = connection.info.server_version >= 130_000
    row = connection.execute(
        sql.SQL(
            "SELECT plugin::text, database::text, confirmed_flush_lsn::text, {}, current_database()::text "
            "FROM pg_replication_slots WHERE slot_name = %s"
        ).format(sql.SQL("wal_status" if has_status else "NULL")),
        [name],
    ).fetchone()
    if row is None:
        return None
    plugin, database, confirmed, status, current = row
    if plugin != "pgoutput" or database != current:
        raise ConnectError(
            f"slot {name} is of plug-in {plugin} and database {database}, not of pgoutput and {current}: "
            "choose another slot.name"
        )
    if status == "lost":
        raise ConnectError(
            f"slot {name} is lost: the server removed the log that it needed (max_slot_wal_keep_size), and with it changes "
            f"that were not read. Drop it (SELECT pg_drop_replication_slot('{name}')), delete the connector's offsets, and "
            "start it again: it reads a new snapshot. snapshot.mode=when_needed does this by itself"
        )
    return lsn_number(confirmed)


def drop_slot(connection: psycopg.Connection[Any], name: str) -> None:
    """Without an error if it is gone, or in use."""
    connection.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s AND NOT active",
        [name],
    )


def lost_slot(name: str, lsn: str) -> ConnectError:
    """The slot that the stored offset belongs to is gone."""
    return ConnectError(
        f"slot {name} does not exist any more, but changes were read up to {lsn}: those since then cannot be known. Delete "
        "the connector's offsets and start it again: it reads a new snapshot. snapshot.mode=when_needed does this by itself"
    )


def passed_slot(name: str, confirmed: str, lsn: str) -> ConnectError:
    """Something else has read the slot."""
    return ConnectError(
        f"slot {name} was read up to {confirmed} by something else, but this connector has stored up to {lsn} only: the "
        "changes between are gone. Give each reader a slot of its own (slot.name); delete the connector's offsets and start "
        "it again: it reads a new snapshot. snapshot.mode=when_needed does this by itself"
    )
