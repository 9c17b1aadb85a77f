"""Sessions whose results are written at each change: what is kept of their rows, and what it means if two become one.

A session ends with its last row and a pause. A row that comes within the pause of a session, before or after it, is in it,
and may join two. The result of a session whose bounds have changed takes the place of one with other bounds, which is taken
back.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar, Final

from barnabas.pipelines.plan.processing import Windows
from barnabas.pipelines.processing.processor import MILLISECOND, MapState, Processor
from barnabas.pipelines.processing.windows import TooLate

GONE: Final = "is taken back"
"""The field of a result that says that its session has other bounds now."""
TOTALS: Final = "of"
Add = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Total:
    """A function of the rows of a session. function: as plan/aggregates.py calls it. result: the field for its result.
    value, order: the types of its values, and of what they are ordered by; order is None without one. returns: the type of
    the result."""

    function: str
    result: str
    value: str
    order: str | None
    returns: str

    @property
    def way(self) -> Way:
        """How it is computed."""
        return (
            BEST[self.function] if self.order is not None and self.function in BEST else WAYS[self.function]
        )

    @property
    def kept(self) -> str:
        """The type of what is kept."""
        return self.way.kept.format(value=self.value, order=self.order, returns=self.returns)


@dataclass(frozen=True, slots=True)
class Way:
    """How a function is computed row by row. kept: the type of what is kept; null before the first row. add: what is kept
    with one more value, which is given with its order. merge: with that of other rows, which came later; neither is null.
    result: of what is kept, which may be null."""

    kept: str
    add: Add
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]


def _same(kept: Any) -> Any:
    return kept


def _by_twos(choose: Callable[[Any, Any], Any]) -> Way:
    """A function whose results for two values, for the result and a third one, and so on, are its results."""
    return Way(
        "{returns}", lambda kept, value, _: value if kept is None else choose(kept, value), choose, _same
    )


def _of_list(result: Callable[[list[Any]], Any], kept: str = "array<{value}>") -> Way:
    """A function that needs all values."""
    return Way(
        kept,
        lambda kept, value, _: [*(kept or ()), value],
        lambda kept, other: [*kept, *other],
        lambda kept: result(kept or []),
    )


def _of_set(result: Callable[[list[Any]], Any]) -> Way:
    """A function that needs each value once."""
    return Way(
        "array<{value}>",
        lambda kept, value, _: kept if kept is not None and value in kept else [*(kept or ()), value],
        lambda kept, other: [*kept, *(value for value in other if value not in kept)],
        lambda kept: result(kept or []),
    )


def _sortable(order: Any) -> Any:
    """What values are ordered by: of a struct its fields in turn."""
    return tuple(order.values()) if isinstance(order, Mapping) else order


def _best(is_better: Callable[[Any, Any], bool]) -> Way:
    """The value with the least or greatest order."""

    def better(kept: Any, other: Any) -> Any:
        return other if is_better(_sortable(other["o"]), _sortable(kept["o"])) else kept

    def add(kept: Any, value: Any, order: Any) -> Any:
        new = {"o": order, "v": value}
        return new if kept is None else better(kept, new)

    return Way("struct<o:{order},v:{value}>", add, better, lambda kept: None if kept is None else kept["v"])


def _averaged(kept: Any) -> float | None:
    return None if kept is None else float(Decimal(str(kept["s"])) / kept["n"])


def _deviation(values: Sequence[Any]) -> float | None:
    return None if len(values) < 2 else statistics.stdev(map(float, values))


def _correlation(pairs: Sequence[Mapping[str, Any]]) -> float:
    try:
        return statistics.correlation(
            [float(pair["v"]) for pair in pairs], [float(pair["o"]) for pair in pairs]
        )
    except statistics.StatisticsError:
        return math.nan


WAYS: Final[Mapping[str, Way]] = {
    "count": Way("bigint", lambda kept, _value, _order: (kept or 0) + 1, lambda a, b: a + b, lambda kept: kept or 0),
    "sum": _by_twos(lambda a, b: a + b),
    "avg": Way(
        "struct<s:{value},n:bigint>",
        lambda kept, value, _: {"s": value, "n": 1} if kept is None else {"s": kept["s"] + value, "n": kept["n"] + 1},
        lambda a, b: {"s": a["s"] + b["s"], "n": a["n"] + b["n"]},
        _averaged,
    ),
    "min": _by_twos(min),
    "max": _by_twos(max),
    "list": _of_list(_same),
    "set": _of_set(_same),
    "distinct": _of_set(len),
    "any": _by_twos(lambda a, b: a or b),
    "every": _by_twos(lambda a, b: a and b),
    "deviation": _of_list(_deviation),
    "correlation": Way(
        "array<struct<v:double,o:double>>",
        lambda kept, value, order: [*(kept or ()), {"v": float(value), "o": float(order)}],
        lambda kept, other: [*kept, *other],
        lambda kept: _correlation(kept or []),
    ),
}  # fmt: skip
BEST: Final[Mapping[str, Way]] = {"min": _best(lambda a, b: a < b), "max": _best(lambda a, b: a > b)}
"""Functions of a value by an order."""


def sessions(totals: Sequence[Total], windows: Windows, keys: tuple[str, ...]) -> type[Processor]:
    """A processor whose rows are the results of each session when it changes. keys: the fields for the key's values. Its
    rows have a field `v<n>` with the value of each total, and `o<n>` with what it is ordered by."""
    kept = ",".join(f"t{number}:{total.kept}" for number, total in enumerate(totals))
    state = MapState("timestamp", f"struct<last:timestamp,{TOTALS}:struct<{kept}>>")
    state.__set_name__(_Sessions, "kept")
    members = {
        "kept": state,
        "totals": tuple(totals),
        "windows": windows,
        "keys": keys,
        "__module__": __name__,
    }
    return type("Sessions", (_Sessions,), members)


class _Sessions(Processor):
    """The sessions of one key."""

    kept: MapState
    totals: ClassVar[tuple[Total, ...]]
    windows: ClassVar[Windows]
    keys: ClassVar[tuple[str, ...]]

    def init(self) -> None:
        self.pause = self.windows.length_ms * MILLISECOND

    def process(self, row: dict[str, Any]) -> Iterable[dict[str, Any]]:
        at = self.time
        assert at is not None, "sessions go by event time"
        near = sorted(
            start
            for start, session in self.kept.items()
            if start <= at + self.pause
            and at <= session["last"] + self.pause
            and not self._is_over(session["last"])
        )
        if not near and self._is_over(at):
            raise TooLate(f"its session ended at {at + self.pause}, and the event time is {self.watermark}")
        first, last = at, at
        totals: dict[str, Any] = {f"t{number}": None for number in range(len(self.totals))}
        before: list[tuple[datetime, datetime]] = []
        for start in near:
            session = self.kept.pop(start)
            self._forget(session["last"])
            before.append((start, session["last"]))
            first, last = min(first, start), max(last, session["last"])
            totals = self._merged(totals, session[TOTALS])
        self._add(totals, row)
        self.kept[first] = {"last": last, TOTALS: totals}
        self.timers.set(last + self.pause + MILLISECOND)
        for bounds in before:
            if bounds != (first, last):  # otherwise the new result takes its place
                yield self._result(*bounds, None)
        yield self._result(first, last, totals)

    def _is_over(self, last: datetime) -> bool:
        return self.watermark is not None and last + self.pause < self.watermark

    def _forget(self, last: datetime) -> None:
        """Deletes the timer of a session, unless another one ends at the same time."""
        if not any(session["last"] == last for session in self.kept.values()):
            self.timers.delete(last + self.pause + MILLISECOND)

    def _merged(self, totals: dict[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
        merged = {}
        for number, total in enumerate(self.totals):
            ours, theirs = totals[f"t{number}"], others[f"t{number}"]
            both = ours is not None and theirs is not None
            merged[f"t{number}"] = total.way.merge(ours, theirs) if both else theirs if ours is None else ours
        return merged

    def _add(self, totals: dict[str, Any], row: Mapping[str, Any]) -> None:
        for number, total in enumerate(self.totals):
            value, order = row[f"v{number}"], row.get(f"o{number}")
            missing = order if total.order is not None else value
            if missing is not None and (value is not None or total.function in BEST):
                totals[f"t{number}"] = total.way.add(totals[f"t{number}"], value, order)

    def _result(self, first: datetime, last: datetime, totals: Mapping[str, Any] | None) -> dict[str, Any]:
        values = (self.key,) if len(self.keys) == 1 else self.key
        bounds = {
            self.windows.start: first,
            **({self.windows.end: last + self.pause} if self.windows.end else {}),
        }
        results = {
            total.result: None if totals is None else total.way.result(totals[f"t{number}"])
            for number, total in enumerate(self.totals)
        }
        return {**dict(zip(self.keys, values, strict=True)), **bounds, **results, GONE: totals is None}

    def on_timer(self, at: datetime) -> Iterable[dict[str, Any]]:
        for start, session in list(self.kept.items()):
            if session["last"] + self.pause < at:
                del self.kept[start]
        return ()
