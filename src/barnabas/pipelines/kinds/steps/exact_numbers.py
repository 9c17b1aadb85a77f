"""Whether a number is still the same after a conversion.

A decimal has to be equal to the number that was written. A float keeps 9 digits and a double 17, with which every one
of them can be named; whole numbers have to be equal, however many digits they have.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
DIGITS_MAX: Final = {"float": 9, "double": 17}
NUMBER: Final = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$"


def is_inexact(kind: str) -> bool:
    """Whether values of this type may differ from the number that they are read from."""
    return kind in DIGITS_MAX or kind.startswith("decimal")


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
    found = value.try_cast(kind)
    return F.when(found == value, found)


def _significant(text: Column) -> Column:
    """The digits of a number without its sign, point, exponent and the zeros at both ends."""
    digits = F.regexp_replace(F.regexp_replace(text, "[eE].*$", ""), "[^0-9]", "")
    return F.regexp_replace(digits, "^0+|0+$", "")
