"""Steps that change, add, remove and choose fields, and that drop rows.

convert: {status: int}             types, see TYPES
time: {field: t, format: "dd/MMM/yyyy:HH:mm:ss Z", to: at, zone: Europe/Berlin}
format_time: {field: at, format: "yyyy-MM-dd", zone: Asia/Tokyo, to: day}
set: {total: "price * count"}      Spark SQL expressions, one after the other
constant: {source: shop}
metadata: {from_topic: topic, at: timestamp}   parts of the record itself, see METADATA
keep: [a, b]    drop: [a, b]    rename: {old: new}
headers: {set: {shop: "'north'"}, drop: [trace]}    or keep: [trace]; headers that the record is sent with
filter: "status >= 400"
deduplicate: {by: [id], within: 10 minutes}
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from barnabas.pipelines.entries.document import Item
from barnabas.pipelines.entries.shapes import Choice, Duration, Either, Group, Matching, Named, Several, Text
from barnabas.pipelines.kinds.steps.base import StepRule, rules
from barnabas.pipelines.kinds.steps.exact_numbers import WHOLE, is_inexact, is_kept, whole_number
from barnabas.pipelines.plan.errors import suggestion
from barnabas.pipelines.plan.expressions import Expression
from barnabas.pipelines.plan.operators import (
    Compute,
    Constant,
    Convert,
    Deduplicate,
    Drop,
    Filter,
    Headers,
    Keep,
    OfFields,
    ReadTime,
    Rename,
    ShowRecord,
    WriteTime,
)
from barnabas.pipelines.spark.exact_json import json_object
from barnabas.pipelines.spark.frame import (
    DELETED,
    OPEN,
    RESERVED,
    ROW,
    SENT,
    Frame,
    complaint,
    computed,
    expression,
    fail,
    first_of,
    flag,
    kept,
    quoted,
)
from barnabas.pipelines.spark.private import check_zone, each

if TYPE_CHECKING:
    from barnabas.pipelines.plan.operators import Operator
    from barnabas.pipelines.plan.places import Place

TYPES: Final[dict[str, str]] = {
    "string": "string",
    "text": "string",
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
    "binary": "binary",
}
METADATA: Final[dict[str, str]] = {
    "topic": "_topic",
    "partition": "_partition",
    "offset": "_offset",
    "timestamp": "_timestamp",
    "key": "cast(_key AS string)",
    "value": "_text",
    # Of several headers with one name, the last counts, as with lastHeader in Kafka's clients.
    "headers": "map_from_entries(transform(filter(_headers, (h, i) -> NOT exists("
    "slice(_headers, i + 2, size(_headers)), later -> later.key = h.key)), "
    "h -> struct(h.key, cast(h.value AS string))))",
    "processed": "current_timestamp()",
}


NOT_UTF8: Final[dict[str, tuple[str, str]]] = {
    "key": ("NOT is_valid_utf8(cast(_key AS string))", "the key is not UTF-8"),
    "value": ("_value IS NOT NULL AND _text IS NULL", "the value is not text in the source's encoding"),
    "headers": (
        "exists(_headers, h -> NOT is_valid_utf8(cast(h.value AS string)))", "the value of a header is not UTF-8"
    ),
}  # fmt: skip
"""For parts of the record: the condition under which they cannot become a field, and the reason that is reported."""


NAMES: Final = Several(Text("the name of a field"), least=1)
SQL: Final = Text("a Spark SQL expression over the fields")
TO: Final = Text("the field for the result; default the field that is read")
ZONE: Final = Text("a time zone like Europe/Berlin, or an offset like +02:00")
LAYOUT: Final = Text("a Spark time format like yyyy-MM-dd HH:mm:ss, or unix, unix_ms")
CONVERT: Final = Named(
    Either(
        (
            Choice(TYPES, fold=True),
            Matching(r"decimal\s*\(\s*\d+\s*(,\s*\d+\s*)?\)|decimal", "like decimal(10,2)"),
        )
    ),
    "fields with their new types",
    least=1,
)
TIME: Final = Group(
    {
        "field": Text("the field that holds the time as text"),
        "format": Several(LAYOUT, "tried in this order; default ISO 8601"),
        "to": TO,
        "zone": ZONE,
    },
    required=("field",),
)
FORMAT_TIME: Final = Group(
    {"field": Text("a field that is a time"), "format": LAYOUT, "to": TO, "zone": ZONE},
    required=("field", "format"),
)
RENAME: Final = Named(Text("the new name"), "old names and new ones", least=1)
SET: Final = Named(SQL, "fields with the expressions for their values", least=1)
CONSTANT: Final = Named(Text(), "fields and their fixed values", least=1)
RECORD_PARTS: Final = Named(Choice(METADATA), "fields and the part of the record that each shows", least=1)
WITHOUT: Final = ("keep", "fail")
DEDUPLICATE: Final = Group(
    {
        "by": NAMES,
        "within": Duration("how long after a row others with the same fields are dropped"),
        "without": Choice(
            WITHOUT, "rows in which one of the fields is missing or null: keep (default), or fail"
        ),
    },
    required=("by", "within"),
)
HEADERS: Final = Group(
    {
        "set": Named(SQL, "headers and their values"),
        "drop": Several(Text(), "headers to remove"),
        "keep": Several(Text(), "headers to keep; all others are removed"),
    }
)


def check_names(item: Item) -> tuple[str, ...]:
    """A list of field names, or one name. Raises PipelineError."""
    if item.value in (None, "", []) or isinstance(item.value, dict):
        item.fail(f"{item.what} needs the names of fields")
    return item.texts()


def of_names(operator: type[OfFields]) -> Callable[[Item], Operator]:
    """The check of a step whose entry is a list of field names, or one name."""
    return lambda item: operator(names=check_names(item))


def read_expression(item: Item) -> Expression:
    """A Spark SQL expression. Raises PipelineError."""
    return Expression.of(item.text(), item.where)


def read_expressions(item: Item) -> dict[str, Expression]:
    """Spark SQL expressions by name. Raises PipelineError."""
    return {name: read_expression(entry) for name, entry in item.mapping().items()}


def check_new_name(name: str, item: Item) -> str:
    """The name, if a new field may have it: a name that begins with an underscore raises PipelineError."""
    if name.startswith("_") or not name:
        item.fail(f"a field cannot be called {name!r}: {RESERVED}")
    return name


def known(frame: Frame, names: tuple[str, ...], step: Place) -> None:
    """Raises PipelineError for names that no field can have at this point."""
    for name in names:
        if name not in frame.fields and not frame.open:
            fail(step, f"there is no field {name!r} at this point; {suggestion(name, frame.fields)}")


def _type(item: Item) -> str:
    text = item.text().lower()
    return text if text.startswith("decimal") else TYPES[item.choice(TYPES) if text not in TYPES else text]


def _check_convert(item: Item) -> Operator:
    entries = CONVERT.open(item)
    if not entries:
        item.fail("convert is empty: name fields with their new types, like status: int")
    return Convert(types={name: _type(entry) for name, entry in entries.items()})


def _apply_convert(frame: Frame, step: Convert) -> Frame:
    types = step.types
    olds = {name: frame.source(name, step) for name in types}
    columns = {name: _converted(frame, old, types[name]) for name, old in olds.items()}

    def reason(new: Mapping[str, Column]) -> Column | None:
        return first_of(
            F.when(
                olds[name].cast("string").isNotNull() & new[name].isNull(),
                complaint(f"{name} is ", olds[name], f", not {types[name]}"),
            )
            for name in types
        )

    return frame.put(columns, step, reason)


def _converted(frame: Frame, old: Column, kind: str) -> Column:
    """The value as another type, or null if that is not possible without changing it. Blanks around text are
    ignored."""
    current = frame.kind(old)
    if current == "timestamp" and kind in ("bigint", "double"):
        return (F.unix_micros(old) / 1_000_000).cast(kind)
    numeric = kind in WHOLE or is_inexact(kind)
    if numeric and current == "boolean":
        return F.lit(None).cast(kind)
    if kind in WHOLE and is_inexact(current):
        return whole_number(old, kind)
    if not numeric:
        if current == "variant" and kind != "string":
            return F.coalesce(old.try_cast(kind), F.trim(old.cast("string")).try_cast(kind))
        return (F.trim(old) if current == "string" and kind != "string" else old).try_cast(kind)
    if current not in ("string", "variant", *WHOLE) and not is_inexact(current):
        return old.try_cast(kind)
    text = F.trim(old.cast("string"))
    converted = text.try_cast(kind)
    if kind in WHOLE:
        if current == "variant":  # a number like 3.0 or 1e3 is whole, too
            converted = F.coalesce(converted, whole_number(old.try_cast("double"), kind))
            converted = F.when(F.schema_of_variant(old) != "BOOLEAN", converted)
        return converted
    if current == "variant":
        converted = F.when(F.schema_of_variant(old) != "BOOLEAN", converted)
    return F.when(is_kept(text, converted, kind), converted)


def _check_time(item: Item) -> Operator:
    entries = TIME.open(item)
    name = entries["field"].text()
    formats = (
        tuple(check_layout(i.text(), i) for i in entries["format"].items()) if "format" in entries else ()
    )
    return ReadTime(
        field=name,
        formats=formats,
        to=check_new_name(entries["to"].text(), entries["to"]) if "to" in entries else name,
        zone=entries["zone"].text() if "zone" in entries else None,
    )


def _apply_time(frame: Frame, step: ReadTime) -> Frame:
    """Converts text to a timestamp by the first format that fits. A zone in the text is used; `zone` is for text
    without one (default UTC). Formats: those of Spark, unix, unix_ms; without any, ISO 8601."""
    text, zone = frame.text(step.field, step), step.zone
    if zone is not None:
        _check_zone(frame, zone, step)
    tries = [_in_zone(_time_of(text, layout), zone, _names_zone(layout)) for layout in step.formats]
    time = F.coalesce(*(tries or [_in_zone(F.try_to_timestamp(text), zone, text.rlike(ISO_ZONE))]))
    wanted = f", not a time like {' or '.join(step.formats)}" if step.formats else ", not a time"

    def reason(new: Mapping[str, Column]) -> Column:
        bad = text.isNotNull() & new[step.to].isNull()
        return F.when(bad, complaint(f"{step.field} is ", text, wanted))

    return frame.put({step.to: time}, step, reason)


ISO_ZONE: Final = r"[T ]\d{1,2}(?::[\d:.]*)?\s*[A-Za-z+\-]"
"""Matches a time that is followed by its zone."""


def _names_zone(layout: str) -> Column:
    """Whether text in this format determines its zone."""
    return F.lit(
        layout in ("unix", "unix_ms") or re.search("[VzOXxZ]", re.sub(r"'[^']*'", "", layout)) is not None
    )


def _in_zone(time: Column, zone: str | None, own: Column) -> Column:
    """A time that was read as UTC, moved to the zone that was meant. own: whether the text has another zone."""
    return time if zone is None else F.when(own, time).otherwise(F.to_utc_timestamp(time, zone))


UNREADABLE: Final = "YWwuec"
"""Letters of week-based dates, which Spark's formats do not accept."""


def check_layout(layout: str, item: Item) -> str:
    """A time format that Spark accepts, or unix, unix_ms. Raises PipelineError."""
    plain = re.sub(r"'[^']*'", "", layout)
    if layout not in ("unix", "unix_ms"):
        for letter in plain:
            if letter in UNREADABLE or (letter.isalpha() and letter not in "GyMLdDQqEaVzOXxZhHkKmsSFBNnA"):
                item.fail(
                    f"the time format {layout!r} has a letter {letter!r} that means nothing to Spark; the year is y"
                )
        if not any(letter.isalpha() for letter in plain):
            item.fail(f"the time format {layout!r} has no letters like yyyy, MM, dd, HH, mm, ss")
    return layout


def _time_of(text: Column, layout: str) -> Column:
    if layout in ("unix", "unix_ms"):
        seconds = text.try_cast("decimal(30,9)") / (1000 if layout == "unix_ms" else 1)
        return F.timestamp_micros((seconds * 1_000_000).try_cast("bigint"))
    return F.try_to_timestamp(text, F.lit(layout))


def _check_zone(frame: Frame, zone: str, step: Place) -> None:
    try:
        check_zone(frame.data.sparkSession, zone)
    except Exception:
        fail(step, f"there is no time zone {zone!r}; use one like Europe/Berlin, or an offset like +02:00")


def _check_format_time(item: Item) -> Operator:
    entries = FORMAT_TIME.open(item)
    name = entries["field"].text()
    return WriteTime(
        field=name,
        format=check_layout(entries["format"].text(), entries["format"]),
        to=check_new_name(entries["to"].text(), entries["to"]) if "to" in entries else name,
        zone=entries["zone"].text() if "zone" in entries else None,
    )


def _apply_format_time(frame: Frame, step: WriteTime) -> Frame:
    time = frame.source(step.field, step)
    if frame.kind(time) not in ("timestamp", "date"):
        fail(step, f"{step.field} is {frame.kind(time)}, not a time: add a time step before this one")
    if step.zone is not None:
        _check_zone(frame, step.zone, step)
        time = F.from_utc_timestamp(time, step.zone)
    return frame.put({step.to: F.date_format(time, step.format)}, step)


def _apply_drop(frame: Frame, step: Drop) -> Frame:
    names = step.names
    known(frame, names, step)
    left = tuple(name for name in frame.fields if name not in names)
    frame = replace(frame, data=frame.data.drop(*[n for n in names if n in frame.fields]), fields=left)
    return frame.forget(names) if frame.open else frame


def _apply_keep(frame: Frame, step: Keep) -> Frame:
    names = step.names
    known(frame, names, step)
    frame = frame.declare(names, step)
    data = frame.data.drop(*[name for name in frame.fields if name not in names], "_open")
    return replace(frame, data=data, fields=tuple(names), open=False)


def _check_rename(item: Item) -> Operator:
    names = item.text_map()
    for new in names.values():
        check_new_name(new, item)
    return Rename(names=names)


def _apply_rename(frame: Frame, step: Rename) -> Frame:
    names = step.names
    known(frame, tuple(names), step)
    # Open fields become columns under their new names at once: their old names may not be allowed for columns.
    moved = {new: F.col(OPEN)[old] for old, new in names.items() if old not in frame.fields}
    if moved:
        if clash := next((new for new in moved if new in frame.fields and new not in names), None):
            fail(step, f"two fields would be called {clash!r}")
        frame = frame.put(moved, step).forget([old for old in names if old not in frame.fields])
        names = {old: new for old, new in names.items() if old in frame.fields and new not in moved}
    fields = tuple(names.get(name, name) for name in frame.fields)
    for name in fields:
        if fields.count(name) > 1:
            fail(step, f"two fields would be called {name!r}")
    frame = replace(frame, data=frame.data.withColumnsRenamed(dict(names)), fields=fields)
    return frame.forget(names.values()) if frame.open else frame


def _check_set(item: Item) -> Operator:
    entries = item.mapping()
    for name in entries:
        check_new_name(name, item)
    return Compute(fields={name: read_expression(entry) for name, entry in entries.items()})


def _apply_set(frame: Frame, step: Compute) -> Frame:
    for name, wanted in step.fields.items():
        frame = computed(frame, name, wanted, step)
    return frame


def _check_constant(item: Item) -> Operator:
    entries = item.mapping()
    for name, entry in entries.items():
        check_new_name(name, entry)
        if isinstance(entry.value, (dict, list)):
            entry.fail(f"{name} is not one value")
    return Constant(fields={name: entry.value for name, entry in entries.items()})


def _apply_constant(frame: Frame, step: Constant) -> Frame:
    return frame.put({name: F.lit(value) for name, value in step.fields.items()}, step)


def _check_metadata(item: Item) -> Operator:
    entries = RECORD_PARTS.open(item)
    for name, entry in entries.items():
        check_new_name(name, entry)
    return ShowRecord(fields={name: entry.text() for name, entry in entries.items()})


def _apply_metadata(frame: Frame, step: ShowRecord) -> Frame:
    def reason(new: Mapping[str, Column]) -> Column | None:
        problems = [NOT_UTF8[part] for part in step.fields.values() if part in NOT_UTF8]
        return first_of(F.when(F.expr(sql), F.lit(message)) for sql, message in problems)

    return frame.put({name: F.expr(METADATA[part]) for name, part in step.fields.items()}, step, reason)


def _check_filter(item: Item) -> Operator:
    return Filter(wanted=read_expression(item))


def _apply_filter(frame: Frame, step: Filter) -> Frame:
    frame, wanted = expression(frame, step.wanted, step)
    if frame.kind(wanted) != "boolean":
        fail(step, f"{step.wanted.text!r} is {frame.kind(wanted)}, not true or false")
    done = computed(frame, "_wanted", step.wanted, step)
    wanted = F.col("_error").isNotNull() | F.col("_wanted")
    if frame.deletes:  # the row to delete may have passed the filter
        wanted = wanted | F.col(DELETED)
    data = kept(done.data, wanted).drop("_wanted")
    return replace(frame, data=data)


def _check_deduplicate(item: Item) -> Operator:
    entries = DEDUPLICATE.open(item)
    return Deduplicate(
        names=check_names(entries["by"]),
        within=entries["within"].text(),
        null_fails="without" in entries and entries["without"].choice(WITHOUT) == "fail",
    )


def _apply_deduplicate(frame: Frame, step: Deduplicate) -> Frame:
    """Drops rows whose fields were seen before; fields are remembered for at least `within`. Rows without one of the
    fields are not duplicates of each other: they are kept, or fail.

    The time of arrival counts: by the records' own times Spark would also drop late rows without any report.
    """
    frame = frame.declare(step.names, step)
    alive = F.col("_error").isNull()
    if frame.deletes:
        alive = alive & ~F.col(DELETED)
    by = step.names
    missing = F.lit(False)
    for name in by:
        field = F.col(quoted(name))
        missing = missing | field.isNull()
        if frame.kind(field) == "variant":
            missing = missing | F.coalesce(F.is_variant_null(field), F.lit(False))
    data = frame.data
    if step.null_fails:
        data = flag(data, F.when(alive & missing, complaint(f"{', '.join(by)} is missing or null")), step)
    values = json_object(data, by)
    exploded = [ROW] if ROW in data.columns else []
    place = F.concat_ws("-", "_topic", "_partition", "_offset", *exploded)  # unique, so it is kept
    data = data.withColumn("_seen", F.when(alive & ~missing, F.concat(F.lit("v"), values)).otherwise(place))
    if not data.isStreaming:
        return replace(frame, data=data.dropDuplicates(["_seen"]).drop("_seen"))
    data = data.withColumn("_arrived", F.current_timestamp()).withWatermark("_arrived", step.within)
    return replace(frame, data=data.dropDuplicatesWithinWatermark(["_seen"]).drop("_seen", "_arrived"))


def _check_headers(item: Item) -> Operator:
    entries = HEADERS.open(item)
    if not entries or ("drop" in entries and "keep" in entries):
        item.fail(
            "headers needs set, drop or keep, but not drop and keep, like {set: {shop: \"'north'\"}, drop: [trace]}"
        )
    return Headers(
        set=read_expressions(entries["set"]) if "set" in entries else {},
        drop=check_names(entries["drop"]) if "drop" in entries else (),
        keep=check_names(entries["keep"]) if "keep" in entries else None,
    )


def _apply_headers(frame: Frame, step: Headers) -> Frame:
    """Removes headers from those that the record is sent with, and adds others. Dead letters keep the original ones."""
    data = frame.data
    if step.keep is not None:
        names = list(step.keep)
        data = data.withColumn(SENT, each("filter", SENT, lambda h: h["key"].isin(names)))
    elif step.drop:
        names = list(step.drop)
        data = data.withColumn(SENT, each("filter", SENT, lambda h: ~h["key"].isin(names)))
    return with_headers(replace(frame, data=data), step.set, lambda _: step)


def with_headers(frame: Frame, headers: Mapping[str, Expression], place: Callable[[str], Place]) -> Frame:
    """The frame whose records are also sent with these headers, which replace those of the same
    name. place: returns the step of a header, for messages. Raises PipelineError."""
    if not headers:
        return frame
    fields, entries = frame.fields, []
    for name, wanted in headers.items():
        column = f"_header.{name}"
        frame = computed(frame, column, wanted, place(name), "string")
        value = F.col(quoted(column)).cast("binary")
        entries.append(F.struct(F.lit(name).alias("key"), value.alias("value")))
    left = each("filter", SENT, lambda header: ~header["key"].isin(list(headers)))
    kind = "array<struct<key:string,value:binary>>"
    sent = F.concat(F.coalesce(left, F.array().cast(kind)), F.array(*entries).cast(kind))
    data = frame.data.withColumn(SENT, sent).drop(*[f"_header.{name}" for name in headers])
    declared = tuple(name for name in frame.fields if name in fields or not name.startswith("_header."))
    return replace(frame, data=data, fields=declared)


FIELD_STEPS: Final = rules(
    StepRule(
        "headers", "Change the headers that records leave with", HEADERS, _check_headers, _apply_headers
    ),
    StepRule("convert", "Change the types of fields", CONVERT, _check_convert, _apply_convert),
    StepRule("time", "Parse a time from text", TIME, _check_time, _apply_time),
    StepRule(
        "format_time", "Write a time as text, in a zone", FORMAT_TIME, _check_format_time, _apply_format_time
    ),
    StepRule("set", "Set fields to Spark SQL expressions", SET, _check_set, _apply_set),
    StepRule("constant", "Set fields to fixed values", CONSTANT, _check_constant, _apply_constant),
    StepRule(
        "metadata",
        "Fields for the record's topic, partition, offset, time",
        RECORD_PARTS,
        _check_metadata,
        _apply_metadata,
    ),
    StepRule("drop", "Remove fields", NAMES, of_names(Drop), _apply_drop),
    StepRule("keep", "Remove all other fields", NAMES, of_names(Keep), _apply_keep),
    StepRule("rename", "Rename fields", RENAME, _check_rename, _apply_rename),
    StepRule("filter", "Keep the rows for which an expression is true", SQL, _check_filter, _apply_filter),
    StepRule(
        "deduplicate", "Drop rows that were seen before", DEDUPLICATE, _check_deduplicate, _apply_deduplicate
    ),
)
