"""Statements of a text. What is typed in lessons of older versions is understood, too: `SELECT` without `EMIT`, backslashes
at the ends of lines, sizes of windows in parentheses.

    for statement in read_statements("CREATE STREAM clicks (url STRING) WITH (kafka_topic='clicks', value_format='JSON');"):
        ...
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from sqlglot import Token, TokenType

from barnabas.pipelines.entries.document import duration_seconds
from barnabas.pipelines.fronts.sql import statements as s
from barnabas.pipelines.fronts.sql.cursor import Cursor
from barnabas.pipelines.fronts.sql.dialect import spot_of, tokens_of
from barnabas.pipelines.fronts.sql.errors import TOO_DEEP, SqlError
from barnabas.pipelines.fronts.sql.queries import read_duration, read_select
from barnabas.pipelines.fronts.sql.types import SqlType

LINE_ENDS: Final = re.compile(r"\\[ \t]*(?=\r?\n|$)|(?<=\n)([ \t]*)\\(?=[ \t])")
"""Backslashes at the ends of lines, and at the beginning of a line that goes on."""
VARIABLE: Final = re.compile(r"\$\{(\w+)\}")
SHOWN: Final = (
    *("STREAMS", "TABLES", "TOPICS", "QUERIES", "FUNCTIONS", "PROPERTIES", "TYPES", "VARIABLES"),
    *("CONNECTORS", "PLUGINS"),
)


def read_statements(
    text: str, variables: Mapping[str, str] | None = None, types: Mapping[str, SqlType] | None = None
) -> Iterator[s.Statement]:
    """The statements of a text, one after the other. variables: what stands for `${name}`. types: those that have names;
    each statement is read when it is asked for, so an earlier one may add some. Raises SqlError."""
    text = without_backslashes(text)
    tokens = tokens_of(text)
    begin = 0
    for at, token in enumerate([*tokens, None]):
        if token is None or token.token_type is TokenType.SEMICOLON:
            if at > begin:
                yield _filled(tokens[begin:at], text, variables or {}, types)
            begin = at + 1


def without_backslashes(text: str) -> str:
    """The text without backslashes at the ends of its lines."""
    return LINE_ENDS.sub(lambda match: (match[1] or "") + " ", text)


def _filled(
    tokens: list[Token], text: str, variables: Mapping[str, str], types: Mapping[str, SqlType] | None
) -> s.Statement:
    """A statement with the values of variables, which statements before it may have defined. Mistakes have their place in
    what is made. Raises SqlError for a variable that is not defined."""
    piece = text[tokens[0].start : tokens[-1].end + 1]
    if "${" not in piece:
        return _read(tokens, text, types)

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in variables:
            known = ", ".join(sorted(variables)) or "none is"
            raise SqlError(f"the variable {name} is not defined ({known}): write DEFINE {name} = 'value';")
        return variables[name]

    before = re.sub(r"[^\n]", " ", text[: tokens[0].start])
    filled = before + VARIABLE.sub(value, piece)
    return _read(tokens_of(filled), filled, types)


def is_complete(text: str) -> bool:
    """Whether a text that a person types has come to the end of a statement."""
    try:
        tokens = tokens_of(without_backslashes(text))
    except SqlError:
        return False
    return not tokens or tokens[-1].token_type is TokenType.SEMICOLON


def _read(tokens: list[Token], text: str, types: Mapping[str, SqlType] | None) -> s.Statement:
    cursor = Cursor(tokens, text, types)
    word = tokens[0].text.upper()
    reader = READERS.get(word)
    if reader is None:
        cursor.choose(*READERS, what="a statement")
        raise AssertionError
    if not cursor.take(word):
        cursor.fail("a statement is expected")
    try:
        statement = reader(cursor)
    except RecursionError:
        raise SqlError(TOO_DEEP, spot_of(tokens[0])) from None
    if not cursor.ended:
        cursor.fail("the end of the statement is expected")
    return replace(statement, text=text[tokens[0].start : tokens[-1].end + 1])


# --- create -------------------------------------------------------------------------------------------


def _kind(cursor: Cursor) -> s.RelationKind:
    return "STREAM" if cursor.choose("STREAM", "TABLE", what="STREAM or TABLE") == "STREAM" else "TABLE"


def _create(cursor: Cursor) -> s.Statement:
    or_replace = cursor.take("OR", "REPLACE")
    is_source = cursor.take("SOURCE")
    if cursor.sees("SINK") or cursor.sees("CONNECTOR"):
        return _create_connector(cursor, is_source, or_replace)
    if cursor.take("TYPE"):
        return _create_type(cursor)
    kind = _kind(cursor)
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    name = cursor.name(f"the name of the {kind.lower()}")
    columns = _columns(cursor) if cursor.sees("(") else ()
    properties = _with(cursor)
    if cursor.take("AS"):
        if columns or is_source:
            raise SqlError(
                "AS SELECT declares its columns itself: leave out the column list and SOURCE", cursor.spot
            )
        cursor.need("SELECT")
        select = read_select(cursor)
        return s.CreateAs(kind, name, select, properties, or_replace, if_not_exists)
    return s.Create(kind, name, columns, properties, or_replace, if_not_exists, is_source)


def _create_connector(cursor: Cursor, is_source: bool, or_replace: bool) -> s.Statement:
    if not is_source and not cursor.take("SINK"):
        raise SqlError("write CREATE SOURCE CONNECTOR or CREATE SINK CONNECTOR", cursor.spot)
    if or_replace:
        raise SqlError("OR REPLACE is not for connectors: DROP CONNECTOR first", cursor.spot)
    cursor.need("CONNECTOR")
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    name = cursor.dashed_name("the name of the connector")
    where = cursor.spot
    properties = _with(cursor, as_typed=True)
    if "connector.class" not in properties:
        raise SqlError("a connector needs its class: WITH ('connector.class'='...', ...)", where)
    return s.CreateConnector("SOURCE" if is_source else "SINK", name, properties, if_not_exists)


def _create_type(cursor: Cursor) -> s.Statement:
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    name = cursor.name("the name of the type")
    cursor.need("AS")
    return s.CreateType(name, cursor.type(), if_not_exists)


def _columns(cursor: Cursor) -> tuple[s.ColumnDef, ...]:
    cursor.need("(")
    columns: list[s.ColumnDef] = []
    while True:
        where = cursor.spot
        name, typed = cursor.typed_name("the name of a column")
        if name in {column.name for column in columns}:
            raise SqlError(f"the column {name} is declared twice", where)
        columns.append(s.ColumnDef(name, typed, cursor.type(), _role(cursor)))
        if not cursor.take(","):
            break
    cursor.need(")")
    return tuple(columns)


def _role(cursor: Cursor) -> str:
    if cursor.take("PRIMARY", "KEY") or cursor.take("PRIMARY KEY"):
        return "PRIMARY KEY"
    if cursor.take("KEY"):
        return "KEY"
    if cursor.take("HEADERS"):
        return "HEADERS"
    if cursor.take("HEADER"):
        cursor.need("(")
        name = cursor.string("the name of a header in quotes")
        cursor.need(")")
        return f"HEADER:{name}"
    return ""


def _with(cursor: Cursor, *, as_typed: bool = False) -> dict[str, Any]:
    """The properties of WITH, by names in capitals. as_typed: by names as they were typed."""
    properties: dict[str, Any] = {}
    if not cursor.take("WITH"):
        return properties
    cursor.need("(")
    while not cursor.take(")"):
        where = cursor.spot
        is_text = cursor.token.token_type is TokenType.STRING
        name = cursor.string() if is_text else cursor.typed_name("the name of a property")[1]
        name = name if as_typed else name.upper()
        if name in properties:
            raise SqlError(f"{name} is given twice", where)
        cursor.need("=")
        properties[name] = cursor.literal()
        if not cursor.sees(")"):
            cursor.need(",")
    return properties


def _insert(cursor: Cursor) -> s.Statement:
    cursor.need("INTO")
    name = cursor.name("the name of a stream or table")
    columns: tuple[str, ...] = ()
    if cursor.take("("):
        columns = tuple(_listed(cursor, lambda: cursor.name("the name of a column")))
        cursor.need(")")
    properties = _with(cursor)
    if cursor.take("SELECT"):
        if columns:
            raise SqlError(
                "INSERT INTO ... SELECT has no column list: name the columns in SELECT", cursor.spot
            )
        return s.InsertSelect(name, read_select(cursor), properties)
    cursor.need("VALUES")
    cursor.need("(")
    values = tuple(_listed(cursor, lambda: cursor.expression(frozenset())))
    cursor.need(")")
    return s.InsertValues(name, columns, values)


def _listed(cursor: Cursor, read: Callable[[], Any]) -> list[Any]:
    items = [read()]
    while cursor.take(","):
        items.append(read())
    return items


def _select(cursor: Cursor) -> s.Statement:
    return s.Query(read_select(cursor))


# --- the rest -----------------------------------------------------------------------------------------


def _drop(cursor: Cursor) -> s.Statement:
    if cursor.take("CONNECTOR"):
        if_exists = cursor.take("IF", "EXISTS")
        return s.DropConnector(cursor.dashed_name("the name of the connector"), if_exists)
    if cursor.take("TYPE"):
        if_exists = cursor.take("IF", "EXISTS")
        return s.DropType(cursor.name("the name of the type"), if_exists)
    kind = _kind(cursor)
    if_exists = cursor.take("IF", "EXISTS")
    name = cursor.name()
    return s.Drop(kind, name, if_exists, cursor.take("DELETE", "TOPIC"))


def _show(cursor: Cursor) -> s.Statement:
    all_ = cursor.take("ALL")
    of = next((word for word in ("SOURCE", "SINK") if cursor.take(word)), "")
    if of and not cursor.sees("CONNECTORS"):
        cursor.fail("CONNECTORS is expected")
    if cursor.take("CONNECTOR"):
        cursor.need("PLUGINS")
        return s.Show("PLUGINS")
    what = cursor.choose(*SHOWN, what="what to show")
    all_ = cursor.take("ALL") or all_
    return s.Show(what, cursor.take("EXTENDED"), all_, of)


def _describe(cursor: Cursor) -> s.Statement:
    if cursor.take("FUNCTION"):
        return s.Describe(cursor.name("the name of a function"), function=True)
    if cursor.take("CONNECTOR"):
        return s.DescribeConnector(cursor.dashed_name("the name of a connector"))
    for every in ("STREAMS", "TABLES"):
        if cursor.take(every):
            return s.Describe(every, cursor.take("EXTENDED"), every=True)
    extended = cursor.take("EXTENDED")  # before the name, as in 2018
    name = cursor.name("the name of a stream or table")
    return s.Describe(name, cursor.take("EXTENDED") or extended)


def _explain(cursor: Cursor) -> s.Statement:
    word = cursor.token.text.upper()
    if word in ("CREATE", "SELECT", "INSERT"):
        read = READERS[word]
        cursor.take(word)
        return s.Explain(statement=read(cursor))
    return s.Explain(query=cursor.dashed_name("the id of a query"))


def _act(action: str) -> Callable[[Cursor], s.Statement]:
    return lambda cursor: s.Act(action, cursor.dashed_name("the id of a query, or ALL"))


def _print(cursor: Cursor) -> s.Statement:
    topic = cursor.dashed_name("the name of a topic")
    beginning, interval, limit = cursor.take("FROM", "BEGINNING"), 1, None
    while not cursor.ended:
        word = cursor.choose("INTERVAL", "SAMPLE", "LIMIT", what="INTERVAL or LIMIT")
        if word == "LIMIT":
            limit = cursor.number()
        else:
            interval = max(cursor.number(), 1)
    return s.Print(topic, beginning, interval, limit)


def _set(cursor: Cursor) -> s.Statement:
    name = cursor.string("the name of a property in quotes")
    cursor.need("=")
    return s.SetProperty(name, str(cursor.literal()))


def _unset(cursor: Cursor) -> s.Statement:
    return s.SetProperty(cursor.string("the name of a property in quotes"), None)


def _define(cursor: Cursor) -> s.Statement:
    _, typed = cursor.typed_name("the name of a variable")
    cursor.need("=")
    return s.Define(typed, cursor.string())


def _undefine(cursor: Cursor) -> s.Statement:
    return s.Define(cursor.typed_name("the name of a variable")[1], None)


def _run(cursor: Cursor) -> s.Statement:
    cursor.need("SCRIPT")
    return s.RunScript(cursor.string("the name of a file in quotes"))


def _spool(cursor: Cursor) -> s.Statement:
    if cursor.take("OFF"):
        return s.Spool(None)
    return s.Spool(cursor.string("the name of a file in quotes, or OFF,"))


def _alter(cursor: Cursor) -> s.Statement:
    if cursor.take("SYSTEM"):
        return _set(cursor)
    kind = _kind(cursor)
    name = cursor.name()

    def column() -> s.ColumnDef:
        cursor.need("ADD")
        cursor.take("COLUMN")
        new, typed = cursor.typed_name("the name of a column")
        return s.ColumnDef(new, typed, cursor.type())

    return s.AddColumns(kind, name, tuple(_listed(cursor, column)))


def _assert(cursor: Cursor) -> s.Statement:
    exists = not cursor.take("NOT", "EXISTS")
    allowed = ("TOPIC", "SCHEMA", "VALUES", "NULL", "STREAM", "TABLE") if exists else ("TOPIC", "SCHEMA")
    word = cursor.choose(*allowed, what="what to assert")
    if word == "TOPIC":
        topic = cursor.dashed_name("the name of a topic")
        config = _with(cursor)
        return s.AssertTopic(topic, exists, config, _timeout(cursor))
    if word == "SCHEMA":
        subject = cursor.dashed_name("the name of a subject") if cursor.take("SUBJECT") else None
        id_ = cursor.number("the id of a schema") if cursor.take("ID") else None
        if subject is None and id_ is None:
            cursor.fail("SUBJECT name or ID number is expected")
        return s.AssertSchema(subject, id_, exists, _timeout(cursor))
    if word in ("VALUES", "NULL"):
        return _assert_values(cursor, null=word == "NULL")
    kind: s.RelationKind = "STREAM" if word == "STREAM" else "TABLE"
    name = cursor.name(f"the name of the {kind.lower()}")
    columns = _columns(cursor) if cursor.sees("(") else ()
    return s.AssertSource(kind, name, columns, _with(cursor))


def _timeout(cursor: Cursor) -> float:
    return duration_seconds(read_duration(cursor)) if cursor.take("TIMEOUT") else 0.0


def _assert_values(cursor: Cursor, null: bool) -> s.Statement:
    if null:
        cursor.need("VALUES")
    name = cursor.name("the name of a stream or table")
    columns: tuple[str, ...] = ()
    if cursor.take("("):
        columns = tuple(_listed(cursor, lambda: cursor.name("the name of a column")))
        cursor.need(")")
    cursor.need("KEY" if null else "VALUES")
    cursor.need("(")
    values = tuple(_listed(cursor, lambda: cursor.expression(frozenset())))
    cursor.need(")")
    return s.AssertValues(name, columns, values, null)


READERS: Final[Mapping[str, Callable[[Cursor], s.Statement]]] = {
    "CREATE": _create,
    "SELECT": _select,
    "INSERT": _insert,
    "DROP": _drop,
    "SHOW": _show,
    "LIST": _show,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "EXPLAIN": _explain,
    "TERMINATE": _act("TERMINATE"),
    "PAUSE": _act("PAUSE"),
    "RESUME": _act("RESUME"),
    "PRINT": _print,
    "SET": _set,
    "UNSET": _unset,
    "DEFINE": _define,
    "UNDEFINE": _undefine,
    "RUN": _run,
    "SPOOL": _spool,
    "ALTER": _alter,
    "ASSERT": _assert,
}
