"""The values of `consume -o`: where to begin and where to end.

    beginning  end  stored     also start, earliest, latest
    500        -10             that offset; ten before the end (of each partition)
    @2024-01-01  @2024-01-01T10:30:00Z  @1704067200000  @10:30 (today)  @-90m
                           the first record at or after a time
    A:B  A:  :B                from A to before B; either side may be left out
    s@TIME  e@TIME             kcat's begin and end, given as two -o

A time without a zone is local time. The end of a range is not part of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple

from barnabas.terminal.errors import UsageError


class Anchor(Enum):
    """What the number of a `Place` counts from."""

    BEGINNING = "beginning"
    END = "end"
    STORED = "stored"
    OFFSET = "offset"
    BEFORE_END = "before end"
    TIME = "time"


class Place(NamedTuple):
    """A position in a partition: `number` is an offset, a distance from the end, or ms since the epoch."""

    anchor: Anchor
    number: int = 0


class Range(NamedTuple):
    """Where to begin and, if anywhere, where to stop (exclusive)."""

    start: Place
    stop: Place | None = None


BEGINNING: Final = Place(Anchor.BEGINNING)
END: Final = Place(Anchor.END)
STORED: Final = Place(Anchor.STORED)

WORDS: Final = {
    "beginning": BEGINNING,
    "start": BEGINNING,
    "earliest": BEGINNING,
    "oldest": BEGINNING,
    "end": END,
    "latest": END,
    "newest": END,
    "stored": STORED,
}
UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
TIME_OF_DAY: Final = re.compile(r"\d\d:\d\d(:\d\d)?", re.ASCII)
AGO: Final = re.compile(r"-(\d+)([smhdw])", re.ASCII)


@dataclass(frozen=True, slots=True)
class Clock:
    """The time that `@-1h` counts back from, in ms since the epoch."""

    now_ms: int


def parse_time(text: str, clock: Clock) -> int | None:
    """ms since the epoch of a number of ms, an ISO date (and time), 10:30, `now`, `-1h`; else None."""
    if text == "now":
        return clock.now_ms
    if text.isascii() and text.isdigit():
        return int(text)
    if ago := AGO.fullmatch(text):
        return clock.now_ms - int(ago[1]) * UNIT_SECONDS[ago[2]] * 1000
    if TIME_OF_DAY.fullmatch(text):
        today = datetime.fromtimestamp(clock.now_ms / 1000).date().isoformat()
        text = f"{today}T{text}"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return datetime_ms(moment)


def datetime_ms(moment: datetime) -> int:
    """ms since the epoch, exact; a moment without a zone is local."""
    epoch = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    return (moment.astimezone() - epoch) // timedelta(milliseconds=1)


def parse_place(text: str, clock: Clock) -> Place | None:
    """One side of a range; None when it is none."""
    if text in WORDS:
        return WORDS[text]
    if text.startswith("@"):
        moment = parse_time(text[1:], clock)
        return None if moment is None else Place(Anchor.TIME, moment)
    if re.fullmatch(r"\d+", text, re.ASCII):
        return Place(Anchor.OFFSET, int(text))
    if re.fullmatch(r"-\d+", text, re.ASCII):
        return Place(Anchor.BEFORE_END, int(text[1:]))
    return None


def parse_stop(text: str, start: Place, clock: Clock) -> Place | None:
    """The right side of a range: after a time, a bare date or number is a time as well."""
    if start.anchor is Anchor.TIME and not text.startswith("@") and text not in WORDS:
        return parse_place("@" + text, clock)
    return parse_place(text, clock)


def parse_range(text: str, clock: Clock) -> Range:
    """One -o value. Raises UsageError.

    Times contain colons too: first the whole text is tried as one position, then every colon, from the left, as the
    separator.
    """
    whole = parse_place(text, clock)
    if whole is not None:
        return Range(whole)
    for i in (i for i, letter in enumerate(text) if letter == ":"):
        left, right = text[:i], text[i + 1 :]
        start = parse_place(left, clock) if left else BEGINNING
        if start is None:
            continue
        if not right:
            return Range(start)
        stop = parse_stop(right, start, clock)
        if stop is not None and stop.anchor is not Anchor.STORED:
            return Range(start, stop)
    raise UsageError(
        f"-o {text!r} is not an offset; use beginning, end, stored, 500, -10, @2024-01-01, @-1h, 10:20 "
        "or @2024-01-01:@2024-01-02"
    )


def parse_offsets(texts: Sequence[str], clock: Clock) -> Range | None:
    """All -o values together; None when there is none. Raises UsageError."""
    offsets: Range | None = None
    for text in texts:
        side, at, moment = text.partition("@")
        if at and side in ("s", "e"):
            ms = parse_time(moment, clock)
            if ms is None:
                raise UsageError(
                    f"-o {text!r}: {moment!r} is not a time; use ms since 1970 or 2024-01-01T10:00:00Z"
                )
            place = Place(Anchor.TIME, ms)
            before = offsets or Range(BEGINNING)
            offsets = before._replace(start=place) if side == "s" else before._replace(stop=place)
        else:
            offsets = parse_range(text, clock)
    return offsets


@dataclass(frozen=True, slots=True)
class Bounds:
    """One partition's log, and the group's offset in it (None: none stored)."""

    start: int
    end: int
    stored: int | None = None


def resolve(place: Place, bounds: Bounds, offset_at: Callable[[int], int]) -> int:
    """The offset of `place` in one partition, inside the log.

    offset_at(ms): first offset at or after a time, -1 for none.
    """
    match place.anchor:
        case Anchor.BEGINNING:
            offset = bounds.start
        case Anchor.END:
            offset = bounds.end
        case Anchor.STORED:
            offset = bounds.start if bounds.stored is None else bounds.stored
        case Anchor.OFFSET:
            offset = place.number
        case Anchor.BEFORE_END:
            offset = bounds.end - place.number
        case Anchor.TIME:
            offset_there = offset_at(place.number)
            offset = bounds.end if offset_there < 0 else offset_there
    return min(max(offset, bounds.start), bounds.end)
