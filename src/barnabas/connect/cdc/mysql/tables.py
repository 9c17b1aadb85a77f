"""Captured tables: their schemas and topics, from the catalog and from what the log says about columns. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.connect.cdc.envelope import SOURCE_FIELDS, Column, Table
from barnabas.connect.cdc.mysql.server import ColumnFacts, TableFacts
from barnabas.connect.cdc.mysql.types import Settings, typed, with_default
from barnabas.connect.cdc.naming import Names
from barnabas.connect.cdc.semantic import zero
from barnabas.connect.schemas import INT32, INT64, OPTIONAL_STRING, STRING, Schema, struct

BINARY: Final = 63
"""The number of the collation of bytes."""


def source_schema(kind: str) -> Schema:
    """kind: mysql or mariadb."""
    return struct(
        {
            **SOURCE_FIELDS,
            "table": OPTIONAL_STRING,
            "server_id": INT64,
            "gtid": OPTIONAL_STRING,
            "file": STRING,
            "pos": INT64,
            "row": INT32,
            "thread": INT64.as_optional(),
            "query": OPTIONAL_STRING,
        },
        f"io.debezium.connector.{kind}.Source",
        version=1,
    )


@dataclass
class Tables:
    """Makes tables."""

    names: Names
    settings: Settings
    source: Schema

    def table_of(
        self, facts: TableFacts, columns: Sequence[tuple[str, str]], primary: Sequence[str] | None = None
    ) -> Table:
        """A table whose rows have these columns: name, and type for those that the catalog does not have any more. primary:
        its key, for a table that the catalog does not have any more."""
        own_key = facts.key or tuple(primary or ())
        now = {column.name: column for column in facts.columns}
        columns_made, places = [], []
        for place, (name, type) in enumerate(columns):
            column = now.get(name, ColumnFacts(name, type, name not in own_key, None))
            if not self.names.has_column(facts.database, facts.name, name):
                continue
            chosen = typed(column.type, self.settings)
            if chosen is None:
                continue
            schema, convert = chosen
            not_null = not column.optional
            if name not in own_key:
                schema = with_default(schema, column.default, not_null)
            schema = schema if not_null else schema.as_optional()
            columns_made.append(Column(name, schema, convert, zero(schema) if not_null else None))
            places.append(place)
        key = self.names.key_columns(facts.database, facts.name, own_key)
        return Table(
            self.names.topic(facts.database, facts.name),
            facts.database,
            facts.name,
            tuple(columns_made),
            tuple(places),
            tuple(name for name in key if name in {column.name for column in columns_made}),
            self.source,
        )


PLAIN: Final = {1: "tinyint", 2: "smallint", 3: "int", 4: "float", 5: "double", 8: "bigint", 9: "mediumint", 10: "date",
                13: "year", 245: "json", 14: "date"}  # fmt: skip
TIMES: Final = {17: "timestamp", 18: "datetime", 19: "time"}


def type_in_log(column: Any) -> str:
    """A column's type as far as the log tells it, as information_schema would say it."""
    kind = column.type
    if kind in PLAIN:
        return PLAIN[kind] + (" unsigned" if getattr(column, "unsigned", False) else "")
    if kind in TIMES:
        return f"{TIMES[kind]}({column.fsp})"
    if kind == 246:
        return f"decimal({column.precision},{column.decimals})"
    if kind == 16:
        return f"bit({column.bits})"
    if kind in (247, 248):
        labels = column.enum_values or column.set_values or []
        name = "enum" if kind == 247 else "set"
        return f"{name}({','.join(_label(label) for label in labels if label != '' or name == 'set')})"
    is_bytes = getattr(column, "character_set_name", None) == "binary"
    if kind == 252:
        return "blob" if is_bytes else "text"
    return "varbinary" if is_bytes else "varchar"


def _label(text: Any) -> str:
    return "'" + str(text).replace("'", "''") + "'"
