"""Stores as user code sees them, and their declarations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from barnabas.streams.running.run import Run

StoreKind = Literal["key_value", "window", "session", "versioned"]


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """A store. ttl_ms: how long after its last change an entry is kept, by the clock. retention_ms: how long windows and
    versions are kept, by the times of records; None: forever."""

    name: str
    kind: StoreKind = "key_value"
    ttl_ms: int | None = None
    retention_ms: int | None = None


@dataclass
class KeyValueStore:
    """Values by key."""

    spec: StoreSpec
    run: Run

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key."""
        entry = self._fresh(self.run.stores.get(self.spec.name, key))
        return default if entry is None else entry[0]

    def put(self, key: Any, value: Any) -> None:
        """Sets the value of a key; None removes it."""
        kept = None if value is None else [value, self.run.now_ms]
        self.run.stores.put(self.spec.name, key, kept)
        if kept is not None and self.spec.ttl_ms is not None:
            self.run.stores.note(self.spec.name, self.run.now_ms + self.spec.ttl_ms, key)
            for _, old in self.run.stores.due(self.spec.name, self.run.now_ms):
                if self._fresh(self.run.stores.get(self.spec.name, old)) is None:
                    self.run.stores.put(self.spec.name, old, None)

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Sets the value of a key that has none; returns the one that it had."""
        before = self.get(key)
        if before is None:
            self.put(key, value)
        return before

    def delete(self, key: Any) -> Any:
        """Removes the value of a key, and returns it."""
        before = self.get(key)
        self.put(key, None)
        return before

    def items(self) -> Iterator[tuple[Any, Any]]:
        """All keys of this task with their values. Reads the whole state."""
        for key, entry in list(self.run.stores.items(self.spec.name)):
            if self._fresh(entry) is not None:
                yield key, entry[0]

    def range(self, first: Any, last: Any) -> Iterator[tuple[Any, Any]]:
        """The keys from `first` to `last` with their values, sorted. Reads the whole state."""
        for key, value in sorted(self.items(), key=lambda one: one[0]):
            if first <= key <= last:
                yield key, value

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: Any) -> None:
        if self.delete(key) is None:
            raise KeyError(key)

    def __contains__(self, key: Any) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self.items())

    def __len__(self) -> int:
        return sum(1 for _ in self.items())

    def _fresh(self, entry: Any) -> Any:
        ttl = self.spec.ttl_ms
        return None if entry is None or (ttl is not None and self.run.now_ms >= entry[1] + ttl) else entry


@dataclass
class _Timed:
    """Entries of a key by time, and how long they stay."""

    spec: StoreSpec
    run: Run

    def _entries(self, key: Any) -> list[Any]:
        return list(self.run.stores.get(self.spec.name, key) or [])

    def _set(self, key: Any, entries: list[Any], at: int) -> None:
        store, retention = self.spec.name, self.spec.retention_ms
        self.run.stores.put(store, key, entries or None)
        latest = self.run.stores.get(store + "\x1elatest", "")
        latest = at if latest is None else max(at, latest)
        self.run.stores.put(store + "\x1elatest", "", latest)
        if retention is None:
            return
        self.run.stores.note(store, at, key)
        for until, old in self.run.stores.due(store, latest - retention):
            self._forget(old, until)

    def _forget(self, key: Any, until: int) -> None:
        left = [one for one in self._entries(key) if one[0] > until]
        self.run.stores.put(self.spec.name, key, left or None)

    def keys(self) -> list[Any]:
        """All keys of this task. Reads the whole state."""
        return [key for key, _ in self.run.stores.items(self.spec.name)]


class WindowStore(_Timed):
    """Values by key and the start of a window."""

    def put(self, key: Any, value: Any, start: int) -> None:
        """Sets the value of a key's window; None removes it."""
        left = [one for one in self._entries(key) if one[0] != start]
        if value is not None:
            left = sorted([*left, [start, value]], key=lambda one: int(one[0]))
        self._set(key, left, start)

    def fetch(self, key: Any, first: int, last: int | None = None) -> Any:
        """The value of the window that starts at `first`; with `last`, a list of (start, value) from `first` to `last`."""
        if last is None:
            return next((one[1] for one in self._entries(key) if one[0] == first), None)
        return [(one[0], one[1]) for one in self._entries(key) if first <= one[0] <= last]


class SessionStore(_Timed):
    """Values by key and session."""

    def put(self, key: Any, value: Any, start: int, end: int) -> None:
        """Sets the value of a session; None removes it."""
        left = [one for one in self._entries(key) if (one[1], one[0]) != (start, end)]
        if value is not None:
            left = sorted([*left, [end, start, value]], key=lambda one: (one[0], one[1]))
        self._set(key, left, end)

    def remove(self, key: Any, start: int, end: int) -> None:
        """Removes a session."""
        self.put(key, None, start, end)

    def find(self, key: Any, first_end: int, last_start: int) -> list[tuple[int, int, Any]]:
        """(start, end, value) of the sessions that end at `first_end` or later, and start at `last_start` or earlier."""
        sessions = [one for one in self._entries(key) if one[0] >= first_end and one[1] <= last_start]
        return [(start, end, value) for end, start, value in sessions]


class VersionedStore(_Timed):
    """Values by key, each from a time on."""

    def put(self, key: Any, value: Any, at: int) -> None:
        """Sets the value of a key from a time on; None says that it has none from then on."""
        left = [one for one in self._entries(key) if one[0] != at]
        self._set(key, sorted([*left, [at, value]], key=lambda one: int(one[0])), at)

    def _forget(self, key: Any, until: int) -> None:
        entries = self._entries(key)
        begun = sum(one[0] <= until for one in entries)
        self.run.stores.put(self.spec.name, key, entries[max(begun - 1, 0) :] or None)

    def get(self, key: Any, at: int | None = None) -> Any:
        """The value of a key at a time; without one, the newest."""
        versions = [one for one in self._entries(key) if at is None or one[0] <= at]
        return versions[-1][1] if versions else None


VIEWS: dict[str, Any] = {
    "key_value": KeyValueStore,
    "window": WindowStore,
    "session": SessionStore,
    "versioned": VersionedStore,
}
