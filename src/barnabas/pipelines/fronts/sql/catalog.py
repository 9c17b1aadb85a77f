"""The streams and tables that statements have declared, and the queries that write them. Plain data: what changes it are
the statements, in their order, so that the same statements make the same catalog again."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from barnabas.pipelines.fronts.sql.errors import Spot, SqlError
from barnabas.pipelines.fronts.sql.statements import ColumnDef, Create, RelationKind, Window
from barnabas.pipelines.fronts.sql.types import BIGINT, BYTES, STRING, SqlType, array_of

WITH_SCHEMA: Final = ("AVRO", "PROTOBUF", "JSON_SR")
"""Formats whose schemas are in a registry."""
BARE: Final = "PROTOBUF_NOSR"
"""Protobuf without a registry: the columns are the fields of a message, in their order."""
ENCODED: Final = (*WITH_SCHEMA, BARE)
FORMATS: Final = ("JSON", "DELIMITED", "KAFKA", "NONE", *ENCODED)
DELIMITERS: Final = {"TAB": "\t", "SPACE": " "}
PROPERTIES: Final = (
    "KAFKA_TOPIC",
    "FORMAT",
    "KEY_FORMAT",
    "VALUE_FORMAT",
    "PARTITIONS",
    "REPLICAS",
    "TIMESTAMP",
    "TIMESTAMP_FORMAT",
    "VALUE_SCHEMA_ID",
    "KEY_SCHEMA_ID",
    "VALUE_SCHEMA_FULL_NAME",
    "VALUE_AVRO_SCHEMA_FULL_NAME",
    "VALUE_DELIMITER",
    "KEY_DELIMITER",
    "WRAP_SINGLE_VALUE",
    "RETENTION_MS",
    "CLEANUP_POLICY",
    "WINDOW_TYPE",
    "WINDOW_SIZE",
    "KEY",
)
"""What WITH may say. KEY is of 2018: a column of the value that the record's key repeats."""
FULL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
PSEUDO: Final[Mapping[str, SqlType]] = {
    "ROWTIME": BIGINT,
    "ROWPARTITION": SqlType("INTEGER"),
    "ROWOFFSET": BIGINT,
}
"""Columns that every row has. WINDOWSTART and WINDOWEND belong to rows of windows."""
ROWKEY: Final = "ROWKEY"
"""The record's key as text, of a stream that declares none: a column of 2018."""
HEADERS: Final = array_of(SqlType("STRUCT", (STRING, BYTES), ("KEY", "VALUE")))
"""The type of a column of all headers."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a stream or table. typed: its name in JSON objects that are read, as it was typed. header: it shows the
    record's header of this name; `*`: all of them."""

    name: str
    type: SqlType
    typed: str = ""
    is_key: bool = False
    header: str = ""


@dataclass(frozen=True, slots=True)
class Formats:
    """How keys and values are written. delimiter: of DELIMITED. wraps: whether a value of one column is an object with one
    field. registry: the address of the registry with the schemas. record: the full name of the record in the schema of
    values that is registered; empty for ksqlDB's."""

    key: str = "KAFKA"
    value: str = "JSON"
    delimiter: str = ","
    wraps: bool = True
    registry: str = ""
    record: str = ""


@dataclass(frozen=True, slots=True)
class Relation:
    """A stream or table. timestamp: the column with a row's time; timestamp_format: if that is text. query: the id of the
    query that writes it. text: its statement. is_source: nothing may be written to it. window: of the rows of a table that a
    query with windows writes. bounds: columns that have the names of the window's start or end, with their expressions."""

    kind: RelationKind
    name: str
    topic: str
    columns: tuple[Column, ...]
    formats: Formats
    timestamp: str | None = None
    timestamp_format: str | None = None
    window: Window | None = None
    query: str | None = None
    text: str = ""
    partitions: int = -1
    bounds: tuple[tuple[str, str], ...] = ()
    is_source: bool = False

    @property
    def keys(self) -> tuple[Column, ...]:
        """The columns of the key."""
        return tuple(column for column in self.columns if column.is_key)

    @property
    def values(self) -> tuple[Column, ...]:
        """The columns of the value."""
        return tuple(column for column in self.columns if not column.is_key and not column.header)

    @property
    def headers(self) -> tuple[Column, ...]:
        """The columns that show headers."""
        return tuple(column for column in self.columns if column.header)

    def column(self, name: str) -> Column | None:
        """The column of this name."""
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """A persistent query. document: the pipeline that it is. sink: what it writes."""

    id: str
    text: str
    sink: str
    sources: tuple[str, ...]
    document: Mapping[str, Any]
    view: bool = False


@dataclass
class Catalog:
    """What is declared now."""

    relations: dict[str, Relation] = field(default_factory=dict)
    queries: dict[str, RunningQuery] = field(default_factory=dict)
    types: dict[str, SqlType] = field(default_factory=dict)
    numbers: int = 0

    def find(self, name: str, spot: Spot | None = None) -> Relation:
        """The stream or table of this name. Raises SqlError."""
        relation = self.relations.get(name)
        if relation is None:
            near = difflib.get_close_matches(name, self.relations, 1, 0.6)
            hint = f"did you mean {near[0]}?" if near else "SHOW STREAMS and SHOW TABLES list them"
            raise SqlError(f"there is no stream or table {name}; {hint}", spot)
        return relation

    def next_id(self, kind: str, name: str) -> str:
        """The id of a new query."""
        self.numbers += 1
        return f"{kind}_{name}_{self.numbers}"

    def readers_of(self, name: str) -> list[str]:
        """The ids of the queries that read a stream or table."""
        return [query.id for query in self.queries.values() if name in query.sources]

    def writers_of(self, name: str) -> list[str]:
        """The ids of the queries that write it."""
        return [query.id for query in self.queries.values() if query.sink == name]

    def add(self, relation: Relation) -> None:
        """Declares a stream or table, or replaces it."""
        self.relations[relation.name] = relation

    def add_columns(self, name: str, columns: tuple[ColumnDef, ...]) -> None:
        """Adds columns of the value. Raises SqlError."""
        relation = self.find(name)
        for column in columns:
            if relation.column(column.name) is not None:
                raise SqlError(f"{name} has a column {column.name} already")
        new_columns = tuple(Column(c.name, c.type, c.typed) for c in columns)
        self.add(replace(relation, columns=(*relation.columns, *new_columns)))


def declared(statement: Create) -> Relation:
    """What CREATE STREAM or TABLE declares. Raises SqlError."""
    properties = check_properties(statement.properties)
    topic = properties.get("KAFKA_TOPIC")
    if topic is None:
        raise SqlError(f"{statement.name} needs its topic: WITH (kafka_topic='...', value_format='JSON')")
    if not statement.columns:
        raise SqlError(f"{statement.name} needs its columns, like (id BIGINT KEY, name STRING)")
    keys = {"STREAM": "KEY", "TABLE": "PRIMARY KEY"}[statement.kind]
    columns: list[Column] = []
    for column in statement.columns:
        if column.role.startswith("HEADER"):
            columns.append(_of_headers(column, columns))
            continue
        if column.role and column.role != keys:
            raise SqlError(
                f"column {column.name}: a {statement.kind.lower()} has {keys} columns, not {column.role}"
            )
        if column.name in PSEUDO and column.name != "ROWTIME":
            raise SqlError(f"a column cannot be called {column.name}: every row has one")
        columns.append(Column(column.name, column.type, column.typed, bool(column.role)))
    formats = formats_of(properties)
    return Relation(
        statement.kind,
        statement.name,
        str(topic),
        tuple(_with_old_key(statement, properties, columns)),
        formats,
        timestamp=timestamp_of(properties, columns),
        window=_window(properties),
        timestamp_format=properties.get("TIMESTAMP_FORMAT"),
        text=statement.text,
        partitions=int(properties.get("PARTITIONS", -1)),
        is_source=statement.is_source,
    )


def _of_headers(column: ColumnDef, others: list[Column]) -> Column:
    """A column of headers. Raises SqlError."""
    one = column.role.partition(":")[2]
    wanted = BYTES if one else HEADERS
    if column.type != wanted:
        role = f"HEADER('{one}')" if one else "HEADERS"
        raise SqlError(f"column {column.name}: {role} is for columns of type {wanted}, not {column.type}")
    taken = {other.header for other in others if other.header}
    if taken and ("*" in taken or not one):
        raise SqlError(
            f"column {column.name}: HEADERS shows all headers already, so it is the only such column"
        )
    if one in taken:
        raise SqlError(f"column {column.name}: header '{one}' is shown by another column")
    return Column(column.name, column.type, column.typed, header=one or "*")


def _with_old_key(statement: Create, properties: Mapping[str, Any], columns: list[Column]) -> list[Column]:
    """The columns; in statements of 2018, ROWKEY is the key, and KEY names a column of the value that repeats it."""
    if statement.kind == "TABLE" and not any(column.is_key for column in columns):
        old = str(properties["KEY"]).upper() if "KEY" in properties else "ROWKEY"
        if "KEY" in properties and old not in {column.name for column in columns}:
            raise SqlError(f"KEY names the column {old}, which is not declared")
        if "KEY" not in properties:
            raise SqlError(
                f"{statement.name} needs a column that is its PRIMARY KEY, like id BIGINT PRIMARY KEY"
            )
        return [Column("ROWKEY", SqlType("STRING"), "ROWKEY", is_key=True), *columns]
    return columns


def timestamp_of(properties: Mapping[str, Any], columns: list[Column]) -> str | None:
    """The column with a row's time, which WITH names; None if it names none. Raises SqlError."""
    if "TIMESTAMP" not in properties:
        return None
    name = str(properties["TIMESTAMP"]).upper()
    column = next((column for column in columns if column.name == name), None)
    if column is None:
        raise SqlError(f"TIMESTAMP names the column {name}, which is not declared")
    if column.type.name not in ("BIGINT", "TIMESTAMP") and "TIMESTAMP_FORMAT" not in properties:
        raise SqlError(
            f"TIMESTAMP: {name} is {column.type}; it must be BIGINT or TIMESTAMP, or needs TIMESTAMP_FORMAT"
        )
    return name


def check_properties(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """The properties of WITH. Raises SqlError for a name that it does not know."""
    for name in properties:
        if name not in PROPERTIES:
            near = difflib.get_close_matches(name, PROPERTIES, 1, 0.6)
            hint = f"; did you mean {near[0]}?" if near else f"; allowed: {', '.join(PROPERTIES)}"
            raise SqlError(f"WITH has no property {name}{hint}")
    return properties


def _truth(name: str, value: Any) -> bool:
    """Raises SqlError."""
    truth = {"TRUE": True, "FALSE": False}.get(str(value).upper())
    if truth is None:
        raise SqlError(f"{name} is {value!r}; allowed: true, false")
    return truth


def _window(properties: Mapping[str, Any]) -> Window | None:
    """The window of rows that another program has written. Raises SqlError."""
    if "WINDOW_TYPE" not in properties:
        return None
    kind, size = str(properties["WINDOW_TYPE"]).upper(), properties.get("WINDOW_SIZE")
    if kind not in ("TUMBLING", "HOPPING", "SESSION"):
        raise SqlError(f"WINDOW_TYPE is {kind}; allowed: TUMBLING, HOPPING, SESSION")
    if kind != "SESSION" and size is None:
        raise SqlError(f"WINDOW_TYPE {kind} needs WINDOW_SIZE, like WINDOW_SIZE='30 SECONDS'")
    if kind == "SESSION" and size is not None:
        raise SqlError("WINDOW_SIZE is not for sessions: each has a length of its own")
    return Window(kind, str(size or "").lower())


def _record(properties: Mapping[str, Any]) -> str:
    """The full name of the record in a schema that is registered; empty if WITH names none. Raises SqlError."""
    name = str(properties.get("VALUE_SCHEMA_FULL_NAME", properties.get("VALUE_AVRO_SCHEMA_FULL_NAME", "")))
    if name and not FULL_NAME.fullmatch(name):
        raise SqlError(f"VALUE_SCHEMA_FULL_NAME is {name!r}; it is a name like com.example.Order")
    return name


def formats_of(properties: Mapping[str, Any], default: Formats | None = None) -> Formats:
    """The formats that WITH names. default: of what is read. Raises SqlError."""
    formats = default or Formats()

    def one(name: str, otherwise: str) -> str:
        value = str(properties.get(name, properties.get("FORMAT", otherwise))).upper()
        if value not in FORMATS:
            raise SqlError(f"{name} is {value}; allowed: {', '.join(FORMATS)}")
        return value

    delimiter = str(properties.get("VALUE_DELIMITER", formats.delimiter))
    return Formats(
        one("KEY_FORMAT", formats.key),
        one("VALUE_FORMAT", formats.value),
        DELIMITERS.get(delimiter.upper(), delimiter),
        _truth("WRAP_SINGLE_VALUE", properties.get("WRAP_SINGLE_VALUE", formats.wraps)),
        formats.registry,
        _record(properties),
    )
