"""The topic of schema changes: each statement that changes a captured table, and the table as it is then."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from barnabas.connect.cdc.mysql.ddl import Statement
from barnabas.connect.cdc.mysql.server import ColumnFacts, TableFacts
from barnabas.connect.cdc.mysql.types import COLUMN_TYPE, labels_of
from barnabas.connect.records import SourceRecord
from barnabas.connect.schemas import BOOLEAN, INT32, INT64, OPTIONAL_STRING, STRING, Schema, array, struct

OPTIONAL_INT32: Final = INT32.as_optional()
OPTIONAL_BOOLEAN: Final = BOOLEAN.as_optional()
COLUMN: Final = struct(
    {
        "name": STRING,
        "jdbcType": INT32,
        "nativeType": OPTIONAL_INT32,
        "typeName": STRING,
        "typeExpression": OPTIONAL_STRING,
        "charsetName": OPTIONAL_STRING,
        "length": OPTIONAL_INT32,
        "scale": OPTIONAL_INT32,
        "position": INT32,
        "optional": OPTIONAL_BOOLEAN,
        "autoIncremented": OPTIONAL_BOOLEAN,
        "generated": OPTIONAL_BOOLEAN,
        "comment": OPTIONAL_STRING,
        "defaultValueExpression": OPTIONAL_STRING,
        "enumValues": array(STRING, optional=True),
    },
    "io.debezium.connector.schema.Column",
    version=1,
)
TABLE: Final = struct(
    {
        "defaultCharsetName": OPTIONAL_STRING,
        "primaryKeyColumnNames": array(STRING, optional=True),
        "columns": array(COLUMN),
        "comment": OPTIONAL_STRING,
    },
    "io.debezium.connector.schema.Table",
    optional=True,
    version=1,
)
CHANGE: Final = struct(
    {"type": STRING, "id": STRING, "table": TABLE}, "io.debezium.connector.schema.Change", version=1
)
JDBC: Final[Mapping[str, int]] = {
    "bit": -7, "tinyint": 5, "smallint": 5, "mediumint": 4, "int": 4, "bigint": -5, "float": 6, "double": 8, "decimal": 3,
    "char": 1, "varchar": 12, "date": 91, "time": 92, "datetime": 93, "timestamp": 2014, "year": 4, "binary": -2,
    "varbinary": -3, "tinyblob": 2004, "blob": 2004, "mediumblob": 2004, "longblob": 2004, "enum": 1, "set": 1,
    "json": 1111,
}  # fmt: skip
"""java.sql.Types by the database's; texts without one here are 12."""


@cache
def schemas(kind: str, source: Schema) -> tuple[Schema, Schema]:
    """Of keys and values. kind: mysql or mariadb."""
    key = struct({"databaseName": STRING}, f"io.debezium.connector.{kind}.SchemaChangeKey", version=1)
    value = struct(
        {
            "source": source,
            "ts_ms": INT64,
            "databaseName": OPTIONAL_STRING,
            "schemaName": OPTIONAL_STRING,
            "ddl": OPTIONAL_STRING,
            "tableChanges": array(CHANGE),
        },
        f"io.debezium.connector.{kind}.SchemaChangeValue",
        version=1,
    )
    return key, value


def record(
    topic: str,
    kind: str,
    source_schema: Schema,
    source: Mapping[str, Any],
    statement: Statement,
    facts: TableFacts | None,
) -> SourceRecord:
    """A statement as a record. facts: the table after it; None if it is gone."""
    key_schema, value_schema = schemas(kind, source_schema)
    changed: list[dict[str, Any]] = []
    if statement.table is not None and statement.action != "TRUNCATE":
        known = facts is not None and bool(facts.columns)
        changed.append(
            {
                "type": statement.action,
                "id": f'"{statement.database}"."{statement.table}"',
                "table": _table(facts)
                if facts is not None and known and statement.action != "DROP"
                else None,
            }
        )
    value = {
        "source": source,
        "ts_ms": time.time_ns() // 1_000_000,
        "databaseName": statement.database,
        "schemaName": None,
        "ddl": statement.text,
        "tableChanges": changed,
    }
    return SourceRecord(topic, value, {"databaseName": statement.database}, value_schema, key_schema)


def _table(facts: TableFacts) -> dict[str, Any]:
    charsets = [column.charset for column in facts.columns if column.charset]
    return {
        "defaultCharsetName": charsets[0] if charsets else None,
        "primaryKeyColumnNames": list(facts.key),
        "columns": [_column(column, place) for place, column in enumerate(facts.columns, 1)],
        "comment": None,
    }


def _column(column: ColumnFacts, place: int) -> dict[str, Any]:
    match = COLUMN_TYPE.match(column.type)
    assert match is not None
    name, arguments, rest = match[1].lower(), match[2] or "", match[3].upper().strip()
    labels = labels_of(arguments) if name in ("enum", "set") else None
    digits = re.findall(r"\d+", arguments) if labels is None else []
    type_name = f"{name.upper()} {rest}".strip()
    return {
        "name": column.name,
        "jdbcType": JDBC.get(name, 12),
        "nativeType": None,
        "typeName": type_name,
        "typeExpression": type_name,
        "charsetName": column.charset,
        "length": int(digits[0]) if digits else None,
        "scale": int(digits[1]) if len(digits) > 1 else None,
        "position": place,
        "optional": column.optional,
        "autoIncremented": "auto_increment" in column.extra.lower(),
        "generated": "auto_increment" in column.extra.lower() or "generated" in column.extra.lower(),
        "comment": None,
        "defaultValueExpression": None if column.default in (None, "NULL") else column.default,
        "enumValues": labels,
    }
