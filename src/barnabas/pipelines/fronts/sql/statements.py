"""Statements as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlglot import exp

from barnabas.pipelines.fronts.sql.errors import Spot
from barnabas.pipelines.fronts.sql.types import SqlType

RelationKind = Literal["STREAM", "TABLE"]


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """A declared column. typed: its name as it was typed. role: KEY, PRIMARY KEY, HEADERS, HEADER:name, or empty for one of
    the value."""

    name: str
    typed: str
    type: SqlType
    role: str = ""


@dataclass(frozen=True, slots=True)
class Statement:
    """text: as it was typed, without the semicolon."""

    text: str = field(kw_only=True, compare=False, default="")


@dataclass(frozen=True, slots=True)
class Create(Statement):
    """CREATE STREAM or TABLE over a topic."""

    kind: RelationKind
    name: str
    columns: tuple[ColumnDef, ...]
    properties: Mapping[str, Any]
    or_replace: bool = False
    if_not_exists: bool = False
    is_source: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """kind: TUMBLING, HOPPING or SESSION. Durations as Spark writes them; size: a session's gap."""

    kind: str
    size: str
    advance: str | None = None
    grace: str | None = None
    retention: str | None = None


@dataclass(frozen=True, slots=True)
class SourceRef:
    """A stream or table in FROM or JOIN."""

    name: str
    alias: str
    spot: Spot


@dataclass(frozen=True, slots=True)
class JoinRef:
    """kind: inner, left, right or full. within: before and after, as Spark writes durations."""

    source: SourceRef
    kind: str
    on: exp.Expr
    within: tuple[str, str] | None = None
    grace: str | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of SELECT. alias: empty if it has none. spot: its place in the text."""

    expression: exp.Expr
    alias: str
    spot: Spot


@dataclass(frozen=True, slots=True)
class Select:
    """A query. emit: CHANGES, FINAL, or empty for a pull query."""

    items: tuple[Item, ...]
    source: SourceRef
    joins: tuple[JoinRef, ...] = ()
    window: Window | None = None
    where: exp.Expr | None = None
    partition_by: tuple[exp.Expr, ...] = ()
    group_by: tuple[exp.Expr, ...] = ()
    having: exp.Expr | None = None
    emit: str = ""
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class CreateType(Statement):
    """CREATE TYPE name AS a type."""

    name: str
    type: SqlType
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropType(Statement):
    """DROP TYPE."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateAs(Statement):
    """CREATE STREAM or TABLE ... AS SELECT."""

    kind: RelationKind
    name: str
    select: Select
    properties: Mapping[str, Any]
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class InsertSelect(Statement):
    """INSERT INTO ... SELECT."""

    name: str
    select: Select
    properties: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class InsertValues(Statement):
    """INSERT INTO ... VALUES. columns: empty for all, in order."""

    name: str
    columns: tuple[str, ...]
    values: tuple[exp.Expr, ...]


@dataclass(frozen=True, slots=True)
class Query(Statement):
    """SELECT by itself: a push query with EMIT, or else a pull query."""

    select: Select


@dataclass(frozen=True, slots=True)
class Drop(Statement):
    """DROP STREAM or TABLE."""

    kind: RelationKind
    name: str
    if_exists: bool = False
    delete_topic: bool = False


@dataclass(frozen=True, slots=True)
class Show(Statement):
    """what: STREAMS, TABLES, TOPICS, QUERIES, FUNCTIONS, PROPERTIES, TYPES, VARIABLES, CONNECTORS or PLUGINS."""

    what: str
    extended: bool = False
    all: bool = False
    of: str = ""
    """Of connectors: SOURCE, SINK, or empty for both."""


@dataclass(frozen=True, slots=True)
class Describe(Statement):
    """DESCRIBE of a stream, table or function; name STREAMS or TABLES with every: of all of them."""

    name: str
    extended: bool = False
    function: bool = False
    every: bool = False


@dataclass(frozen=True, slots=True)
class CreateConnector(Statement):
    """CREATE SOURCE or SINK CONNECTOR. properties: the connector's options, under the names that were typed."""

    kind: str
    name: str
    properties: Mapping[str, Any]
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropConnector(Statement):
    """DROP CONNECTOR."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DescribeConnector(Statement):
    """DESCRIBE CONNECTOR."""

    name: str


@dataclass(frozen=True, slots=True)
class Explain(Statement):
    """EXPLAIN of a running query's id, or of a statement."""

    query: str = ""
    statement: Statement | None = None


@dataclass(frozen=True, slots=True)
class Act(Statement):
    """TERMINATE, PAUSE or RESUME. query: ALL for all."""

    action: str
    query: str


@dataclass(frozen=True, slots=True)
class Print(Statement):
    """PRINT a topic."""

    topic: str
    from_beginning: bool = False
    interval: int = 1
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class SetProperty(Statement):
    """SET 'name' = 'value'; value None: UNSET."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Define(Statement):
    """DEFINE name = 'value'; value None: UNDEFINE."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class RunScript(Statement):
    """RUN SCRIPT 'file'."""

    path: str


@dataclass(frozen=True, slots=True)
class Spool(Statement):
    """SPOOL 'file': what the shell shows is written there, too; path None: OFF."""

    path: str | None


@dataclass(frozen=True, slots=True)
class AddColumns(Statement):
    """ALTER STREAM or TABLE ... ADD COLUMN."""

    kind: RelationKind
    name: str
    columns: tuple[ColumnDef, ...]


@dataclass(frozen=True, slots=True)
class AssertTopic(Statement):
    """ASSERT [NOT EXISTS] TOPIC. config: what it must have. timeout_s: how long to wait."""

    topic: str
    exists: bool = True
    config: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AssertSchema(Statement):
    """ASSERT [NOT EXISTS] SCHEMA. subject, id: at least one of them is given. timeout_s: how long to wait."""

    subject: str | None
    id: int | None
    exists: bool = True
    timeout_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AssertValues(Statement):
    """ASSERT VALUES, or ASSERT NULL VALUES, of the runner of tests: the next row of a stream or table. values: of NULL
    VALUES those of the key alone."""

    name: str
    columns: tuple[str, ...]
    values: tuple[exp.Expr, ...]
    null: bool = False


@dataclass(frozen=True, slots=True)
class AssertSource(Statement):
    """ASSERT STREAM or TABLE, of the runner of tests: how a stream or table is declared."""

    kind: RelationKind
    name: str
    columns: tuple[ColumnDef, ...]
    properties: Mapping[str, Any]
