"""The queries of a JDBC source, and the offsets that its rows have. No I/O."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from zoneinfo import ZoneInfo

from barnabas.connect.schemas import EPOCH

TIMESTAMP, NANOS, INCREMENTING, KEY = "timestamp", "timestamp_nanos", "incrementing", "key"
WHERE: Final = re.compile(r"\bwhere\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reading:
    """How one table or query is read.

    source: after FROM, or a whole query. times, counter: quoted columns, empty or None if the mode has none. key: quoted
    columns of the primary key, which orders rows of the same time.
    """

    dialect: str
    source: str
    is_query: bool
    times: tuple[str, ...] = ()
    counter: str | None = None
    key: tuple[str, ...] = ()
    suffix: str = ""
    zone: str = "UTC"

    @property
    def time(self) -> str | None:
        """The time of a row as an expression."""
        if not self.times:
            return None
        one = self.times[0] if len(self.times) == 1 else f"COALESCE({', '.join(self.times)})"
        return f"barnabas_us({one})" if self.dialect == "sqlite" else one


def time_value(reading: Reading, offset_us: int) -> Any:
    """A time as the driver wants it for a comparison."""
    if reading.dialect == "sqlite":
        return offset_us
    local = (EPOCH + dt.timedelta(microseconds=offset_us)).astimezone(ZoneInfo(reading.zone))
    return local if reading.dialect == "postgresql" else local.replace(tzinfo=None)


def query_of(reading: Reading, offset: Mapping[str, Any] | None, until_us: int) -> tuple[str, dict[str, Any]]:
    """SQL with named parameters for the rows after an offset, in order; until_us: rows of this time or later wait."""
    clauses, order, values = _conditions(reading, offset, until_us)
    if reading.is_query:
        wrapped = bool(WHERE.search(reading.source)) and bool(clauses)
        text = f"SELECT * FROM ({reading.source}) AS barnabas_query" if wrapped else reading.source
    else:
        text = f"SELECT * FROM {reading.source}"
    if clauses:
        text += f" WHERE {' AND '.join(clauses)}"
    if order:
        text += f" ORDER BY {', '.join(order)}"
    return f"{text} {reading.suffix}".strip(), values


def _conditions(
    reading: Reading, offset: Mapping[str, Any] | None, until_us: int
) -> tuple[list[str], list[str], dict[str, Any]]:
    values: dict[str, Any] = {}
    clauses: list[str] = []
    time, counter = reading.time, reading.counter
    if time is not None:
        clauses.append(f"{time} < :until")
        values["until"] = time_value(reading, until_us)
        after = after_us(offset)
        if after is not None:
            values["after"] = time_value(reading, after)
            clauses.append(_later(reading, time, counter, offset or {}, values))
        return clauses, [time, *([counter] if counter else reading.key)], values
    if counter is not None:
        last = (offset or {}).get(INCREMENTING)
        clauses.append(f"{counter} IS NOT NULL" if last is None else f"{counter} > :last")
        if last is not None:
            values["last"] = last
        return clauses, [counter], values
    return clauses, [], values


def _later(
    reading: Reading, time: str, counter: str | None, offset: Mapping[str, Any], values: dict[str, Any]
) -> str:
    """Later than the offset, or of its time and behind its counter or key."""
    if counter is not None and offset.get(INCREMENTING) is not None:
        values["last"] = offset[INCREMENTING]
        return f"(({time} = :after AND {counter} > :last) OR {time} > :after)"
    key = offset.get(KEY)
    if counter is None and key is not None and len(key) == len(reading.key):
        values |= {f"key{place}": part for place, part in enumerate(key)}
        return f"(({time} = :after AND {_behind(reading.key)}) OR {time} > :after)"
    return f"{time} > :after"


def _behind(columns: Sequence[str]) -> str:
    """(a > :key0 OR (a = :key0 AND b > :key1)): comparison of rows, which not every database has."""
    parts = []
    for place, column in enumerate(columns):
        same = [f"{earlier} = :key{index}" for index, earlier in enumerate(columns[:place])]
        parts.append(f"({' AND '.join([*same, f'{column} > :key{place}'])})")
    return f"({' OR '.join(parts)})"


def after_us(offset: Mapping[str, Any] | None) -> int | None:
    """The time of an offset in microseconds. Offsets are Confluent's: milliseconds, and nanoseconds of the second."""
    if not offset or offset.get(TIMESTAMP) is None:
        return None
    ms = int(offset[TIMESTAMP])
    nanos = offset.get(NANOS)
    return ms * 1000 if nanos is None else ms // 1000 * 1_000_000 + int(nanos) // 1000


def offset_of(time_us: int | None, counter: Any, key: Sequence[Any] | None) -> dict[str, Any]:
    """The offset of a row. time_us: microseconds since 1970."""
    offset: dict[str, Any] = {}
    if time_us is not None:
        offset[TIMESTAMP] = time_us // 1000
        offset[NANOS] = time_us % 1_000_000 * 1000
    if counter is not None:
        offset[INCREMENTING] = int(counter)
    elif time_us is not None and key:
        offset[KEY] = list(key)
    return offset
