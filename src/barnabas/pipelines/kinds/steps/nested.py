"""Steps for nested values.

    extract: {from: doc, fields: {id: "$.user.id", tag: "$.['a.b'][0]"}}   JSONPath; without from, the record
    flatten: {fields: [kubernetes], separator: ".", depth: 2}              objects to fields; without fields, all
    unflatten: {separator: "."}                                            fields a.b and a.c to an object a
    explode: {field: items, to: item}                                      one row per element of an array

A key with a dot in it is written `$.['a.b']` or `$['a.b']`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from barnabas.pipelines.entries.document import Item
from barnabas.pipelines.entries.shapes import Flag, Group, Named, Number, Text
from barnabas.pipelines.kinds.steps.base import StepRule, rules
from barnabas.pipelines.kinds.steps.fields import NAMES, TO, check_names, check_new_name
from barnabas.pipelines.plan.operators import DEPTH_MAX, Explode, Extract, Flatten, Unflatten
from barnabas.pipelines.spark.frame import OPEN, ROW, Frame, complaint, fail, flag, quoted
from barnabas.pipelines.spark.private import each

if TYPE_CHECKING:
    from barnabas.pipelines.plan.operators import Operator

ENTRIES_TYPE: Final = "array<struct<key:string,value:variant>>"
VARIANT_MAP: Final = "map<string,variant>"
_PATH: Final = re.compile(r"""\$(?:\.?\[(?:'[^']*'|"[^"]*"|\d+|\*)\]|\.[^.\[\]'"\s]+)*""")


SEPARATOR: Final = Text("between the parts of names; default a dot")
EXTRACT: Final = Group(
    {
        "from": Text("the field that holds JSON; default the record's value"),
        "fields": Named(
            Text("a JSONPath like $.user.id"), "fields with the JSONPath of their values", least=1
        ),
        "required": Flag("whether a missing value is an error; default false"),
    },
    required=("fields",),
)
FLATTEN: Final = Group(
    {
        "fields": NAMES,
        "separator": SEPARATOR,
        "depth": Number(f"how many levels are opened; {DEPTH_MAX} at most"),
        "prefix": Flag("whether names begin with the object's name; default true"),
    }
)
UNFLATTEN: Final = Group({"separator": SEPARATOR, "fields": NAMES})
EXPLODE: Final = Group(
    {
        "field": Text("the field that holds an array"),
        "to": TO,
        "index": Text("a field for the index in the array, from 0"),
    },
    required=("field",),
)


def java_path(path: str) -> str | None:
    """The path as Spark reads it: `$.['a.b']` becomes `$['a.b']`. None if it is not a path."""
    if not _PATH.fullmatch(path):
        return None
    return re.sub(r"""\.?\[(["'])(.*?)\1\]""", r"['\2']", path)


def _check_extract(item: Item) -> Operator:
    entries = EXTRACT.open(item)
    fields = {}
    for name, entry in entries["fields"].mapping().items():
        check_new_name(name, entry)
        path = java_path(entry.text())
        if path is None:
            entry.fail(f"{entry.text()!r} is not a JSONPath like $.user.id or $.['key.with.dots'][0]")
        fields[name] = path
    return Extract(
        source=entries["from"].text() if "from" in entries else None,
        paths=fields,
        required=entries["required"].flag() if "required" in entries else False,
    )


def _apply_extract(frame: Frame, step: Extract) -> Frame:
    """Extracts values as text (objects and arrays as JSON). With `required` a missing value is an error."""
    frame = frame.readable(step.source, step)
    text = frame.text(step.source, step)
    columns = {name: F.get_json_object(text, path) for name, path in step.paths.items()}
    whole = F.json_object_keys(text)  # null when it is not an object

    def reason(new: Mapping[str, Column]) -> Column:
        start = F.ltrim(text)
        bad = F.when(text.isNull(), F.lit("the text for extract is null")).when(
            ~start.startswith("[") & whole.isNull(), complaint("not JSON: ", text)
        )
        if step.required:
            for name, path in step.paths.items():
                bad = bad.when(new[name].isNull(), F.lit(f"there is nothing at {path}"))
        return bad

    return replace(frame.put(columns, step, reason), sparing=False)


def _check_flatten(item: Item) -> Operator:
    entries = FLATTEN.open(item)
    return Flatten(
        names=check_names(entries["fields"]) if "fields" in entries else None,
        separator=entries["separator"].text() if "separator" in entries else ".",
        depth=_depth(entries["depth"]) if "depth" in entries else DEPTH_MAX,
        prefix=entries["prefix"].flag() if "prefix" in entries else True,
    )


def _depth(item: Item) -> int:
    depth = item.number()
    if depth > DEPTH_MAX:
        item.fail(f"{item.what} is {depth}; flatten opens at most {DEPTH_MAX} levels in one step")
    return depth


def _apply_flatten(frame: Frame, step: Flatten) -> Frame:
    """Declared objects become columns; objects of unknown shape are opened entry by entry, to `depth`."""
    names = step.names
    for name in names if names is not None else frame.fields:
        if name in frame.fields:
            frame = _flatten_declared(frame, name, step, names is not None)
        elif frame.open:
            frame = _flatten_open(frame, step, name)
        else:
            frame.source(name, step)  # raises: there is no such field
    return _flatten_open(frame, step, None) if names is None and frame.open else frame


def _flatten_declared(frame: Frame, name: str, step: Flatten, asked: bool) -> Frame:
    kind = frame.data.schema[name].dataType
    if isinstance(kind, StructType):
        columns = dict(_leaves(kind, F.col(quoted(name)), name if step.prefix else "", step))
        frame = frame.put(columns, step)
        left = tuple(field for field in frame.fields if field != name or field in columns)
        data = frame.data if name in columns else frame.data.drop(name)
        return replace(frame, data=data, fields=left)
    if kind.simpleString() == "variant":
        # An object of unknown shape is moved back to the open fields, and opened there.
        one = F.create_map(F.lit(name), F.col(quoted(name)))
        fields = tuple(field for field in frame.fields if field != name)
        spread = replace(frame, fields=fields).spread(one, step)
        return _flatten_open(replace(spread, data=spread.data.drop(name)), step, name)
    if asked:
        fail(step, f"{name} is {kind.simpleString()}, not an object")
    return frame


def _leaves(
    kind: StructType, column: Column, prefix: str, step: Flatten, depth: int = 1
) -> list[tuple[str, Column]]:
    leaves: list[tuple[str, Column]] = []
    for field in kind.fields:
        name = f"{prefix}{step.separator}{field.name}" if prefix else field.name
        value = column.getField(field.name)
        if isinstance(field.dataType, StructType) and depth < step.depth:
            leaves += _leaves(field.dataType, value, name, step, depth + 1)
        else:
            leaves.append((name, value))
    return leaves


def _flatten_open(frame: Frame, step: Flatten, name: str | None) -> Frame:
    """Opens objects in the open fields, all or only `name`, level by level."""
    separator, data = step.separator, frame.data
    entries = F.map_entries(F.col(OPEN))
    for level in range(step.depth):
        chosen = None if name is None else (name if level == 0 else name + separator)
        entries = F.flatten(each("transform", entries, _opener(separator, chosen, level, step.prefix)))
    data = data.withColumn("_entries", entries.cast(ENTRIES_TYPE))
    names = each("transform", F.col("_entries"), lambda entry: entry["key"])
    twice = F.size(names) != F.size(F.array_distinct(names))
    data = flag(data, F.when(twice, F.lit("two fields have the same name once they are flat")), step)
    flat = F.when(F.col("_error").isNull(), F.map_from_entries(F.col("_entries")))
    frame = replace(frame, data=data.withColumn(OPEN, flat).drop("_entries"))
    return frame.forget(frame.fields) if frame.fields else frame


def _opener(separator: str, chosen: str | None, level: int, prefix: bool) -> Any:
    def open_entry(entry: Column) -> Column:
        wanted = F.schema_of_variant(entry["value"]).startswith("OBJECT")
        if chosen is not None:
            same = entry["key"] == chosen if level == 0 else entry["key"].startswith(chosen)
            wanted = wanted & same
        inner = F.map_entries(entry["value"].cast(VARIANT_MAP))

        def named(child: Column) -> Column:
            key = F.concat(entry["key"], F.lit(separator), child["key"]) if prefix else child["key"]
            return F.struct(key.alias("key"), child["value"].alias("value"))

        return F.when(wanted, each("transform", inner, named)).otherwise(F.array(entry))

    return open_entry


def _check_unflatten(item: Item) -> Operator:
    entries = UNFLATTEN.open(item)
    return Unflatten(
        separator=entries["separator"].text() if "separator" in entries else ".",
        names=check_names(entries["fields"]) if "fields" in entries else None,
    )


def _apply_unflatten(frame: Frame, step: Unflatten) -> Frame:
    """Makes one object of declared fields whose names begin in the same way. Open fields need a keep step before."""
    if frame.open:
        fail(step, "the fields are not declared at this point: name them in a keep step before")
    separator = step.separator
    tree: dict[str, Any] = {}
    for name in frame.fields:
        parts = name.split(separator)
        if step.names is not None and parts[0] not in step.names:
            parts = [name]
        node = tree
        for part in parts[:-1]:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                fail(step, f"{part!r} would be a value and an object at once")
        if parts[-1] in node:
            fail(step, f"{name!r} would be a value and an object at once")
        node[parts[-1]] = F.col(quoted(name))
    columns = [_object(node).alias(name) for name, node in tree.items()]
    rest = [F.col(name) for name in frame.data.columns if name not in frame.fields]
    return replace(frame, data=frame.data.select(*rest, *columns), fields=tuple(tree))


def _object(node: Any) -> Column:
    if not isinstance(node, dict):
        column: Column = node
        return column
    return F.struct(*[_object(child).alias(name) for name, child in node.items()])


def _check_explode(item: Item) -> Operator:
    entries = EXPLODE.open(item)
    name = entries["field"].text()
    return Explode(
        field=name,
        to=check_new_name(entries["to"].text(), entries["to"]) if "to" in entries else name,
        index=check_new_name(entries["index"].text(), entries["index"]) if "index" in entries else None,
    )


def _apply_explode(frame: Frame, step: Explode) -> Frame:
    """Makes a row of each element; a row without elements is kept, with null. Text may be a JSON array."""
    column = frame.source(step.field, step)
    kind = frame.kind(column)
    if kind in ("string", "variant"):
        values = F.try_parse_json(column) if kind == "string" else column
        array = values.try_cast("array<variant>")
    elif kind.startswith("array<"):
        array = column
    else:
        fail(step, f"{step.field} is {kind}, not an array")

    def reason(new: Mapping[str, Column]) -> Column:
        bad = column.isNotNull() & new["_array"].isNull()
        return F.when(bad, complaint(f"{step.field} is ", column, ", not an array"))

    frame = frame.put({"_array": array}, step, reason)
    rows = frame.data.select("*", F.posexplode_outer("_array").alias("_at", "_element")).drop("_array")
    before = [F.col(ROW)] if ROW in rows.columns else []
    rows = rows.withColumn(ROW, F.concat_ws("-", *before, F.col("_at").cast("string")))
    fields = tuple(name for name in frame.fields if name != "_array")
    columns = {step.to: F.col("_element")}
    if step.index is not None:
        columns[step.index] = F.col("_at")
    done = Frame(rows, fields, frame.open).put(columns, step)
    data, fields = done.data.drop("_element", "_at"), done.fields
    if step.field != step.to:
        fields = tuple(name for name in fields if name != step.field)
        done = Frame(data.drop(step.field), fields, done.open)
        return done.forget([step.field]) if done.open else done
    return Frame(data, fields, done.open)


NESTED_STEPS: Final = rules(
    StepRule("extract", "Extract values from JSON by path", EXTRACT, _check_extract, _apply_extract),
    StepRule("flatten", "Make fields of objects", FLATTEN, _check_flatten, _apply_flatten),
    StepRule("unflatten", "Make objects of fields", UNFLATTEN, _check_unflatten, _apply_unflatten),
    StepRule("explode", "One row per element of an array", EXPLODE, _check_explode, _apply_explode),
)
