"""Runs a processor over the rows and timers of one key after the other."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from barnabas.pipelines.plan.processing import State
from barnabas.pipelines.processing.cells import CELLS, Store, TimerChanges, Undo
from barnabas.pipelines.processing.processor import Processor, Timers
from barnabas.pipelines.processing.values import EPOCH, BadValue, type_named

REASON_MAX: Final = 500
OWN: Final = __package__


class StateLost(BaseException):
    """The state cannot be read or written. Not an Exception: user code must not handle it, and it is no fault of a row."""


class Skipped(Exception):
    """Raised by code that wants a row to be dropped, with all that it has changed for it."""


class Stopped(BaseException):
    """Raised by code that wants the pipeline to fail. Not an Exception: it is no fault of a row."""


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """What became of a row or timer: rows that were made of it, or the reason why it failed."""

    rows: tuple[dict[str, Any], ...] = ()
    reason: str | None = None


class Engine:
    """One processor object with the state of one key at a time."""

    def __init__(
        self,
        code: type[Processor],
        states: Mapping[str, State],
        returns: Mapping[str, str | None],
        store: Store,
    ) -> None:
        """returns: a type of None is not checked. store: of the present key, whichever that is."""
        self.processor = code()
        self.processor.timers = Timers()  # its own __init__ need not call that of Processor
        self.states, self.store = states, store
        self.types = {name: None if kind is None else type_named(kind) for name, kind in returns.items()}
        self.finishes = code.finish is not Processor.finish
        self._trusted = code.makes_whole_rows
        self.prepares = code.prepare is not Processor.prepare
        self._undo: Undo = []
        self.processor.init()

    def begin(self, key: Any, now_ms: int, watermark_ms: int | None, *, timed: bool) -> None:
        """Goes to another key. watermark_ms: None if there is none."""
        user = self.processor
        user.key = key
        user.now = EPOCH + timedelta(milliseconds=now_ms)
        user.watermark = None if watermark_ms is None else EPOCH + timedelta(milliseconds=watermark_ms)
        user.cells = {
            name: CELLS[state.kind](name, state, self.store, self._undo)
            for name, state in self.states.items()
        }
        user.timers.changes = TimerChanges(self.store, self._undo) if timed else None

    def process(self, row: dict[str, Any], time: datetime | None = None) -> RowOutcome:
        """Processes a row of the present key. time: its event time, if the step goes by it."""
        self.processor.time = time
        return self._called(self.processor.process, row)

    def fire(self, at_ms: int) -> RowOutcome:
        """Calls the processor for a timer of the present key."""
        self.processor.time = None
        return self._called(self.processor.on_timer, EPOCH + timedelta(milliseconds=at_ms))

    def prepare(self, rows: Sequence[dict[str, Any]]) -> None:
        """Shows the processor all rows of the present key, before it processes them."""
        if self.prepares:
            self.processor.prepare(rows)

    def finish(self) -> RowOutcome:
        """Calls the processor once the rows of the present key have been processed."""
        self.processor.time = None
        return self._called(lambda _: self.processor.finish(), {})

    def end(self) -> None:
        """Writes what has changed for the present key."""
        user = self.processor
        for cell in user.cells.values():
            cell.flush()
        if user.timers.changes is not None:
            user.timers.changes.flush()

    def _called(self, method: Callable[[Any], Any], argument: dict[str, Any] | datetime) -> RowOutcome:
        self._undo.clear()
        try:
            returned = method(argument)
            return RowOutcome(tuple(returned or ()) if self._trusted else tuple(self._checked(returned)))
        except Exception as error:
            for back in reversed(self._undo):
                back()
            return RowOutcome() if isinstance(error, Skipped) else RowOutcome(reason=reason_of(error))

    def _checked(self, returned: Iterable[Mapping[str, Any]] | None) -> Iterator[dict[str, Any]]:
        if returned is None:
            return
        if isinstance(returned, Mapping):
            returned = (returned,)
        for row in returned:
            if not isinstance(row, Mapping):
                raise BadValue(f"{row!r:.80} is a {type(row).__name__}, not a row as a dict")
            if unknown := [str(name) for name in row if name not in self.types]:
                raise BadValue(f"returns does not declare the field {unknown[0]!r}")
            yield {name: self._field(name, row.get(name)) for name in self.types}

    def _field(self, name: str, value: Any) -> Any:
        kind = self.types[name]
        try:
            return value if kind is None else kind.check(value)
        except BadValue as error:
            raise BadValue(f"field {name}: {error}") from None


def reason_of(error: Exception) -> str:
    """What user code raised, in one line with its own place."""
    message = " ".join(str(error).split())
    text = f"{type(error).__name__}: {message}" if message and not isinstance(error, BadValue) else message
    text = text or type(error).__name__
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if f"{OWN.replace('.', '/')}/" not in f.filename
    ]
    place = f" ({frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
    return text[: REASON_MAX - len(place)] + place
