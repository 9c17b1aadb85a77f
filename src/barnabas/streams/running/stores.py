"""What nodes keep: entries by store and key in a mapping of texts, and what has to be looked at by its time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, MutableMapping
from typing import Any, Final

from barnabas.streams.texts import Classes, text_of, value_of

SEPARATOR: Final = "\x1f"
TIMES: Final = "\x1etimes"
"""After a store's name: that of the entries about its times."""


class Stores:
    """The stores of one task. Keys are any values that `texts` knows; what is put must not be changed afterwards. shown:
    those whose changes are noted."""

    def __init__(self, kept: MutableMapping[str, str], classes: Classes) -> None:
        self.kept = kept
        self.classes = classes
        self.shown: Collection[str] = ()
        self.changed: dict[tuple[str, str], None] = {}

    def get(self, store: str, key: Any) -> Any:
        """What is kept for a key; None if nothing is."""
        found = self.kept.get(f"{store}{SEPARATOR}{text_of(key)}")
        return None if found is None else value_of(found, self.classes)

    def put(self, store: str, key: Any, value: Any) -> None:
        """Keeps a value; None removes it."""
        named = text_of(key)
        name = f"{store}{SEPARATOR}{named}"
        if value is None:
            self.kept.pop(name, None)
        else:
            self.kept[name] = text_of(value)
        if store in self.shown:
            self.changed[store, named] = None

    def changes(self) -> Iterator[tuple[str, str, str | None]]:
        """Store, key and what is kept, as texts, of what has changed in shown stores since the last call."""
        for store, key in self.changed:
            yield store, key, self.kept.get(f"{store}{SEPARATOR}{key}")
        self.changed = {}

    def items(self, store: str) -> Iterator[tuple[Any, Any]]:
        """All keys and what is kept for them, in the order of the keys' texts. Reads the whole state of the task."""
        begin = store + SEPARATOR
        for name in sorted(name for name in self.kept if name.startswith(begin)):
            yield value_of(name[len(begin) :], self.classes), value_of(self.kept[name], self.classes)

    # --- by time ------------------------------------------------------------------------------------------

    def note(self, store: str, at: int, key: Any) -> None:
        """Notes that a key of a store has to be looked at when the time `at` has come."""
        times = self.get(store + TIMES, "") or []
        if at not in times:
            self.put(store + TIMES, "", sorted([*times, at]))
        there = self.get(store + TIMES, at) or []
        if key not in there:
            self.put(store + TIMES, at, [*there, key])

    def due(self, store: str, until: int) -> list[tuple[int, Any]]:
        """Removes and returns what was noted for times up to `until`, in the order of times and then of notes."""
        times = self.get(store + TIMES, "") or []
        found: list[tuple[int, Any]] = []
        reached = [at for at in times if at <= until]
        for at in reached:
            found += [(at, key) for key in self.get(store + TIMES, at) or []]
            self.put(store + TIMES, at, None)
        if reached:
            self.put(store + TIMES, "", times[len(reached) :] or None)
        return found
