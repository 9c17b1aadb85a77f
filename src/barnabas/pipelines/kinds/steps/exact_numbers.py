"""Whether a number is still the same after a conversion.

A decimal has to be equal to the number that was written. A float keeps 9 digits and a double 17, with which every one
of them can be named; whole numbers have to be equal, however many digits they have.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
DIGITS_MAX: Final = {"float": 9, "double": 17}
NUMBER: Final = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$"

FRACTION: Final = r":\s*-?\d+[.eE]"
"""Matches a JSON text that may have a number with a fraction or an exponent, which Spark would write differently."""
FROM_FRACTION: Final = r"^-?\d+[.eE]"
"""Matches a text that Spark may have made of such a number."""
MINUS_ZERO: Final = r":\s*-0\s*[,}]"


def is_inexact(kind: str) -> bool:
    """Whether values of this type may differ from the number that they are read from."""
    return kind in DIGITS_MAX or kind.startswith("decimal")


def doubtful(kinds: Iterable[str]) -> str:
    """A pattern that matches a JSON text if a number in it may not be kept by one of these inexact types. Where it does not
    match, `is_kept` is true of every value of an object: so only few texts need to be read a second time.

    7 digits are kept by every float, 15 by every double, and by a decimal those after the point that it has.
    """
    parts = {r"[\d.]+[eE]"}
    for kind in kinds:
        scale = re.fullmatch(r"decimal\(\d+,(\d+)\)", kind)
        parts.add(r"[\d.]{8,}" if kind == "float" else r"[\d.]{16,}")
        if scale is not None:
            parts.add(rf"\d+\.\d{{{int(scale[1]) + 1},}}")
    return rf':\s*"?-?(?:{"|".join(sorted(parts))})'


def changeable(text: Column, parsed: Column, texts: Collection[str], inexact: Mapping[str, str]) -> Column:
    """Whether a JSON text may have a number that Spark writes differently as text, or rounds. texts: fields of type string.
    Few records do, and reading them again takes longer than all the rest."""
    doubts = [text.rlike(doubtful(inexact.values()))] if inexact else []
    if texts:
        from_fraction = reduce(or_, (F.coalesce(parsed[n].rlike(FROM_FRACTION), F.lit(False)) for n in texts))
        doubts += [text.rlike(FRACTION) & from_fraction, text.rlike(MINUS_ZERO)]
    return reduce(or_, doubts)


def is_kept(text: Column, number: Column, kind: str) -> Column:
    """Whether `number`, of the inexact type `kind`, is the number in `text`. True for text like NaN; null for null."""
    if kind in DIGITS_MAX:
        whole = text.try_cast("decimal(38,0)")
        same = F.coalesce(number.try_cast("decimal(38,0)") == whole, F.lit(True))
        fits = F.length(_significant(text)) <= DIGITS_MAX[kind]
        finite = F.abs(number) < float("inf")
        nothing = (number == 0) & (_significant(text) != "")
        is_whole = text.rlike(r"^[+-]?\d+$")
        kept = finite & ~nothing & F.when(is_whole & whole.isNotNull(), same).otherwise(fits)
    else:
        kept = _significant(text) == _significant(number.cast("string"))
    return F.when(text.rlike(NUMBER), kept).otherwise(F.lit(True))


def whole_number(value: Column, kind: str) -> Column:
    """A number of another type as a whole number; null if it has a fraction or does not fit."""
    number = value.try_cast(kind)
    return F.when(number == value, number)


def _significant(text: Column) -> Column:
    """The digits of a number without its sign, point, exponent and the zeros at both ends."""
    digits = F.regexp_replace(F.regexp_replace(text, "[eE].*$", ""), "[^0-9]", "")
    return F.regexp_replace(digits, "^0+|0+$", "")
