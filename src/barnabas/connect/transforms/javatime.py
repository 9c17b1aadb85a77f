"""Patterns of Java's SimpleDateFormat, in UTC. Source: java.text.SimpleDateFormat."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

from barnabas.connect.errors import DataError, OptionError

MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
NUMBERS: Final = {
    "y": "year",
    "M": "month",
    "d": "day",
    "H": "hour",
    "h": "hour12",
    "m": "minute",
    "s": "second",
    "S": "ms",
    "k": "hour24",
}


class JavaFormat:
    """Raises OptionError for letters that are not supported."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._parts: list[tuple[str, str, int]] = []
        at = 0
        while at < len(pattern):
            match = TOKEN.match(pattern, at)
            if match is None:
                raise OptionError(f"{pattern!r} is not a pattern of SimpleDateFormat", "format")
            at = match.end()
            text = match.group(0)
            if text.startswith("'"):
                self._parts.append(("text", match.group(1).replace("''", "'") or "'", 0))
            elif text[0].isalpha():
                if text[0] not in "yMdHhkmsSEaXZz":
                    raise OptionError(f"{pattern!r}: the letter {text[0]} is not supported", "format")
                self._parts.append(("letter", text[0], len(text)))
            else:
                self._parts.append(("text", text, 0))
        self._regex = re.compile(
            "".join(self._pattern_of(*part, at) for at, part in enumerate(self._parts)) + "$"
        )

    def _pattern_of(self, kind: str, text: str, count: int, at: int) -> str:
        if kind == "text":
            return re.escape(text)
        if text == "M" and count > 2:
            return f"(?P<monthname_{at}>[A-Za-z]+)"
        if text == "E":
            return "[A-Za-z]+"
        if text == "a":
            return f"(?P<half_{at}>[AaPp][Mm])"
        if text in "XZz":
            return f"(?P<zone_{at}>Z|UTC|GMT|[+-][0-9]{{2}}:?(?:[0-9]{{2}})?)"
        follows = self._parts[at + 1] if at + 1 < len(self._parts) else ("text", "", 0)
        digits = f"{{{count}}}" if follows[0] == "letter" else "+"
        return f"(?P<{NUMBERS[text]}_{at}>[0-9]{digits})"

    def parse(self, text: str) -> dt.datetime:
        """Raises DataError."""
        match = self._regex.match(text.strip())
        if match is None:
            raise DataError(
                f"Could not parse timestamp: value ({text}) does not match pattern ({self.pattern})"
            )
        fields = {name.rpartition("_")[0]: part for name, part in match.groupdict().items()}
        try:
            return self._datetime(fields)
        except ValueError as error:
            raise DataError(f"Could not parse timestamp: value ({text}): {error}") from None

    def _datetime(self, fields: dict[str, str]) -> dt.datetime:
        year = int(fields.get("year", "1970"))
        if "year" in fields and len(fields["year"]) == 2:
            year += 2000 if year < 50 else 1900
        month = int(fields.get("month", "1"))
        if "monthname" in fields:
            month = next(
                (
                    n
                    for n, name in enumerate(MONTHS, 1)
                    if name[:3].lower() == fields["monthname"][:3].lower()
                ),
                0,
            )
        hour = int(fields.get("hour") or fields.get("hour24") or fields.get("hour12") or 0) % 24
        if "hour12" in fields:
            hour = hour % 12 + (12 if fields.get("half", "am").lower() == "pm" else 0)
        zone = fields.get("zone", "Z")
        moment = dt.datetime(
            year, month, int(fields.get("day", "1")), hour, int(fields.get("minute", "0")), int(fields.get("second", "0")),
            tzinfo=dt.UTC,
        )  # fmt: skip
        moment += dt.timedelta(milliseconds=int(fields.get("ms", "0")))
        if zone[0] in "+-":
            digits = zone[1:].replace(":", "")
            shift = dt.timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or 0))
            moment -= shift if zone[0] == "+" else -shift
        return moment

    def format(self, time: dt.datetime) -> str:
        """The text of a time, in UTC."""
        utc = time.astimezone(dt.UTC)
        return "".join(
            text if kind == "text" else _letter(text, count, utc) for kind, text, count in self._parts
        )


def _letter(letter: str, count: int, time: dt.datetime) -> str:
    if letter == "y":
        return f"{time.year % 100:02d}" if count == 2 else f"{time.year:0{count}d}"
    if letter == "M" and count > 2:
        return MONTHS[time.month - 1] if count > 3 else MONTHS[time.month - 1][:3]
    if letter == "E":
        return DAYS[time.weekday()] if count > 3 else DAYS[time.weekday()][:3]
    if letter == "a":
        return "AM" if time.hour < 12 else "PM"
    if letter == "X":
        return "Z"
    if letter == "Z":
        return "+0000"
    if letter == "z":
        return "UTC"
    value = {
        "M": time.month, "d": time.day, "H": time.hour, "h": time.hour % 12 or 12, "k": time.hour or 24,
        "m": time.minute, "s": time.second, "S": time.microsecond // 1000,
    }[letter]  # fmt: skip
    return f"{value:0{count}d}"
