"""The step `parse: {json: ...}`: declared fields of a JSON object, or all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from barnabas.pipelines.kinds.steps.exact_numbers import NUMBER, changeable, is_inexact
from barnabas.pipelines.kinds.steps.typed_fields import (
    CORRUPT,
    MARK,
    declared_kinds,
    inexact_reason,
    spark_schema,
    without,
)
from barnabas.pipelines.plan.operators import ParseAnyJson, ParseJson
from barnabas.pipelines.plan.patterns import quoted_numbers
from barnabas.pipelines.spark.frame import OPEN_TYPE, Frame, complaint, quoted
from barnabas.pipelines.spark.private import each

BLANKS: Final = " \t\r\n"


def _whole(text: Column) -> Column:
    """Whether text is one JSON object and nothing else.

    Spark's parsers stop at the end of the first object and ignore what follows it. So the text becomes the first
    element of an array, with three zeros after it: if anything follows the object, the array does not have four
    elements.
    """
    four = F.json_array_length(F.concat(F.lit("["), text, F.lit(",0,0,0]"))) == 4
    return F.ltrim(text, F.lit(BLANKS)).startswith("{") & F.coalesce(four, F.lit(False))


def _lost_number(text: Column, exponents_only: bool) -> Column:
    """The first number of a JSON text that Spark would change; null if there is none.

    Whole numbers and decimals stay exact up to 38 digits, numbers with an exponent become doubles. exponents_only:
    for fields with declared types, whose conversion checks all other numbers. Strings are removed first, but only
    from a text that might contain such a number.
    """
    bare = F.regexp_replace(text, r'"(?:[^"\\]++|\\.)*+"', '""')
    numbers = F.regexp_extract_all(bare, F.lit(r"-?\d[\d.eE+-]*"), F.lit(0))

    def lost(number: Column) -> Column:
        mantissa = F.regexp_replace(number, "[eE].*$", "")
        digits = F.length(F.regexp_replace(F.regexp_replace(mantissa, "[^0-9]", ""), "^0+", ""))
        double = number.try_cast("double")
        overflow = F.coalesce(F.abs(double) == float("inf"), F.lit(True)) | ((double == 0) & (digits > 0))
        exponent = number.rlike("[eE]")
        if exponents_only:
            return exponent & overflow
        return F.when(exponent, overflow | (digits > 17)).otherwise(digits > 38)

    suspicious = text.rlike(r"\d[eE][+-]?\d{3}" if exponents_only else r"[\d.]{17}|\d[eE][+-]?\d{3}")
    return F.when(suspicious, F.get(each("filter", numbers, lost), F.lit(0)))


def _changed_number(text: Column, exponents_only: bool) -> Column:
    """The reason to refuse a record with a number that Spark would change; null without one."""
    number = _lost_number(text, exponents_only)
    return F.when(
        number.isNotNull(), complaint("the number ", number, " cannot be kept exactly: write it as a string")
    )


def _not_an_object(text: Column) -> Column:
    """Why text is not a JSON object, once it is known not to be one."""
    start = F.ltrim(text, F.lit(BLANKS))
    return (
        F.when(text.isNull(), F.lit("the text for json is null"))
        .when(start.startswith("["), F.lit("the JSON is an array, not an object: its values have no names"))
        .when(
            start.startswith("{") & F.json_object_keys(text).isNotNull(),
            complaint("something follows the JSON object: ", text),
        )
        .when(start.startswith("{"), complaint("not valid JSON: ", text))
        .otherwise(complaint("not a JSON object: ", text))
    )


def _numbers_quoted(text: Column) -> Column:
    """A JSON text with each number as a string.

    JSON has no control characters, so they can mark what is put back afterwards: escaped backslashes and quotes, which
    are hidden from the pattern, and the ends of numbers.
    """
    hidden = F.replace(F.replace(text, F.lit("\\\\"), F.lit("\x02")), F.lit('\\"'), F.lit("\x03"))
    marked = F.regexp_replace(hidden, r'("[^"]*+")|(-?[0-9][0-9.eE+-]*)', f"$1{MARK}$2{MARK}")
    for mark, back in ((MARK * 2, ""), (MARK, '"'), ("\x03", '\\"'), ("\x02", "\\\\")):
        marked = F.replace(marked, F.lit(mark), F.lit(back))
    return marked


def _lone_surrogate(text: Column) -> Column:
    """Whether a JSON text has one half of a surrogate pair, which no encoding has bytes for."""
    bare = F.replace(text, F.lit("\\\\"), F.lit(""))
    unpaired = F.regexp_replace(bare, r"(?i)\\u+d[89ab][0-9a-f]{2}\\u+d[c-f][0-9a-f]{2}", "")
    return text.rlike(r"\\u[dD][89a-fA-F]") & unpaired.rlike(r"\\u[dD][89a-fA-F]")


def _ambiguous(text: Column, twice: Column) -> Column:
    """The reason to refuse valid JSON that means different things to different readers."""
    return F.when(
        _lone_surrogate(text), complaint("half of a surrogate pair is no character, in: ", text)
    ).when(twice, complaint("a name appears twice in one JSON object: ", text))


def apply_json(frame: Frame, step: ParseJson) -> Frame:
    text = frame.text(step.source, step)
    fields = step.fields
    prefix = step.prefix
    schema = spark_schema(frame, fields, step) + f", {CORRUPT} string"
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    data = frame.data.withColumn("_json", F.from_json(text, schema, options))
    parsed = F.col("_json")
    pattern = quoted_numbers(fields) if step.unquotes else None
    if pattern is not None:  # only a record that has not the declared types is looked at again
        is_quoted = parsed[CORRUPT].isNotNull() & text.rlike(pattern)
        bare = F.when(is_quoted, F.regexp_replace(text, pattern, "$1$2"))
        data = data.withColumn("_bare", bare)
        text = F.coalesce(F.col("_bare"), text)
        data = data.withColumn(
            "_json", F.when(F.col("_bare").isNotNull(), F.from_json(text, schema, options)).otherwise(parsed)
        )
    kinds = declared_kinds(frame, fields)
    texts = [name for name in fields if kinds[name] == "string"]
    inexact = {name: kind for name, kind in kinds.items() if is_inexact(kind)}
    written = ", ".join(f"{quoted(name)} string" for name in [*texts, *inexact])
    if written:  # Spark reads numbers as doubles before it makes text or a decimal of them
        again = F.when(changeable(text, parsed, texts, inexact), F.from_json(_numbers_quoted(text), written))
        data = data.withColumn("_written", again)
    raw = F.col("_written")

    def value(name: str) -> Column:
        if name not in texts:
            return parsed[name]
        is_number = raw[name].rlike(NUMBER) & ~parsed[name].rlike(r"^[\[{]")
        return F.when(is_number, raw[name]).otherwise(parsed[name])

    def reason(_: Mapping[str, Column]) -> Column:
        return (
            F.when(text.isNull() | parsed.isNull() | ~_whole(text), _not_an_object(text))
            .when(parsed[CORRUPT].isNotNull(), complaint("the JSON does not have the declared types: ", text))
            .otherwise(F.coalesce(
                _ambiguous(text, F.try_parse_json(text).isNull()),
                _changed_number(text, exponents_only=True),
                *([inexact_reason(inexact, raw, parsed)] if inexact else []),
            ))
        )  # fmt: skip

    done = replace(frame, data=data).put({prefix + name: value(name) for name in fields}, step, reason)
    return replace(done, data=done.data.drop("_json", "_written", "_bare"))


def apply_any_json(frame: Frame, step: ParseAnyJson) -> Frame:
    text = frame.text(step.source, step)
    prefix = step.prefix
    whole = F.from_json(text, OPEN_TYPE)
    if prefix:
        whole = each("transform_keys", whole, lambda key, _: F.concat(F.lit(prefix), key))

    def reason(new: Mapping[str, Column]) -> Column:
        names = F.json_object_keys(text)
        twice = F.size(F.array_distinct(names)) < F.size(names)
        nested = _whole(text) & new[""].isNull()
        return (
            F.when(~_whole(text), _not_an_object(text))
            .when(nested | twice, F.coalesce(_ambiguous(text, twice | nested), _not_an_object(text)))
            .otherwise(
                F.coalesce(_ambiguous(text, F.lit(False)), _changed_number(text, exponents_only=False))
            )
        )

    done = frame.spread(whole, step, reason)
    return without(done, step.source) if step.source is not None else done
