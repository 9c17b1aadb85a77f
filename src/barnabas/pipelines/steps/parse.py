"""Steps that take text apart into fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from barnabas.pipelines.document import Item
from barnabas.pipelines.steps.base import Frame, StepRule, fail, short
from barnabas.pipelines.steps.regex import NAMED_PATTERNS, PatternError, compile_pattern

if TYPE_CHECKING:
    from barnabas.pipelines.spec import Step

MARK: Final = "\x01"
"""Stands between the groups of a match; text that holds it goes to the dead letters."""


def _check_parse(item: Item) -> Mapping[str, Any]:
    found = item.mapping(("from", "pattern", "regex", "json"))
    given = [name for name in ("pattern", "regex", "json") if name in found]
    if len(given) != 1:
        item.fail("parse needs one of pattern, regex and json")
    options: dict[str, Any] = {"from": found["from"].text() if "from" in found else None}
    if "pattern" in found:
        name = found["pattern"].choice(NAMED_PATTERNS)
        options |= {"regex": NAMED_PATTERNS[name], "called": f"pattern {name}"}
    elif "regex" in found:
        options |= {"regex": found["regex"].text(), "called": "the regular expression"}
    else:
        options["json"] = found["json"].text_map()
        if not options["json"]:
            found["json"].fail("json is empty: name its fields with their types")
    if "regex" in options:
        try:
            options["compiled"] = compile_pattern(options["regex"])
        except PatternError as error:
            found[given[0]].fail(f"{given[0]} {error}")
    return options


def _apply_parse(frame: Frame, step: Step) -> Frame:
    return _apply_json(frame, step) if "json" in step.options else _apply_regex(frame, step)


def _apply_regex(frame: Frame, step: Step) -> Frame:
    """One match per row: the groups come back between marks, so their number tells whether it matched."""
    pattern = step.options["compiled"]
    text = frame.source(step.options["from"], step)
    _try_regex(frame, pattern.regex, step)
    marked = F.regexp_replace(text, pattern.regex, "".join(f"{MARK}${n}" for n, _ in pattern.groups))
    data = frame.data.withColumn("_parts", F.split(F.coalesce(marked, F.lit("")), MARK))
    parts = F.col("_parts")
    called = step.options["called"]
    reason = (
        F.when(text.isNull(), F.lit(f"the text for {called} is null"))
        .when(F.size(parts) == 1, F.lit(f"no match for {called}"))
        .when(F.size(parts) != len(pattern.groups) + 1, F.lit("the text holds the control character U+0001"))
        .when(parts[0] != "", F.lit(f"{called} matches only a part of the text"))
    )
    columns = {name: F.nullif(parts[i + 1], F.lit("")) for i, (_, name) in enumerate(pattern.groups)}
    done = Frame(data, frame.fields).put(columns, reason, step)
    return Frame(done.data.drop("_parts"), done.fields)


def _try_regex(frame: Frame, regex: str, step: Step) -> None:
    """Lets Java compile the pattern now: its reason is better than that of a failing task."""
    jvm = frame.data.sparkSession._jvm
    try:
        jvm.java.util.regex.Pattern.compile(regex)
    except Exception as error:
        reason = str(getattr(error, "java_exception", error)).splitlines()[0]
        fail(step, f"the regular expression is wrong: {reason.rpartition('Exception: ')[2]}")


def _apply_json(frame: Frame, step: Step) -> Frame:
    text = frame.source(step.options["from"], step)
    fields = step.options["json"]
    schema = ", ".join(f"`{name}` {kind}" for name, kind in fields.items()) + ", `_corrupt` string"
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    try:
        data = frame.data.withColumn("_json", F.from_json(text, schema, options))
    except Exception as error:
        fail(step, f"the types of json are wrong: {str(error).splitlines()[0]}")
    parsed = F.col("_json")
    trimmed = F.ltrim(text)
    reason = (
        F.when(text.isNull(), F.lit("the text for json is null"))
        .when(trimmed.startswith("["), F.lit("the JSON is an array, not an object"))
        .when(parsed.isNull(), F.lit("not a JSON object"))
        .when(parsed["_corrupt"].isNotNull(), F.concat(F.lit("not JSON of these types: "), short(text)))
    )
    done = Frame(data, frame.fields).put({name: parsed[name] for name in fields}, reason, step)
    return Frame(done.data.drop("_json"), done.fields)


PARSE_STEPS: Final[dict[str, StepRule]] = {
    "parse": StepRule("parse", "Take text apart into fields", _check_parse, _apply_parse),
}
