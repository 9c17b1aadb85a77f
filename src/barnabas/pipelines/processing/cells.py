"""The state of one key while its rows are processed: read at most once, written once at the end.

Each change notes how to undo it, so that a row whose processing fails leaves no trace. Values are kept as the JSON text of
their types: what user code does with a value that it was given changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any, Final, Protocol, overload

from barnabas.pipelines.plan.processing import State
from barnabas.pipelines.processing.values import Type, type_named


class Store(Protocol):
    """Where the state of the present key is kept. Values and keys of maps are text."""

    def value(self, name: str) -> str | None: ...
    def set_value(self, name: str, text: str | None) -> None: ...
    def entries(self, name: str) -> list[str]: ...
    def set_entries(self, name: str, texts: list[str]) -> None: ...
    def append(self, name: str, texts: list[str]) -> None: ...
    def get(self, name: str, key: str) -> str | None: ...
    def put(self, name: str, key: str, text: str | None) -> None: ...
    def pairs(self, name: str) -> list[tuple[str, str]]: ...
    def timers(self) -> list[int]: ...
    def set_timer(self, at_ms: int) -> None: ...
    def delete_timer(self, at_ms: int) -> None: ...


Undo = list[Callable[[], None]]
_UNREAD: Final = object()


class Cell:
    """One state of the present key."""

    def __init__(self, name: str, state: State, store: Store, undo: Undo) -> None:
        self.name, self.store, self.undo = name, store, undo
        self.type: Type = type_named(state.type)

    def flush(self) -> None:
        """Writes what has changed."""
        raise NotImplementedError


class ValueCell(Cell):
    """A single value."""

    def __init__(self, name: str, state: State, store: Store, undo: Undo) -> None:
        super().__init__(name, state, store, undo)
        self._text: Any = _UNREAD
        self._changed = False

    def _read(self) -> str | None:
        if self._text is _UNREAD:
            self._text = self.store.value(self.name)
        text: str | None = self._text
        return text

    def get(self, default: Any = None) -> Any:
        """The value; the default if there is none."""
        text = self._read()
        return default if text is None else self.type.decode(text)

    def set(self, value: Any) -> None:
        """Keeps a value; None removes it. Raises BadValue."""
        self._put(None if value is None else self.type.encode(value))

    def clear(self) -> None:
        """Removes the value."""
        self._put(None)

    def exists(self) -> bool:
        """Whether there is a value."""
        return self._read() is not None

    def _put(self, text: str | None) -> None:
        before, was = self._text, self._changed

        def back() -> None:
            self._text, self._changed = before, was

        self.undo.append(back)
        self._text, self._changed = text, True

    def flush(self) -> None:
        if self._changed:
            self.store.set_value(self.name, self._text)
            self._changed = False


class ListCell(Cell):
    """A list. To append to a list that is not read costs no reading of it."""

    def __init__(self, name: str, state: State, store: Store, undo: Undo) -> None:
        super().__init__(name, state, store, undo)
        self._kept: tuple[str, ...] | None = None
        self._added: tuple[str, ...] = ()
        self._replaced = False

    def _texts(self) -> tuple[str, ...]:
        if self._kept is None:
            self._kept = tuple(self.store.entries(self.name))
        return self._kept + self._added

    def __iter__(self) -> Iterator[Any]:
        return iter([self.type.decode(text) for text in self._texts()])

    def __len__(self) -> int:
        return len(self._texts())

    def __bool__(self) -> bool:
        return bool(self._texts())

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> list[Any]: ...
    def __getitem__(self, place: int | slice) -> Any:
        text_or_texts = self._texts()[place]
        return (
            self.type.decode(text_or_texts)
            if isinstance(text_or_texts, str)
            else [self.type.decode(t) for t in text_or_texts]
        )

    def append(self, value: Any) -> None:
        """Adds a value at the end. Raises BadValue."""
        self.extend((value,))

    def extend(self, values: Iterable[Any]) -> None:
        """Adds values at the end. Raises BadValue."""
        fresh = tuple(self.type.encode(value) for value in values)
        self._note()
        self._added += fresh

    def set(self, values: Iterable[Any]) -> None:
        """Replaces the list. Raises BadValue."""
        fresh = tuple(self.type.encode(value) for value in values)
        self._note()
        self._kept, self._added, self._replaced = fresh, (), True

    def clear(self) -> None:
        """Removes all values."""
        self.set(())

    def _note(self) -> None:
        before = (self._kept, self._added, self._replaced)

        def back() -> None:
            # What was only read since then may stay unread.
            self._kept, self._added, self._replaced = before

        self.undo.append(back)

    def flush(self) -> None:
        if self._replaced:
            self.store.set_entries(self.name, list(self._texts()))
        elif self._added:
            self.store.append(self.name, list(self._added))
        if self._kept is not None:
            self._kept += self._added
        self._added, self._replaced = (), False


class MapCell(Cell, MutableMapping[Any, Any]):
    """A map. A lookup of one key reads that key only; to iterate reads all."""

    def __init__(self, name: str, state: State, store: Store, undo: Undo) -> None:
        super().__init__(name, state, store, undo)
        assert state.key is not None
        self.key_type: Type = type_named(state.key)
        self._known: dict[str, str | None] = {}
        self._changed: set[str] = set()
        self._whole = False

    def _read(self, key: str) -> str | None:
        if key not in self._known:
            self._known[key] = None if self._whole else self.store.get(self.name, key)
        return self._known[key]

    def _all(self) -> dict[str, str]:
        if not self._whole:
            for key, text in self.store.pairs(self.name):
                self._known.setdefault(key, text)
            self._whole = True
        return {key: text for key, text in sorted(self._known.items()) if text is not None}

    def __getitem__(self, key: Any) -> Any:
        text = self._read(self.key_type.encode(key))
        if text is None:
            raise KeyError(key)
        return self.type.decode(text)

    def __contains__(self, key: Any) -> bool:
        return self._read(self.key_type.encode(key)) is not None

    def __setitem__(self, key: Any, value: Any) -> None:
        self._put(self.key_type.encode(key), self.type.encode(value))

    def __delitem__(self, key: Any) -> None:
        text = self.key_type.encode(key)
        if self._read(text) is None:
            raise KeyError(key)
        self._put(text, None)

    def __iter__(self) -> Iterator[Any]:
        return iter([self.key_type.decode(key) for key in self._all()])

    def __len__(self) -> int:
        return len(self._all())

    def clear(self) -> None:
        """Removes all entries."""
        for key in self._all():
            self._put(key, None)

    def _put(self, key: str, text: str | None) -> None:
        was_known, before = key in self._known, self._known.get(key)
        was_changed = key in self._changed

        def back() -> None:
            if was_known:
                self._known[key] = before
            else:
                self._known[key] = None if self._whole else self.store.get(self.name, key)
            if not was_changed:
                self._changed.discard(key)

        self.undo.append(back)
        self._known[key] = text
        self._changed.add(key)

    def flush(self) -> None:
        for key in sorted(self._changed):
            self.store.put(self.name, key, self._known[key])
        self._changed.clear()


CELLS: Final = {"value": ValueCell, "list": ListCell, "map": MapCell}


class TimerChanges:
    """The timers of the present key, with the changes that are not written yet."""

    def __init__(self, store: Store, undo: Undo) -> None:
        self.store, self.undo = store, undo
        self._wanted: dict[int, bool] = {}

    def change(self, at_ms: int, there: bool) -> None:
        """Sets a timer, or deletes it."""
        before = self._wanted.get(at_ms)

        def back() -> None:
            if before is None:
                self._wanted.pop(at_ms, None)
            else:
                self._wanted[at_ms] = before

        self.undo.append(back)
        self._wanted[at_ms] = there

    def all(self) -> list[int]:
        """The times of all timers that are set, sorted."""
        there = {*self.store.timers(), *(at for at, wanted in self._wanted.items() if wanted)}
        return sorted(at for at in there if self._wanted.get(at, True))

    def flush(self) -> None:
        """Writes what has changed."""
        for at_ms, there in self._wanted.items():
            if there:
                self.store.set_timer(at_ms)
            else:
                self.store.delete_timer(at_ms)
        self._wanted.clear()
