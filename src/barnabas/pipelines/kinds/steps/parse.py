"""Steps that split text into fields.

    parse: {pattern: combined-log}                     a named pattern, see regex.py
    parse: {regex: '(?<user>\\w+)@(?<host>\\S+)'}      named groups become fields
    parse: {grok: '%{IP:client} %{WORD:method}'}       see grok.py
    parse: {json: {a: int, b: string}}                 declared fields of a JSON object
    parse: {json: all}                                 every field of a JSON object, whatever its shape
    parse: {csv: {a: int, b: string}, separator: ';'}
    parse: {key_values: all, pairs: ' ', equals: '='}  or a list of the keys to keep
    parse: {registry: {url: http://localhost:8081, subject: orders-value}}   bytes that name their schema
    split: {by: '"', into: [head, request, _, agent]}  pieces between separators; _ discards one

`from` names the field to split; default the record's value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from pyspark.sql import Column
from pyspark.sql import functions as F

from barnabas.pipelines.entries.document import Item
from barnabas.pipelines.entries.shapes import Choice, Either, Flag, Group, Named, Number, Several, Text
from barnabas.pipelines.kinds.steps.base import StepRule, rules
from barnabas.pipelines.kinds.steps.exact_numbers import is_inexact
from barnabas.pipelines.kinds.steps.fields import NAMES, check_new_name
from barnabas.pipelines.kinds.steps.grok import expand
from barnabas.pipelines.kinds.steps.json_objects import apply_any_json, apply_json
from barnabas.pipelines.kinds.steps.typed_fields import (
    CORRUPT,
    MARK,
    declared_kinds,
    inexact_reason,
    spark_schema,
)
from barnabas.pipelines.plan.operators import (
    Operator,
    Parse,
    ParseAnyJson,
    ParseCsv,
    ParseJson,
    ParseKeyValues,
    ParsePattern,
    ParseRegistry,
    RegistryPlace,
    Split,
)
from barnabas.pipelines.plan.patterns import (
    NAMED_PATTERNS,
    Pattern,
    PatternError,
    compile_pattern,
)
from barnabas.pipelines.spark.frame import (
    OPEN_TYPE,
    Frame,
    complaint,
    fail,
    java_reason,
    quoted,
    short,
)
from barnabas.pipelines.spark.private import compile_regex, each

if TYPE_CHECKING:
    from barnabas.pipelines.plan.places import Place

FORMATS: Final = ("pattern", "regex", "grok", "json", "csv", "key_values", "registry", "protobuf")
EMPTY: Final = ("text", "null")
QUOTED: Final = ("text", "number")
SURPLUS: Final = ("fail", "drop")
NULL: Final = "\x01null\x01"
"""Stands for a value of CSV without text and quotes; records that contain it go to the dead letters."""


FROM: Final = Text("the field to split; default the record's value")
DECLARED: Final = Named(Text("a Spark type"), "fields with their types", least=1)
PARSE: Final = Group(
    {
        "pattern": Choice(NAMED_PATTERNS, "a named pattern"),
        "regex": Text("a regular expression; its named groups become fields"),
        "grok": Text("a grok pattern like %{IP:client} %{WORD:method}"),
        "json": Either((Choice(("all",)), DECLARED), "all, or the fields of a JSON object with their types"),
        "csv": DECLARED,
        "key_values": Either((Choice(("all",)), NAMES), "all, or the keys to keep"),
        "registry": Group(
            {
                "url": Text("of a schema registry, like http://localhost:8081", hides="passwords"),
                "subject": Text("the subject whose newest version has the fields"),
                "of": Choice(("value", "key"), "what is decoded; default value"),
                "trailing": Number("how many bytes follow, like the window of a key; default 0"),
                "missing": Choice(("fail", "null"), "what a record without it is; default fail"),
            },
            "bytes that name their schema: Avro, JSON Schema, Protobuf",
            required=("url", "subject"),
        ),
        "protobuf": Group(
            {
                "schema": Text("a schema, whose first message the bytes are; nothing in them names it"),
                "of": Choice(("value", "key"), "what is decoded; default value"),
                "trailing": Number("how many bytes follow, like the window of a key; default 0"),
                "missing": Choice(("fail", "null"), "what a record without it is; default fail"),
            },
            "bytes of a message",
            required=("schema",),
        ),
        "from": FROM,
        "prefix": Text("text before the names of all fields"),
        "separator": Text("text between the values of CSV; default a comma"),
        "quote": Text('text around values of CSV; default "'),
        "escape": Text("text before a quote inside of quotes; default the quote itself"),
        "pairs": Text("text between pairs; default a space"),
        "equals": Text("text between key and value; default ="),
        "quoted": Choice(
            QUOTED, "what a number in quotes is in JSON: text (default) or a number, where one is declared"
        ),
        "empty": Choice(EMPTY, 'what "" is in CSV: text (default) or null, as a value without quotes is'),
        "surplus": Choice(SURPLUS, "text between key=value pairs: fail (default), or drop"),
    },
    one_of=FORMATS,
)
SPLIT: Final = Group(
    {
        "from": FROM,
        "by": Several(Text("the text between the pieces")),
        "into": Several(Text("the field for a piece; _ discards the piece")),
        "keep_empty": Flag("whether blank pieces are kept; default true"),
        "surplus": Choice(SURPLUS, "text after the last piece in `into`: fail (default), or drop"),
        "trim": Flag("whether blanks around pieces are removed; default true"),
    },
    required=("by", "into"),
)


def _check_parse(item: Item) -> Operator:
    entries = PARSE.open(item)
    kind = next(name for name in FORMATS if name in entries)
    allowed = {
        "json": {"prefix", "quoted"},
        "csv": {"separator", "quote", "escape", "empty"},
        "key_values": {"pairs", "equals", "prefix", "surplus"},
        "registry": {"prefix"},
        "protobuf": {"prefix"},
    }
    for name in entries:
        if name not in {
            kind,
            *(() if kind in ("registry", "protobuf") else ("from",)),
            *allowed.get(kind, ()),
        }:
            entries[name].fail(f"{name} does not go with {kind}")
    entry = entries[kind]
    texts = {name: value.text() for name, value in entries.items() if name != kind}
    source, prefix = texts.get("from"), texts.get("prefix", "")
    if kind in ("registry", "protobuf"):
        where = entry.mapping()
        of: Literal["value", "key"] = "key" if "of" in where and where["of"].text() == "key" else "value"
        if kind == "protobuf":
            place = RegistryPlace.of_text(where["schema"].text())
        else:
            place = RegistryPlace(where["url"].text(), where["subject"].text())
        return ParseRegistry(
            place=place,
            of=of,
            prefix=prefix,
            trailing=where["trailing"].number() if "trailing" in where else 0,
            may_lack="missing" in where and where["missing"].text() == "null",
        )
    if kind in ("pattern", "regex", "grok"):
        pattern, called = _check_pattern(kind, entry)
        return ParsePattern(source=source, pattern=pattern, called=called)
    if kind == "key_values":
        return ParseKeyValues(
            source=source,
            fields=None if entry.value == "all" else _named(kind, entry, entry.texts(), prefix),
            pairs=texts.get("pairs", " "),
            equals=texts.get("equals", "="),
            prefix=prefix,
            drops_surplus="surplus" in entries and entries["surplus"].choice(SURPLUS) == "drop",
        )
    if kind == "json" and entry.value == "all":
        if "quoted" in entries:
            entries["quoted"].fail("quoted needs declared fields: json: {name: type}")
        return ParseAnyJson(source=source, prefix=prefix)
    fields = entry.text_map()
    _named(kind, entry, tuple(fields), prefix)
    if kind == "json":
        unquotes = "quoted" in entries and entries["quoted"].choice(QUOTED) == "number"
        return ParseJson(source=source, fields=fields, prefix=prefix, unquotes=unquotes)
    quote = texts.get("quote", '"')
    return ParseCsv(
        source=source,
        fields=fields,
        separator=texts.get("separator", ","),
        quote=quote,
        # As in RFC 4180, a quote inside of quotes is written twice.
        escape=texts.get("escape", quote),
        empty_is_null="empty" in entries and entries["empty"].choice(EMPTY) == "null",
    )


def _named(kind: str, entry: Item, names: tuple[str, ...], prefix: str) -> tuple[str, ...]:
    """The names of the fields to make. Raises PipelineError."""
    if not names:
        entry.fail(
            f"{kind} is empty: name its fields" + (" with their types" if kind != "key_values" else "")
        )
    for name in names:
        check_new_name(prefix + name, entry)
    return names


def _check_pattern(kind: str, entry: Item) -> tuple[Pattern, str]:
    """The pattern, and how messages call it. Raises PipelineError."""
    called = "the regular expression" if kind == "regex" else f"the {kind} pattern"
    if kind == "pattern":
        name = entry.choice(NAMED_PATTERNS)
        regex, called = NAMED_PATTERNS[name], f"pattern {name}"
    else:
        regex = entry.text()
    try:
        if kind == "grok":
            regex = expand(regex)
        compiled = compile_pattern(regex)
        for _, name in compiled.groups:
            check_new_name(name, entry)
        return compiled, called
    except PatternError as error:
        entry.fail(f"{kind} {error}")


def _apply_parse(frame: Frame, step: Parse | ParseRegistry) -> Frame:
    if isinstance(step, ParseRegistry):
        return replace(_apply_registry(frame, step), sparing=False)
    done = APPLY[type(step)](frame.readable(step.source, step), step)
    return replace(done, sparing=False)


def _apply_registry(frame: Frame, step: ParseRegistry) -> Frame:
    """Decodes on the executors, a batch at a time; they keep what they have read from the registry."""
    from barnabas.pipelines.kinds.schemas import bare, check_field, decoded_columns, framed

    decode, fields = decoded_columns(step.place, step)
    of_value = step.of == "value"
    decoded = F.col("_decoded")
    columns = {check_field(step.prefix + name, step): decoded["v"][name] for name in fields}
    part = F.col(f"_{step.of}")
    if step.trailing:
        part = F.substring(part, F.lit(1), F.length(part) - step.trailing)
    bytes_ = bare(part) if step.place.text else framed(part, F.col("_headers"), step.of)
    error = F.when(part.isNotNull(), decoded["error"]) if step.may_lack else decoded["error"]
    data = frame.data.withColumn("_decoded", decode(bytes_))
    frame = replace(frame, data=data, sparing=frame.deletes and of_value)
    done = frame.put(columns, step, lambda _: error)
    return replace(done, data=done.data.drop("_decoded"))


def _apply_regex(frame: Frame, step: ParsePattern) -> Frame:
    """One match per row: it is replaced by its groups between marks, whose number shows whether it matched."""
    pattern = step.pattern
    text = frame.text(step.source, step)
    _try_regex(frame, pattern.regex, step)
    marked = F.regexp_replace(text, pattern.regex, "".join(f"{MARK}${n}" for n, _ in pattern.groups))
    data = frame.data.withColumn("_parts", F.split(F.coalesce(marked, F.lit("")), MARK))
    parts = F.col("_parts")
    called = step.called

    def reason(_: Mapping[str, Column]) -> Column:
        return (
            F.when(text.isNull(), F.lit(f"the text for {called} is null"))
            .when(F.size(parts) == 1, F.lit(f"no match for {called}"))
            .when(
                F.size(parts) != len(pattern.groups) + 1, F.lit("the text holds the control character U+0001")
            )
            .when(F.get(parts, F.lit(0)) != "", F.lit(f"{called} matches only a part of the text"))
        )

    columns = {
        name: F.nullif(F.get(parts, F.lit(i + 1)), F.lit("")) for i, (_, name) in enumerate(pattern.groups)
    }
    done = replace(frame, data=data).put(columns, step, reason)
    return replace(done, data=done.data.drop("_parts"))


def _try_regex(frame: Frame, regex: str, step: Place) -> None:
    """Compiles the pattern in Java now: this error is clearer than that of a failing task."""
    try:
        compile_regex(frame.data.sparkSession, regex)
    except Exception as error:
        fail(step, f"the regular expression is wrong: {java_reason(error)}")


def _apply_csv(frame: Frame, step: ParseCsv) -> Frame:
    text = frame.text(step.source, step)
    fields = step.fields
    schema = spark_schema(frame, fields, step) + f", {CORRUPT} string"
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": CORRUPT,
        "sep": step.separator,
        "quote": step.quote,
        "escape": step.escape,
        "nullValue": "" if step.empty_is_null else NULL,
        "emptyValue": "",
    }
    inexact = {name: kind for name, kind in declared_kinds(frame, fields).items() if is_inexact(kind)}
    raw = F.from_csv(text, ", ".join(f"{quoted(name)} string" for name in fields), options)
    data = frame.data.withColumn("_csv", F.from_csv(text, schema, options))
    parsed = F.col("_csv")

    def reason(_: Mapping[str, Column]) -> Column:
        wrong = parsed.isNull() | parsed[CORRUPT].isNotNull() | ((text == "") & F.lit(len(fields) > 1))
        problem = (
            F.when(text.isNull(), F.lit("the text for csv is null"))
            .when(wrong, complaint(f"not {len(fields)} values of the declared types: ", text))
            .when(F.contains(text, F.lit(NULL)), F.lit("the text holds the control character U+0001"))
        )
        return problem.otherwise(inexact_reason(inexact, raw, parsed)) if inexact else problem

    done = replace(frame, data=data).put({name: parsed[name] for name in fields}, step, reason)
    return replace(done, data=done.data.drop("_csv"))


def _apply_key_values(frame: Frame, step: ParseKeyValues) -> Frame:
    """Splits `a=1 b="two words"`: pairs at `pairs`, keys from values at `equals`. Quotes around a value are removed,
    and inside of them each backslash before a quote or another backslash."""
    text = frame.text(step.source, step)
    pairs, equals = step.pairs, step.equals
    prefix = step.prefix
    key = f"[^{_java_quote(pairs + equals)}]+"
    value = rf'"(?:[^"\\]++|\\.)*+"|[^{_java_quote(pairs)}]*'
    regex = f"({key}){_java_quote(equals)}({value})"
    keys = F.regexp_extract_all(text, F.lit(regex), F.lit(1))
    values = each("transform", F.regexp_extract_all(text, F.lit(regex), F.lit(2)), _unquoted)
    # The last value of a repeated key is used: a map that is made of pairs would refuse the key.
    map_column = F.map_from_arrays(
        F.array_distinct(keys), each("transform", F.array_distinct(keys), _last(keys, values))
    )

    def reason(_: Mapping[str, Column]) -> Column:
        rest = F.trim(F.replace(F.regexp_replace(text, regex, " "), F.lit(pairs), F.lit(" ")))
        surplus = F.lit(not step.drops_surplus) & (rest != "")
        return (
            F.when(text.isNull(), F.lit("the text for key_values is null"))
            .when(~F.regexp_like(text, F.lit(regex)), complaint(f"no key{equals}value in: ", text))
            .when(surplus, complaint("text that is not in a pair: ", rest))
        )

    if step.fields is not None:
        return frame.put({prefix + name: map_column[name] for name in step.fields}, step, reason)
    named = (
        each("transform_keys", map_column, lambda k, _: F.concat(F.lit(prefix), k)) if prefix else map_column
    )
    return frame.spread(named.cast(OPEN_TYPE), step, reason)


def _unquoted(value: Column) -> Column:
    """A value without the quotes around it; backslashes escape inside of them only."""
    inner = F.regexp_replace(F.substr(value, F.lit(2), F.length(value) - 2), r'\\(["\\])', "$1")
    return F.when((F.length(value) >= 2) & value.startswith('"') & value.endswith('"'), inner).otherwise(
        value
    )


def _last(keys: Column, values: Column) -> Callable[[Column], Column]:
    def value(key: Column) -> Column:
        return F.element_at(values, (F.size(keys) - F.array_position(F.reverse(keys), key) + 1).cast("int"))

    return value


def _java_quote(text: str) -> str:
    """Text escaped for a Java pattern, also for use between brackets."""
    return "".join("\\" + char if not char.isalnum() else char for char in text)


def _check_split(item: Item) -> Operator:
    entries = SPLIT.open(item)
    into = entries["into"].texts()
    kept = [name for name in into if name != "_"]
    if not kept:
        entries["into"].fail("into keeps nothing: name at least one piece")
    if len(set(kept)) != len(kept):
        entries["into"].fail("into names a piece twice")
    for name in kept:
        check_new_name(name, entries["into"])
    by = entries["by"].texts()
    if not all(by):
        entries["by"].fail("by is empty: name the text between the pieces")
    return Split(
        source=entries["from"].text() if "from" in entries else None,
        by=by,
        into=into,
        keeps_empty=entries["keep_empty"].flag() if "keep_empty" in entries else True,
        drops_surplus="surplus" in entries and entries["surplus"].choice(SURPLUS) == "drop",
        trims=entries["trim"].flag() if "trim" in entries else True,
    )


def _apply_split(frame: Frame, step: Split) -> Frame:
    """Assigns pieces to the fields in `into`, in order; too few pieces are an error, and so are additional
    ones that are not blank, unless `surplus` drops them."""
    frame = frame.readable(step.source, step)
    text = frame.text(step.source, step)
    pieces = F.split(text, "|".join(_java_quote(by) for by in step.by))
    if not step.keeps_empty:
        pieces = each("filter", pieces, lambda piece: F.trim(piece) != "")
    data = frame.data.withColumn("_parts", pieces)
    parts = F.col("_parts")
    count = len(step.into)

    def reason(_: Mapping[str, Column]) -> Column:
        rest = F.slice(parts, count + 1, F.greatest(F.size(parts), F.lit(1)))
        more = F.lit(not step.drops_surplus) & (F.trim(F.array_join(rest, "")) != "")
        few = F.concat(F.size(parts).cast("string"), F.lit(f" pieces, not {count}, in: "), short(text))
        return F.when(text.isNull(), F.lit("the text to split is null")).when(
            (F.size(parts) < count) | more, few
        )

    def piece(i: int) -> Column:
        return F.trim(F.get(parts, F.lit(i))) if step.trims else F.get(parts, F.lit(i))

    columns = {name: piece(i) for i, name in enumerate(step.into) if name != "_"}
    done = replace(frame, data=data).put(columns, step, reason)
    return replace(done, data=done.data.drop("_parts"), sparing=False)


APPLY: Final[Mapping[type[Operator], Callable[[Frame, Any], Frame]]] = {
    ParsePattern: _apply_regex,
    ParseJson: apply_json,
    ParseAnyJson: apply_any_json,
    ParseCsv: _apply_csv,
    ParseKeyValues: _apply_key_values,
}
"""How each way to split a field is compiled."""
PARSE_STEPS: Final = rules(
    StepRule(
        "parse",
        "Split text into fields: patterns, JSON, CSV, key=value",
        PARSE,
        _check_parse,
        _apply_parse,
    ),
    StepRule("split", "Split text at separators", SPLIT, _check_split, _apply_split),
)
