"""What a look has found, as a page shows it: the histogram as bars, fields with their values, patterns, lines."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from barnabas.console.pages.logs.looking import Look, members_of
from barnabas.logs.rows import Row
from barnabas.logs.searching import coarser

VALUES_SHOWN: Final = 8
PATTERNS_SHOWN: Final = 30
WIDTH: Final = 1000
HEIGHT: Final = 120
MESSAGE_MAX: Final = 2_000
BAD: Final = frozenset({"ERROR", "CRITICAL", "FATAL", "PANIC"})
WARN: Final = frozenset({"WARN", "WARNING"})


def shaped(look: Look) -> dict[str, Any]:
    """A look as plain data. Called in the event loop, between two steps: its size is bounded."""
    return {
        "matched": look.counts.matched,
        "looked": look.looked,
        "size_bytes": look.size_bytes,
        "is_over": look.is_over,
        "said": look.said(),
        "skipped": look.skipped,
        "histogram": histogram_of(look.counts.buckets, look.counts.step_ms),
        "fields": [
            {
                "name": name,
                "values": [{"value": value, "count": count} for value, count in counter.most_common(VALUES_SHOWN)],
                "different": len(counter),
            }
            for name, counter in look.counts.fields.items()
        ],
        "patterns": [
            {
                "pattern": one.text, "count": one.count, "level": one.level, "last": one.last,
                "example": one.example[:MESSAGE_MAX],
                "is_new": look.compares and not one.before,
            }
            for one in look.counts.patterns.common()[:PATTERNS_SHOWN]
        ],
        "lines": [line_of(row) for row in look.rows()],
        "topic": look.topic,
        "compares": look.compares,
    }  # fmt: skip


def line_of(row: Row) -> dict[str, Any]:
    """A line as a page shows it."""
    return {
        "time": row.time,
        "level": row.level,
        "kind": "bad" if row.level in BAD else "warn" if row.level in WARN else "",
        "message": row.message[:MESSAGE_MAX],
        "host": row.host,
        "path": row.path,
        "fields": dict(members_of(row)),
        "partition": row.partition,
        "offset": row.offset,
    }


def histogram_of(buckets: Counter[int], step_ms: int) -> dict[str, Any] | None:
    """Bars with their places in the picture; None without a line. most: of the highest bar."""
    counts, step = coarser(buckets, step_ms)
    if not counts:
        return None
    first, last = min(counts), max(counts)
    number = (last - first) // step + 1
    most = max(counts.values())
    wide = WIDTH / number
    return {
        "step_ms": step,
        "first": first,
        "last": last + step,
        "most": most,
        "bars": [
            {
                "x": round((at - first) / step * wide, 2),
                "width": round(max(wide - min(2.0, wide / 4), 0.5), 2),
                "y": round(HEIGHT - count / most * HEIGHT, 2),
                "height": round(max(count / most * HEIGHT, 1.0), 2),
                "begins": at,
                "ends": at + step,
                "count": count,
            }
            for at, count in sorted(counts.items())
        ],
    }
