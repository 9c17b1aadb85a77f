"""Functions that are called for many records at once, before these are processed one by one: async functions, and functions
of whole batches.

A step with such a function begins a stage, so that all its records of a micro-batch are known when it begins.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.streams.errors import StreamsError
from barnabas.streams.serdes import plain
from barnabas.streams.texts import text_of

Pairs = Sequence[tuple[Any, Any]]
IN_FLIGHT: Final = 32
KEY: Final = "_key"
VALUE: Final = "value"
LIBRARIES: Final = ("arrow", "pandas", "polars")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a function has returned for a record, or raised."""

    value: Any = None
    error: Exception | None = None


@dataclass
class Ahead:
    """A function whose results are there before it is called for a record. call: the user's. now: the present record's."""

    call: Callable[..., Any]
    now: Outcome | None = field(default=None, compare=False, repr=False)

    def ahead(self, pairs: Pairs) -> list[Outcome]:
        """The outcomes for records, in their order. pairs: keys and values."""
        raise NotImplementedError

    def __call__(self, key: Any, value: Any) -> Any:
        outcome, self.now = self.now, None
        assert outcome is not None, "a record came to the function without its stage"
        if outcome.error is not None:
            raise outcome.error
        return outcome.value


# --- async functions ------------------------------------------------------------------------------------


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of this process, in a thread of its own, so that connections of async clients outlive micro-batches."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="async functions", daemon=True).start()
    return loop


@dataclass
class Awaited(Ahead):
    """An async function of key and value. in_flight: how many calls run at the same time; those of one key run one after the
    other."""

    in_flight: int = IN_FLIGHT

    def ahead(self, pairs: Pairs) -> list[Outcome]:
        return asyncio.run_coroutine_threadsafe(self._all(pairs), _loop()).result()

    async def _all(self, pairs: Pairs) -> list[Outcome]:
        free = asyncio.Semaphore(self.in_flight)
        outcomes: list[Outcome] = [Outcome()] * len(pairs)
        by_key: dict[str, list[int]] = {}
        for number, (key, _) in enumerate(pairs):
            by_key.setdefault(text_of(key) if key is not None else f"-{number}", []).append(number)

        async def one_by_one(numbers: list[int]) -> None:
            for number in numbers:
                async with free:
                    try:
                        outcomes[number] = Outcome(await self.call(*pairs[number]))
                    except Exception as error:
                        outcomes[number] = Outcome(error=error)

        await asyncio.gather(*[one_by_one(numbers) for numbers in by_key.values()])
        return outcomes


@dataclass(frozen=True, slots=True)
class LastAwaited:
    """An async function that takes only the value."""

    call: Callable[[Any], Awaitable[Any]]

    async def __call__(self, key: Any, value: Any) -> Any:
        return await self.call(value)


# --- batches --------------------------------------------------------------------------------------------


@dataclass
class Batched(Ahead):
    """A function of a table of values (their fields, or a column `value`) and keys (`_key`); it returns one with as many
    rows, or a column. of: arrow, pandas or polars. size: the most records in a table."""

    of: str = "arrow"
    size: int = 10_000

    def ahead(self, pairs: Pairs) -> list[Outcome]:
        outcomes = [Outcome()] * len(pairs)
        there = [number for number, (_, value) in enumerate(pairs) if value is not None]
        for start in range(0, len(there), self.size):
            piece = there[start : start + self.size]
            for number, outcome in zip(piece, self._some([pairs[i] for i in piece]), strict=True):
                outcomes[number] = outcome
        return outcomes

    def _some(self, pairs: Pairs) -> list[Outcome]:
        """If the function raises, it is called for halves, until only the records for which it does so fail."""
        try:
            values = self._answered_rows(self.call(self._table(pairs)))
            if len(values) != len(pairs):
                raise StreamsError(f"the function returned {len(values)} rows for {len(pairs)} records")
        except Exception as error:
            if len(pairs) == 1:
                return [Outcome(error=error)]
            middle = len(pairs) // 2
            return [*self._some(pairs[:middle]), *self._some(pairs[middle:])]
        return [Outcome(value) for value in values]

    def _table(self, pairs: Pairs) -> Any:
        import pyarrow as pa

        rows = [_fields(value) for _, value in pairs]
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: [row.get(name) for row in rows] for name in names}
        table = pa.table({**columns, KEY: [key for key, _ in pairs]})
        if self.of == "pandas":
            return table.to_pandas()
        if self.of == "polars":
            import polars

            return polars.from_arrow(table)
        return table

    def _answered_rows(self, answer: Any) -> list[Any]:
        import pyarrow as pa

        if hasattr(answer, "to_arrow"):  # of polars
            answer = answer.to_arrow()
        elif type(answer).__name__ == "DataFrame":
            answer = pa.Table.from_pandas(answer, preserve_index=False)
        elif type(answer).__name__ == "Series":
            answer = pa.Array.from_pandas(answer)
        if isinstance(answer, (pa.Array, pa.ChunkedArray)):
            values: list[Any] = answer.to_pylist()
            return values
        if not isinstance(answer, (pa.Table, pa.RecordBatch)):
            raise StreamsError(f"the function returned a {type(answer).__name__}, not a table or a column")
        if KEY in answer.schema.names:
            answer = answer.drop_columns([KEY])
        rows: list[dict[str, Any]] = answer.to_pylist()
        return [row[VALUE] for row in rows] if answer.schema.names == [VALUE] else rows


def _fields(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    try:
        fields = plain(value)
    except TypeError:
        return {VALUE: value}
    return fields if isinstance(fields, dict) else {VALUE: value}
