"""The tables that a JDBC source reads: which ones there are, how they are named, and their keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from barnabas.connect.errors import ConnectError
from barnabas.connect.options import Config

OWN_SCHEMAS = ("information_schema", "pg_catalog", "pg_toast", "mysql", "performance_schema", "sys")


@dataclass(frozen=True, slots=True)
class Table:
    """database, schema: None where the kind of database has no such level."""

    database: str | None
    schema: str | None
    name: str

    @property
    def path(self) -> str:
        """The whole name, which also names the source's partition: sample.public.driver."""
        return ".".join(part for part in (self.database, self.schema, self.name) if part)

    def has_name(self, wanted: str) -> bool:
        """Whether a name in a list means this table: with all levels, or with the last ones only."""
        bare = wanted.replace('"', "").replace("`", "")
        path = self.path
        return path == bare or path.endswith(f".{bare}")


def find_tables(connection: sa.Connection, config: Config) -> list[Table]:
    """The chosen tables, by name. The blacklist may name tables that do not exist; the whitelist as well, until they do."""
    inspector = sa.inspect(connection)
    views = "VIEW" in {kind.upper() for kind in config["table.types"]}
    tables = "TABLE" in {kind.upper() for kind in config["table.types"]}
    all_tables: list[Table] = []
    for database, schema in _places(connection, inspector, config["schema.pattern"]):
        where = schema if connection.dialect.name == "postgresql" else None
        names = inspector.get_table_names(where) if tables else []
        names += inspector.get_view_names(where) if views else []
        all_tables += [Table(database, schema, name) for name in names]
    allowed, denied = config["table.whitelist"], config["table.blacklist"]
    return sorted(
        (
            table
            for table in all_tables
            if (not allowed or any(map(table.has_name, allowed))) and not any(map(table.has_name, denied))
        ),
        key=lambda table: table.path,
    )


def _places(
    connection: sa.Connection, inspector: sa.Inspector, pattern: str | None
) -> list[tuple[str | None, str | None]]:
    kind, database = connection.dialect.name, connection.engine.url.database
    if kind == "sqlite":
        return [(None, None)]
    if kind in ("mysql", "mariadb"):
        return [(database, None)]
    like = re.escape(pattern or "%").replace("%", ".*").replace("_", ".")
    return [
        (database, schema)
        for schema in inspector.get_schema_names()
        if schema not in OWN_SCHEMAS and re.fullmatch(like, schema)
    ]


def key_columns(connection: sa.Connection, table: Table) -> list[str]:
    """The columns of the primary key; none without one, and for views."""
    return list(sa.inspect(connection).get_pk_constraint(table.name, table.schema)["constrained_columns"])


def nullable(connection: sa.Connection, table: Table) -> dict[str, bool]:
    """Whether a column may be null, by its name."""
    columns = sa.inspect(connection).get_columns(table.name, table.schema)
    return {column["name"]: bool(column.get("nullable", True)) for column in columns}


def counting_column(connection: sa.Connection, table: Table) -> str:
    """The column that counts by itself. Raises ConnectError without one."""
    columns: Sequence[dict[str, object]] = sa.inspect(connection).get_columns(table.name, table.schema)  # type: ignore[assignment]
    for column in columns:
        default = str(column.get("default") or "")
        if column.get("autoincrement") is True or column.get("identity") or default.startswith("nextval("):
            return str(column["name"])
    keys = key_columns(connection, table)
    if connection.dialect.name in ("sqlite", "mysql", "mariadb") and len(keys) == 1:
        return keys[0]
    raise ConnectError(
        f"table {table.path} has no column that counts by itself; name one with incrementing.column.name"
    )
