"""Streams and tables as decorators, as people write them who come from Faust or Quix: a function becomes a step.

app = App("shop")

@app.table("people", value=Person)
def names(person: Person) -> str:
    return person.name

@app.stream("orders", value=Order)
def large(order: Order) -> Order | None:
    return order if order.amount > 100 else None      # None: the record is left out

large.join(names, lambda order, name: f"{name} {order.amount}").to("large-orders")
app.run()
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar, overload

from barnabas.streams.dsl import KStream, KTable
from barnabas.streams.errors import StreamsError

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")


def _is_there(key: Any, value: Any) -> bool:
    return value is not None


def _checked(function: Any, what: str) -> None:
    is_async = inspect.iscoroutinefunction(function) and what != "stream"
    if is_async or inspect.isasyncgenfunction(function):
        raise StreamsError(f"{function.__name__} is async: {what} takes plain functions")


class AppStream(KStream[K, V]):
    """A stream that is also a decorator."""

    @overload
    def __call__(self, function: Callable[[V], Iterable[W]]) -> KStream[K, W]: ...
    @overload
    def __call__(self, function: Callable[[K, V], Coroutine[Any, Any, W | None]]) -> KStream[K, W]: ...
    @overload
    def __call__(self, function: Callable[[V], Coroutine[Any, Any, W | None]]) -> KStream[K, W]: ...
    @overload
    def __call__(self, function: Callable[[K, V], W | None]) -> KStream[K, W]: ...
    @overload
    def __call__(self, function: Callable[[V], W | None]) -> KStream[K, W]: ...
    def __call__(self, function: Any) -> KStream[K, Any]:
        """What a function of the value (or of key and value) returns, without None, or all that it yields. It may be async,
        see KStream.map_values."""
        _checked(function, "stream")
        if inspect.isgeneratorfunction(function):
            return self.flat_map_values(function)
        return self.map_values(function).filter(_is_there)


class AppTable(KTable[K, V]):
    """A table that is also a decorator."""

    @overload
    def __call__(self, function: Callable[[K, V], W | None]) -> KTable[K, W]: ...
    @overload
    def __call__(self, function: Callable[[V], W | None]) -> KTable[K, W]: ...
    def __call__(self, function: Any) -> KTable[K, Any]:
        """The table of what a function of the value (or of key and value) returns; None removes the row."""
        _checked(function, "table")
        return self.map_values(function)
