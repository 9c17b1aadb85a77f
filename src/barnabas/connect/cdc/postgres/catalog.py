"""What PostgreSQL's catalog says about tables and types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from psycopg.types.string import TextLoader

from barnabas.connect.cdc.postgres.replication import SETTINGS


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """kind: b base, e enum, d domain, r range, c composite. base, element: of domains and arrays. labels: of an enum."""

    id: int
    name: str
    kind: str
    base: int
    base_modifier: int
    element: int
    labels: list[str]


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """default: an expression of SQL, or None. number: its place in the table."""

    name: str
    type_id: int
    modifier: int
    not_null: bool
    default: str | None


@dataclass(frozen=True, slots=True)
class TableFacts:
    """key: the primary key, or the columns of the index that is the replica identity. identity: d, n, f or i."""

    id: int
    schema: str
    name: str
    identity: str
    columns: tuple[ColumnFacts, ...]
    key: tuple[str, ...]


TABLES: Final = """
SELECT c.oid, n.nspname, c.relname, c.relreplident::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)'
ORDER BY n.nspname, c.relname"""
COLUMNS: Final = """
SELECT a.attname, a.atttypid, a.atttypmod, a.attnotnull, pg_get_expr(d.adbin, d.adrelid)
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.attgenerated = ''
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum"""
KEY: Final = """
SELECT a.attname FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::int[]) WITH ORDINALITY AS k(number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indexrelid = (
    SELECT indexrelid FROM pg_index WHERE indrelid = %s AND (indisprimary OR indisreplident)
    ORDER BY indisprimary DESC LIMIT 1)
ORDER BY k.place"""
TYPES: Final = """
SELECT t.oid, t.typname, t.typtype::text, t.typbasetype, t.typtypmod,
  CASE WHEN t.typcategory = 'A' THEN t.typelem ELSE 0 END,
  coalesce((SELECT array_agg(e.enumlabel::text ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid), '{}')
FROM pg_type t WHERE t.oid = ANY(%s)"""


def connect(parameters: dict[str, Any]) -> psycopg.Connection[Any]:
    """A connection that writes values as the replication stream does."""
    return psycopg.connect(
        **{"client_encoding": "utf8", **parameters},
        options=f"{parameters.get('options', '')} {SETTINGS}".strip(),
        autocommit=True,
    )


@dataclass
class Catalog:
    """What was looked up, over one connection. Methods raise psycopg.Error."""

    connection: psycopg.Connection[Any]
    types: dict[int, TypeFacts] = field(default_factory=dict)

    def tables(self) -> list[tuple[int, str, str, str]]:
        """Id, schema, name and replica identity of all tables; of a partitioned one only the whole."""
        return self.connection.execute(TABLES).fetchall()

    def table(self, id: int, schema: str, name: str, identity: str) -> TableFacts:
        """A table as it is now."""
        columns = [ColumnFacts(*row) for row in self.connection.execute(COLUMNS, [id]).fetchall()]
        key = tuple(row[0] for row in self.connection.execute(KEY, [id]).fetchall())
        return TableFacts(id, schema, name, identity, tuple(columns), key)

    def type_facts(self, ids: Iterable[int]) -> dict[int, TypeFacts]:
        """Types by id, with those that they are made of."""
        wanted = [id for id in set(ids) if id and id not in self.types]
        while wanted:
            rows: Sequence[Any] = self.connection.execute(TYPES, [wanted]).fetchall()
            facts_read = [TypeFacts(*row) for row in rows]
            self.types |= {facts.id: facts for facts in facts_read}
            wanted = [
                id
                for facts in facts_read
                for id in (facts.base, facts.element)
                if id and id not in self.types
            ]
        return self.types


def as_texts(connection: psycopg.Connection[Any]) -> None:
    """Makes a connection return all values as the server writes them."""
    for info in psycopg.postgres.types:
        connection.adapters.register_loader(info.oid, TextLoader)
        if info.array_oid:
            connection.adapters.register_loader(info.array_oid, TextLoader)
