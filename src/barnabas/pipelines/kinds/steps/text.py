"""Steps that rewrite text in place.

trim: [a, b]    upper: [a]    lower: [a]    url_decode: [path]    unescape: [user_agent]
replace: {field: path, find: "/old/", with: "/new/"}     or regex: instead of find:
substring: {field: id, start: 1, length: 8, to: short}   start counts from 1, negative from the end
mask: {fields: [card], left: 0, right: 4, with: "*"}     how many characters are left readable, on each side
hash: {fields: [email], algorithm: sha256, salt: "..."}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from barnabas.pipelines.entries.document import Item
from barnabas.pipelines.entries.shapes import Choice, Group, Number, Text, Whole
from barnabas.pipelines.kinds.steps.base import StepRule, rules
from barnabas.pipelines.kinds.steps.fields import NAMES, TO, check_names, check_new_name, of_names
from barnabas.pipelines.plan.operators import (
    ALL,
    ChangeText,
    Hash,
    Lower,
    Mask,
    Replace,
    Substring,
    Trim,
    Unescape,
    Upper,
    UrlDecode,
)
from barnabas.pipelines.spark.frame import Frame, complaint, fail, first_of, java_reason
from barnabas.pipelines.spark.private import compile_regex

if TYPE_CHECKING:
    from barnabas.pipelines.plan.operators import Operator
    from barnabas.pipelines.plan.places import Place

ALGORITHMS: Final = ("sha256", "sha512", "md5", "crc32")
REPLACE: Final = Group(
    {
        "field": Text("the field that is changed"),
        "find": Text("the text to replace"),
        "regex": Text("a regular expression for the text to replace"),
        "with": Text("the replacement; $1 is a group of the regular expression"),
    },
    required=("field", "with"),
    one_of=("find", "regex"),
)
SUBSTRING: Final = Group(
    {
        "field": Text("the field that is cut"),
        "start": Whole("counts from 1, or from the end with -1"),
        "length": Number("how many characters; default all that follow"),
        "to": TO,
    },
    required=("field", "start"),
)
MASK: Final = Group(
    {
        "fields": NAMES,
        "left": Number("how many characters stay readable at the left", 0),
        "right": Number("how many characters stay readable at the right", 0),
        "with": Text("the character that hides the others; default *"),
    },
    required=("fields",),
)
HASH: Final = Group(
    {
        "fields": NAMES,
        "algorithm": Choice(ALGORITHMS, "default sha256"),
        "salt": Text("text before each value", hides="all"),
    },
    required=("fields",),
)


def _each(change: Callable[[Column], Column]) -> Callable[[Frame, ChangeText], Frame]:
    """A step that rewrites each named field."""

    def apply(frame: Frame, step: ChangeText) -> Frame:
        return frame.put({name: change(frame.text(name, step)) for name in step.names}, step)

    return apply


def _unescaped(text: Column) -> Column:
    """The text without the backslashes that web servers write into logs before quotes and backslashes."""
    plain = F.regexp_replace(text, r'\\(["\\])', "$1")
    return F.when(F.contains(text, F.lit("\\")), plain).otherwise(text)


def _apply_url_decode(frame: Frame, step: UrlDecode) -> Frame:
    texts = {name: frame.text(name, step) for name in step.names}

    def wrong(name: str, text: Column, new: Column) -> Column:
        # Java decodes bytes that are not UTF-8 as U+FFFD, which may also be in the text itself.
        replaced = F.contains(new, F.lit("\ufffd")) & ~text.rlike("(?i)\ufffd|%EF%BF%BD")
        return F.when(
            text.isNotNull() & new.isNull(), complaint(f"{name} is ", text, ", not URL-encoded")
        ).when(replaced, complaint(f"{name} is ", text, ", whose bytes are not UTF-8"))

    def reason(new: Mapping[str, Column]) -> Column | None:
        return first_of(wrong(name, text, new[name]) for name, text in texts.items())

    return frame.put({name: F.try_url_decode(text) for name, text in texts.items()}, step, reason)


def _check_replace(item: Item) -> Operator:
    entries = REPLACE.open(item)
    how = "find" if "find" in entries else "regex"
    if not entries[how].text():
        entries[how].fail(f"{how} is empty: name the text to replace")
    return Replace(
        field=entries["field"].text(),
        find=entries[how].text(),
        replacement=entries["with"].text(),
        by_regex=how == "regex",
    )


def _apply_replace(frame: Frame, step: Replace) -> Frame:
    text = frame.text(step.field, step)
    if not step.by_regex:
        new = F.replace(text, F.lit(step.find), F.lit(step.replacement))
    else:
        _try_replacement(frame, step.find, step.replacement, step)
        new = F.regexp_replace(text, step.find, step.replacement)
    return frame.put({step.field: new}, step)


def _try_replacement(frame: Frame, regex: str, replacement: str, step: Place) -> None:
    """Tries both in Java now: a replacement with a missing group would fail every task that finds a match."""
    spark = frame.data.sparkSession
    try:
        compile_regex(spark, regex)
    except Exception as error:
        fail(step, f"the regular expression is wrong: {java_reason(error)}")
    try:
        compile_regex(spark, f"(?:{regex})|").matcher("").replaceAll(replacement)
    except Exception as error:
        fail(step, f"with {replacement!r} does not go with the regular expression: {java_reason(error)}")


def _check_substring(item: Item) -> Operator:
    entries = SUBSTRING.open(item)
    start = int(entries["start"].text())
    if start == 0:
        entries["start"].fail("start is 0; it counts from 1, or from the end with -1")
    name = entries["field"].text()
    return Substring(
        field=name,
        start=start,
        length=entries["length"].number() if "length" in entries else ALL,
        to=check_new_name(entries["to"].text(), entries["to"]) if "to" in entries else name,
    )


def _apply_substring(frame: Frame, step: Substring) -> Frame:
    text = frame.text(step.field, step)
    return frame.put({step.to: F.substring(text, step.start, step.length)}, step)


def _check_mask(item: Item) -> Operator:
    entries = MASK.open(item)
    char = entries["with"].text() if "with" in entries else "*"
    if len(char) != 1:
        entries["with"].fail(f"with is {char!r}, not one character")
    return Mask(
        names=check_names(entries["fields"]),
        left=entries["left"].number(0) if "left" in entries else 0,
        right=entries["right"].number(0) if "right" in entries else 0,
        character=char,
    )


def _apply_mask(frame: Frame, step: Mask) -> Frame:
    """Masks the middle of text; all of it if it is no longer than its ends, which would show it completely."""
    left, right, char = step.left, step.right, step.character

    def masked(text: Column) -> Column:
        length = F.char_length(text)
        hidden = F.greatest(length - left - right, F.lit(0))
        ends = [F.left(text, F.lit(left)), F.repeat(F.lit(char), hidden), F.right(text, F.lit(right))]
        return F.when(length <= left + right, F.repeat(F.lit(char), length)).otherwise(F.concat(*ends))

    return _each(masked)(frame, step)


def _check_hash(item: Item) -> Operator:
    entries = HASH.open(item)
    return Hash(
        names=check_names(entries["fields"]),
        algorithm=entries["algorithm"].choice(ALGORITHMS) if "algorithm" in entries else "sha256",
        salt=entries["salt"].text() if "salt" in entries else "",
    )


def _apply_hash(frame: Frame, step: Hash) -> Frame:
    algorithm, salt = step.algorithm, step.salt

    def hashed(text: Column) -> Column:
        salted = F.concat(F.lit(salt), text).cast("binary")
        if algorithm == "md5":
            return F.md5(salted)
        if algorithm == "crc32":
            return F.lower(F.lpad(F.hex(F.crc32(salted)), 8, "0"))
        return F.sha2(salted, int(algorithm.removeprefix("sha")))

    return _each(hashed)(frame, step)


TEXT_STEPS: Final = rules(
    StepRule("trim", "Remove blanks at both ends", NAMES, of_names(Trim), _each(F.trim)),
    StepRule("upper", "Upper case", NAMES, of_names(Upper), _each(F.upper)),
    StepRule("lower", "Lower case", NAMES, of_names(Lower), _each(F.lower)),
    StepRule("unescape", "Remove backslashes before quotes", NAMES, of_names(Unescape), _each(_unescaped)),
    StepRule("url_decode", "Decode %20 and +", NAMES, of_names(UrlDecode), _apply_url_decode),
    StepRule(
        "replace",
        "Replace text, or what a regular expression matches",
        REPLACE,
        _check_replace,
        _apply_replace,
    ),
    StepRule("substring", "Keep a part of a text", SUBSTRING, _check_substring, _apply_substring),
    StepRule("mask", "Hide a text except for its ends", MASK, _check_mask, _apply_mask),
    StepRule("hash", "Replace a value by its hash", HASH, _check_hash, _apply_hash),
)
