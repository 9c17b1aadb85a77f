"""The log of one pipeline: what the supervisor did with it, and what Spark logged about it.

The supervisor's part is the pipeline's journal, a file with a JSON object per line. Spark has one log for all pipelines
of a server; its entries are shortened to a line each, without stack traces.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from barnabas.pipelines.spark.session.log import Entry, entries, telling

JOURNAL_BYTES_MAX: Final = 1 << 20
"""A journal that is larger is renamed to `<name>.1`, and replaces the former one of that name."""
TAIL_BYTES_MAX: Final = 4 << 20
"""How much of each file is read at a time, from its end."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a pipeline's log. at: ISO 8601, UTC. query: empty if the whole pipeline is meant."""

    at: str
    level: str
    query: str
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    """Lines of a log, oldest first. next: what to pass as `after` for those that come later."""

    lines: list[Line]
    next: str


def write_line(journal: Path, line: Line) -> None:
    """Adds a line to a journal. Raises OSError."""
    if journal.exists() and journal.stat().st_size > JOURNAL_BYTES_MAX:
        journal.replace(_former(journal))
    with journal.open("a") as file:
        file.write(json.dumps(asdict(line)) + "\n")


def read_page(
    journal: Path,
    spark_log: Path | None,
    pipeline: str,
    queries: Collection[str],
    count: int,
    after: str = "",
) -> Page:
    """The last lines of a pipeline's log. queries: Spark's ids of its queries. count: how many lines at most. after: `next`
    of an earlier page; lines before it are left out. Raises ValueError for an `after` that is no such text."""
    begins = [int(place) for place in after.split("-")] if after else [None, None]
    if len(begins) != 2:
        raise ValueError(after)
    journal_text, journal_end = _read(journal, begins[0])
    if begins[0] is None and _former(journal).exists():
        journal_text = _read(_former(journal), None)[0] + journal_text
    logged, spark_end = _read(spark_log, begins[1])
    lines = [*_journal_lines(journal_text), *_spark_lines(logged, pipeline, queries)]
    lines.sort(key=lambda line: line.at)
    return Page(lines[-count:], f"{journal_end}-{spark_end}")


def last_trouble(spark_log: Path | None, pipeline: str, queries: Collection[str], since: str) -> str | None:
    """What Spark last logged about a pipeline since a time (ISO 8601, UTC), in one line; None without such an entry."""
    logged, _ = _read(spark_log, None)
    about = [entry for entry in _about(logged, pipeline, queries) if entry.at >= since]
    return about[-1].line if about else None


def _former(journal: Path) -> Path:
    return journal.with_name(f"{journal.name}.1")


def _read(path: Path | None, begin: int | None) -> tuple[str, int]:
    """The whole lines of a file from a place on, and the place after them. None: from its last TAIL_BYTES_MAX bytes on. A
    file that is shorter than the place is another one, and read from its beginning."""
    try:
        with open(path or os.devnull, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            place = 0 if begin is None or begin > size else begin
            file.seek(max(place, size - TAIL_BYTES_MAX))
            place = file.tell()
            raw = file.read(TAIL_BYTES_MAX)
    except FileNotFoundError:
        return "", 0
    end = raw.rfind(b"\n") + 1
    return raw[:end].decode(errors="replace"), place + end


def _journal_lines(text: str) -> Iterator[Line]:
    for raw in text.splitlines():
        try:
            row = json.loads(raw)
            yield Line(*(str(row[name]) for name in ("at", "level", "query", "text")))
        except (ValueError, KeyError, TypeError):
            continue  # the first line may be cut, and a process that was killed may have left half of one


def _about(text: str, pipeline: str, queries: Collection[str]) -> list[Entry]:
    return [*telling(entry for entry in entries(text) if entry.concerns(pipeline, queries))]


def _spark_lines(text: str, pipeline: str, queries: Collection[str]) -> Iterator[Line]:
    for entry in _about(text, pipeline, queries):
        yield Line(entry.at, entry.level, entry.query, f"Spark: {entry.line}")
