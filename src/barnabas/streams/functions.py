"""Users' functions, called in one way whatever they take: `lambda v`, `lambda k, v`, `lambda k, v, aggregate`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.streams.ahead import Awaited, LastAwaited
from barnabas.streams.errors import StreamsError


@dataclass(frozen=True, slots=True)
class Last:
    """Calls a function with the last arguments only, as many as it takes."""

    call: Callable[..., Any]
    count: int

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments[-self.count :])


@dataclass(frozen=True, slots=True)
class Swapped:
    """Calls `f(aggregate, value)` where key, value and aggregate are given."""

    call: Callable[..., Any]

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:
        return self.call(aggregate, value)


@dataclass(frozen=True, slots=True)
class Always:
    """A value as a function."""

    value: Any

    def __call__(self) -> Any:
        return self.value


def _count(call: Any, what: str, unknown: int = 1) -> int | None:
    """How many arguments a function needs, or at most takes; None: any number. unknown: of one that does not say."""
    if not callable(call):
        raise StreamsError(f"{what} needs a function, not {call!r:.60}")
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):  # built in, like max
        return unknown
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    needed = [p for p in plain if p.default is p.empty]
    return len(needed) if needed else len(plain)


def of_arguments(call: Any, names: Sequence[str], what: str) -> Callable[..., Any]:
    """The function, to be called with all of these arguments; it may take only the last ones. Raises StreamsError."""
    count = _count(call, what)
    if count is None or count == len(names):
        return call  # type: ignore[no-any-return]
    if not 1 <= count < len(names):
        wanted = " or ".join(
            f"lambda {', '.join(names[start:])}: ..." for start in range(len(names) - 1, -1, -1)
        )
        raise StreamsError(f"the function for {what} takes {count} arguments: write {wanted}")
    return Last(call, count)


def of_pair(call: Any, what: str) -> Callable[[Any, Any], Any]:
    """A function of key and value, or of the value. Raises StreamsError, also for an async one."""
    if is_async(call):
        raise StreamsError(f"{what} takes no async function: await in a step before it, like map_values")
    return of_arguments(call, ("k", "v"), what)


def is_async(call: Any) -> bool:
    """Whether it is an async function, or an object that is called like one."""
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004


def awaited(call: Any, what: str, in_flight: int) -> Awaited:
    """An async function of key and value, or of the value, at most so many calls of which run at the same time. Raises
    StreamsError."""
    if in_flight < 1:
        raise StreamsError(f"in_flight is {in_flight}: it must be at least 1")
    function = of_arguments(call, ("k", "v"), what)
    return Awaited(
        LastAwaited(function.call) if isinstance(function, Last) else function, in_flight=in_flight
    )


def joiner(call: Any, what: str) -> Callable[[Any, Any, Any], Any]:
    """A function of the left and the right value, or of the key and both."""
    if _count(call, what, 2) == 1:
        raise StreamsError(f"the function for {what} takes 1 argument: write lambda left, right: ...")
    if _count(call, what, 2) == 2:
        return Last(call, 2)
    return of_arguments(call, ("key", "left", "right"), what)


def adder(call: Any, what: str) -> Callable[[Any, Any, Any], Any]:
    """A function of key, value and aggregate, or, as Python's own reduce has it, of aggregate and value."""
    count = _count(call, what, 2)
    if count == 2:
        return Swapped(call)
    if count in (3, None):
        return call  # type: ignore[no-any-return]
    raise StreamsError(
        f"the function for {what} takes {count} arguments: write lambda key, value, aggregate: ... "
        "or lambda aggregate, value: ..."
    )


def starter(init: Any) -> Callable[[], Any]:
    """What makes the first aggregate: a function without arguments, or a value."""
    return init if callable(init) else Always(init)
