"""Makes a pipeline of a query: the same entries that a pipeline file has, so that EXPLAIN can show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlglot import exp

from barnabas.pipelines.fronts.sql.catalog import (
    ENCODED,
    ROWKEY,
    Catalog,
    Column,
    Relation,
    check_properties,
    formats_of,
    timestamp_of,
)
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.expressions import Translator, Typed, name_of, quoted
from barnabas.pipelines.fronts.sql.functions import FUNCTIONS
from barnabas.pipelines.fronts.sql.grouping import HAVING_FIELD, Groups, SelectedColumn, grouped_by, is_turned
from barnabas.pipelines.fronts.sql.joining import equation, joined
from barnabas.pipelines.fronts.sql.rows import (
    TIME,
    WINDOW_END,
    WINDOW_START,
    Step,
    bound_of_group,
    encodable,
    encoded_key,
    key_expression,
    reading,
    row_time,
    value_expression,
    written_schema,
)
from barnabas.pipelines.fronts.sql.scopes import GroupScope, OpenQuery, Side
from barnabas.pipelines.fronts.sql.statements import Item, RelationKind, Select

VIEW: Final = "rows"
"""The output in which the rows of a table can be looked up."""
GROUPS: Final = "groups"
"""The relation of the groups of joined streams."""
OF_TABLES: Final = ("COUNT", "SUM", "AVG", "COLLECT_LIST")
"""Functions of many rows from which a row can be taken away again, so that they work for tables."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How queries run. start: where a topic is read from, `earliest` or `latest`. partitions: of topics that are made.
    registry: the address of the schema registry."""

    start: str = "latest"
    partitions: int = -1
    registry: str = ""


@dataclass(frozen=True, slots=True)
class Planned:
    """A query as a pipeline. result: the stream or table that it writes."""

    document: Mapping[str, Any]
    result: Relation
    sources: tuple[str, ...]
    view: bool = False


def plan(
    catalog: Catalog,
    select: Select,
    *,
    query_id: str,
    name: str,
    kind: RelationKind | None,
    properties: Mapping[str, Any],
    settings: Settings,
    text: str = "",
) -> Planned:
    """The pipeline that a query is. kind: what the statement creates; None: a query by itself, whose rows are written as
    JSON objects of all columns. Raises SqlError."""
    query = _opened(catalog, select, name, settings)
    checked = check_properties(properties)
    if "VALUE_SCHEMA_ID" in checked:
        raise SqlError(
            "VALUE_SCHEMA_ID is for streams and tables that are declared: a query writes with a schema of its columns"
        )
    grouped = bool(select.group_by)
    _check(query, kind, grouped)
    translator = Translator(query.scope)
    filters = [] if select.where is None else [{"filter": translator.condition(select.where).text}]
    if query.has_time:
        query.sides[0].pseudo.add(TIME)
    shown, exploded = _items(query, grouped, kind is None)
    keys = _keys(query, shown)
    result = _result(query, name, kind, checked, shown, keys, text, query_id)
    result = replace(result, formats=replace(result.formats, registry=settings.registry))
    if kind is None:
        result = replace(result, columns=tuple(replace(column, is_key=False) for column in result.columns))
    steps = [*filters, *exploded]
    groups = grouped_by(query, shown, keys, result) if grouped else None
    if groups is not None:
        steps += groups.steps
    else:
        steps += _shown_steps(query, shown)
        if turned := {
            c.name: encodable(quoted(c.name), c.type) for c in result.values if is_turned(c, result)
        }:
            steps.append({"set": turned})
    sources, relations, last = _read(query, steps, settings)
    if groups is not None and query.joins_streams and select.emit != "FINAL":
        # Results that change cannot be written right after a join of streams, but a table of them can be made of it.
        relations[GROUPS] = {"from": last, "aggregate": groups.as_table}
        groups, last = None, GROUPS
    document: dict[str, Any] = {"pipeline": query_id, "sources": sources}
    if relations:
        document["relations"] = relations
    view = kind == "TABLE"
    document["outputs"] = _outputs(query, result, groups, last, settings, checked, view=view)
    document["dead_letters"] = f"{query_id}-errors"
    return Planned(document, result, tuple(side.relation.name for side in query.sides), view)


def properties_of(sink: Relation) -> dict[str, Any]:
    """The properties of a query whose rows go into a stream that is there."""
    return {
        "KAFKA_TOPIC": sink.topic,
        "VALUE_FORMAT": sink.formats.value,
        "KEY_FORMAT": sink.formats.key,
        "VALUE_DELIMITER": sink.formats.delimiter,
        "WRAP_SINGLE_VALUE": sink.formats.wraps,
    }


def check_columns(relation: Relation, sink: Relation) -> None:
    """Raises SqlError if rows have other columns than the stream into which they go."""
    ours = {column.name: column.type for column in relation.columns}
    theirs = {column.name: column.type for column in sink.columns}
    if ours != theirs:
        shown = [", ".join(f"{name} {kind}" for name, kind in types.items()) for types in (ours, theirs)]
        raise SqlError(
            f"the columns of SELECT are {shown[0]}, but {sink.name} has {shown[1]}: give them its names and types"
        )


# --- what is read -------------------------------------------------------------------------------------


def _opened(catalog: Catalog, select: Select, name: str, settings: Settings) -> OpenQuery:
    query = OpenQuery(select, name=name)
    refs = [select.source, *(join.source for join in select.joins)]
    several = len(refs) > 1
    for ref in refs:
        if ref.alias in {side.alias for side in query.sides}:
            raise SqlError(f"{ref.alias} is read twice: give one an alias", ref.spot)
        relation = catalog.find(ref.name, ref.spot)
        relation = replace(relation, formats=replace(relation.formats, registry=settings.registry))
        query.sides.append(Side(ref.alias, relation, f"{ref.alias}_" if several else ""))
    return query


def _check(query: OpenQuery, kind: RelationKind | None, grouped: bool) -> None:
    select = query.select
    if select.having is not None and not grouped:
        raise SqlError("HAVING needs GROUP BY: write WHERE for rows")
    if select.window is not None and not grouped:
        raise SqlError("WINDOW needs GROUP BY")
    if grouped and query.of_table:
        _check_aggregates(select)
    for join, side in zip(select.joins, query.sides[1:], strict=True):
        if query.of_table and side.relation.kind == "STREAM":
            first = query.sides[0].alias
            raise SqlError(
                f"{first} is a table and {side.alias} a stream: name the stream first", join.source.spot
            )
    if grouped and query.of_table and select.window is not None:
        raise SqlError("WINDOW is for streams: the rows of a table have no end")
    if kind == "STREAM" and (grouped or query.of_table):
        raise SqlError("the result is a table, one row for each key: write CREATE TABLE")
    if kind == "TABLE" and not grouped and not query.of_table:
        raise SqlError("the result is a stream: write CREATE STREAM, or GROUP BY for a table")
    if select.partition_by and (grouped or query.of_table):
        raise SqlError("PARTITION BY is for streams; the key of a table stays")
    if (
        select.window is not None
        and select.window.kind == "SESSION"
        and query.joins_streams
        and select.emit != "FINAL"
    ):
        raise SqlError(
            "WINDOW SESSION of joined streams needs EMIT FINAL: write the joined rows to a stream first, or that"
        )
    if select.emit == "FINAL" and select.window is None:
        raise SqlError("EMIT FINAL needs a WINDOW: a group without one is never complete")


def _check_aggregates(select: Select) -> None:
    """Raises SqlError if a function of many rows cannot work for a table, whose rows are replaced."""
    nodes = [item.expression for item in select.items] + ([] if select.having is None else [select.having])
    for node in nodes:
        for call in node.find_all(exp.Anonymous):
            name = str(call.this).upper()
            function = FUNCTIONS.get(name)
            if (
                function is not None
                and function.aggregate
                and not function.of_tables
                and name not in OF_TABLES
            ):
                raise SqlError(
                    f"{name} cannot be applied to a table, only to a stream, because rows of a table are replaced; "
                    f"allowed: {', '.join(OF_TABLES)}"
                )


def plan_source_table(relation: Relation, query_id: str) -> Planned:
    """The pipeline that keeps the rows of a table of CREATE SOURCE TABLE, so that they can be looked up. Raises SqlError."""
    result = replace(relation, query=query_id)
    entry = {"table": relation.topic, "steps": reading(relation, set())}
    output = {"name": VIEW, "from": relation.name, "view": {"key": [column.name for column in relation.keys]}}
    document = {
        "pipeline": query_id,
        "sources": {relation.name: entry},
        "outputs": [output],
        "dead_letters": f"{query_id}-errors",
    }
    return Planned(document, result, (relation.name,), view=True)


def _read(
    query: OpenQuery, steps: list[Step], settings: Settings
) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Sources, relations, and the name of the relation whose rows the query's steps have made."""
    joins = joined(query)
    sources = {}
    for side in query.sides:
        own = reading(side.read, side.pseudo)
        if side.prefix:
            names = [c.name for c in side.read.columns]
            names += sorted({*side.pseudo, *({"ROWTIME"} if TIME in side.pseudo else ())} - {*names})
            own = [
                *own,
                {"rename": {name: side.field(name) for name in names}},
                *joins.steps.get(side.alias, []),
            ]
        else:
            own = [*own, *steps]
        entry: dict[str, Any] = {("table" if side.relation.kind == "TABLE" else "topic"): side.relation.topic}
        if side.relation.kind == "STREAM":
            entry["start"] = settings.start
        entry["steps"] = own
        if side.alias in joins.timed:
            entry["time"] = {"of": side.field(TIME), "late": joins.timed[side.alias]}
        sources[side.alias] = entry
    if not joins.relations:
        return sources, {}, query.sides[0].alias
    last = list(joins.relations)[-1]
    relations = (
        {**joins.relations, last: {**joins.relations[last], "steps": steps}} if steps else joins.relations
    )
    return sources, relations, last


# --- what is shown ------------------------------------------------------------------------------------


def _items(query: OpenQuery, grouped: bool, result_only: bool) -> tuple[list[SelectedColumn], list[Step]]:
    """The columns of the result, and the steps that make rows of arrays first. Raises SqlError."""
    scope: Any = GroupScope(query.scope, query.select.window) if grouped else query.scope
    items: list[SelectedColumn] = []
    exploded: list[Step] = []
    for number, item in enumerate(query.select.items):
        if _is_star(item):
            if grouped:
                raise SqlError("* is not for groups: name their columns", item.spot)
            items += _stars(query, item, old=result_only and query.is_old and len(query.sides) == 1)
            continue
        typed, expression = None, item.expression
        called_name = str(expression.this).upper() if isinstance(expression, exp.Anonymous) else ""
        if called_name == "EXPLODE" or (called_name in FUNCTIONS and FUNCTIONS[called_name].makes_rows):
            array = expression.expressions[0] if called_name == "EXPLODE" else expression
            inner = Translator(scope).translate(array)
            if inner.type.name != "ARRAY":
                raise SqlError(f"EXPLODE takes an array, not {inner.type}", item.spot)
            called = f"exploded {number}"
            exploded += [
                {"set": {called: inner.text}},
                {"filter": f"size({quoted(called)}) > 0"},  # the step would keep a row without elements
                {"explode": {"field": called, "to": called}},
            ]
            typed = Typed(quoted(called), inner.type.items[0])
        try:
            typed = typed or Translator(scope, aggregates=grouped).translate(expression)
        except SqlError as error:
            raise SqlError(error.message, error.spot or item.spot) from None
        plain = (
            typed.text.strip("`")
            if isinstance(expression, exp.Column) and typed.text.startswith("`")
            else None
        )
        of = (
            frozenset(Translator(query.scope).translate(c).text for c in _columns_in(expression))
            if grouped
            else frozenset()
        )
        items.append(SelectedColumn(item.alias or _named(query, expression, number), typed, plain, of))
    names = [shown.name for shown in items]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SqlError(f"two columns of the result are called {twice}: give one an alias with AS")
    return items, exploded


def _columns_in(node: exp.Expr) -> list[exp.Column]:
    """The columns of sources in an expression."""
    bounds = ("WINDOWSTART", "WINDOWEND")
    columns = [column for column in node.find_all(exp.Column) if not isinstance(column.this, exp.Star)]
    bodies = {name_of(one) for function in node.find_all(exp.Lambda) for one in function.expressions}
    return [column for column in columns if name_of(column.this) not in {*bounds, *bodies}]


def _is_star(item: Item) -> bool:
    node = item.expression
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def _stars(query: OpenQuery, item: Item, old: bool) -> list[SelectedColumn]:
    """What * stands for. old: with ROWTIME and ROWKEY, which * meant in 2018."""
    node = item.expression
    source = name_of(node.args["table"]) if isinstance(node, exp.Column) and node.args.get("table") else ""
    before = [SelectedColumn(name, query.scope.column("", name), name) for name in ("ROWTIME", ROWKEY) if old]
    return before + [
        SelectedColumn(name, Typed(quoted(side.field(column.name)), column.type), side.field(column.name))
        for name, side, column in query.scope.all_columns(source)
    ]


def _named(query: OpenQuery, node: exp.Expr, number: int) -> str:
    """The name of a column without an alias, as ksqlDB gives it."""
    if isinstance(node, exp.Column):
        name = name_of(node.this)
        table = node.args.get("table")
        shared = sum(name in side.columns for side in query.sides) > 1
        if table is not None and shared and len(query.sides) > 1:
            return f"{name_of(table)}_{name}"
    return column_name(node, number)


def column_name(node: exp.Expr, number: int) -> str:
    """The name of a column of the result without an alias, over one source."""
    if isinstance(node, exp.Column):
        return name_of(node.this)
    return name_of(node.expression) if isinstance(node, exp.Dot) else f"KSQL_COL_{number}"


def _keys(query: OpenQuery, shown: list[SelectedColumn]) -> list[str]:
    """The names of the result's key columns. Raises SqlError if one of them is not in SELECT."""
    select, scope = query.select, query.scope
    if select.group_by or select.partition_by:
        wanted = [
            (node, Translator(scope).translate(node))
            for node in (*select.group_by, *select.partition_by)
            if not isinstance(node, exp.Null)
        ]
    elif select.joins and query.of_table and (own := _primary_keys(query, shown)):
        return own
    elif select.joins:
        on = equation(select.joins[0])
        both = [(node, Translator(scope).translate(node)) for node in (on.left, on.right)]
        has = next((one for one in both if any(s.typed.text == one[1].text for s in shown)), None)
        return [] if has is None else [next(s.name for s in shown if s.typed.text == has[1].text)]
    else:
        side = query.sides[0]
        keys = [
            (column, Typed(quoted(side.field(column.name)), column.type)) for column in side.relation.keys
        ]
        key_names = [s.name for _, typed in keys for s in shown if s.typed.text == typed.text][: len(keys)]
        if query.of_table and len(key_names) < len(keys):
            raise SqlError(
                f"the key of {side.relation.name} must be in SELECT: {', '.join(k.name for k, _ in keys)}"
            )
        return key_names
    names = []
    for node, typed in wanted:
        name = next((s.name for s in shown if s.typed.text == typed.text), None)
        if name is None and isinstance(node, exp.Column):
            name = next((s.name for s in shown if s.name == name_of(node.this)), None)
        if name is None:
            raise SqlError(f"{node.sql(dialect='presto')} identifies the rows, so it must be in SELECT")
        names.append(name)
    return names


def _primary_keys(query: OpenQuery, shown: list[SelectedColumn]) -> list[str]:
    """The names under which the key of the first table is shown; none if it is not."""
    side = query.sides[0]
    wanted = [quoted(side.field(column.name)) for column in side.relation.keys]
    names = [next((s.name for s in shown if s.typed.text == text), None) for text in wanted]
    return [name for name in names if name is not None] if None not in names else []


def _shown_steps(query: OpenQuery, shown: list[SelectedColumn]) -> list[Step]:
    """The steps that make the result's columns of the fields of a row: renamed at the end, since an expression may use a
    name that another column of the result takes."""
    computed = {f"new {n}": s.typed.text for n, s in enumerate(shown) if s.plain is None}
    names: dict[str, str] = {}
    copies: dict[str, str] = {}
    for number, one in enumerate(shown):
        at = f"new {number}" if one.plain is None else one.plain
        if one.plain is not None and at in names:  # shown twice
            at = f"new {number}"
            copies[at] = quoted(one.plain)
        names[at] = one.name
    steps: list[Step] = [{"set": {**computed, **copies}}] if computed or copies else []
    steps.append({"keep": [*names, *([TIME] if query.has_time else [])]})
    renamed = {old: new for old, new in names.items() if old != new}
    return [*steps, {"rename": renamed}] if renamed else steps


# --- what is written ----------------------------------------------------------------------------------


def _result(
    query: OpenQuery,
    name: str,
    kind: RelationKind | None,
    properties: Mapping[str, Any],
    shown: list[SelectedColumn],
    keys: list[str],
    text: str,
    query_id: str,
) -> Relation:
    first = query.sides[0].relation
    windowed = query.select.window if query.select.group_by else first.window
    columns = [
        Column(s.name, s.typed.type, s.name, s.name in keys)
        for s in shown
        if not (s.name in (WINDOW_START, WINDOW_END) and query.select.window is not None and kind is not None)
    ]
    formats = formats_of(
        properties, replace(first.formats, key=first.formats.key if kind is not None else "NONE")
    )
    if (
        len(keys) > 1
        and formats.key in ("KAFKA", "NONE")
        and not properties.keys() & {"KEY_FORMAT", "FORMAT"}
    ):
        formats = replace(formats, key="JSON")
    return Relation(
        kind or "STREAM",
        name,
        str(properties.get("KAFKA_TOPIC", name)),
        tuple(columns),
        formats,
        bounds=tuple(
            (s.name, s.typed.text)
            for s in shown
            if query.select.group_by and s.name in (WINDOW_START, WINDOW_END)
        ),
        timestamp=timestamp_of(properties, columns),
        timestamp_format=properties.get("TIMESTAMP_FORMAT"),
        window=windowed,
        query=query_id,
        text=text,
        partitions=int(properties.get("PARTITIONS", -1)),
    )


def _encoded(query: OpenQuery, result: Relation) -> dict[str, Any]:
    """The value of an output whose format has a schema. Raises SqlError."""
    entry = written_schema(result, "value", result.formats.value, result.values)
    return entry | ({"where": quoted(HAVING_FIELD)} if query.select.having is not None else {})


def _outputs(
    query: OpenQuery,
    result: Relation,
    groups: Groups | None,
    last: str,
    settings: Settings,
    properties: Mapping[str, Any],
    *,
    view: bool,
) -> list[dict[str, Any]]:
    output: dict[str, Any] = {"name": "topic", "from": last, "topic": result.topic}
    carried = not query.select.group_by and query.sides[0].relation.window is not None
    key, value = key_expression(result, carried=carried), value_expression(result)
    if result.formats.value in ENCODED:
        output["value"] = _encoded(query, result)
    if result.keys and result.formats.key in ENCODED:
        output["key"] = encoded_key(result, carried=carried)
    elif key is not None:
        output["key"] = key
    elif query.is_old and not query.select.group_by and len(query.sides) == 1:
        output["key"] = "_key"  # in 2018 a record kept its key
    elif key is None:
        output["key"] = "cast(NULL AS binary)"
    if result.timestamp is not None:
        output["timestamp"] = f"timestamp_millis({row_time(result)})"
    elif query.has_time:
        output["timestamp"] = TIME
    elif query.select.window is not None and query.select.window.kind == "SESSION":
        output["timestamp"] = f"timestamp_millis({bound_of_group(query.select.window, WINDOW_END)})"
    if value is not None:
        hidden = query.select.having is not None
        output["value"] = f"CASE WHEN {quoted(HAVING_FIELD)} THEN {value} END" if hidden else value
    partitions = int(properties.get("PARTITIONS", settings.partitions))
    if partitions > 0:
        output["partitions"] = partitions
    config = {}
    if result.kind == "TABLE" and view:
        config["cleanup.policy"] = str(properties.get("CLEANUP_POLICY", "compact")).lower()
    if "RETENTION_MS" in properties:
        config["retention.ms"] = str(properties["RETENTION_MS"])
    if config:
        output["config"] = config
    outputs = [output]
    if groups is not None:
        output["aggregate"] = groups.entry
    if view:
        looked_up: dict[str, Any] = {"key": [column.name for column in result.keys]}
        window = query.select.window
        if window is not None:
            looked_up["window"] = WINDOW_START
            looked_up["key"].append(WINDOW_START)
            if window.retention is not None:
                looked_up["keep"] = window.retention
        entry: dict[str, Any] = {"name": VIEW, "from": last, "view": looked_up}
        if groups is not None:
            entry["aggregate"] = groups.entry
        outputs.append(entry)
    return outputs
