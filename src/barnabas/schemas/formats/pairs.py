"""What one comparison of two schemas knows about pairs of their parts, so that each pair is compared once. Pure.

Parts may contain themselves. A pair whose comparison is under way counts as compatible, and whatever was found compatible
on that assumption is forgotten if the assumption turns out to be wrong. This is Tarjan's algorithm for strongly connected
components: a result is final as soon as it depends on no pair that is still under way.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

Row = TypeVar("Row")
ENDLESS: Final = 1 << 60
STEPS_MAX: Final = 300_000
"""How many pairs of parts one comparison compares, or of a type and a default one schema has."""


class OverBudget(Exception):
    """The work would take more steps than are allowed."""


class Steps:
    """Counts steps, of which there may be `limit`; each takes a few microseconds at most."""

    def __init__(self, limit: int) -> None:
        self.left = limit

    def spend(self, count: int = 1) -> None:
        """Raises OverBudget if no steps are left."""
        self.left -= count
        if self.left < 0:
            raise OverBudget


class Pairs(Generic[Row]):
    """The problems of the pairs that have been compared. Call `end` for each `begin` that returns None."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self._cached: dict[Hashable, tuple[list[Row], str]] = {}
        self._index: dict[Hashable, int] = {}
        """When the comparison of a pair began, for pairs whose result is not final."""
        self._begun: list[tuple[Hashable, str, int, int]] = []
        self._assumed: list[Hashable] = []
        """Pairs found compatible by an assumption, in order."""
        self._lowest = ENDLESS
        self._count = 0

    def begin(self, pair: Hashable, path: str) -> tuple[list[Row], str] | None:
        """The problems of a pair and the path where they were found; None if it has to be compared now."""
        problems, index = self._cached.get(pair), self._index.get(pair)
        if index is not None:
            self._lowest = min(self._lowest, index)
            return problems or ([], path)
        if problems is not None:
            return problems
        self.steps.spend()
        self._count += 1
        self._index[pair] = self._count
        self._begun.append((pair, path, self._lowest, len(self._assumed)))
        self._lowest = ENDLESS
        return None

    def end(self, problems: list[Row]) -> list[Row]:
        """Note the problems of the pair that was begun last."""
        pair, path, outer, mark = self._begun.pop()
        if problems or self._lowest >= self._index[pair]:
            for other in self._assumed[mark:]:
                del self._index[other]
                if problems:
                    del self._cached[other]
            del self._assumed[mark:]
            del self._index[pair]
            self._lowest = outer
        else:
            self._assumed.append(pair)
            self._lowest = min(outer, self._lowest)
        self._cached[pair] = (problems, path)
        return problems
