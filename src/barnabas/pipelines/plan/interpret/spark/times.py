"""Spark's functions of times, and Java's patterns for them."""

from __future__ import annotations

import calendar
import datetime
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from barnabas.pipelines.plan.interpret.spark.values import (
    DAY_ONE,
    EPOCH,
    Failed,
    Misfit,
    NotInterpreted,
    Value,
    as_time,
)

TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z']+)")
MONTHS: Final = list(calendar.month_name)[1:]
DAYS: Final = list(calendar.day_name)
MICRO: Final = datetime.timedelta(microseconds=1)


@lru_cache(maxsize=256)
def _zone(name: str) -> datetime.tzinfo:
    if match := re.fullmatch(r"(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{2})?", name):
        minutes = int(match[2]) * 60 + int(match[3] or 0)
        return datetime.timezone(datetime.timedelta(minutes=minutes if match[1] == "+" else -minutes))
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Failed(f"{name!r} is no time zone") from None


def _tokens(pattern: str) -> list[tuple[str, str]]:
    """The parts of a pattern: `text` with what stands there, or a letter with all of it."""
    tokens = []
    for match in TOKEN.finditer(pattern):
        if match[1] is not None:
            tokens.append(("text", match[1].replace("''", "'") or "'"))
        elif match[3] is not None:
            tokens.append(("text", match[3]))
        else:
            tokens.append((match[2], match[0]))
    return tokens


def _offset(time: datetime.datetime, colon: bool) -> str:
    minutes = int((time.utcoffset() or datetime.timedelta()).total_seconds() // 60)
    sign = "-" if minutes < 0 else "+"
    return f"{sign}{abs(minutes) // 60:02}{':' if colon else ''}{abs(minutes) % 60:02}"


def written(time: datetime.datetime, pattern: str) -> str:
    """A time as a pattern of Java's says."""
    parts = []
    for letter, text in _tokens(pattern):
        size = len(text)
        if letter == "text":
            parts.append(text)
        elif letter in "yu":
            parts.append(f"{time.year % 100:02}" if size == 2 else str(time.year).zfill(size))
        elif letter in "ML" and size >= 3:
            parts.append(MONTHS[time.month - 1][: 3 if size == 3 else None])
        elif letter == "E":
            parts.append(DAYS[time.weekday()][: 3 if size < 4 else None])
        elif letter == "S":
            parts.append(f"{time.microsecond:06}000"[:size])
        elif letter == "a":
            parts.append("AM" if time.hour < 12 else "PM")
        elif letter in "Xx":
            zero = letter == "X" and not time.utcoffset()
            parts.append("Z" if zero else _offset(time, size in (3, 5))[: 3 if size == 1 else None])
        elif letter == "Z":
            parts.append(_offset(time, size == 5))
        elif letter in "zV":
            parts.append(str(time.tzinfo) if letter == "V" else time.tzname() or "")
        elif letter in PARTS:
            parts.append(str(PARTS[letter](time)).zfill(size))
        else:
            raise NotInterpreted(f"the letter {letter} in the pattern {pattern!r}")
    return "".join(parts)


PARTS: Final[Mapping[str, Callable[[datetime.datetime], int]]] = {
    "M": lambda time: time.month,
    "L": lambda time: time.month,
    "d": lambda time: time.day,
    "D": lambda time: time.timetuple().tm_yday,
    "H": lambda time: time.hour,
    "h": lambda time: time.hour % 12 or 12,
    "k": lambda time: time.hour or 24,
    "K": lambda time: time.hour % 12,
    "m": lambda time: time.minute,
    "s": lambda time: time.second,
}


@lru_cache(maxsize=512)
def _reader(pattern: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """A regular expression whose groups are the parts of a pattern, and their letters."""
    parts, letters = [], []
    for letter, text in _tokens(pattern):
        size = len(text)
        if letter == "text":
            parts.append(re.escape(text))
            continue
        letters.append(letter)
        if letter in "yu":
            parts.append(r"(\d{2})" if size == 2 else r"(\d{4,})" if size >= 3 else r"(\d{1,})")
        elif letter in "ML" and size >= 3:
            names = MONTHS if size > 3 else [name[:3] for name in MONTHS]
            parts.append(f"({'|'.join(names)})")
        elif letter == "E":
            parts.append(f"({'|'.join(DAYS if size > 3 else [name[:3] for name in DAYS])})")
        elif letter == "S":
            parts.append(rf"(\d{{{size}}})")
        elif letter == "a":
            parts.append("(AM|PM|am|pm)")
        elif letter in "XxZ":
            parts.append(r"(Z|[+-]\d{2}(?::?\d{2})?)")
        elif letter in "zV":
            parts.append(r"([A-Za-z_/+\-:0-9]+)")
        elif letter in PARTS:
            parts.append(rf"(\d{{{size}}})" if size > 1 else r"(\d{1,3})")
        else:
            raise NotInterpreted(f"the letter {letter} in the pattern {pattern!r}")
    return re.compile("".join(parts)), tuple(letters)


def read_time(text: str, pattern: str) -> datetime.datetime | None:
    """The time that a text is by a pattern of Java's; None if it is none."""
    regex, letters = _reader(pattern)
    match = regex.fullmatch(text)
    if match is None:
        return None
    parts = {"y": 1970, "M": 1, "d": 1, "H": 0, "m": 0, "s": 0, "S": 0}
    zone: datetime.tzinfo = datetime.UTC
    half = ""
    for letter, value in zip(letters, match.groups(), strict=True):
        if letter in "yu":
            parts["y"] = int(value) + (2000 if len(value) == 2 else 0)
        elif letter in "ML":
            names = [name[:3] for name in MONTHS]
            parts["M"] = int(value) if value.isdecimal() else names.index(value[:3]) + 1
        elif letter == "S":
            parts["S"] = int(value.ljust(6, "0")[:6])
        elif letter == "a":
            half = value.upper()
        elif letter in "XxZ":
            zone = datetime.UTC if value == "Z" else _zone(value)
        elif letter in "zV":
            zone = _zone(value)
        elif letter in "hHkK":
            parts["H"] = int(value)
        elif letter != "E":
            parts[letter] = int(value)
    if half:
        parts["H"] = parts["H"] % 12 + (12 if half == "PM" else 0)
    try:
        time = datetime.datetime(
            parts["y"], parts["M"], parts["d"], parts["H"], parts["m"], parts["s"], parts["S"], tzinfo=zone
        )
    except ValueError:
        return None
    return time.astimezone(datetime.UTC)


def _formatted(value: Value, pattern: str) -> str:
    return written(as_time(value).astimezone(datetime.UTC), pattern)


def _millis(value: datetime.datetime) -> int:
    return (value - EPOCH) // datetime.timedelta(milliseconds=1)


def _of_millis(value: int) -> datetime.datetime:
    try:
        return EPOCH + datetime.timedelta(milliseconds=value)
    except OverflowError:
        raise Misfit(str(value)) from None


def _from_utc(time: Value, zone: str) -> datetime.datetime:
    """The clock of a zone, as if it were that of UTC."""
    return as_time(time).astimezone(_zone(zone)).replace(tzinfo=datetime.UTC)


def _to_utc(time: Value, zone: str) -> datetime.datetime:
    return as_time(time).replace(tzinfo=_zone(zone)).astimezone(datetime.UTC)


def _added(unit: str, amount: int, time: Value) -> Value:
    unit = unit.removesuffix("s")
    value = as_time(time)
    if unit in ("month", "year", "quarter"):
        months = value.month - 1 + amount * {"month": 1, "year": 12, "quarter": 3}[unit]
        year, month = value.year + months // 12, months % 12 + 1
        return value.replace(year=year, month=month, day=min(value.day, calendar.monthrange(year, month)[1]))
    return value + datetime.timedelta(**{f"{unit}s": amount})


def _converted(source: str, target: str, time: Value) -> datetime.datetime:
    return _from_utc(_to_utc(time, source), target)


TIMES: Final[Mapping[str, Callable[..., Value]]] = {
    "unix_millis": lambda time: _millis(as_time(time)),
    "unix_micros": lambda time: (as_time(time) - EPOCH) // MICRO,
    "unix_date": lambda date: (date - DAY_ONE).days,
    "timestamp_millis": _of_millis,
    "timestamp_micros": lambda value: EPOCH + datetime.timedelta(microseconds=value),
    "date_from_unix_date": lambda days: DAY_ONE + datetime.timedelta(days=days),
    "date_format": _formatted,
    "to_timestamp": lambda text, pattern=None: as_time(text) if pattern is None else _needed(text, pattern),
    "try_to_timestamp": lambda text, pattern: read_time(text, pattern),
    "from_utc_timestamp": _from_utc,
    "to_utc_timestamp": _to_utc,
    "timestampadd": _added,
    "convert_timezone": _converted,
}


def _needed(text: str, pattern: str) -> datetime.datetime:
    time = read_time(text, pattern)
    if time is None:
        raise Failed(f"{text!r} is no time like {pattern!r}")
    return time
