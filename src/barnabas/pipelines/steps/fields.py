"""Steps that change, add, remove and choose fields, and that drop rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from barnabas.pipelines.document import Item, suggestion
from barnabas.pipelines.steps.base import Frame, StepRule, expression, fail, quoted, short

if TYPE_CHECKING:
    from barnabas.pipelines.spec import Step

TYPES: Final[dict[str, str]] = {
    "string": "string",
    "int": "int",
    "integer": "int",
    "long": "bigint",
    "bigint": "bigint",
    "float": "float",
    "double": "double",
    "number": "double",
    "boolean": "boolean",
    "bool": "boolean",
    "date": "date",
    "timestamp": "timestamp",
}


def _type(item: Item) -> str:
    text = item.text().lower()
    if text.startswith("decimal"):
        return text
    return TYPES[item.choice(TYPES)] if text not in TYPES else TYPES[text]


def _check_convert(item: Item) -> Mapping[str, Any]:
    found = item.mapping()
    if not found:
        item.fail("convert is empty: name fields with the types they get, like status: int")
    return {"types": {name: _type(entry) for name, entry in found.items()}}


def _apply_convert(frame: Frame, step: Step) -> Frame:
    reason = F.lit(None).cast("string")
    columns = {}
    for name, kind in step.options["types"].items():
        field = frame.source(name, step)
        columns[name] = field.try_cast(kind)
        bad = field.isNotNull() & columns[name].isNull()
        message = F.concat(F.lit(f"{name} is "), short(field), F.lit(f", not {kind}"))
        reason = F.coalesce(reason, F.when(bad, message))
    return frame.put(columns, reason, step)


def _check_time(item: Item) -> Mapping[str, Any]:
    found = item.mapping(("field", "format", "to", "zone"), required=("field",))
    name = found["field"].text()
    return {
        "field": name,
        "format": found["format"].text() if "format" in found else None,
        "to": found["to"].text() if "to" in found else name,
        "zone": found["zone"].text() if "zone" in found else None,
    }


def _apply_time(frame: Frame, step: Step) -> Frame:
    """Text to a point in time. A zone in the text counts; `zone` is for text without one (default UTC)."""
    options = step.options
    field = frame.source(options["field"], step)
    layout = options["format"]
    text = field.cast("string")
    if layout in ("unix", "unix_ms"):
        seconds = text.try_cast("double") / (1000 if layout == "unix_ms" else 1)
        time = F.timestamp_micros((seconds * 1_000_000).cast("bigint"))
    elif layout is None:
        time = F.try_to_timestamp(text)
    else:
        time = F.try_to_timestamp(text, F.lit(layout))
    if options["zone"] is not None:
        time = F.to_utc_timestamp(time, options["zone"])
    bad = field.isNotNull() & time.isNull()
    wanted = "a time" if layout is None else f"a time like {layout}"
    reason = F.when(bad, F.concat(F.lit(f"{options['field']} is "), short(field), F.lit(f", not {wanted}")))
    return frame.put({options["to"]: time}, reason, step)


def _check_names(item: Item) -> Mapping[str, Any]:
    if not item.value or isinstance(item.value, dict):
        item.fail(f"{item.what} needs the names of fields")
    names = item.texts()
    return {"names": names}


def _known(frame: Frame, names: tuple[str, ...], step: Step) -> None:
    for name in names:
        if name not in frame.fields:
            fail(step, f"there is no field {name!r} at this point; {suggestion(name, frame.fields)}")


def _apply_drop(frame: Frame, step: Step) -> Frame:
    names = step.options["names"]
    _known(frame, names, step)
    left = tuple(name for name in frame.fields if name not in names)
    return Frame(frame.data.drop(*names), left)


def _apply_keep(frame: Frame, step: Step) -> Frame:
    names = step.options["names"]
    _known(frame, names, step)
    return Frame(frame.data.drop(*[name for name in frame.fields if name not in names]), tuple(names))


def _check_rename(item: Item) -> Mapping[str, Any]:
    return {"names": item.text_map()}


def _apply_rename(frame: Frame, step: Step) -> Frame:
    names = step.options["names"]
    _known(frame, tuple(names), step)
    fields = tuple(names.get(name, name) for name in frame.fields)
    for name in fields:
        if fields.count(name) > 1:
            fail(step, f"two fields would be called {name!r}")
    return Frame(frame.data.withColumnsRenamed(dict(names)), fields)


def _check_set(item: Item) -> Mapping[str, Any]:
    found = item.text_map()
    for name in found:
        if name.startswith("_"):
            item.fail(
                f"the field name {name!r} begins with an underscore, which marks the record's own columns"
            )
    return {"fields": found}


def _apply_set(frame: Frame, step: Step) -> Frame:
    """Spark SQL expressions, one after the other: a later one sees the earlier ones' fields."""
    for name, sql in step.options["fields"].items():
        frame = frame.put({name: expression(frame, sql, step)})
    return frame


def _check_filter(item: Item) -> Mapping[str, Any]:
    return {"where": item.text()}


def _apply_filter(frame: Frame, step: Step) -> Frame:
    wanted = expression(frame, step.options["where"], step)
    return Frame(frame.data.where(F.col("_error").isNotNull() | wanted), frame.fields)


def _check_unescape(item: Item) -> Mapping[str, Any]:
    return _check_names(item)


def _apply_unescape(frame: Frame, step: Step) -> Frame:
    """A backslash before a quote or a backslash goes away, as web servers write them into logs."""
    columns = {}
    for name in step.options["names"]:
        field = frame.source(name, step)
        plain = F.regexp_replace(field, r'\\(["\\])', "$1")
        columns[name] = F.when(F.contains(field, F.lit("\\")), plain).otherwise(field)
    return frame.put(columns)


def field_columns(frame: Frame) -> list[str]:
    """The fields as names that Spark takes."""
    return [quoted(name) for name in frame.fields]


FIELD_STEPS: Final[dict[str, StepRule]] = {
    rule.name: rule
    for rule in (
        StepRule("convert", "Change the types of fields", _check_convert, _apply_convert),
        StepRule("time", "Read a time out of text", _check_time, _apply_time),
        StepRule("drop", "Remove fields", _check_names, _apply_drop),
        StepRule("keep", "Remove all other fields", _check_names, _apply_keep),
        StepRule("rename", "Give fields other names", _check_rename, _apply_rename),
        StepRule("set", "Set fields to Spark SQL expressions", _check_set, _apply_set),
        StepRule("filter", "Keep the rows for which an expression is true", _check_filter, _apply_filter),
        StepRule("unescape", "Take backslashes away before quotes", _check_unescape, _apply_unescape),
    )
}
