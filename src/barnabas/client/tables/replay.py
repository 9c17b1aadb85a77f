"""How far a topic has been replayed, who waits for how much of it, and the rows that it makes. No I/O, no clock.

All records pass through `Replay`, in the order of the log, each once, and as they were read from the log: an instance's own
are not replayed before they are read back, since another leader may have others at their offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from barnabas.records.units import Offset

log = logging.getLogger("barnabas.client")

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")


class Change(NamedTuple, Generic[K, V]):
    """A record. value: None for a tombstone. raw_key: the key's bytes, if it was read from the log."""

    offset: Offset
    key: K
    value: V | None
    raw_key: bytes | None = None


class Codec(Protocol[K, V]):
    """Keys and values as bytes and back."""

    def decode(self, key: bytes | None, value: bytes | None) -> tuple[K, V | None]:
        """Raises ValueError for a record that cannot be read: it is skipped and logged."""

    def encode(self, key: K, value: V | None) -> tuple[bytes, bytes | None]:
        """The bytes of a record; value None for a tombstone."""


class Replayed(Protocol[K, V]):
    """What the records of a topic make."""

    def replay(self, change: Change[K, V]) -> None:
        """Apply one record. Raises ValueError, having changed nothing, for one that has no meaning."""

    def begin_again(self) -> None:
        """What has been replayed is void: all records come again, perhaps others."""

    def complete(self) -> None:
        """Everything that the topic had when its reading began has been replayed."""


class Replay(Generic[K, V, W]):
    """The position in a topic, and the waiting.

    next_offset: of the first record that has not been replayed.
    beginnings: how often reading has begun again from the topic's start; offsets from before then are invalid.
    """

    def __init__(self, target: Replayed[K, V]) -> None:
        self.next_offset = Offset(0)
        self.beginnings = 0
        self._target = target
        self._end = Offset(0)
        self._is_whole = False
        self._waiting: list[tuple[Offset, W]] = []

    @property
    def is_whole(self) -> bool:
        """Whether everything has been replayed that the topic had when its reading began."""
        return self._is_whole

    def begin(self, start: Offset, end: Offset) -> None:
        """The topic has the offsets from start to end - 1 when its reading begins."""
        self.next_offset, self._end, self._is_whole = start, end, False
        self._note_whole()

    def begin_again(self, start: Offset, end: Offset) -> list[W]:
        """As `begin`, when the records before are not those of the log any more; returns all who waited, in vain."""
        self.beginnings += 1
        self._target.begin_again()
        self.begin(start, end)
        in_vain = [waiter for _, waiter in self._waiting]
        self._waiting.clear()
        return in_vain

    def take(self, changes: Sequence[Change[K, V]], next_offset: Offset) -> list[W]:
        """Replay what has been read up to next_offset; returns who has waited for it."""
        for change in changes:
            try:
                self._target.replay(change)
            except ValueError as error:
                log.error("record cannot be read", extra={"offset": change.offset, "reason": str(error)})
            except Exception:
                log.exception("a record met a bug and is skipped", extra={"offset": change.offset})
        self.next_offset = next_offset
        self._note_whole()
        reached = [waiter for offset, waiter in self._waiting if self._has(offset)]
        self._waiting = [row for row in self._waiting if not self._has(row[0])]
        return reached

    def must_wait(self, offset: Offset, waiter: W) -> bool:
        """Whether something before `offset` is missing; `waiter` is returned later then, by `take` or `begin_again`."""
        if self._has(offset):
            return False
        self._waiting.append((offset, waiter))
        return True

    def _note_whole(self) -> None:
        if not self._is_whole and self.next_offset >= self._end:
            self._is_whole = True
            self._target.complete()

    def _has(self, offset: Offset) -> bool:
        return self._is_whole and self.next_offset >= offset


class Rows(Generic[K, V]):
    """The last value of each key. While the topic is read again, the rows of before are shown.

    shown: keys and values; it is replaced, not emptied, when a second reading is complete.
    """

    def __init__(self) -> None:
        self.shown: dict[K, V] = {}
        self._growing = self.shown

    def replay(self, change: Change[K, V]) -> None:
        """See Replayed."""
        if change.value is None:
            self._growing.pop(change.key, None)
        else:
            self._growing[change.key] = change.value

    def begin_again(self) -> None:
        """See Replayed."""
        self._growing = {}

    def complete(self) -> None:
        """See Replayed."""
        self.shown = self._growing
