"""Rows of a list: found by a part of their name, sorted, and cut into pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from barnabas.console.asking import Ask

ROWS: Final = 50
ROWS_MAX: Final = 1_000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cut:
    """Which rows are shown. number: of this page, from 1; count: of pages; first, last: of the rows, from 1."""

    q: str
    sort: str
    descending: bool
    number: int
    count: int
    first: int
    last: int
    total: int


def cut(
    ask: Ask,
    rows: Sequence[T],
    name: Callable[[T], str],
    orders: Mapping[str, Callable[[T], Any]],
    default: str,
) -> tuple[list[T], dict[str, Any]]:
    """(rows of the page, Cut as a mapping). q, sort, order, page, rows: fields of the query.

    orders: what to sort by, by the names that `sort` may have.
    """
    q = ask.text("q")
    words = q.lower().split()
    matching = [row for row in rows if all(word in name(row).lower() for word in words)]
    sort = ask.text("sort", default)
    sort = sort if sort in orders else default
    descending = ask.text("order") == "desc"
    matching.sort(key=name)
    matching.sort(key=orders[sort], reverse=descending)
    size = ask.number("rows", ROWS, 1, ROWS_MAX)
    count = max(-(-len(matching) // size), 1)
    number = min(ask.number("page", 1, 1, 1_000_000), count)
    begin = (number - 1) * size
    page = matching[begin : begin + size]
    cut_ = Cut(q, sort, descending, number, count, begin + 1, begin + len(page), len(matching))
    return page, asdict(cut_)
