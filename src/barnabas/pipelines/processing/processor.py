"""The class that user code derives from, and the declarations of what it keeps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, overload

from barnabas.pipelines.plan.processing import State
from barnabas.pipelines.processing.cells import Cell, ListCell, MapCell, TimerChanges, ValueCell
from barnabas.pipelines.processing.values import EPOCH, BadType, type_named

AnyCell = TypeVar("AnyCell", bound=Cell)
MILLISECOND: Final = timedelta(milliseconds=1)
DURATION: Final = re.compile(r"\s*(\d+)\s*(second|minute|hour|day|week|millisecond)s?\s*")


def milliseconds(duration: str | timedelta) -> int:
    """A duration like `10 minutes` in milliseconds. Raises ValueError."""
    if isinstance(duration, timedelta):
        return duration // MILLISECOND
    match = DURATION.fullmatch(duration)
    if match is None:
        raise ValueError(f"{duration!r} is not a duration like '10 minutes' or '1 hour'")
    return timedelta(**{f"{match[2]}s": int(match[1])}) // MILLISECOND


class Declared(Generic[AnyCell]):
    """A state that a class declares. In an instance it is the state of the present key."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Processor, owner: type) -> AnyCell: ...
    def __get__(self, instance: Processor | None, owner: type) -> Self | AnyCell:
        if instance is None:
            return self
        cell: AnyCell = instance.cells[self.name]  # type: ignore[assignment]
        return cell


def _declared(kind: Any, type: str, key: str | None, ttl: str | timedelta | None) -> State:
    names = [type_named(name).name for name in (type, key) if name is not None]
    return State(
        kind, names[0], names[1] if key is not None else None, None if ttl is None else milliseconds(ttl)
    )


class ValueState(Declared[ValueCell]):
    """One value for each key: `get(default)`, `set(value)`, `clear()`, `exists()`. ttl: how long after it was set it is
    kept, by the clock."""

    def __init__(self, type: str, ttl: str | timedelta | None = None) -> None:
        super().__init__(_declared("value", type, None, ttl))


class ListState(Declared[ListCell]):
    """A list for each key: iterable, with `len`, indices, `append(value)`, `extend(values)`, `set(values)`, `clear()`. ttl:
    of each value."""

    def __init__(self, type: str, ttl: str | timedelta | None = None) -> None:
        super().__init__(_declared("list", type, None, ttl))


class MapState(Declared[MapCell]):
    """A dict for each key. ttl: of each entry."""

    def __init__(self, key: str, type: str, ttl: str | timedelta | None = None) -> None:
        super().__init__(_declared("map", type, key, ttl))


class Timers:
    """The timers of the present key. A timer has nothing but its time; there is at most one for each millisecond."""

    def __init__(self) -> None:
        self.changes: TimerChanges | None = None

    def _open(self) -> TimerChanges:
        if self.changes is None:
            raise RuntimeError("the step has no timers: give it time: event or time: clock")
        return self.changes

    def set(self, at: datetime) -> None:
        """Calls `on_timer` once, as soon as the time has come."""
        self._open().change(_milliseconds_of(at), True)

    def delete(self, at: datetime) -> None:
        """Deletes the timer of this time, if there is one."""
        self._open().change(_milliseconds_of(at), False)

    def __iter__(self) -> Iterator[datetime]:
        return iter([EPOCH + at * MILLISECOND for at in self._open().all()])

    def __len__(self) -> int:
        return len(self._open().all())

    def clear(self) -> None:
        """Deletes all timers of the key."""
        for at in self._open().all():
            self._open().change(at, False)


def _milliseconds_of(at: datetime) -> int:
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise ValueError(f"a timer needs a datetime with a time zone, not {at!r}")
    return -((EPOCH - at) // MILLISECOND)  # rounded up: a timer is never early


class Processor:
    """User code with state. One object processes many keys; what is to be remembered belongs into states.

    returns: the fields of the rows that it makes, with their types. process: called for each row of the present key, in
    the order of its topic partition. on_timer: called when the time of a timer has come. Both may return or yield rows, as
    dicts. An exception makes a dead letter of the row; the states are then as before it.

    key: the value of the step's `key`; a tuple if it has several. now: the time of the micro-batch, by the clock. watermark:
    how far the event time has come; None if the step has none yet. time: the event time of the row that is
    processed, if the step goes by event time.
    """

    returns: ClassVar[Mapping[str, str]] = {}
    makes_whole_rows: ClassVar[bool] = False
    """Of code of this project: its rows have all fields, with values of their types, and need not be checked."""

    def __init__(self) -> None:
        self.cells: dict[str, Cell] = {}
        self.timers = Timers()
        self.key: Any = None
        self.now: datetime = EPOCH
        self.watermark: datetime | None = None
        self.time: datetime | None = None

    def init(self) -> None:
        """Called once for each object, before the first row."""

    def prepare(self, rows: Sequence[dict[str, Any]]) -> None:
        """Called before the first row of the present key in a micro-batch, with all of them."""

    def process(self, row: dict[str, Any]) -> Iterable[Mapping[str, Any]] | None:
        """Called for each row."""
        raise NotImplementedError(f"{type(self).__name__} has no method process(self, row)")

    def on_timer(self, at: datetime) -> Iterable[Mapping[str, Any]] | None:
        """Called for each timer."""
        return None

    def finish(self) -> Iterable[Mapping[str, Any]] | None:
        """Called once the rows, or a timer, of the present key have been processed in a micro-batch."""
        return None


def declared_states(code: type[Processor]) -> dict[str, State]:
    """The states that a class and those it derives from declare, in order."""
    states: dict[str, State] = {}
    for base in reversed(code.__mro__):
        for name, member in vars(base).items():
            if isinstance(member, Declared):
                states[name] = member.state
    return states


def checked_fields(fields: Mapping[str, str]) -> dict[str, str]:
    """Names and types of fields, as Spark writes them. Raises BadType."""
    for name in fields:
        if not name or name.startswith("_"):
            raise BadType(
                f"a field cannot be called {name!r}: names that begin with an underscore are reserved"
            )
    return {name: type_named(kind).name for name, kind in fields.items()}


def from_function(function: Any, states: Mapping[str, State], returns: Mapping[str, str]) -> type[Processor]:
    """A processor that calls `function(row, me)`; `me` is the processor, with the declared states as attributes."""

    def process(self: Processor, row: dict[str, Any]) -> Any:
        return function(row, self)

    members: dict[str, Any] = {name: Declared(state) for name, state in states.items()}
    members["__module__"] = function.__module__  # which is sent along with the class
    return type(function.__name__, (Processor,), {**members, "process": process, "returns": dict(returns)})
