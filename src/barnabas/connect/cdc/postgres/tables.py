"""Captured tables: their schemas and topics, as the catalog has them now."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from barnabas.connect.cdc.envelope import SOURCE_FIELDS, Column, Table
from barnabas.connect.cdc.naming import Names
from barnabas.connect.cdc.options import PLACEHOLDER
from barnabas.connect.cdc.postgres import pgoutput
from barnabas.connect.cdc.postgres.catalog import Catalog, TableFacts
from barnabas.connect.cdc.postgres.types import Settings, typed, with_default
from barnabas.connect.cdc.semantic import Convert, zero
from barnabas.connect.schemas import INT64, OPTIONAL_STRING, STRING, Schema, struct

SOURCE: Final = struct(
    {
        **SOURCE_FIELDS,
        "schema": STRING,
        "table": STRING,
        "txId": INT64.as_optional(),
        "lsn": INT64.as_optional(),
        "xmin": INT64.as_optional(),
        "origin": OPTIONAL_STRING,
        "origin_lsn": INT64.as_optional(),
    },
    "io.debezium.connector.postgresql.Source",
    version=1,
)


@dataclass
class Tables:
    """Makes tables. Equal columns give equal schemas, which converters keep."""

    names: Names
    settings: Settings
    placeholder: str = PLACEHOLDER
    known: dict[int, Table | None] = field(default_factory=dict)

    def from_catalog(self, catalog: Catalog, facts: TableFacts) -> Table:
        """A table whose rows have all columns of the catalog, in order."""
        columns = [(c.name, c.type_id, c.modifier) for c in facts.columns]
        return self._table_of(catalog, facts, columns)

    def from_relation(self, catalog: Catalog, relation: pgoutput.Relation) -> Table | None:
        """A table as the stream announces it; None for one that is not captured. Its catalog may be newer already."""
        if not self.names.has_table(relation.schema, relation.name):
            return None
        catalog.types.clear()  # an enum may have got new labels
        facts = catalog.table(relation.id, relation.schema, relation.name, relation.identity)
        columns = [(c.name, c.type_id, c.modifier) for c in relation.columns]
        return self._table_of(catalog, facts, columns)

    def _table_of(self, catalog: Catalog, facts: TableFacts, columns: list[tuple[str, int, int]]) -> Table:
        types = catalog.type_facts(type_id for _, type_id, _ in columns)
        now = {column.name: column for column in facts.columns}
        columns_made, places = [], []
        for place, (name, type_id, modifier) in enumerate(columns):
            if not self.names.has_column(facts.schema, facts.name, name) or type_id not in types:
                continue
            typed_column = typed(types[type_id], modifier, types, self.settings)
            if typed_column is None:
                continue
            schema, convert = typed_column
            column = now.get(name)
            not_null = name in facts.key or (column is not None and column.not_null)
            if column is not None:
                domain = types[type_id].kind == "d"
                schema = with_default(schema, convert, column.default, not_null, domain)
            schema = schema if not_null else schema.as_optional()
            columns_made.append(
                Column(
                    name,
                    schema,
                    _or_placeholder(schema, convert, self.placeholder),
                    zero(schema) if not_null else None,
                )
            )
            places.append(place)
        key = self.names.key_columns(facts.schema, facts.name, facts.key)
        return Table(
            self.names.topic(facts.schema, facts.name),
            facts.schema,
            facts.name,
            tuple(columns_made),
            tuple(places),
            tuple(name for name in key if name in {column.name for column in columns_made}),
            SOURCE,
        )


def _or_placeholder(schema: Schema, convert: Convert, placeholder: str) -> Convert:
    """The converter, also of values that the server did not send since they are large and have not changed."""
    if schema.type == "string":
        stands_for: Any = placeholder
    elif schema.type == "bytes" and schema.name is None:
        stands_for = placeholder.encode()
    elif schema.type == "array" and schema.items is not None and schema.items.type == "string":
        stands_for = [placeholder]
    elif schema.type == "map":
        stands_for = {placeholder: placeholder}
    else:
        stands_for = None if schema.optional else zero(replace(schema))
    return lambda value: stands_for if value is pgoutput.UNCHANGED else convert(value)
