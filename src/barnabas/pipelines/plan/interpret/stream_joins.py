"""Joins of two streams: pairs of rows whose times are near, and rows that have found no partner when their time is over."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.pipelines.plan.interpret.expressions import NotInterpreted
from barnabas.pipelines.plan.interpret.groups import duration
from barnabas.pipelines.plan.relations import Join

Fields = Mapping[str, Any]


@dataclass(slots=True)
class Waiting:
    """A row that may still find partners. met: whether it has found one."""

    row: Fields
    time: datetime.datetime
    met: bool = False


@dataclass(slots=True)
class StreamJoin:
    """What a join remembers. names: the fields of both sides. times: the fields with their times. late: how late rows of
    each side may come."""

    join: Join
    names: tuple[tuple[str, ...], tuple[str, ...]]
    times: tuple[str, str]
    late: tuple[datetime.timedelta, datetime.timedelta]
    _rows: tuple[list[Waiting], list[Waiting]] = field(default_factory=lambda: ([], []))
    _latest: datetime.datetime | None = None

    def take(self, row: Fields, *, left: bool) -> Iterator[dict[str, Any]]:
        """The pairs that a row of one side makes, then the rows whose time is over without a partner."""
        time = row[self.times[0 if left else 1]]
        if not isinstance(time, datetime.datetime):
            return
        self._latest = max(time, self._latest or time)
        mine = Waiting(row, time)
        for other in self._rows[1 if left else 0]:
            one, two = (mine, other) if left else (other, mine)
            if self._near(one.time, two.time) and self._equal(one.row, two.row):
                one.met = two.met = True
                yield self._pair(one.row, two.row)
        self._rows[0 if left else 1].append(mine)
        yield from self._lonely()

    def _near(self, left: datetime.datetime, right: datetime.datetime) -> bool:
        within = self.join.within
        if within is None:
            raise NotInterpreted("a join of streams without within")
        return left - duration(within.before) <= right <= left + duration(within.after)

    def _equal(self, left: Fields, right: Fields) -> bool:
        pairs = [(left[ours], right[theirs]) for ours, theirs in self.join.on.items()]
        return all(one is not None and one == other for one, other in pairs)

    def _pair(self, left: Fields | None, right: Fields | None) -> dict[str, Any]:
        join, (ours, theirs) = self.join, self.names
        both = {name for name, other in join.on.items() if name == other and not join.prefix}
        fields = {name: None if left is None else left[name] for name in ours}
        if left is None and right is not None:
            fields |= {name: right[name] for name in both}
        rest = [name for name in theirs if name not in both]
        return fields | {join.prefix + name: None if right is None else right[name] for name in rest}

    def _lonely(self) -> Iterator[dict[str, Any]]:
        assert self._latest is not None
        within = self.join.within
        assert within is not None
        reach = (duration(within.after), duration(within.before))
        wanted = (self.join.kind in ("left", "full"), self.join.kind in ("right", "full"))
        for side in (0, 1):
            over = [w for w in self._rows[side] if w.time + reach[side] + max(self.late) < self._latest]
            for waiting in over:
                self._rows[side].remove(waiting)
                if wanted[side] and not waiting.met:
                    yield self._pair(waiting.row, None) if side == 0 else self._pair(None, waiting.row)
