"""PostgreSQL's values as texts, read: dates far outside of Python's years, intervals, arrays, bit strings, hstore. No I/O.

The texts are those of the settings in `replication.SETTINGS`: ISO dates, intervals in the style `postgres`, bytes as hex,
times with zones in UTC. Functions raise ValueError for what is not such a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

POSITIVE_INFINITY_MS: Final = 9_223_372_036_825_200_000
NEGATIVE_INFINITY_MS: Final = -9_223_372_036_832_400_000
"""What PostgreSQL's JDBC driver, and so Debezium, has instead of the dates infinity and -infinity."""
DAY_US: Final = 86_400_000_000
MONTH_DAYS: Final = 365.25 / 12
_DATE: Final = re.compile(r"(\d{4,})-(\d\d)-(\d\d)")
_TIME: Final = re.compile(r"(\d+):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?")
_ZONE: Final = re.compile(r"([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?$")
_UNITS: Final[Mapping[str, tuple[str, int]]] = {
    "year": ("months", 12),
    "years": ("months", 12),
    "mon": ("months", 1),
    "mons": ("months", 1),
    "day": ("days", 1),
    "days": ("days", 1),
}


def boolean(text: str) -> bool:
    return text in ("t", "true")


def hexadecimal(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError(f"bytes are not written as hex: {text[:20]!r}")
    return bytes.fromhex(text[2:])


def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 of a date of the proleptic Gregorian calendar; year 0 is 1 BC."""
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def date(text: str) -> int:
    """Days since 1970."""
    if text in ("infinity", "-infinity"):
        # Java's LocalDate of the driver's largest and least dates, in days.
        return 2_147_483_647 if text == "infinity" else -2_147_483_648
    body, before_christ = _without_era(text)
    match = _DATE.match(body)
    if not match:
        raise ValueError(f"not a date: {text!r}")
    year, month, day = (int(part) for part in match.groups())
    return days_of(1 - year if before_christ else year, month, day)


def time_us(text: str) -> int:
    """Microseconds since midnight; 24:00:00 is a time."""
    match = _TIME.match(text)
    if not match:
        raise ValueError(f"not a time: {text!r}")
    hours, minutes, seconds, fraction = match.groups()
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds or 0)
    return whole * 1_000_000 + int((fraction or "").ljust(6, "0")[:6])


def timestamp_us(text: str) -> int:
    """Microseconds since 1970, in UTC if the text has a zone."""
    if text in ("infinity", "-infinity"):
        return (POSITIVE_INFINITY_MS if text == "infinity" else NEGATIVE_INFINITY_MS) * 1
    body, _ = _without_era(text)
    _, _, clock = body.partition(" ")
    return date(text) * DAY_US + time_us(clock) - zone_seconds(clock) * 1_000_000


def zone_seconds(text: str) -> int:
    """How far the zone at the end of a time is east of UTC; 0 without a zone."""
    match = _ZONE.search(text)
    if not match:
        return 0
    sign, hours, minutes, seconds = match.groups()
    return (-1 if sign == "-" else 1) * (int(hours) * 3600 + int(minutes or 0) * 60 + int(seconds or 0))


def _without_era(text: str) -> tuple[str, bool]:
    return (text[:-3], True) if text.endswith(" BC") else (text, False)


def iso_timestamp(us: int, digits: int) -> str:
    """A time in UTC as ISO 8601, with so many digits of the second's fraction at least 0 and at most 6."""
    days, rest = divmod(us, DAY_US)
    return f"{iso_date(days)}T{iso_time(rest, digits)}Z"


def iso_date(days: int) -> str:
    """A day since 1970 as ISO 8601; a year above 9999 has a sign, as Java writes it."""
    z = days + 719_468
    era, of_era = z // 146_097, z % 146_097
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    day, month = of_year - (153 * shifted + 2) // 5 + 1, shifted + (3 if shifted < 10 else -9)
    year = year_of_era + era * 400 + (month <= 2)
    if year > 9999:
        return f"+{year}-{month:02}-{day:02}"
    return f"{'-' if year < 0 else ''}{abs(year):04}-{month:02}-{day:02}"


def iso_time(us: int, digits: int) -> str:
    seconds, fraction = divmod(us, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}"[: len(text) + 1 + digits] if digits else text


def interval(text: str) -> tuple[int, int, int]:
    """Months, days and microseconds."""
    parts = {"months": 0, "days": 0}
    us = 0
    words = text.split()
    place = 0
    while place < len(words):
        word = words[place]
        if ":" in word:
            sign = -1 if word.startswith("-") else 1
            us = sign * time_us(word.lstrip("+-"))
            place += 1
            continue
        if place + 1 == len(words) or words[place + 1] not in _UNITS:
            raise ValueError(f"not an interval: {text!r}")
        unit, factor = _UNITS[words[place + 1]]
        parts[unit] += int(word) * factor
        place += 2
    return parts["months"], parts["days"], us


def interval_us(text: str) -> int:
    """Microseconds, with months of an average length."""
    months, days, us = interval(text)
    return int((months * MONTH_DAYS + days) * DAY_US) + us


def iso_interval(text: str) -> str:
    """P1Y2M3DT4H5M6.78S, with all parts, as Debezium writes it."""
    months, days, us = interval(text)
    years, months = int(months / 12), months - int(months / 12) * 12
    sign = -1 if us < 0 else 1
    seconds, fraction = divmod(abs(us), 1_000_000)
    hours, minutes, left = seconds // 3600, seconds // 60 % 60, seconds % 60
    seconds_text = f"{sign * left}" if left or sign > 0 or not fraction else "-0"
    if fraction:
        seconds_text += f".{fraction:06}".rstrip("0")
    return f"P{years}Y{months}M{days}DT{sign * hours}H{sign * minutes}M{seconds_text}S"


def decimal(text: str) -> Decimal | None:
    """None for NaN and the infinities, which have no digits."""
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"not a number: {text!r}") from error
    return number if number.is_finite() else None


def money(text: str) -> Decimal:
    """The amount of a text like $1,234.50 or -$2.00, as most locales write it."""
    negative = text.startswith("-") or text.startswith("(")
    digits = re.sub(r"[^0-9.,]", "", text)
    last = max(digits.rfind("."), digits.rfind(","))
    if last >= 0 and len(digits) - last - 1 <= 2:
        digits = re.sub(r"[.,]", "", digits[:last]) + "." + digits[last + 1 :]
    else:
        digits = re.sub(r"[.,]", "", digits)
    amount = Decimal(digits)
    return -amount if negative else amount


def bits(text: str) -> bytes:
    """The bits of B'0101', the last one lowest, as little-endian bytes: what Java's BitSet makes of them."""
    number = int(text, 2) if text else 0
    return number.to_bytes((len(text) + 7) // 8, "little")


def point(text: str) -> tuple[float, float]:
    x, _, y = text.strip("()").partition(",")
    return float(x), float(y)


def array(text: str, element: Callable[[str], Any]) -> list[Any]:
    """The elements of {1,2,NULL,"a b"}; arrays of more dimensions are lists in lists."""
    if text.startswith("["):
        text = text.partition("=")[2]  # bounds other than 1, like [0:1]={1,2}
    items, end = _array(text, 0, element)
    if end != len(text):
        raise ValueError(f"not an array: {text[:40]!r}")
    return items


def _array(text: str, place: int, element: Callable[[str], Any]) -> tuple[list[Any], int]:
    if text[place : place + 1] != "{":
        raise ValueError(f"not an array: {text[:40]!r}")
    items: list[Any] = []
    place += 1
    while place < len(text):
        letter = text[place]
        if letter == "}":
            return items, place + 1
        if letter == ",":
            place += 1
        elif letter == "{":
            inner, place = _array(text, place, element)
            items.append(inner)
        elif letter == '"':
            word, place = _quoted(text, place)
            items.append(element(word))
        else:
            end = place
            while end < len(text) and text[end] not in ",}":
                end += 2 if text[end] == "\\" else 1
            word = re.sub(r"\\(.)", r"\1", text[place:end])
            items.append(None if text[place:end].upper() == "NULL" else element(word))
            place = end
    raise ValueError(f"an array has no end: {text[:40]!r}")


def _quoted(text: str, place: int) -> tuple[str, int]:
    """The word that begins at a quotation mark, and the place after its end."""
    letters = []
    place += 1
    while place < len(text):
        letter = text[place]
        if letter == "\\":
            place += 1
            letters.append(text[place : place + 1])
        elif letter == '"':
            return "".join(letters), place + 1
        else:
            letters.append(letter)
        place += 1
    raise ValueError(f"a quotation mark has no partner: {text[:40]!r}")


_PAIR: Final = re.compile(r'"((?:[^"\\]|\\.)*)"\s*=>\s*(?:"((?:[^"\\]|\\.)*)"|NULL)\s*(?:,\s*|$)')


def hstore(text: str) -> dict[str, str | None]:
    """The pairs of "a"=>"1", "b"=>NULL."""
    pairs: dict[str, str | None] = {}
    place = 0
    while place < len(text):
        match = _PAIR.match(text, place)
        if not match:
            raise ValueError(f"not an hstore: {text[:40]!r}")
        key, value = match.groups()
        pairs[re.sub(r"\\(.)", r"\1", key)] = None if value is None else re.sub(r"\\(.)", r"\1", value)
        place = match.end()
    return pairs
